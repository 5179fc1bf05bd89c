// Linear layers and feed-forward blocks, forward and backward, in blocks of rows: a block stays in the cache from one
// product to the next.

#pragma once

#include "layers.h"
#include "products.h"

#ifdef HAS_GEMM

namespace {

// totals [columns] += the sum of the rows.
template <class T>
inline void add_rows(long rows, long columns, const T* x, float* totals) {
    for (long c = 0; c < columns; c += LANES) {
        Vector sum = {};
        for (long r = 0; r < rows; ++r) sum += load(x + r * columns + c);
        store(totals + c, load(totals + c) + sum);
    }
}

// out = x W + bias. If there are few rows, threads divide the features, so that each reads its own weights only.
template <class T>
inline void linear(long rows, const T* x, const Weights<T>& w, T* out, int threads) {
    const long panels = padded_to_panels(w.features) / PANEL;
    if (rows <= BLOCK * threads && panels >= 2 * threads)
        return share(panels, threads, [=, &w](int, long begin, long end) {
            product(rows, x, w, out, begin * PANEL, std::min(end * PANEL, w.features));
        });
    share(rows, threads, [=, &w](int, long begin, long end) {
        for (long r = begin; r < end; r += BLOCK)
            product(std::min(BLOCK, end - r), x + r * w.inputs, w, out + r * w.features);
    });
}

// out = x W^T + bias; W is [features, inputs], bias may be null.
template <class T>
void linear_forward(long rows, long inputs, long features, const T* x, const T* weight, const float* bias, T* out,
                    int threads) {
    const auto held = packed<T>({weight, 1, inputs}, inputs, features);
    linear<T>(rows, x, {held.data(), inputs, features, bias}, out, threads);
}

// Rows, or the layer norm of rows, which is recomputed instead of stored.
template <class T>
struct Rows {
    const T* data;
    const float* statistics;  // mean and inverse standard deviation of each row; null: no norm
    const float *weight, *bias;
    long width;

