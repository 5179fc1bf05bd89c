// Linear layers of 8-bit integers: rows become integers, are multiplied, and become numbers again, block by block.

#pragma once

#include "vectors.h"

#ifdef __AVX512VNNI__
#define HAS_INT8_PRODUCTS 1

namespace {

constexpr long INT8_TILE = 6;            // rows of a tile, which has 4 vectors of features: 24 sums in registers
constexpr long INT8_PANEL = 4 * LANES;   // features whose weights lie together
constexpr long INT8_BLOCK = 8 * INT8_TILE;  // rows of a block

typedef uint8_t Unsigned;

// Weights as tiles read them, and what makes numbers of the sums.
struct Int8Weights {
    const int8_t* packed;    // [panels][inputs / 4][PANEL][4]
    const int32_t* offsets;  // [features]: what sums begin with, as rows are integers plus 128
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

// Each row as integers from -127 to 127, plus 128, and what one of them is worth.
template <class T>
inline void quantise_rows(long rows, long width, const T* x, Unsigned* out, float* scales) {
    for (long r = 0; r < rows; ++r, x += width, out += width) {
        Vector most = {}, strange = {};  // the latter is 0, or no number if one of the row is none
        for (long e = 0; e < width; e += LANES) {
            const Vector value = load(x + e);
            most = larger(most, (Vector)_mm512_abs_ps((__m512)value));
            strange += 0.0f * value;
        }
        const float scale = largest(most) / 127 + sum(strange);
        scales[r] = scale;
        const float inverse = scale > 0 ? 1 / scale : 0;
        for (long e = 0; e < width; e += LANES) {
            const __m512i integers = _mm512_cvtps_epi32((__m512)(load(x + e) * inverse + 128.0f));
            const __m128i bytes = _mm512_cvtepi32_epi8(integers);
            std::memcpy(out + e, &bytes, sizeof bytes);
        }
    }
}

// sums [M, PANEL]: products of M rows by the V first vectors of features of a panel.
template <long M, long V>
__attribute__((noinline)) void multiply_int8(const Unsigned* x, long inputs, const int8_t* panel, const int32_t* offsets,
                                             int32_t* sums) {
    Ints held[M][V];
    for (long m = 0; m < M; ++m)
        for (long v = 0; v < V; ++v) std::memcpy(&held[m][v], offsets + v * LANES, sizeof held[m][v]);
    for (long i = 0; i < inputs; i += 4) {
        __m512i right[V];
        for (long v = 0; v < V; ++v) right[v] = _mm512_loadu_si512(panel + i * INT8_PANEL + v * 4 * LANES);
        for (long m = 0; m < M; ++m) {
            int32_t four;
            std::memcpy(&four, x + m * inputs + i, sizeof four);
            const __m512i left = _mm512_set1_epi32(four);
            for (long v = 0; v < V; ++v) held[m][v] = (Ints)_mm512_dpbusd_epi32((__m512i)held[m][v], left, right[v]);
        }
    }
    for (long m = 0; m < M; ++m)
        for (long v = 0; v < V; ++v) std::memcpy(sums + m * INT8_PANEL + v * LANES, &held[m][v], sizeof held[m][v]);
}

template <long M = INT8_TILE>
inline void multiply_int8(long rows, long vectors, const Unsigned* x, long inputs, const int8_t* panel,
                          const int32_t* offsets, int32_t* sums) {
    if constexpr (M > 1)
        if (rows < M) return multiply_int8<M - 1>(rows, vectors, x, inputs, panel, offsets, sums);
    switch (vectors) {
        case 1: return multiply_int8<M, 1>(x, inputs, panel, offsets, sums);
        case 2: return multiply_int8<M, 2>(x, inputs, panel, offsets, sums);
        case 3: return multiply_int8<M, 3>(x, inputs, panel, offsets, sums);
        default: return multiply_int8<M, 4>(x, inputs, panel, offsets, sums);
    }
}

// Quantised rows times weights: calls done(row, feature, vector).
template <class Done>
inline void product_int8(long rows, const Unsigned* x, const float* row_scales, const Int8Weights& w, Done done) {
    alignas(64) int32_t sums[INT8_TILE * INT8_PANEL];
    for (long f = 0; f < w.features; f += INT8_PANEL) {
        const long vectors = std::min(w.features - f, INT8_PANEL) / LANES;
        for (long r = 0; r < rows; r += INT8_TILE) {
            const long count = std::min(INT8_TILE, rows - r);
            multiply_int8(count, vectors, x + r * w.inputs, w.inputs, w.packed + f * w.inputs, w.offsets + f, sums);
            for (long v = 0; v < vectors; ++v) {
                const Vector scale = load(w.scales + f + v * LANES);
                const Vector bias = w.bias ? load(w.bias + f + v * LANES) : Vector{};
                for (long m = 0; m < count; ++m) {
                    Ints total;
                    std::memcpy(&total, sums + m * INT8_PANEL + v * LANES, sizeof total);
                    done(r + m, f + v * LANES, __builtin_convertvector(total, Vector) * (scale * row_scales[r + m]) + bias);
                }
            }
        }
    }
}

template <class T>
void linear_int8(long rows, const T* x, const Int8Weights& w, T* out, int threads) {
    share(rows, threads, [=, &w](int, long begin, long end) {
        std::vector<Unsigned> quantised(INT8_BLOCK * w.inputs);
        std::vector<float> scales(INT8_BLOCK);
        for (long r = begin; r < end; r += INT8_BLOCK) {
            const long count = std::min(INT8_BLOCK, end - r);
            quantise_rows(count, w.inputs, x + r * w.inputs, quantised.data(), scales.data());
            T* to = out + r * w.features;
            product_int8(count, quantised.data(), scales.data(), w,
                         [=, &w](long row, long f, Vector value) { store(to + row * w.features + f, value); });
        }
    });
}

// max(0, x W1 + b1) W2 + b2.
template <class T>
void feed_forward_int8(long rows, const T* x, const Int8Weights& first, const Int8Weights& second, T* out, int threads) {
    share(rows, threads, [=, &first, &second](int, long begin, long end) {
        std::vector<Unsigned> quantised(INT8_BLOCK * std::max(first.inputs, second.inputs));
        std::vector<float> scales(INT8_BLOCK), held(INT8_BLOCK * first.features + LANES);
        float* hidden = aligned(held);
        for (long r = begin; r < end; r += INT8_BLOCK) {
            const long count = std::min(INT8_BLOCK, end - r);
            quantise_rows(count, first.inputs, x + r * first.inputs, quantised.data(), scales.data());
            product_int8(count, quantised.data(), scales.data(), first, [=, &first](long row, long f, Vector value) {
                store(hidden + row * first.features + f, larger(Vector{}, value));
            });
            quantise_rows(count, second.inputs, hidden, quantised.data(), scales.data());
            T* to = out + r * second.features;
            product_int8(count, quantised.data(), scales.data(), second,
                         [=, &second](long row, long e, Vector value) { store(to + row * second.features + e, value); });
        }
    });
}

}  // namespace

#endif
