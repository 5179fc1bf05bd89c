// Matrix products of rows by weights, forwards and backwards, block of rows by block: a block stays in the cache from
// one product to the next, and what is done to a result is done before it leaves the registers.

#pragma once

#include "layers.h"

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#define HAS_GEMM 1
#ifndef __AMX_BF16__  // with AMX, the library's products of bfloat16 are the faster ones
#define HAS_BFLOAT16_GEMM 1
#endif
#endif

#ifdef HAS_GEMM

namespace {

// Products of bfloat16 multiply its numbers by pairs where the processor is quick at that, else as float.
#if defined(FAST_BF16_DOT) && defined(__AVX512BF16__)
using Half = BFloat16;
#else
using Half = float;
#endif

template <class T>
using Number = std::conditional_t<std::is_same_v<T, BFloat16>, Half, float>;  // what numbers in T are multiplied as
template <class N>
constexpr long STEP = std::is_same_v<N, BFloat16> ? 2 : 1;  // numbers of a sum that are multiplied at once

constexpr long WIDTH = LANES / 4;  // vectors of a tile's columns: 24 sums in 32 registers, or 12 in 16
constexpr long TILE = 6;           // rows of a tile
constexpr long PANEL = 64;         // columns whose weights lie together
constexpr long BLOCK = 16 * TILE;  // rows of a block
template <class T>                 // of one that sums over its rows: the sums are read and written once for each
constexpr long LONG_BLOCK = 21 * STEP<Number<T>> * TILE;

template <class T>
struct Matrix {
    const T* data;
    long row, column;  // distances
};

inline long whole_panels(long columns) { return (columns + PANEL - 1) / PANEL * PANEL; }

// A step of a vector of columns: one row as float, or two as pairs, of which the second may be null.
template <class T>
inline void lay_step(const T* row, const T*, float* out) {
    store(out, load(row));
}

inline void lay_step(const BFloat16* first, const BFloat16* second, BFloat16* out) {
    const Words high = second ? (Words)load(second) : Words{}, both = high | (Words)load(first) >> 16;
    std::memcpy(out, &both, sizeof both);
}

// At most a vector of steps of a vector of columns whose rows are neighbours, as in weights read transposed.
template <class T, class N>
inline void lay_steps(const T* from, long column, long steps, N* out) {
    Vector words[LANES] = {};
    for (long c = 0; c < LANES; ++c)
        if constexpr (STEP<N> == 1)
            words[c] = load(from + c * column);
        else
            std::memcpy(&words[c], from + c * column, 4 * steps);
    transpose(words);
    for (long step = 0; step < steps; ++step) std::memcpy(out + step * STEP<N> * PANEL, &words[step], sizeof words[step]);
}

// [panels][steps][PANEL][STEP]: as tiles read what they sum over rows; zeros where the matrix ends. Its rows or its
// columns lie together; if its rows do, they are whole vectors.
template <class T>
inline void pack(const Matrix<T> m, long rows, long columns, Number<T>* out) {
    constexpr long SIZE = STEP<Number<T>>;
    const long steps = (rows + SIZE - 1) / SIZE;
    for (long c = 0; c < columns; c += LANES) {
        const T* from = m.data + c * m.column;
        Number<T>* to = out + (c / PANEL * steps * PANEL + c % PANEL) * SIZE;
        if (m.column == 1)
            for (long r = 0; r < rows; r += SIZE)
                lay_step(from + r * m.row, r + 1 < rows ? from + (r + 1) * m.row : nullptr, to + r * PANEL);
        else
            for (long r = 0; r < rows; r += SIZE * LANES)
                lay_steps(from + r, m.column, std::min(LANES, (rows - r) / SIZE), to + r * PANEL);
    }
}

template <class T>
inline std::vector<Number<T>> packed(const Matrix<T> m, long rows, long columns) {
    std::vector<Number<T>> out(rows * whole_panels(columns));
    pack(m, rows, columns, out.data());
    return out;
}

// Numbers as they are multiplied: in place, or in `held`.
inline const float* numbers(const float* x, long, std::vector<float>&) { return x; }

inline const Half* numbers(const BFloat16* x, long count, std::vector<float>& held) {
    if constexpr (std::is_same_v<Half, BFloat16>) return (const Half*)x;
    held.resize(count);
    for (long i = 0; i < count; i += LANES) store(held.data() + i, load(x + i));
    return (const Half*)held.data();
}

// The step of a row that begins here, for all columns; that of a vector's columns; and the sum of both's product.
inline Vector across(const float* x) { return broadcast(*x); }
inline Vector columns(const float* x) { return load(x); }
inline Vector plus(Vector sum, Vector left, Vector right) { return sum + left * right; }

#ifdef __AVX512BF16__
inline __m512bh across(const BFloat16* x) {
    int32_t two;
    std::memcpy(&two, x, sizeof two);
    return (__m512bh)_mm512_set1_epi32(two);
}
inline __m512bh columns(const BFloat16* x) { return (__m512bh)_mm512_loadu_si512(x); }
inline Vector plus(Vector sum, __m512bh left, __m512bh right) {
    return (Vector)_mm512_dpbf16_ps((__m512)sum, left, right);
}
#endif

// What is added to sums: rows at a distance of `stride`, or nothing.
struct Addend {
    const float* data;
    long stride;