    // A block of rows: in place, or normalised into `held`.
    const T* block(long r, long count, Buffer<T>& held) const {
        if (!statistics) return data + r * width;
        held.resize(LONG_BLOCK<T> * width);
        for (long i = 0; i < count; ++i) {
            const float mean = statistics[2 * (r + i)], scale = statistics[2 * (r + i) + 1];
            for (long e = 0; e < width; e += LANES)
                store(held.data() + i * width + e,
                      normed(load(data + (r + i) * width + e), mean, scale, weight + e, bias + e));
        }
        return held.data();
    }
};

// The same as `linear_backward`, for `features` of `stride` many; `add` adds to the sums d_x, else they are written.
template <class T, class Sum>
void part_backward(long rows, long inputs, long features, long stride, const Rows<T>& x, const T* weight,
                   const T* d_out, Sum* d_x, bool add, float* d_weight, float* d_bias, int threads) {
    const auto packed_weight = packed<T>({weight, inputs, 1}, features, inputs);
    const Weights<T> weights = {packed_weight.data(), features, inputs};
    Totals totals(d_weight, features * inputs, threads), biases(d_bias, d_bias ? features : 0, threads);
    share(rows, threads, [=, &x, &weights, &totals, &biases](int thread, long begin, long end) {
        Buffer<Number<T>> left(LONG_BLOCK<T> * padded_to_panels<SUMMED_PANEL>(features));
        Buffer<Number<T>> right(LONG_BLOCK<T> * padded_to_panels(inputs));
        Buffer<T> held, part(features < stride ? LONG_BLOCK<T> * features : 0);
        for (long r = begin, block = even_block<T>(end - begin); r < end; r += block) {
            const long count = std::min(block, end - r);
            const T* d = d_out + r * stride;
            for (long i = 0; features < stride && i < count; ++i)
                std::copy_n(d_out + (r + i) * stride, features, part.data() + i * features);
            if (features < stride) d = part.data();
            Sum* to = d_x + r * inputs;
            if (add)
                product_with(count, d, weights, [=](long row, long i, Vector sum) {
                    store(to + row * inputs + i, load(to + row * inputs + i) + sum);
                });
            else
                product(count, d, weights, to);
            if (d_bias) add_rows(count, features, d, biases.of(thread));
            pack_left(d, count, features, left.data());
            pack_right(x.block(r, count, held), count, inputs, right.data());
            add_weight_gradient(count, features, inputs, left.data(), right.data(), totals.of(thread));
        }
    });
    totals.reduce(), biases.reduce();
}

// d_x = d_out W, d_weight += d_out^T x, d_bias += column sums of d_out; d_bias may be null. Many features, such as a
// vocabulary, are taken in parts whose weights and gradients stay in the cache.
template <class T>
void linear_backward(long rows, long inputs, long features, const Rows<T>& x, const T* weight, const T* d_out, T* d_x,
                     float* d_weight, float* d_bias, int threads) {
    if (features <= 2 * PART)
        return part_backward(rows, inputs, features, features, x, weight, d_out, d_x, false, d_weight, d_bias, threads);
    Buffer<float> sums(rows * inputs);
    for (long f = 0; f < features; f += PART)
        part_backward(rows, inputs, std::min(PART, features - f), features, x, weight + f * inputs, d_out + f,
                      sums.data(), f > 0, d_weight + f * inputs, d_bias ? d_bias + f : nullptr, threads);
    for (long i = 0; i < rows * inputs; i += LANES) store(d_x + i, load(sums.data() + i));
}

// The dropout mask of each row of a block; null: no dropout.
template <class T>
inline const T* const* factors_of(const Broadcast<T>& dropout, long r, long count, std::vector<const T*>& held) {
    if (!dropout.data) return nullptr;
    for (long i = 0; i < count; ++i) held[i] = dropout.row(r + i);
    return held.data();
}

// hidden = dropout * max(0, x W1 + b1), out = hidden W2 + b2. `hidden` may be null if it is not needed.
template <class T>
void mlp(long rows, const T* x, const Weights<T>& first, const Broadcast<T> dropout, const Weights<T>& second,
         T* hidden, T* out, int threads) {
    const long ffn = first.features;
    share(rows, threads, [=, &first, &second](int, long begin, long end) {
        std::vector<const T*> held(BLOCK);
        Buffer<T> passing(hidden ? 0 : std::min(BLOCK, end - begin) * ffn);
        for (long r = begin; r < end; r += BLOCK) {
            const long count = std::min(BLOCK, end - r);
            const T* const* factors = factors_of(dropout, r, count, held);
            T* own = hidden ? hidden + r * ffn : passing.data();
            product_with(count, x + r * first.inputs, first, [=](long row, long f, Vector value) {
                value = larger(Vector{}, value);
                store(own + row * ffn + f, factors ? value * load(factors[row] + f) : value);
            });
            product(count, own, second, out + r * second.features);
        }
    });
}

// The same with weights as the layers store them: W1 is [ffn, embed], W2 is [embed, ffn].
template <class T>
void mlp_forward(long rows, long embed, long ffn, const T* x, const T* weight1, const float* bias,
                 const Broadcast<T> dropout, const T* weight2, const float* bias2, T* hidden, T* out, int threads) {
    const auto first = packed<T>({weight1, 1, embed}, embed, ffn), second = packed<T>({weight2, 1, ffn}, ffn, embed);
    mlp<T>(rows, x, {first.data(), embed, ffn, bias}, dropout, {second.data(), ffn, embed, bias2}, hidden, out,
           threads);
}

template <class T>
void mlp_backward(long rows, long embed, long ffn, const Rows<T>& x, const T* hidden, const T* weight1,
                  const Broadcast<T> dropout, const T* weight2, const T* d_out, T* d_x, float* d_weight1, float* d_bias,
                  float* d_weight2, float* d_bias2, int threads) {
    const auto held1 = packed<T>({weight1, embed, 1}, ffn, embed), held2 = packed<T>({weight2, ffn, 1}, embed, ffn);
    const Weights<T> first = {held1.data(), ffn, embed}, second = {held2.data(), embed, ffn};
    Totals totals1(d_weight1, ffn * embed, threads), totals2(d_weight2, embed * ffn, threads);
    Totals biases(d_bias, ffn, threads), biases2(d_bias2, embed, threads);
    share(rows, threads, [=, &x, &first, &second, &totals1, &totals2, &biases, &biases2](int thread, long begin,
                                                                                         long end) {
        std::vector<const T*> held(LONG_BLOCK<T>);
        Buffer<T> held_x;
        Buffer<T> d_hidden(LONG_BLOCK<T> * ffn);
        Buffer<Number<T>> packed_ffn(LONG_BLOCK<T> * padded_to_panels<SUMMED_PANEL>(ffn));
        Buffer<Number<T>> packed_embed(LONG_BLOCK<T> * padded_to_panels<SUMMED_PANEL>(embed));
        for (long r = begin, block = even_block<T>(end - begin); r < end; r += block) {
            const long count = std::min(block, end - r);
            const T* const* factors = factors_of(dropout, r, count, held);
            const T *own = hidden + r * ffn, *own_d = d_out + r * embed;
            T* to = d_hidden.data();
            product_with(count, own_d, second, [=](long row, long f, Vector d) {
                d = load(own + row * ffn + f) > Vector{} ? d : Vector{};
                if (factors) d *= load(factors[row] + f);
                store(to + row * ffn + f, d);
            });
            add_rows(count, ffn, to, biases.of(thread));
            add_rows(count, embed, own_d, biases2.of(thread));
            product(count, to, first, d_x + r * embed);
            pack_left(own_d, count, embed, packed_embed.data());
            pack_right(own, count, ffn, packed_ffn.data());
            add_weight_gradient(count, embed, ffn, packed_embed.data(), packed_ffn.data(), totals2.of(thread));
            pack_right(x.block(r, count, held_x), count, embed, packed_embed.data());
            pack_left(to, count, ffn, packed_ffn.data());
            add_weight_gradient(count, ffn, embed, packed_ffn.data(), packed_embed.data(), totals1.of(thread));
        }
    });
    totals1.reduce(), totals2.reduce(), biases.reduce(), biases2.reduce();
}

}  // namespace

#endif
