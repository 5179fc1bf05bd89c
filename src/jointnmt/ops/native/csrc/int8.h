// Linear layers with 8-bit integers: a block of rows is quantised, multiplied and dequantised at a time.

#pragma once

#include "tiles.h"

#if defined(__AVX512VNNI__) || defined(__AVX512BW__) || (defined(__AVX2__) && !defined(__AVX512F__))
#define HAS_INT8_GEMM 1

namespace {

// Rows are multiplied as unsigned integers: `ZERO` is added to each, and undone after the products. Instructions that
// multiply and sum four pairs at once take all 8 bits. Others sum two pairs in 16 bits, which 2 * 127 * 127 does not
// exceed: then rows have 7 bits, from -63 to 63, or from 0 to 127 after a ReLU; weights always have 8.
#if defined(__AVX512VNNI__) || (defined(__AVXVNNI__) && !defined(__AVX512F__))
constexpr int LARGEST = 127, ZERO = 128, ZERO_OF_HIDDEN = 128;
#else
constexpr int LARGEST = 63, ZERO = 64, ZERO_OF_HIDDEN = 0;
#endif
constexpr int LARGEST_OF_HIDDEN = 127;

#ifdef __AVX512F__
constexpr long INT8_TILE = 6;     // rows of a tile: 24 sums in registers
constexpr long INT8_VECTORS = 4;  // of its features
#else
constexpr long INT8_TILE = 5;  // 10 sums
constexpr long INT8_VECTORS = 2;
#endif
constexpr long INT8_PANEL = INT8_VECTORS * LANES;  // features whose weights are stored together
#ifdef HAS_TILES
constexpr long INT8_BLOCK = 4 * SIDE;  // rows of a block
#else
constexpr long INT8_BLOCK = 8 * INT8_TILE;
#endif

typedef uint8_t Unsigned;
typedef uint8_t Bytes __attribute__((vector_size(LANES)));

// Not copied straight into an array: compilers would copy it in halves, and wait for these when they load it whole.
inline Ints load_integers(const void* p) {
    Ints x;
    std::memcpy(&x, p, sizeof x);
    return x;
}

// sums += the products of four unsigned and four signed integers of each lane.
inline Ints add_products(Ints sums, Ints row, Ints weights) {
#if defined(__AVX512VNNI__)
    return (Ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)row, (__m512i)weights);
#elif defined(__AVX512BW__)
    const __m512i pairs = _mm512_maddubs_epi16((__m512i)row, (__m512i)weights);
    return sums + (Ints)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif defined(__AVXVNNI__)
    return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)row, (__m256i)weights);
#else
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)row, (__m256i)weights);
    return sums + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#endif
}

// Rounded to the nearest integers, which lie between 0 and 255.
inline Bytes rounded_bytes(Vector x) {
#ifdef __AVX512F__
    return (Bytes)_mm512_cvtepi32_epi8(_mm512_cvtps_epi32((__m512)x));
#else
    const __m256i words = _mm256_cvtps_epi32((__m256)x);
    const __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    const __m128i bytes = _mm_packus_epi16(halves, halves);
    Bytes out;
    std::memcpy(&out, &bytes, sizeof out);
    return out;
#endif
}

// Weights in the order in which tiles read them, and what dequantises the sums.
struct Int8Weights {
    const int8_t* packed;    // [panels][inputs / 4][PANEL][4]
    const int32_t* sums;     // [features]: of the weights
    const float* scales;     // [features]
    const float* bias;       // [features], or null
    long inputs, features;
};

// weight: [features, inputs].
inline void pack_int8(long features, long inputs, const int8_t* weight, int8_t* packed, int32_t* sums) {
    for (long f = 0; f < features; ++f) {
        int32_t sum = 0;
        int8_t* to = packed + f / INT8_PANEL * INT8_PANEL * inputs + f % INT8_PANEL * 4;
        for (long i = 0; i < inputs; i += 4, to += 4 * INT8_PANEL) std::memcpy(to, weight + f * inputs + i, 4);
        for (long i = 0; i < inputs; ++i) sum += weight[f * inputs + i];
        sums[f] = sum;
    }
}

// The larger magnitudes, compared by their bits, whose order is that of the numbers, NaN being the largest.
inline Ints larger_magnitude(Ints most, Vector value) {
    const Ints bits = (Ints)value & 0x7fffffff;
    return bits > most ? bits : most;
}

