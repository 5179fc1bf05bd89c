// Multi-head attention along one axis, for sequences of sentence length; forward and backward.

#pragma once

#include "vectors.h"

namespace {

// Small matrix products in float, whose operands all fit into the first-level cache.
// C[m, n] = sum over k in [begin, end) of A(m, k) * B[k, n] for ROWS rows and VECTORS of columns.
template <int ROWS, int VECTORS>
inline void tile(const float* a, long row, long column, const float* b, long ldb, float* c, long ldc, long begin,
                 long end) {
    Vector total[ROWS][VECTORS] = {};
    for (long k = begin; k < end; ++k) {
        Vector right[VECTORS];
        for (int v = 0; v < VECTORS; ++v) right[v] = load(b + k * ldb + v * LANES);
        for (int m = 0; m < ROWS; ++m) {
            const Vector left = broadcast(a[m * row + k * column]);
            for (int v = 0; v < VECTORS; ++v) total[m][v] = multiply_add(total[m][v], left, right[v]);
        }
    }
    for (int m = 0; m < ROWS; ++m)
        for (int v = 0; v < VECTORS; ++v) store(c + m * ldc + v * LANES, total[m][v]);
}

constexpr long TILE_ROWS = LANES == 16 ? 8 : 6;  // with 2 vectors of columns: 16 sums in 32 registers, or 12 in 16

template <int VECTORS, int ROWS = TILE_ROWS>
inline void tile_of(long rows, const float* a, long row, long column, const float* b, long ldb, float* c, long ldc,
                    long begin, long end) {
    if constexpr (ROWS > 1)
        if (rows < ROWS) return tile_of<VECTORS, ROWS - 1>(rows, a, row, column, b, ldb, c, ldc, begin, end);
    tile<ROWS, VECTORS>(a, row, column, b, ldb, c, ldc, begin, end);
}

struct Range {
    long begin, end;
};

// A matrix read by strides, so that it can be read transposed.
struct Left {
    const float* data;
    long row, column;
};

// C = A B for all rows of C. For rows `first` to `last` only the columns in the range `columns(first, last)` are
// computed, in whole vectors, and the sum runs over the k in `terms(first, last)` only.
template <class Columns, class Terms>
inline void product(Left a, const float* b, long ldb, float* c, long ldc, long rows, Columns columns, Terms terms) {
    for (long m = 0; m < rows; m += TILE_ROWS) {
        const long count = std::min(TILE_ROWS, rows - m);
        const Range wanted = columns(m, m + count), k = terms(m, m + count);
        const float* left = a.data + m * a.row;
        for (long n = wanted.begin; n < wanted.end;) {
            float* to = c + m * ldc + n;
            if (wanted.end - n >= 2 * LANES) {
                tile_of<2>(count, left, a.row, a.column, b + n, ldb, to, ldc, k.begin, k.end);
                n += 2 * LANES;
            } else {
                tile_of<1>(count, left, a.row, a.column, b + n, ldb, to, ldc, k.begin, k.end);
                n += LANES;
            }
        }
    }
}

// to[d, i] = from[i, d]; columns `length` to `padded` are filled with zeros.
inline void transpose(const float* from, long length, long size, long padded, float* to) {
    for (long i = 0; i < padded; i += LANES)
        for (long d = 0; d < size; d += LANES) {
            Vector rows[LANES];
            for (long r = 0; r < LANES; ++r) rows[r] = i + r < length ? load(from + (i + r) * size + d) : Vector{};
            transpose(rows);
            for (long r = 0; r < LANES; ++r) store(to + (d + r) * padded + i, rows[r]);
        }
}

// The geometry of attention along one axis. A line is one sequence along that axis; lines are independent. Weights are
// stored transposed, [keys, queries], so that the softmax over the keys handles a vector of queries at once.
struct Lines {
    long batch, lines, length;   // sentences, lines of each sentence, positions of a line
    long plane, between, step;   // strides, in rows: from one sentence, line, position to the next
    long heads, size;            // H and D
    const int32_t* lengths;      // real keys of each sentence, the rest is padding; null: all
    int causal;                  // whether a query attends to itself and earlier positions only
    const float* dropout;        // dropout mask of the weights, [queries, keys] by sentence, line and head; null: none
    long dropout_batch, dropout_line, dropout_head;
};

// Which keys the queries of a line may attend to.
struct LineMask {
    long length, padded, keys;
    bool causal;

    // Queries that may attend to any key from `first` on, in whole vectors.
    Range queries_of(long first, long) const { return {causal ? first / LANES * LANES : 0, padded}; }
    // The same, exactly, for products that sum over queries.
    Range terms_of(long first, long) const { return {causal ? first : 0, length}; }
    // Keys that any query before `last` may attend to.
    Range keys_of(long, long last) const { return {0, causal ? std::min(keys, last) : keys}; }
};

// Buffers for one head of one line, in float.
struct Workspace {
    const Lines& g;
    const long padded, size;
    Buffer<float> held;
    float *q, *k, *v, *o, *transposed, *weights, *dk, *dv, *d_weights;

