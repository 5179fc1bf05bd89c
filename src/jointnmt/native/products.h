// Matrix products of bfloat16 rows by weights, forwards and backwards, block of rows by block: a block stays in the
// cache from one product to the next, and what is done to a result is done before it leaves the registers.

#pragma once

#include "layers.h"

#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)  // with AMX, the library's products are the faster ones
#define HAS_PRODUCTS 1

namespace {

constexpr long TILE = 6;            // rows of a tile, which has 4 vectors of columns: 24 sums in registers
constexpr long PANEL = 4 * LANES;   // columns whose weights lie together
constexpr long BLOCK = 16 * TILE;   // rows of a block
constexpr long LONG_BLOCK = 42 * TILE;  // of one that sums over its rows: the sums are read and written once for each

struct Matrix {
    const BFloat16* data;
    long row, column;  // distances
};

inline long whole_panels(long columns) { return (columns + PANEL - 1) / PANEL * PANEL; }

// Two rows of 16 columns as one of pairs.
inline void interleave(const BFloat16* first, const BFloat16* second, BFloat16* out) {
    const Words high = second ? (Words)load(second) : Words{}, both = high | (Words)load(first) >> 16;
    std::memcpy(out, &both, sizeof both);
}

// At most 16 pairs of rows of 16 columns whose rows are neighbours, as in weights read transposed.
inline void turn(const BFloat16* from, long column, long pairs, BFloat16* out) {
    Vector words[LANES] = {};
    for (long c = 0; c < LANES; ++c) std::memcpy(&words[c], from + c * column, 4 * pairs);
    transpose(words);
    for (long pair = 0; pair < pairs; ++pair) std::memcpy(out + pair * 2 * PANEL, &words[pair], sizeof words[pair]);
}

// [panels][rows / 2][PANEL][2]: as tiles read what they sum over rows; zeros where the matrix ends. Its rows or its
// columns lie together; if its rows do, their number is even.
inline void pack(const Matrix m, long rows, long columns, BFloat16* out) {
    const long pairs = (rows + 1) / 2;
    for (long c = 0; c < columns; c += LANES) {
        const BFloat16* from = m.data + c * m.column;
        BFloat16* to = out + c / PANEL * pairs * 2 * PANEL + c % PANEL * 2;
        if (m.column == 1)
            for (long r = 0; r < rows; r += 2)
                interleave(from + r * m.row, r + 1 < rows ? from + (r + 1) * m.row : nullptr, to + r * PANEL);
        else
            for (long r = 0; r < rows; r += 2 * LANES)
                turn(from + r, m.column, std::min(LANES, (rows - r) / 2), to + r * PANEL);
    }
}

inline std::vector<BFloat16> packed(const Matrix m, long rows, long columns) {
    std::vector<BFloat16> out((rows + 1) / 2 * 2 * whole_panels(columns));
    pack(m, rows, columns, out.data());
    return out;
}

// What sums begin with: rows at a distance of `stride`, or nothing.
struct Start {
    const float* data;
    long stride;

