// Products of rows and packed weights, a tile at a time; elementwise operations are applied to a result while it is in
// registers. And sums over rows of such products, for the gradients of weights.

#pragma once

#include "packing.h"

#ifdef HAS_GEMM

namespace {

// One step of a row, broadcast to all columns; one step of vectors of columns; `multiply_add` adds their product to a
// sum.
inline Vector broadcast_step(const float* x) { return broadcast(*x); }

template <long V>
inline void load_step(const float* panel, Vector (&out)[V]) {
    for (long v = 0; v < V; ++v) out[v] = load(panel + v * LANES);
}

template <long V>
inline void load_step(const Narrow* panel, Vector (&out)[V]) {
    for (long v = 0; v < V; v += 2) {
        Words words;
        std::memcpy(&words, panel + v * LANES, sizeof words);
        out[v] = (Vector)(words << 16);
        if (v + 1 < V) out[v + 1] = (Vector)(words & 0xffff0000u);
    }
}

#ifdef __AVX512BF16__
inline __m512bh broadcast_step(const BFloat16* x) {
    int32_t two;
    std::memcpy(&two, x, sizeof two);
    return (__m512bh)_mm512_set1_epi32(two);
}
template <long V>
inline void load_step(const BFloat16* panel, __m512bh (&out)[V]) {
    for (long v = 0; v < V; ++v) out[v] = (__m512bh)_mm512_loadu_si512(panel + v * LANES * 2);
}
inline Vector multiply_add(Vector sum, __m512bh left, __m512bh right) {
    return (Vector)_mm512_dpbf16_ps((__m512)sum, left, right);
}
#endif

// What is added to the products: rows with this stride, or nothing.
struct Addend {
    const float* data;
    long stride;