    explicit Workspace(const Lines& lines)
        : g(lines), padded((g.length + LANES - 1) / LANES * LANES), size(g.size),
          held(padded * size * 7 + padded * padded * 2) {
        float* next = held.data();
        for (float** each : {&q, &k, &v, &o, &transposed, &dk, &dv}) *each = next, next += padded * size;
        for (float** each : {&weights, &d_weights}) *each = next, next += padded * padded;
    }

    // c = A b, where rows of b and c are D features
    template <class Terms>
    void multiply_rows(Left a, const float* b, float* c, long rows, Terms terms) const {
        product(a, b, size, c, size, rows, [&](long, long) { return Range{0, size}; }, terms);
    }

    // c[key, query] = rows[key] . columns[query]
    void compute_scores(const float* rows, const float* columns, float* c, const LineMask& mask) {
        transpose(columns, g.length, size, padded, transposed);
        product({rows, size, 1}, transposed, padded, c, padded, mask.keys,
                [&](long first, long last) { return mask.queries_of(first, last); },
                [&](long, long) { return Range{0, size}; });
    }

    // weights = softmax(q k^T) over the keys; zero where the mask hides a key.
    void compute_weights(const LineMask& mask) {
        compute_scores(k, q, weights, mask);
        Ints lane;
        for (int i = 0; i < LANES; ++i) lane[i] = i;
        for (long n = 0; n < padded; n += LANES) {
            const long end = mask.keys_of(n, n + LANES).end;
            const Ints query = lane + (int)n;
            float* column = weights + n;
            Vector most = broadcast(-INFINITY);
            for (long j = 0; j < end; ++j) {
                Vector x = load(column + j * padded);
                if (mask.causal && j > n) {
                    x = query >= (int)j ? x : broadcast(-INFINITY);
                    store(column + j * padded, x);
                }
                most = larger(most, x);
            }
            Vector total = {};
            for (long j = 0; j < end; ++j) {
                Vector e = exponential(load(column + j * padded) - most);
                if (mask.causal && j > n) e = query >= (int)j ? e : Vector{};
                store(column + j * padded, e);
                total += e;
            }
            const Vector scale = 1.0f / total;
            for (long j = 0; j < end; ++j) store(column + j * padded, load(column + j * padded) * scale);
            for (long j = end; j < mask.keys; ++j) store(column + j * padded, Vector{});
        }
    }

    // Turns d_weights into the gradient of the scores: weights * (d_weights - sum over keys of weights * d_weights).
    void softmax_backward(const LineMask& mask) {
        for (long n = 0; n < padded; n += LANES) {
            const long end = mask.keys_of(n, n + LANES).end;
            Vector total = {};
            for (long j = 0; j < end; ++j) total += load(weights + j * padded + n) * load(d_weights + j * padded + n);
            for (long j = 0; j < end; ++j) {
                float* at = d_weights + j * padded + n;
                store(at, load(weights + j * padded + n) * (load(at) - total));
            }
            for (long j = end; j < mask.keys; ++j) store(d_weights + j * padded + n, Vector{});
        }
    }

    void apply_dropout(float* x, const float* dropout, const LineMask& mask) const {
        for (long i = 0; i < g.length; ++i)
            for (long j = 0; j < mask.keys; ++j) x[j * padded + i] *= dropout[i * g.length + j];
    }
};

// Offsets of one head of one line.
struct HeadOffset {
    long b, first, feature;
    const float* dropout;

    HeadOffset(const Lines& g, long line, long head)
        : b(line / g.lines), first(b * g.plane + line % g.lines * g.between), feature(head * g.size),
          dropout(g.dropout ? g.dropout + b * g.dropout_batch + line % g.lines * g.dropout_line + head * g.dropout_head
                            : nullptr) {}

