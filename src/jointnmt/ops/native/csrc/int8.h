// Linear layers with 8-bit integers: a block of rows is quantised, multiplied and dequantised at a time.

#pragma once

#include "vectors.h"

#ifdef __AVX512VNNI__
#define HAS_INT8_GEMM 1

namespace {

constexpr long INT8_TILE = 6;            // rows of a tile, which has 4 vectors of features: 24 sums in registers
constexpr long INT8_PANEL = 4 * LANES;   // features whose weights are stored together
constexpr long INT8_BLOCK = 8 * INT8_TILE;  // rows of a block

typedef uint8_t Unsigned;

// Weights in the order in which tiles read them, and what dequantises the sums.
struct Int8Weights {
    const int8_t* packed;    // [panels][inputs / 4][PANEL][4]
    const int32_t* offsets;  // [features]: initial values of the sums; they undo the 128 added to rows
    const float* scales;     // [features]
    const float* bias;       // [features], or null
    long inputs, features;
};

// weight: [features, inputs].
inline void pack_int8(long features, long inputs, const int8_t* weight, int8_t* packed, int32_t* offsets) {
    for (long f = 0; f < features; ++f) {
        int32_t sum = 0;
        int8_t* to = packed + f / INT8_PANEL * INT8_PANEL * inputs + f % INT8_PANEL * 4;
        for (long i = 0; i < inputs; i += 4, to += 4 * INT8_PANEL) std::memcpy(to, weight + f * inputs + i, 4);
        for (long i = 0; i < inputs; ++i) sum += weight[f * inputs + i];
        offsets[f] = -128 * sum;
    }
}

// The larger magnitudes, compared by their bits, whose order is that of the numbers, NaN being the largest.
inline __m512i larger_magnitude(__m512i most, Vector value) {
    return _mm512_max_epu32(most, _mm512_and_si512((__m512i)value, _mm512_set1_epi32(0x7fffffff)));
}

// The scale of a quantised row; NaN if the row has a NaN or an infinity.
inline float scale_of(__m512i magnitudes) {
    const uint32_t bits = _mm512_reduce_max_epu32(magnitudes);
    float most;
    std::memcpy(&most, &bits, sizeof most);
    return most / 127 + 0.0f * most;
}

// Quantises rows by their scales: integers from -127 to 127, plus 128.
template <class T>
inline void round_rows(long rows, long width, const T* x, const float* scales, Unsigned* out) {
    for (long r = 0; r < rows; ++r, x += width, out += width) {
        const float inverse = scales[r] > 0 ? 1 / scales[r] : 0;
        for (long e = 0; e < width; e += LANES) {
            const __m512i integers = _mm512_cvtps_epi32((__m512)(load(x + e) * inverse + 128.0f));
            const __m128i bytes = _mm512_cvtepi32_epi8(integers);
            std::memcpy(out + e, &bytes, sizeof bytes);
        }
    }
}

// The same, with scales from the largest magnitude of each row.
template <class T>
inline void quantise_rows(long rows, long width, const T* x, Unsigned* out, float* scales) {
    for (long r = 0; r < rows; ++r) {
        __m512i most = {};
        for (long e = 0; e < width; e += LANES) most = larger_magnitude(most, load(x + r * width + e));
        scales[r] = scale_of(most);
    }
    round_rows(rows, width, x, scales, out);
}

// Products of M quantised rows and V vectors of a panel's features, each row passed to done(row, vectors).
template <long M, long V, class Done>
__attribute__((noinline)) void multiply_int8(const Unsigned* x, const float* row_scales, const Int8Weights& w,
                                             long feature, Done done) {
    Ints held[M][V];
    for (long m = 0; m < M; ++m)
        for (long v = 0; v < V; ++v) std::memcpy(&held[m][v], w.offsets + feature + v * LANES, sizeof held[m][v]);
    const int8_t* panel = w.packed + feature * w.inputs;
    for (long i = 0; i < w.inputs; i += 4) {
        __m512i right[V];
        for (long v = 0; v < V; ++v) right[v] = _mm512_loadu_si512(panel + i * INT8_PANEL + v * 4 * LANES);
        for (long m = 0; m < M; ++m) {
            int32_t four;
            std::memcpy(&four, x + m * w.inputs + i, sizeof four);
            const __m512i left = _mm512_set1_epi32(four);
            for (long v = 0; v < V; ++v) held[m][v] = (Ints)_mm512_dpbusd_epi32((__m512i)held[m][v], left, right[v]);
        }
    }
    for (long m = 0; m < M; ++m) {
        Vector values[V];
        for (long v = 0; v < V; ++v) {
            const Vector scale = load(w.scales + feature + v * LANES) * row_scales[m];
            values[v] = __builtin_convertvector(held[m][v], Vector) * scale;
            if (w.bias) values[v] += load(w.bias + feature + v * LANES);
        }
        done(m, values);
    }
}

template <long M = INT8_TILE, class Done>
inline void multiply_int8(long rows, long vectors, const Unsigned* x, const float* row_scales, const Int8Weights& w,
                          long feature, Done done) {
    if constexpr (M > 1)
        if (rows < M) return multiply_int8<M - 1>(rows, vectors, x, row_scales, w, feature, done);
    switch (vectors) {
        case 1: return multiply_int8<M, 1>(x, row_scales, w, feature, done);
        case 2: return multiply_int8<M, 2>(x, row_scales, w, feature, done);
        case 3: return multiply_int8<M, 3>(x, row_scales, w, feature, done);
        default: return multiply_int8<M, 4>(x, row_scales, w, feature, done);
    }
}

// Quantised rows times weights, plus bias, passed to done(row, feature, vectors from that feature on).
template <class Done>
inline void product_int8(long rows, const Unsigned* x, const float* row_scales, const Int8Weights& w, Done done) {
    for (long f = 0; f < w.features; f += INT8_PANEL)
        for (long r = 0; r < rows; r += INT8_TILE)
            multiply_int8(std::min(INT8_TILE, rows - r), std::min(w.features - f, INT8_PANEL) / LANES, x + r * w.inputs,
                          row_scales + r, w, f, [=](long m, const auto& values) { done(r + m, f, values); });
}

// The same, stored to `out`.
template <class T>
inline void write_product_int8(long rows, const Unsigned* x, const float* row_scales, const Int8Weights& w, T* out) {
    product_int8(rows, x, row_scales, w, [=, width = w.features](long row, long feature, const auto& values) {
        T* to = out + row * width + feature;
        for (const Vector& value : values) store(to, value), to += LANES;
    });
}

template <class T>
void linear_int8(long rows, const T* x, const Int8Weights& w, T* out, int threads) {
    share(rows, threads, [=, &w](int, long begin, long end) {
        std::vector<Unsigned> quantised(INT8_BLOCK * w.inputs);
        std::vector<float> scales(INT8_BLOCK);
        for (long r = begin; r < end; r += INT8_BLOCK) {
            const long count = std::min(INT8_BLOCK, end - r);
            quantise_rows(count, w.inputs, x + r * w.inputs, quantised.data(), scales.data());
            write_product_int8(count, quantised.data(), scales.data(), w, out + r * w.features);
        }
    });
}

// max(0, x W1 + b1) W2 + b2.
template <class T>
void mlp_int8(long rows, const T* x, const Int8Weights& first, const Int8Weights& second, T* out, int threads) {
    const long embed = first.inputs, ffn = first.features;
    share(rows, threads, [=, &first, &second](int, long begin, long end) {
        const long most_rows = std::min(INT8_BLOCK, end - begin);
        std::vector<Unsigned> quantised(most_rows * std::max(embed, ffn));
        std::vector<float> scales(most_rows), held(most_rows * ffn + LANES);
        float* hidden = aligned(held);
        __m512i magnitudes[INT8_BLOCK];  // of hidden rows
        for (long r = begin; r < end; r += INT8_BLOCK) {
            const long count = std::min(INT8_BLOCK, end - r);
            quantise_rows(count, embed, x + r * embed, quantised.data(), scales.data());
            std::fill_n(magnitudes, count, __m512i{});
            product_int8(count, quantised.data(), scales.data(), first,
                         [=, most = magnitudes](long row, long feature, const auto& values) {
                             float* to = hidden + row * ffn + feature;
                             __m512i largest_so_far = most[row];
                             for (Vector value : values) {
                                 value = larger(Vector{}, value);
                                 largest_so_far = larger_magnitude(largest_so_far, value);
                                 store(to, value), to += LANES;
                             }
                             most[row] = largest_so_far;
                         });
            for (long i = 0; i < count; ++i) scales[i] = scale_of(magnitudes[i]);
            round_rows(count, ffn, hidden, scales.data(), quantised.data());
            write_product_int8(count, quantised.data(), scales.data(), second, out + r * second.features);
        }
    });
}

}  // namespace

#endif
