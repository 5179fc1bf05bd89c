// Matrix products of rows and weights, forward and backward, in blocks of rows: a block stays in the cache from one
// product to the next, and elementwise operations are applied to a result while it is in registers.

#pragma once

#include "layers.h"
#include "tiles.h"

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#define HAS_GEMM 1
#endif

#ifdef HAS_GEMM

namespace {

// Operands of bfloat16 products: pairs of bfloat16 where the processor has fast instructions for these, else float.
#if defined(__AMX_BF16__) || (defined(FAST_BF16_DOT) && defined(__AVX512BF16__))
using Half = BFloat16;
#else
using Half = float;
#endif

template <class T>
using Number = std::conditional_t<std::is_same_v<T, BFloat16>, Half, float>;  // the type of operands of products in T

// Weights of bfloat16 that are multiplied as float: half as many bytes to read. Two vectors of columns lie in one of words,
// the first in its lower halves.
struct Narrow {
    uint16_t bits;
};

template <class T>  // the type of packed weights
using Packed = std::conditional_t<std::is_same_v<T, BFloat16> && std::is_same_v<Half, float>, Narrow, Number<T>>;
template <class N>
constexpr long STEP = std::is_same_v<N, BFloat16> ? 2 : 1;  // terms of a sum that one instruction multiplies

constexpr long WIDTH = LANES / 4;  // vectors of a tile's columns: 24 sums in 32 registers, or 12 in 16
constexpr long TILE = 6;           // rows of a tile
constexpr long PANEL = WIDTH * LANES;  // columns whose weights are stored together, those of a tile: they stay in the
                                       // nearest cache from one tile to the next
constexpr long BLOCK = 16 * TILE;      // rows of a block
#ifdef __AMX_BF16__
template <class T>
constexpr bool IN_TILES = std::is_same_v<T, BFloat16>;
template <class T>  // rows that are multiplied at once
constexpr long ROWS_AT_ONCE = IN_TILES<T> ? 2 * SIDE : TILE;
template <class T>
constexpr long LONG_TILES = IN_TILES<T> ? 8 : 21 * STEP<Number<T>>;
using Registers = TileRegisters;
#else
template <class T>
constexpr long ROWS_AT_ONCE = TILE;
template <class T>
constexpr long LONG_TILES = 21 * STEP<Number<T>>;
struct Registers {};
#endif
template <class T>  // rows of a block in products that sum over rows: its sums are read and written once
constexpr long LONG_BLOCK = LONG_TILES<T> * ROWS_AT_ONCE<T>;
constexpr long SUMMED_ROWS = LANES == 16 ? 4 : TILE;  // rows of a tile of such sums
constexpr long SUMMED_PANEL = SUMMED_ROWS * LANES;    // columns of the operand that has these rows: whole tiles and vectors
constexpr long PART = 1024;  // features of a part of many

// Rows of equal blocks of at most LONG_BLOCK, tiles whole: a short last block would read and write the sums for little.
template <class T>
inline long even_block(long rows) {
    const long blocks = std::max(1L, (rows + LONG_BLOCK<T> - 1) / LONG_BLOCK<T>);
    return (rows + blocks * ROWS_AT_ONCE<T> - 1) / (blocks * ROWS_AT_ONCE<T>) * ROWS_AT_ONCE<T>;
}

template <class T>
struct Matrix {
    const T* data;
    long row, column;  // strides
};

template <long WIDE = PANEL>
inline long padded_to_panels(long columns) {
    return (columns + WIDE - 1) / WIDE * WIDE;
}

// Packs one step of the vector of columns `c`: a row as float or narrow, or two rows as pairs, of which the second may be
// null.
inline void put(Vector x, long, float* out) { store(out, x); }

inline void put(Vector x, long c, Narrow* out) {
    Words words = (Words)x >> 16;
    if (c % (2 * LANES)) {
        std::memcpy(&words, out, sizeof words);
        words |= (Words)x;
    }
    std::memcpy(out, &words, sizeof words);
}

template <class T, class N>
inline void pack_step(const T* row, const T*, long c, N* out) {
    put(load(row), c, out);
}

inline void pack_step(const BFloat16* first, const BFloat16* second, long, BFloat16* out) {
    const Words high = second ? (Words)load(second) : Words{}, both = high | (Words)load(first) >> 16;
    std::memcpy(out, &both, sizeof both);
}

// Packs at most LANES steps of a vector of columns that are contiguous along rows, as in weights read transposed.
template <long WIDE, class T, class N>
inline void pack_steps(const T* from, long column, long steps, long c, N* out) {
    Vector words[LANES] = {};
    for (long lane = 0; lane < LANES; ++lane)
        if constexpr (STEP<N> == 1)
            words[lane] = load(from + lane * column);
        else
            std::memcpy(&words[lane], from + lane * column, 4 * steps);
    transpose(words);
    for (long step = 0; step < steps; ++step)
        if constexpr (STEP<N> == 1)
            put(words[step], c, out + step * WIDE);
        else
            std::memcpy(out + step * STEP<N> * WIDE, &words[step], sizeof words[step]);
}

// Packs a matrix as [panels][steps][WIDE][STEP], the order in which tiles read it, padded with zeros. Either its
// columns or its rows are adjacent in memory; if rows are, their number is a multiple of LANES. Adjacent columns can be
// padded to more rows.
template <long WIDE = PANEL, class T, class N>
inline void pack(const Matrix<T> m, long rows, long columns, N* out, long padded_rows = 0) {
    constexpr long SIZE = STEP<N>, VECTOR = std::is_same_v<N, Narrow> ? 2 * LANES : LANES;
    const long steps = (std::max(rows, padded_rows) + SIZE - 1) / SIZE;
    for (long c = 0; c < columns; c += LANES) {
        const T* from = m.data + c * m.column;
        N* to = out + (c / WIDE * steps * WIDE + c % WIDE / VECTOR * VECTOR) * SIZE;
        if (m.column == 1) {
            for (long r = 0; r < rows; r += SIZE)
                pack_step(from + r * m.row, r + 1 < rows ? from + (r + 1) * m.row : nullptr, c, to + r * WIDE);
            for (long step = (rows + SIZE - 1) / SIZE; step < steps; ++step)
                std::fill_n(to + step * SIZE * WIDE, SIZE * LANES, N{});
        } else
            for (long r = 0; r < rows; r += SIZE * LANES)
                pack_steps<WIDE>(from + r, m.column, std::min(LANES, (rows - r) / SIZE), c, to + r * WIDE);
    }
}

template <class T>
inline std::vector<Packed<T>> packed(const Matrix<T> m, long rows, long columns) {
    std::vector<Packed<T>> out(rows * padded_to_panels(columns));
    pack(m, rows, columns, out.data());
    return out;
}

// Operands in the type in which they are multiplied: in place, or converted into `held`.
inline const float* operands(const float* x, long, std::vector<float>&) { return x; }

inline const Half* operands(const BFloat16* x, long count, std::vector<float>& held) {
    if constexpr (std::is_same_v<Half, BFloat16>) return (const Half*)x;
    held.resize(count);
    for (long i = 0; i < count; i += LANES) store(held.data() + i, load(x + i));
    return (const Half*)held.data();
}

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

// out [rows, V vectors] = addend + at most ROWS_AT_ONCE rows of x, which are `row` apart, times the first vectors of columns of
// a panel.
template <class N, class P, class T>
inline void multiply_rows(Registers&, long rows, long vectors, const N* x, long row, const P* panel, long steps,
                          const Addend addend, T* out, long stride) {
    for (long r = 0; r < rows; r += TILE)
        multiply_part<TILE>(std::min(TILE, rows - r), vectors, x + r * row, row, STEP<N>, panel, steps,
                            addend.at(r, 0), out + r * stride, stride);
}

#ifdef __AMX_BF16__
template <class T>
inline void multiply_rows(Registers& registers, long rows, long vectors, const BFloat16* x, long row,
                          const BFloat16* panel, long steps, const Addend addend, T* out, long stride) {
    if (steps % PAIRS)
        return multiply_rows<BFloat16, BFloat16, T>(registers, rows, vectors, x, row, panel, steps, addend, out, stride);
    alignas(64) float held[ROWS_AT_ONCE<BFloat16> * PANEL];
    float* sums = held;
    long width = PANEL;
    if constexpr (std::is_same_v<T, float>) sums = out, width = stride;
    multiply_tiles(registers, rows, vectors, x, row, panel, PANEL, steps, sums, width);
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
    std::vector<float> held, wide(widens ? w.inputs * PANEL : 0);
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

#ifdef __AMX_BF16__
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

// totals [columns] += the sum of the rows.
template <class T>
inline void add_rows(long rows, long columns, const T* x, float* totals) {
    for (long c = 0; c < columns; c += LANES) {
        Vector sum = {};
        for (long r = 0; r < rows; ++r) sum += load(x + r * columns + c);
        store(totals + c, load(totals + c) + sum);
    }
}

// One array of sums for each thread; the first thread adds to `out` itself.
class Totals {
  public:
    Totals(float* out, long size, int threads) : out(out), size(size), threads(threads), held(size * (threads - 1)) {}

    float* of(int thread) { return thread ? held.data() + (thread - 1) * size : out; }

    void reduce() const {
        if (held.empty()) return;
        share(size / LANES, threads, [this](int, long begin, long end) {
            for (long i = begin * LANES; i < end * LANES; i += LANES) {
                Vector total = load(out + i);
                for (int other = 0; other < threads - 1; ++other) total += load(held.data() + other * size + i);
                store(out + i, total);
            }
        });
    }

  private:
    float* out;
    long size;  // a multiple of LANES
    int threads;
    std::vector<float> held;
};

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
    const T* block(long r, long count, std::vector<T>& held) const {
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
        std::vector<Number<T>> left(LONG_BLOCK<T> * padded_to_panels<SUMMED_PANEL>(features));
        std::vector<Number<T>> right(LONG_BLOCK<T> * padded_to_panels(inputs));
        std::vector<T> held, part(features < stride ? LONG_BLOCK<T> * features : 0);
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
    std::vector<float> sums(rows * inputs);
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
        std::vector<T> passing(hidden ? 0 : std::min(BLOCK, end - begin) * ffn);
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
        std::vector<T> held_x;
        std::vector<T> d_hidden(LONG_BLOCK<T> * ffn);
        std::vector<Number<T>> packed_ffn(LONG_BLOCK<T> * padded_to_panels<SUMMED_PANEL>(ffn));
        std::vector<Number<T>> packed_embed(LONG_BLOCK<T> * padded_to_panels<SUMMED_PANEL>(embed));
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