    Addend at(long row, long column) const { return {data ? data + row * stride + column : nullptr, stride}; }
};

// out [M, V vectors] = addend + M rows of x times the first V vectors of columns of a panel. `row` is the stride of the
// rows of x, `step` that of the steps of the sum. Not inlined, so that all registers are free for it.
template <long M, long V, class N, class P, class T>
__attribute__((noinline)) void multiply(const N* x, long row, long step, const P* panel, long steps,
                                        const Addend addend, T* out, long stride) {
    Vector sums[M][V] = {};
    for (long s = 0; s < steps; ++s) {
        decltype(broadcast_step(x)) right[V];
        load_step(panel + s * PANEL * STEP<N>, right);
        for (long m = 0; m < M; ++m) {
            const auto left = broadcast_step(x + m * row + s * step);
            for (long v = 0; v < V; ++v) sums[m][v] = multiply_add(sums[m][v], left, right[v]);
        }
    }
    for (long m = 0; addend.data && m < M; ++m)
        for (long v = 0; v < V; ++v) sums[m][v] += load(addend.data + m * addend.stride + v * LANES);
    for (long m = 0; m < M; ++m)
        for (long v = 0; v < V; ++v) store(out + m * stride + v * LANES, sums[m][v]);
}

// The same for at most M rows and V vectors.
template <long M, long V = WIDTH, class N, class P, class T>
inline void multiply_part(long rows, long vectors, const N* x, long row, long step, const P* panel, long steps,
                          const Addend addend, T* out, long stride) {
    if constexpr (M > 1)
        if (rows < M) return multiply_part<M - 1, V>(rows, vectors, x, row, step, panel, steps, addend, out, stride);
    if constexpr (V > 1)
        if (vectors < V) return multiply_part<M, V - 1>(rows, vectors, x, row, step, panel, steps, addend, out, stride);
    multiply<M, V>(x, row, step, panel, steps, addend, out, stride);
}

// out [rows, V vectors] = addend + at most ROWS_AT_ONCE rows of x, which are `row` apart, times the first vectors of
// columns of a panel.
template <class N, class P, class T>
inline void multiply_rows(Registers&, long rows, long vectors, const N* x, long row, const P* panel, long steps,
                          const Addend addend, T* out, long stride) {
    for (long r = 0; r < rows; r += TILE)
        multiply_part<TILE>(std::min(TILE, rows - r), vectors, x + r * row, row, STEP<N>, panel, steps,
                            addend.at(r, 0), out + r * stride, stride);
}

#ifdef HAS_TILES
template <class T>
inline void multiply_rows(Registers& registers, long rows, long vectors, const BFloat16* x, long row,
                          const BFloat16* panel, long steps, const Addend addend, T* out, long stride) {
    if (steps % PAIRS)
        return multiply_rows<BFloat16, BFloat16, T>(registers, rows, vectors, x, row, panel, steps, addend, out,
                                                    stride);
    alignas(64) float held[ROWS_AT_ONCE<BFloat16> * PANEL];
    float* sums = held;
    long width = PANEL;
    if constexpr (std::is_same_v<T, float>) sums = out, width = stride;
    multiply_tiles(registers, rows, vectors, x, 2 * row, panel, 4 * PANEL, sums, width);
    if (std::is_same_v<T, float> && !addend.data) return;
    for (long m = 0; m < rows; ++m)
        for (long v = 0; v < vectors; ++v) {
            const Vector sum = load(sums + m * width + v * LANES);
            const float* added = addend.at(m, v * LANES).data;
            store(out + m * stride + v * LANES, added ? sum + load(added) : sum);
        }
}
#endif

// A packed matrix [inputs, features], and a bias [features], which may be null.
template <class T>
struct Weights {
    const Packed<T>* packed;
    long inputs, features;
    const float* bias = nullptr;
};

// Narrow weights of `steps` steps of a panel as float.
inline void widen(const Narrow* panel, long steps, float* out) {
    for (long s = 0; s < steps; ++s, panel += PANEL, out += PANEL) {
        Vector words[WIDTH];
        load_step(panel, words);
        for (long v = 0; v < WIDTH; ++v) store(out + v * LANES, words[v]);
    }
}

// Calls tile(row, count, feature, vectors, multiply) for the tiles of x W + bias, panel by panel from feature `begin`,
// the first of a panel, to `end`; multiply(out, stride) writes a tile's products. Of many rows, narrow weights are widened
// for all tiles.
template <class T, class Tile>
inline void each_tile(long rows, const T* x, const Weights<T>& w, long begin, long end, Tile tile) {
    constexpr long SIZE = STEP<Number<T>>;
    const bool widens = std::is_same_v<Packed<T>, Narrow> && rows > 2 * TILE;
    Buffer<float> held, wide(widens ? w.inputs * PANEL : 0);
    const auto* left = operands(x, rows * w.inputs, held);
    Registers registers;
    const auto panel_of = [&](long f, const auto* panel) {
        const long vectors = std::min(end - f, PANEL) / LANES;
        const Addend addend = Addend{w.bias, 0}.at(0, f);
        for (long r = 0; r < rows; r += ROWS_AT_ONCE<T>) {
            const long count = std::min(ROWS_AT_ONCE<T>, rows - r);
            tile(r, count, f, vectors, [=, &w, &registers](auto* out, long stride) {
                multiply_rows(registers, count, vectors, left + r * w.inputs, w.inputs, panel, w.inputs / SIZE, addend,
                              out, stride);
            });
        }
    };
    for (long f = begin; f < end; f += PANEL) {
        const Packed<T>* panel = w.packed + f * w.inputs;
        if constexpr (std::is_same_v<Packed<T>, Narrow>)
            if (widens) {
                widen(panel, w.inputs, wide.data());
                panel_of(f, (const float*)wide.data());
                continue;
            }
        panel_of(f, panel);
    }
}

// out = x W + bias, for features `begin` to `end`; `begin` is the first of a panel.
template <class T, class Out>
inline void product(long rows, const T* x, const Weights<T>& w, Out* out, long begin, long end) {
    each_tile(rows, x, w, begin, end, [&](long r, long, long f, long, auto multiply) {
        multiply(out + r * w.features + f, w.features);
    });
}

template <class T, class Out>
inline void product(long rows, const T* x, const Weights<T>& w, Out* out) {
    product(rows, x, w, out, 0, w.features);
}

// The same, with each vector of results passed to done(row, feature, vector).
template <class T, class Done>
inline void product_with(long rows, const T* x, const Weights<T>& w, Done done) {
    alignas(64) float sums[ROWS_AT_ONCE<T> * PANEL];
    each_tile(rows, x, w, 0, w.features, [&](long r, long count, long f, long vectors, auto multiply) {
        multiply(sums, PANEL);
        for (long m = 0; m < count; ++m)
            for (long v = 0; v < vectors; ++v) done(r + m, f + v * LANES, load(sums + m * PANEL + v * LANES));
    });
}

// Pack `rows` rows as the left and as the right operand of `add_weight_gradient`.
template <class T>
inline void pack_left(const T* x, long rows, long features, Number<T>* out) {
    pack<SUMMED_PANEL>(Matrix<T>{x, features, 1}, rows, features, out);
}

template <class T>
inline void pack_right(const T* x, long rows, long columns, Number<T>* out) {
    pack<PANEL>(Matrix<T>{x, columns, 1}, rows, columns, out);
}

// totals [rows, columns] += left^T right, both packed, summed over `count` rows of both.
template <class N>
inline void add_weight_gradient(long count, long rows, long columns, const N* left, const N* right, float* totals) {
    constexpr long SIZE = STEP<N>;
    const long steps = (count + SIZE - 1) / SIZE;
    const Addend addend = {totals, columns};
    for (long c = 0; c < columns; c += PANEL, right += steps * PANEL * SIZE)
        for (long r = 0; r < rows; r += SUMMED_ROWS) {
            const N* x = left + (r / SUMMED_PANEL * steps * SUMMED_PANEL + r % SUMMED_PANEL) * SIZE;
            multiply_part<SUMMED_ROWS>(rows - r, std::min(columns - c, PANEL) / LANES, x, SIZE, SUMMED_PANEL * SIZE,
                                       right, steps, addend.at(r, c), totals + r * columns + c, columns);
        }
}

#ifdef HAS_TILES
inline void pack_left(const BFloat16* x, long rows, long features, BFloat16* out) {
    pack_left_tiles(x, rows, features, out);
}

inline void pack_right(const BFloat16* x, long rows, long columns, BFloat16* out) {
    pack<PANEL>(Matrix<BFloat16>{x, columns, 1}, rows, columns, out, padded_to_tiles(rows));
}

inline void add_weight_gradient(long count, long rows, long columns, const BFloat16* left, const BFloat16* right,
                                float* totals) {
    Registers registers;
    add_tiles(registers, count, rows, columns, left, right, PANEL, totals);
}
#endif

}  // namespace

#endif