    Start at(long row, long column) const { return {data ? data + row * stride + column : nullptr, stride}; }
};

// out [M, V vectors] = start + products of M rows of x by the V first vectors of columns of a panel. Rows of x begin at
// a distance of `row`, and the next two of what is summed over lie at a distance of `pair`. Not inlined, lest what
// surrounds it take the registers.
template <long M, long V, class T>
__attribute__((noinline)) void multiply(const BFloat16* x, long row, long pair, const BFloat16* panel, long pairs,
                                        const Start start, T* out, long stride) {
    Vector sums[M][V] = {};
    for (long m = 0; start.data && m < M; ++m)
        for (long v = 0; v < V; ++v) sums[m][v] = load(start.data + m * start.stride + v * LANES);
    for (long p = 0; p < pairs; ++p) {
        __m512bh right[V];
        for (long v = 0; v < V; ++v) right[v] = (__m512bh)_mm512_loadu_si512(panel + p * 2 * PANEL + v * 2 * LANES);
        for (long m = 0; m < M; ++m) {
            int32_t two;
            std::memcpy(&two, x + m * row + p * pair, sizeof two);
            const __m512bh left = (__m512bh)_mm512_set1_epi32(two);
            for (long v = 0; v < V; ++v) sums[m][v] = (Vector)_mm512_dpbf16_ps((__m512)sums[m][v], left, right[v]);
        }
    }
    for (long m = 0; m < M; ++m)
        for (long v = 0; v < V; ++v) store(out + m * stride + v * LANES, sums[m][v]);
}

// At most M rows.
template <long M, class T>
inline void multiply(long rows, long vectors, const BFloat16* x, long row, long pair, const BFloat16* panel, long pairs,
                     const Start start, T* out, long stride) {
    if constexpr (M > 1)
        if (rows < M) return multiply<M - 1>(rows, vectors, x, row, pair, panel, pairs, start, out, stride);
    switch (vectors) {
        case 1: return multiply<M, 1>(x, row, pair, panel, pairs, start, out, stride);
        case 2: return multiply<M, 2>(x, row, pair, panel, pairs, start, out, stride);
        case 3: return multiply<M, 3>(x, row, pair, panel, pairs, start, out, stride);
        default: return multiply<M, 4>(x, row, pair, panel, pairs, start, out, stride);
    }
}

// A packed matrix [inputs, features], and a bias of the features or null.
struct Weights {
    const BFloat16* packed;
    long inputs, features;
    const float* bias = nullptr;
};

// out = rows of x, at most TILE, times the weights of a panel's features.
template <class T>
inline void multiply_tile(long rows, const BFloat16* x, const Weights& w, long feature, T* out, long stride) {
    const long vectors = std::min(w.features - feature, PANEL) / LANES;
    const BFloat16* panel = w.packed + feature * w.inputs;
    const Start start = Start{w.bias, 0}.at(0, feature);
    multiply<TILE>(rows, vectors, x, w.inputs, 2, panel, w.inputs / 2, start, out, stride);
}

// out = x W + bias, of the features from `begin` to `end`, which begin with a panel.
inline void product(long rows, const BFloat16* x, const Weights& w, BFloat16* out, long begin, long end) {
    for (long f = begin; f < end; f += PANEL)
        for (long r = 0; r < rows; r += TILE)
            multiply_tile(std::min(TILE, rows - r), x + r * w.inputs, w, f, out + r * w.features + f, w.features);
}

inline void product(long rows, const BFloat16* x, const Weights& w, BFloat16* out) {
    product(rows, x, w, out, 0, w.features);
}

// The same, which calls done(row, feature, vector).
template <class Done>
inline void product_with(long rows, const BFloat16* x, const Weights& w, Done done) {
    alignas(64) float sums[TILE * PANEL];
    for (long f = 0; f < w.features; f += PANEL)
        for (long r = 0; r < rows; r += TILE) {
            const long count = std::min(TILE, rows - r), width = std::min(w.features - f, PANEL);
            multiply_tile(count, x + r * w.inputs, w, f, sums, PANEL);
            for (long m = 0; m < count; ++m)
                for (long i = 0; i < width; i += LANES) done(r + m, f + i, load(sums + m * PANEL + i));
        }
}

// totals [rows, columns] += left^T right, both packed, summed over `count` rows of both.
inline void add_products(long count, long rows, long columns, const BFloat16* left, const BFloat16* right, float* totals) {
    constexpr long M = 4;
    const long pairs = (count + 1) / 2;
    const Start start = {totals, columns};
    for (long c = 0; c < columns; c += PANEL, right += pairs * 2 * PANEL)
        for (long r = 0; r < rows; r += M)
            multiply<M>(M, std::min(columns - c, PANEL) / LANES, left + r / PANEL * pairs * 2 * PANEL + r % PANEL * 2, 2,
                        2 * PANEL, right, pairs, start.at(r, c), totals + r * columns + c, columns);
}

// totals [columns] += the sum of the rows.
inline void add_rows(long rows, long columns, const BFloat16* x, float* totals) {
    for (long c = 0; c < columns; c += LANES) {
        Vector sum = load(totals + c);
        for (long r = 0; r < rows; ++r) sum += load(x + r * columns + c);
        store(totals + c, sum);
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
inline void linear(long rows, const BFloat16* x, const Weights& w, BFloat16* out, int threads) {
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
inline void linear_forward(long rows, long inputs, long features, const BFloat16* x, const BFloat16* weight,
                           const float* bias, BFloat16* out, int threads) {
    const auto held = packed({weight, 1, inputs}, inputs, features);
    linear(rows, x, {held.data(), inputs, features, bias}, out, threads);
}

// Rows, or the layer norm of rows, computed anew where it is needed instead of being kept.
struct Rows {
    const BFloat16* data;
    const float* statistics;  // mean and scale of each row; null: the rows themselves
    const float *weight, *bias;
    long width;

    // A block of them: in place, or in `held`.
    const BFloat16* block(long r, long count, std::vector<BFloat16>& held) const {
        if (!statistics) return data + r * width;
        held.resize(LONG_BLOCK * width);
        for (long i = 0; i < count; ++i) {
            const float mean = statistics[2 * (r + i)], scale = statistics[2 * (r + i) + 1];
            for (long e = 0; e < width; e += LANES)
                store(held.data() + i * width + e, normed(load(data + (r + i) * width + e), mean, scale, weight + e, bias + e));
        }
        return held.data();
    }
};

// d_x = d_out W, d_weight += d_out^T x, d_bias += sums of d_out, unless it is null.
inline void linear_backward(long rows, long inputs, long features, const Rows& x, const BFloat16* weight,
                            const BFloat16* d_out, BFloat16* d_x, float* d_weight, float* d_bias, int threads) {
    const auto held = packed({weight, inputs, 1}, features, inputs);
    const Weights weights = {held.data(), features, inputs};
    Totals totals(d_weight, features * inputs, threads), biases(d_bias, d_bias ? features : 0, threads);
    share(rows, threads, [=, &x, &weights, &totals, &biases](int thread, long begin, long end) {
        std::vector<BFloat16> left(LONG_BLOCK * whole_panels(features)), right(LONG_BLOCK * whole_panels(inputs)), held;
        for (long r = begin; r < end; r += LONG_BLOCK) {
            const long count = std::min(LONG_BLOCK, end - r);
            const BFloat16* d = d_out + r * features;
            product(count, d, weights, d_x + r * inputs);
            if (d_bias) add_rows(count, features, d, biases.of(thread));
            pack({d, features, 1}, count, features, left.data());
            pack({x.block(r, count, held), inputs, 1}, count, inputs, right.data());
            add_products(count, features, inputs, left.data(), right.data(), totals.of(thread));
        }
    });
    totals.settle(), biases.settle();
}

// Where each row of a block has its factors of dropout; null: it has none.
inline const BFloat16* const* factors_of(const Shared<BFloat16>& noise, long r, long count,
                                         std::vector<const BFloat16*>& held) {
    if (!noise.data) return nullptr;
    for (long i = 0; i < count; ++i) held[i] = noise.row(r + i);
    return held.data();
}

// hidden = noise * max(0, x W1 + bias), out = hidden W2. `hidden` may be null.
inline void feed_forward(long rows, const BFloat16* x, const Weights& first, const Shared<BFloat16> noise,
                         const Weights& second, BFloat16* hidden, BFloat16* out, int threads) {
    const long ffn = first.features;
    share(rows, threads, [=, &first, &second](int, long begin, long end) {
        std::vector<const BFloat16*> held(BLOCK);
        std::vector<BFloat16> passing(hidden ? 0 : std::min(BLOCK, end - begin) * ffn);
        for (long r = begin; r < end; r += BLOCK) {
            const long count = std::min(BLOCK, end - r);
            const BFloat16* const* factors = factors_of(noise, r, count, held);
            BFloat16* own = hidden ? hidden + r * ffn : passing.data();
            product_with(count, x + r * first.inputs, first, [=](long row, long f, Vector value) {
                value = larger(Vector{}, value);
                store(own + row * ffn + f, factors ? value * load(factors[row] + f) : value);
            });
            product(count, own, second, out + r * second.features);
        }
    });
}

// The same for W1 [ffn, embed] and W2 [embed, ffn], both transposed.
inline void feed_forward_forward(long rows, long embed, long ffn, const BFloat16* x, const BFloat16* weight1,
                                 const float* bias, const Shared<BFloat16> noise, const BFloat16* weight2,
                                 BFloat16* hidden, BFloat16* out, int threads) {
    const auto first = packed({weight1, 1, embed}, embed, ffn), second = packed({weight2, 1, ffn}, ffn, embed);
    feed_forward(rows, x, {first.data(), embed, ffn, bias}, noise, {second.data(), ffn, embed}, hidden, out, threads);
}

inline void feed_forward_backward(long rows, long embed, long ffn, const Rows& x, const BFloat16* hidden,
                                  const BFloat16* weight1, const Shared<BFloat16> noise, const BFloat16* weight2,
                                  const BFloat16* d_out, BFloat16* d_x, float* d_weight1, float* d_bias,
                                  float* d_weight2, int threads) {
    const auto held1 = packed({weight1, embed, 1}, ffn, embed), held2 = packed({weight2, ffn, 1}, embed, ffn);
    const Weights first = {held1.data(), ffn, embed}, second = {held2.data(), embed, ffn};
    Totals totals1(d_weight1, ffn * embed, threads), totals2(d_weight2, embed * ffn, threads);
    Totals biases(d_bias, ffn, threads);
    share(rows, threads, [=, &x, &first, &second, &totals1, &totals2, &biases](int thread, long begin, long end) {
        std::vector<const BFloat16*> held(LONG_BLOCK);
        std::vector<BFloat16> held_x;
        std::vector<BFloat16> d_hidden(LONG_BLOCK * ffn);
        std::vector<BFloat16> wide(LONG_BLOCK * whole_panels(ffn)), narrow(LONG_BLOCK * whole_panels(embed));
        float* to_bias = biases.of(thread);
        for (long r = begin; r < end; r += LONG_BLOCK) {
            const long count = std::min(LONG_BLOCK, end - r);
            const BFloat16* const* factors = factors_of(noise, r, count, held);
            const BFloat16 *own = hidden + r * ffn, *own_d = d_out + r * embed;
            BFloat16* to = d_hidden.data();
            product_with(count, own_d, second, [=](long row, long f, Vector d) {
                d = load(own + row * ffn + f) > Vector{} ? d : Vector{};
                if (factors) d *= load(factors[row] + f);
                store(to + row * ffn + f, d);
                store(to_bias + f, load(to_bias + f) + d);
            });
            product(count, to, first, d_x + r * embed);
            pack({own_d, embed, 1}, count, embed, narrow.data());
            pack({own, ffn, 1}, count, ffn, wide.data());
            add_products(count, embed, ffn, narrow.data(), wide.data(), totals2.of(thread));
            pack({x.block(r, count, held_x), embed, 1}, count, embed, narrow.data());
            pack({to, ffn, 1}, count, ffn, wide.data());
            add_products(count, ffn, embed, wide.data(), narrow.data(), totals1.of(thread));
        }
    });
    totals1.settle(), totals2.settle(), biases.settle();
}

}  // namespace

#endif