    Addend at(long row, long column) const { return {data ? data + row * stride + column : nullptr, stride}; }
};

// out [M, V vectors] = addend + products of M rows of x by the V first vectors of columns of a panel. Rows of x begin at
// a distance of `row`, and the next step of what is summed over lies at a distance of `step`. Not inlined, lest what
// surrounds it take the registers.
template <long M, long V, class N, class T>
__attribute__((noinline)) void multiply(const N* x, long row, long step, const N* panel, long steps, const Addend addend,
                                        T* out, long stride) {
    Vector sums[M][V] = {};
    for (long s = 0; s < steps; ++s) {
        decltype(columns(panel)) right[V];
        for (long v = 0; v < V; ++v) right[v] = columns(panel + (s * PANEL + v * LANES) * STEP<N>);
        for (long m = 0; m < M; ++m) {
            const auto left = across(x + m * row + s * step);
            for (long v = 0; v < V; ++v) sums[m][v] = plus(sums[m][v], left, right[v]);
        }
    }
    for (long m = 0; addend.data && m < M; ++m)
        for (long v = 0; v < V; ++v) sums[m][v] += load(addend.data + m * addend.stride + v * LANES);
    for (long m = 0; m < M; ++m)
        for (long v = 0; v < V; ++v) store(out + m * stride + v * LANES, sums[m][v]);
}

// At most M rows and V vectors.
template <long M, long V = WIDTH, class N, class T>
inline void multiply_part(long rows, long vectors, const N* x, long row, long step, const N* panel, long steps,
                          const Addend addend, T* out, long stride) {
    if constexpr (M > 1)
        if (rows < M) return multiply_part<M - 1, V>(rows, vectors, x, row, step, panel, steps, addend, out, stride);
    if constexpr (V > 1)
        if (vectors < V) return multiply_part<M, V - 1>(rows, vectors, x, row, step, panel, steps, addend, out, stride);
    multiply<M, V>(x, row, step, panel, steps, addend, out, stride);
}

// At most M rows, and a panel's vectors.
template <long M, class N, class T>
inline void multiply_panel(long rows, long vectors, const N* x, long row, long step, const N* panel, long steps,
                           const Addend addend, T* out, long stride) {
    for (long v = 0; v < vectors; v += WIDTH)
        multiply_part<M>(rows, vectors - v, x, row, step, panel + v * LANES * STEP<N>, steps, addend.at(0, v * LANES),
                         out + v * LANES, stride);
}

// A packed matrix [inputs, features], and a bias of the features or null.
template <class T>
struct Weights {
    const Number<T>* packed;
    long inputs, features;
    const float* bias = nullptr;
};

// out = rows of numbers, at most TILE, times the weights of a panel's features.
template <class T, class Out>
inline void multiply_tile(long rows, const Number<T>* x, const Weights<T>& w, long feature, Out* out, long stride) {
    constexpr long SIZE = STEP<Number<T>>;
    const long vectors = std::min(w.features - feature, PANEL) / LANES;
    const Addend addend = Addend{w.bias, 0}.at(0, feature);
    multiply_panel<TILE>(rows, vectors, x, w.inputs, SIZE, w.packed + feature * w.inputs, w.inputs / SIZE, addend, out,
                         stride);
}

// out = x W + bias, of the features from `begin` to `end`, which begin with a panel.
template <class T>
inline void product(long rows, const T* x, const Weights<T>& w, T* out, long begin, long end) {
    std::vector<float> held;
    const auto* left = numbers(x, rows * w.inputs, held);
    for (long f = begin; f < end; f += PANEL)
        for (long r = 0; r < rows; r += TILE)
            multiply_tile(std::min(TILE, rows - r), left + r * w.inputs, w, f, out + r * w.features + f, w.features);
}

template <class T>
inline void product(long rows, const T* x, const Weights<T>& w, T* out) {
    product(rows, x, w, out, 0, w.features);
}

// The same, which calls done(row, feature, vector).
template <class T, class Done>
inline void product_with(long rows, const T* x, const Weights<T>& w, Done done) {
    alignas(64) float sums[TILE * PANEL];
    std::vector<float> held;
    const auto* left = numbers(x, rows * w.inputs, held);
    for (long f = 0; f < w.features; f += PANEL)
        for (long r = 0; r < rows; r += TILE) {
            const long count = std::min(TILE, rows - r), width = std::min(w.features - f, PANEL);
            multiply_tile(count, left + r * w.inputs, w, f, sums, PANEL);
            for (long m = 0; m < count; ++m)
                for (long i = 0; i < width; i += LANES) done(r + m, f + i, load(sums + m * PANEL + i));
        }
}

// totals [rows, columns] += left^T right, both packed, summed over `count` rows of both.
template <class N>
inline void add_products(long count, long rows, long columns, const N* left, const N* right, float* totals) {
    constexpr long M = 4;
    const long steps = (count + STEP<N> - 1) / STEP<N>;
    const Addend addend = {totals, columns};
    for (long c = 0; c < columns; c += PANEL, right += steps * PANEL * STEP<N>)
        for (long r = 0; r < rows; r += M)
            multiply_panel<M>(M, std::min(columns - c, PANEL) / LANES,
                              left + (r / PANEL * steps * PANEL + r % PANEL) * STEP<N>, STEP<N>, PANEL * STEP<N>, right,
                              steps, addend.at(r, c), totals + r * columns + c, columns);
}

// totals [columns] += the sum of the rows.
template <class T>
inline void add_rows(long rows, long columns, const T* x, float* totals) {
    for (long c = 0; c < columns; c += LANES) {
        Vector sum = {};
        for (long r = 0; r < rows; ++r) sum += load(x + r * columns + c);
        store(totals + c, load(totals + c) + sum);
    }
}

// Sums of each thread, those of the first in `out`.
class Totals {
  public:
    Totals(float* out, long size, int threads) : out(out), size(size), threads(threads), held(size * (threads - 1)) {}