    LineMask mask_of(const Lines& g, long padded) const {
        return {g.length, padded, real_keys(g.lengths, b, g.length), g.causal != 0};
    }
};

// to = scale * (rows + bias); the bias may be null.
template <class T>
inline void load_rows(const T* from, long stride, const float* bias, long length, long size, float scale, float* to) {
    for (long i = 0; i < length; ++i)
        for (long d = 0; d < size; d += LANES) {
            Vector x = load(from + i * stride + d);
            if (bias) x += load(bias + d);
            store(to + i * size + d, x * scale);
        }
}

// Stores scaled rows; adds their sum to `bias`, a gradient, unless it is null.
template <class T>
inline void store_rows(const float* from, long length, long size, float scale, T* to, long stride, float* bias) {
    for (long d = 0; d < size; d += LANES) {
        Vector total = {};
        for (long i = 0; i < length; ++i) {
            const Vector x = load(from + i * size + d) * scale;
            store(to + i * stride + d, x);
            total += x;
        }
        if (bias) store(bias + d, load(bias + d) + total);
    }
}

// Queries, keys and values, or their gradients: one row for each cell.
template <class T>
struct QKV {
    T *q, *k, *v;
    long query_stride, key_stride;
};

// Prefetches the rows of a line: their strides are too long for the hardware prefetcher.
template <class T>
inline void prefetch(const T* rows, long stride, long features, long length) {
    for (long i = 0; i < length; ++i)
        for (long f = 0; f < features * (long)sizeof(T); f += 64)
            __builtin_prefetch((const char*)(rows + i * stride) + f);
}

template <class T>
void prefetch_qkv(const Lines& g, const QKV<const T>& from, long line) {
    const HeadOffset at(g, line, 0);
    const long width = g.heads * g.size;
    prefetch(from.q + at.first * from.query_stride, g.step * from.query_stride, width, g.length);
    prefetch(from.k + at.first * from.key_stride, g.step * from.key_stride, 2 * width, g.length);
}

template <class T>
void load_qkv(Workspace& w, const QKV<const T>& from, const HeadOffset& at, const float* bias) {
    const Lines& g = w.g;
    const long f = at.feature, width = g.heads * g.size, qs = from.query_stride, ks = from.key_stride;
    const float scale = 1.0f / std::sqrt((float)g.size);
    load_rows(from.q + at.first * qs + f, g.step * qs, bias ? bias + f : nullptr, g.length, g.size, scale, w.q);
    load_rows(from.k + at.first * ks + f, g.step * ks, bias ? bias + width + f : nullptr, g.length, g.size, 1, w.k);
    load_rows(from.v + at.first * ks + f, g.step * ks, bias ? bias + 2 * width + f : nullptr, g.length, g.size, 1, w.v);
}

template <class T>
void axial_attention_forward(const Lines& g, const QKV<const T>& from, const float* bias, T* out, int threads) {
    const long width = g.heads * g.size;
    share(g.batch * g.lines, threads, [&](int, long begin, long end) {
        Workspace w(g);
        for (long line = begin; line < end; ++line) {
            if (line + 1 < end) prefetch_qkv(g, from, line + 1);
            for (long h = 0; h < g.heads; ++h) {
                const HeadOffset at(g, line, h);
                const LineMask mask = at.mask_of(g, w.padded);
                load_qkv(w, from, at, bias);
                w.compute_weights(mask);
                if (at.dropout) w.apply_dropout(w.weights, at.dropout, mask);
                w.multiply_rows({w.weights, 1, w.padded}, w.v, w.o, g.length,
                          [&](long first, long last) { return mask.keys_of(first, last); });
                T* to = out + at.first * width + at.feature;
                store_rows(w.o, g.length, g.size, 1, to, g.step * width, nullptr);
            }
        }
    });
}

template <class T>
void axial_attention_backward(const Lines& g, const QKV<const T>& from, const float* bias, const T* d_out,
                              const QKV<T>& to, float* d_bias, int threads) {
    const float scale = 1.0f / std::sqrt((float)g.size);
    const long width = g.heads * g.size;
    Totals biases(d_bias, d_bias ? 3 * width : 0, threads);
    share(g.batch * g.lines, threads, [&](int thread, long begin, long end) {
        Workspace w(g);
        for (long line = begin; line < end; ++line) {
            if (line + 1 < end) {
                prefetch_qkv(g, from, line + 1);
                prefetch(d_out + HeadOffset(g, line + 1, 0).first * width, g.step * width, width, g.length);
            }
            for (long h = 0; h < g.heads; ++h) {
                const HeadOffset at(g, line, h);
                const LineMask mask = at.mask_of(g, w.padded);
                const long f = at.feature;
                auto keys_of = [&](long first, long last) { return mask.keys_of(first, last); };
                auto terms_of = [&](long first, long last) { return mask.terms_of(first, last); };
                load_qkv(w, from, at, bias);
                load_rows(d_out + at.first * width + f, g.step * width, nullptr, g.length, g.size, 1, w.o);
                w.compute_weights(mask);
                w.compute_scores(w.v, w.o, w.d_weights, mask);
                if (at.dropout) w.apply_dropout(w.d_weights, at.dropout, mask);
                w.softmax_backward(mask);
                if (at.dropout) w.apply_dropout(w.weights, at.dropout, mask);
                std::fill(w.dk + mask.keys * g.size, w.dk + g.length * g.size, 0.0f);  // padding has no gradient
                std::fill(w.dv + mask.keys * g.size, w.dv + g.length * g.size, 0.0f);
                w.multiply_rows({w.d_weights, w.padded, 1}, w.q, w.dk, mask.keys, terms_of);
                w.multiply_rows({w.weights, w.padded, 1}, w.o, w.dv, mask.keys, terms_of);
                w.multiply_rows({w.d_weights, 1, w.padded}, w.k, w.q, g.length, keys_of);
                float* t = d_bias ? biases.of(thread) + f : nullptr;
                const long qs = to.query_stride, ks = to.key_stride;
                store_rows(w.q, g.length, g.size, scale, to.q + at.first * qs + f, g.step * qs, t);
                store_rows(w.dk, g.length, g.size, 1, to.k + at.first * ks + f, g.step * ks, t ? t + width : t);
                store_rows(w.dv, g.length, g.size, 1, to.v + at.first * ks + f, g.step * ks, t ? t + 2 * width : t);
            }
        }
    });
    biases.reduce();
}

}  // namespace