// The largest magnitude of a row; NaN if the row has a NaN or an infinity.
inline float magnitude_of(Ints magnitudes) {
    int32_t bits = 0;
    for (long i = 0; i < LANES; ++i) bits = std::max(bits, magnitudes[i]);
    float most;
    std::memcpy(&most, &bits, sizeof most);
    return most + 0.0f * most;
}

// Quantises rows by their scales: integers, plus `zero`.
template <class T>
inline void round_rows(long rows, long width, const T* x, const float* scales, int zero, Unsigned* out) {
    for (long r = 0; r < rows; ++r, x += width, out += width) {
        const float inverse = scales[r] > 0 ? 1 / scales[r] : 0;
        for (long e = 0; e < width; e += LANES) {
            const Bytes bytes = rounded_bytes(load(x + e) * inverse + (float)zero);
            std::memcpy(out + e, &bytes, sizeof bytes);
        }
    }
}

// The same, with scales from the largest magnitude of each row.
template <class T>
inline void quantise_rows(long rows, long width, const T* x, Unsigned* out, float* scales) {
    for (long r = 0; r < rows; ++r) {
        Ints most = {};
        for (long e = 0; e < width; e += LANES) most = larger_magnitude(most, load(x + r * width + e));
        scales[r] = magnitude_of(most) / LARGEST;
    }
    round_rows(rows, width, x, scales, ZERO, out);
}

// Passes a row's sums to done(row, vectors), dequantised and with bias.
template <long V, class Done>
inline void done_with_sums(long row, const Ints* sums, float row_scale, const Int8Weights& w, long feature, Done done) {
    Vector values[V];
    for (long v = 0; v < V; ++v) {
        const Vector scale = load(w.scales + feature + v * LANES) * row_scale;
        const Vector bias = w.bias ? load(w.bias + feature + v * LANES) : Vector{};
        values[v] = multiply_add(bias, __builtin_convertvector(sums[v], Vector), scale);
    }
    done(row, values);
}

// Products of M quantised rows and V vectors of a panel's features, each row passed to done(row, vectors).
template <long M, long V, class Done>
__attribute__((noinline)) void multiply_int8(const Unsigned* x, const float* row_scales, int zero, const Int8Weights& w,
                                             long feature, Done done) {
    Ints held[M][V];
    for (long v = 0; v < V; ++v) {
        const Ints sums = load_integers(w.sums + feature + v * LANES);
        for (long m = 0; m < M; ++m) held[m][v] = -zero * sums;
    }
    const int8_t* panel = w.packed + feature * w.inputs;
    for (long i = 0; i < w.inputs; i += 4) {
        Ints right[V];
        for (long v = 0; v < V; ++v) right[v] = load_integers(panel + i * INT8_PANEL + v * 4 * LANES);
        for (long m = 0; m < M; ++m) {
            int32_t four;
            std::memcpy(&four, x + m * w.inputs + i, sizeof four);
            const Ints left = four - Ints{};
            for (long v = 0; v < V; ++v) held[m][v] = add_products(held[m][v], left, right[v]);
        }
    }
    for (long m = 0; m < M; ++m) done_with_sums<V>(m, held[m], row_scales[m], w, feature, done);
}

template <long M = INT8_TILE, long V = INT8_VECTORS, class Done>
inline void multiply_int8(long rows, long vectors, const Unsigned* x, const float* row_scales, int zero,
                          const Int8Weights& w, long feature, Done done) {
    if constexpr (M > 1)
        if (rows < M) return multiply_int8<M - 1, V>(rows, vectors, x, row_scales, zero, w, feature, done);
    if constexpr (V > 1)
        if (vectors < V) return multiply_int8<M, V - 1>(rows, vectors, x, row_scales, zero, w, feature, done);
    multiply_int8<M, V>(x, row_scales, zero, w, feature, done);
}

#ifdef HAS_TILES
// The same in tiles, for rows of whole ones.
template <long V = INT8_VECTORS, class Done>
inline void multiply_int8(TileRegisters& registers, long rows, long vectors, const Unsigned* x, const float* row_scales,
                          int zero, const Int8Weights& w, long feature, Done done) {
    if constexpr (V > 1)
        if (vectors < V)
            return multiply_int8<V - 1>(registers, rows, vectors, x, row_scales, zero, w, feature, done);
    alignas(ROW) Ints held[2 * SIDE][INT8_VECTORS];
    multiply_tiles(registers, rows, V, x, w.inputs, w.packed + feature * w.inputs, 4 * INT8_PANEL, (int32_t*)held,
                   INT8_PANEL);
    for (long m = 0; m < rows; ++m) {
        for (long v = 0; v < V; ++v) {
            held[m][v] -= zero * load_integers(w.sums + feature + v * LANES);
        }
        done_with_sums<V>(m, held[m], row_scales[m], w, feature, done);
    }
}
#endif