    float* of(int thread) { return thread ? held.data() + (thread - 1) * size : out; }

    void settle() const {
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
    long size;  // whole vectors
    int threads;
    std::vector<float> held;
};

// out = x W + bias. Of few rows, each thread computes some of the features, and reads no weights of the others.
template <class T>
inline void linear(long rows, const T* x, const Weights<T>& w, T* out, int threads) {
    const long panels = whole_panels(w.features) / PANEL;
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

// Rows, or the layer norm of rows, computed anew where it is needed instead of being kept.
template <class T>
struct Rows {
    const T* data;
    const float* statistics;  // mean and scale of each row; null: the rows themselves
    const float *weight, *bias;
    long width;

    // A block of them: in place, or in `held`.
    const T* block(long r, long count, std::vector<T>& held) const {
        if (!statistics) return data + r * width;
        held.resize(LONG_BLOCK<T> * width);
        for (long i = 0; i < count; ++i) {
            const float mean = statistics[2 * (r + i)], scale = statistics[2 * (r + i) + 1];
            for (long e = 0; e < width; e += LANES)
                store(held.data() + i * width + e, normed(load(data + (r + i) * width + e), mean, scale, weight + e, bias + e));
        }
        return held.data();
    }
};

// d_x = d_out W, d_weight += d_out^T x, d_bias += sums of d_out, unless it is null.
template <class T>
void linear_backward(long rows, long inputs, long features, const Rows<T>& x, const T* weight, const T* d_out, T* d_x,
                     float* d_weight, float* d_bias, int threads) {
    const auto held = packed<T>({weight, inputs, 1}, features, inputs);
    const Weights<T> weights = {held.data(), features, inputs};
    Totals totals(d_weight, features * inputs, threads), biases(d_bias, d_bias ? features : 0, threads);
    share(rows, threads, [=, &x, &weights, &totals, &biases](int thread, long begin, long end) {
        std::vector<Number<T>> left(LONG_BLOCK<T> * whole_panels(features));
        std::vector<Number<T>> right(LONG_BLOCK<T> * whole_panels(inputs));
        std::vector<T> held;
        for (long r = begin; r < end; r += LONG_BLOCK<T>) {
            const long count = std::min(LONG_BLOCK<T>, end - r);
            const T* d = d_out + r * features;
            product(count, d, weights, d_x + r * inputs);
            if (d_bias) add_rows(count, features, d, biases.of(thread));
            pack<T>({d, features, 1}, count, features, left.data());
            pack<T>({x.block(r, count, held), inputs, 1}, count, inputs, right.data());
            add_products(count, features, inputs, left.data(), right.data(), totals.of(thread));
        }
    });
    totals.settle(), biases.settle();
}

// Where each row of a block has its mask of dropout; null: it has none.
template <class T>
inline const T* const* factors_of(const Broadcast<T>& dropout, long r, long count, std::vector<const T*>& held) {
    if (!dropout.data) return nullptr;
    for (long i = 0; i < count; ++i) held[i] = dropout.row(r + i);
    return held.data();
}

// hidden = dropout * max(0, x W1 + bias), out = hidden W2 + its bias. `hidden` may be null.
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

// The same for W1 [ffn, embed] and W2 [embed, ffn], both transposed.
template <class T>
void mlp_forward(long rows, long embed, long ffn, const T* x, const T* weight1, const float* bias,
                          const Broadcast<T> dropout, const T* weight2, const float* bias2, T* hidden, T* out, int threads) {
    const auto first = packed<T>({weight1, 1, embed}, embed, ffn), second = packed<T>({weight2, 1, ffn}, ffn, embed);
    mlp<T>(rows, x, {first.data(), embed, ffn, bias}, dropout, {second.data(), ffn, embed, bias2}, hidden, out,
           threads);
}

template <class T>
void mlp_backward(long rows, long embed, long ffn, const Rows<T>& x, const T* hidden, const T* weight1,
                           const Broadcast<T> dropout, const T* weight2, const T* d_out, T* d_x, float* d_weight1,
                           float* d_bias, float* d_weight2, float* d_bias2, int threads) {
    const auto held1 = packed<T>({weight1, embed, 1}, ffn, embed), held2 = packed<T>({weight2, ffn, 1}, embed, ffn);
    const Weights<T> first = {held1.data(), ffn, embed}, second = {held2.data(), embed, ffn};
    Totals totals1(d_weight1, ffn * embed, threads), totals2(d_weight2, embed * ffn, threads);
    Totals biases(d_bias, ffn, threads), biases2(d_bias2, embed, threads);
    share(rows, threads, [=, &x, &first, &second, &totals1, &totals2, &biases, &biases2](int thread, long begin, long end) {
        std::vector<const T*> held(LONG_BLOCK<T>);
        std::vector<T> held_x;
        std::vector<T> d_hidden(LONG_BLOCK<T> * ffn);
        std::vector<Number<T>> wide(LONG_BLOCK<T> * whole_panels(ffn)), narrow(LONG_BLOCK<T> * whole_panels(embed));
        for (long r = begin; r < end; r += LONG_BLOCK<T>) {
            const long count = std::min(LONG_BLOCK<T>, end - r);
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
            pack<T>({own_d, embed, 1}, count, embed, narrow.data());
            pack<T>({own, ffn, 1}, count, ffn, wide.data());
            add_products(count, embed, ffn, narrow.data(), wide.data(), totals2.of(thread));
            pack<T>({x.block(r, count, held_x), embed, 1}, count, embed, narrow.data());
            pack<T>({to, ffn, 1}, count, ffn, wide.data());
            add_products(count, ffn, embed, wide.data(), narrow.data(), totals1.of(thread));
        }
    });
    totals1.settle(), totals2.settle(), biases.settle(), biases2.settle();
}

}  // namespace

#endif
