// The residual connection with layer norm, bias with ReLU, and dropout masks.

#pragma once

#include "vectors.h"

namespace {

// A tensor that is broadcast along axes of the grid [B, S, T, features], such as a dropout mask.
template <class T>
struct Broadcast {
    const T* data;  // null: none
    long s, t;      // sizes of the grid [B, S, T]
    long by_b, by_s, by_t;

    const T* row(uint32_t cell) const {
        const uint32_t line = cell / (uint32_t)t, b = line / (uint32_t)s;
        return data + b * by_b + (line - b * (uint32_t)s) * by_s + (cell - line * (uint32_t)t) * by_t;
    }
};

// Layer norm of features of a row with this mean; `scale` is the inverse of its standard deviation.
inline Vector normed(Vector x, float mean, float scale, const float* weight, const float* bias) {
    return (x - mean) * scale * load(weight) + load(bias);
}

// x + dropout * (update + update_bias), and the layer norm of that, if `out` is not null.
template <class T>
void add_norm_forward(long rows, long width, const T* x, const T* update, const float* update_bias,
                      const Broadcast<T> dropout, const float* weight, const float* bias, T* sum_out, T* out,
                      float* statistics, int threads) {
    share(rows, threads, [=](int, long begin, long end) {
        Buffer<float> held(width);
        float* row = held.data();
        for (long r = begin; r < end; ++r) {
            const T* factors = update && dropout.data ? dropout.row(r) : nullptr;
            Vector total = {};
            for (long e = 0; e < width; e += LANES) {
                Vector value = load(x + r * width + e);
                if (update) {
                    Vector u = load(update + r * width + e);
                    if (update_bias) u += load(update_bias + e);
                    if (factors) u *= load(factors + e);
                    value = rounded(value + u, x);  // the norm is of the rounded sum, as it is stored
                    store(sum_out + r * width + e, value);
                }
                store(row + e, value);
                total += value;
            }
            if (!out) continue;
            const float mean = sum(total) / width;
            Vector squares = {};
            for (long e = 0; e < width; e += LANES) {
                const Vector centred = load(row + e) - mean;
                squares += centred * centred;
            }
            const float scale = 1.0f / std::sqrt(sum(squares) / width + 1e-5f);
            for (long e = 0; e < width; e += LANES)
                store(out + r * width + e, normed(load(row + e), mean, scale, weight + e, bias + e));
            if (statistics) statistics[2 * r] = mean, statistics[2 * r + 1] = scale;
        }
    });
}

// gradients: [2, width], of weight and bias. d_update_bias is null if there is no such bias, d_x if it is not needed.
template <class T>
void add_norm_backward(long rows, long width, const T* x, const float* statistics, const Broadcast<T> dropout,
                       const float* weight, const T* d_sum, const T* d_normed, T* d_x, T* d_update,
                       float* gradients, float* d_update_bias, int threads) {
    Totals of_norm(gradients, d_normed ? 2 * width : 0, threads);
    Totals of_bias(d_update_bias, d_update_bias ? width : 0, threads);
    share(rows, threads, [=, &of_norm, &of_bias](int thread, long begin, long end) {
        float *totals = of_norm.of(thread), *biases = of_bias.of(thread);
        for (long r = begin; r < end; ++r) {
            const float mean = d_normed ? statistics[2 * r] : 0, scale = d_normed ? statistics[2 * r + 1] : 0;
            const T* factors = d_update && dropout.data ? dropout.row(r) : nullptr;
            Vector along = {}, even = {};
            for (long e = 0; d_normed && e < width; e += LANES) {
                const Vector d = load(d_normed + r * width + e), hat = (load(x + r * width + e) - mean) * scale;
                store(totals + e, load(totals + e) + d * hat);
                store(totals + width + e, load(totals + width + e) + d);
                along += d * load(weight + e) * hat;
                even += d * load(weight + e);
            }
            const float mean_along = sum(along) / width, mean_even = sum(even) / width;
            for (long e = 0; e < width; e += LANES) {
                Vector d = {};
                if (d_normed) {
                    const Vector hat = (load(x + r * width + e) - mean) * scale;
                    d = (load(d_normed + r * width + e) * load(weight + e) - mean_even - hat * mean_along) * scale;
                }
                if (d_sum) d += load(d_sum + r * width + e);
                if (d_x) store(d_x + r * width + e, d);
                if (d_update) {
                    if (factors) d *= load(factors + e);
                    store(d_update + r * width + e, d);
                    if (d_update_bias) store(biases + e, load(biases + e) + d);
                }
            }
        }
    });
    of_norm.reduce(), of_bias.reduce();
}

// dropout * max(0, x + bias), in place.
template <class T>
void bias_relu_forward(long rows, long width, T* x, const float* bias, const Broadcast<T> dropout, int threads) {
    share(rows, threads, [=](int, long begin, long end) {
        for (long r = begin; r < end; ++r) {
            const T* factors = dropout.data ? dropout.row(r) : nullptr;
            for (long e = 0; e < width; e += LANES) {
                Vector value = larger(Vector{}, load(x + r * width + e) + load(bias + e));
                if (factors) value *= load(factors + e);
                store(x + r * width + e, value);
            }
        }
    });
}

template <class T>
void bias_relu_backward(long rows, long width, const T* result, T* gradient, const Broadcast<T> dropout, float* d_bias,
                        int threads) {
    Totals biases(d_bias, width, threads);
    share(rows, threads, [=, &biases](int thread, long begin, long end) {
        float* totals = biases.of(thread);
        for (long r = begin; r < end; ++r) {
            const T* factors = dropout.data ? dropout.row(r) : nullptr;
            for (long e = 0; e < width; e += LANES) {
                Vector d = load(gradient + r * width + e);
                d = load(result + r * width + e) > Vector{} ? d : Vector{};
                if (factors) d *= load(factors + e);
                store(gradient + r * width + e, d);
                store(totals + e, load(totals + e) + d);
            }
        }
    });
    biases.reduce();
}

// A dropout mask: 0 with probability `rate`, else 1 / (1 - rate); a pure function of seed and index.
inline uint64_t mixed(uint64_t x) {  // SplitMix64 (Steele, Lea, Flood 2014)
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

template <class T>
void fill_dropout_mask(long count, double rate, uint64_t seed, T* out, int threads) {
    const uint32_t limit = (uint32_t)std::min(rate * 4294967296.0, 4294967295.0);
    const T kept = converted((float)(1 / (1 - rate)), out), dropped = converted(0, out);
    share((count + 1) / 2, threads, [&](int, long begin, long end) {
        for (long i = begin; i < end; ++i) {
            const uint64_t bits = mixed(seed + (uint64_t)(i + 1) * 0x9e3779b97f4a7c15ull);
            out[2 * i] = (uint32_t)bits < limit ? dropped : kept;
            if (2 * i + 1 < count) out[2 * i + 1] = (uint32_t)(bits >> 32) < limit ? dropped : kept;
        }
    });
}

}  // namespace