// Quantised rows times weights, plus bias, passed to done(row, feature, vectors from that feature on).
template <class Done>
inline void product_int8(long rows, const Unsigned* x, const float* row_scales, int zero, const Int8Weights& w,
                         Done done) {
#ifdef HAS_TILES
    if (w.inputs % ROW == 0) {
        TileRegisters registers;
        for (long f = 0; f < w.features; f += INT8_PANEL)
            for (long r = 0; r < rows; r += 2 * SIDE)
                multiply_int8(registers, std::min(2 * SIDE, rows - r), std::min(w.features - f, INT8_PANEL) / LANES,
                              x + r * w.inputs, row_scales + r, zero, w, f,
                              [=](long m, const auto& values) { done(r + m, f, values); });
        return;
    }
#endif
    for (long f = 0; f < w.features; f += INT8_PANEL)
        for (long r = 0; r < rows; r += INT8_TILE)
            multiply_int8(std::min(INT8_TILE, rows - r), std::min(w.features - f, INT8_PANEL) / LANES, x + r * w.inputs,
                          row_scales + r, zero, w, f, [=](long m, const auto& values) { done(r + m, f, values); });
}

// The same, stored to `out`.
template <class T>
inline void write_product_int8(long rows, const Unsigned* x, const float* row_scales, int zero, const Int8Weights& w,
                               T* out) {
    product_int8(rows, x, row_scales, zero, w, [=, width = w.features](long row, long feature, const auto& values) {
        T* to = out + row * width + feature;
        for (const Vector& value : values) store(to, value), to += LANES;
    });
}

template <class T>
void linear_int8(long rows, const T* x, const Int8Weights& w, T* out, int threads) {
    share(rows, threads, [=, &w](int, long begin, long end) {
        Buffer<Unsigned> quantised(INT8_BLOCK * w.inputs);
        Buffer<float> scales(INT8_BLOCK);
        for (long r = begin; r < end; r += INT8_BLOCK) {
            const long count = std::min(INT8_BLOCK, end - r);
            quantise_rows(count, w.inputs, x + r * w.inputs, quantised.data(), scales.data());
            write_product_int8(count, quantised.data(), scales.data(), ZERO, w, out + r * w.features);
        }
    });
}

// max(0, x W1 + b1) W2 + b2.
template <class T>
void mlp_int8(long rows, const T* x, const Int8Weights& first, const Int8Weights& second, T* out, int threads) {
    const long embed = first.inputs, ffn = first.features;
    share(rows, threads, [=, &first, &second](int, long begin, long end) {
        const long most_rows = std::min(INT8_BLOCK, end - begin);
        Buffer<Unsigned> quantised(most_rows * std::max(embed, ffn));
        Buffer<float> scales(most_rows), held(most_rows * ffn);
        float* hidden = held.data();
        Ints magnitudes[INT8_BLOCK];  // of hidden rows
        for (long r = begin; r < end; r += INT8_BLOCK) {
            const long count = std::min(INT8_BLOCK, end - r);
            quantise_rows(count, embed, x + r * embed, quantised.data(), scales.data());
            std::fill_n(magnitudes, count, Ints{});
            product_int8(count, quantised.data(), scales.data(), ZERO, first,
                         [=, most = magnitudes](long row, long feature, const auto& values) {
                             float* to = hidden + row * ffn + feature;
                             Ints largest_so_far = most[row];
                             for (Vector value : values) {
                                 value = larger(Vector{}, value);
                                 largest_so_far = larger_magnitude(largest_so_far, value);
                                 store(to, value), to += LANES;
                             }
                             most[row] = largest_so_far;
                         });
            for (long i = 0; i < count; ++i) scales[i] = magnitude_of(magnitudes[i]) / LARGEST_OF_HIDDEN;
            round_rows(count, ffn, hidden, scales.data(), ZERO_OF_HIDDEN, quantised.data());
            write_product_int8(count, quantised.data(), scales.data(), ZERO_OF_HIDDEN, second, out + r * second.features);
        }
    });
}

}  // namespace

#endif
