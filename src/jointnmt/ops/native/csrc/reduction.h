// The grid: the sum of its sides, and attention pooling, its reduction.

#pragma once

#include "layers.h"

namespace {

// The sum of both sides for every cell (Eq. 4).
template <class T>
void grid_of_sides(long cells, long width, const Broadcast<T>& source, const Broadcast<T>& target, T* out, int threads) {
    share(cells, threads, [=](int, long begin, long end) {
        for (long cell = begin; cell < end; ++cell) {
            const T *s = source.row(cell), *t = target.row(cell);
            for (long e = 0; e < width; e += LANES) store(out + cell * width + e, load(s + e) + load(t + e));
        }
    });
}

// The grid is reduced along S: every feature is averaged over the source positions with the weights of its own softmax.
// Calls body(line, e, keys, first) for every target position `line` of the batch and vector of features at `e`; `first`
// is the index of the element at s = 0, `keys` the number of real source positions.
template <class Body>
void each_column(long batch, long s, long t, long width, const int32_t* lengths, int threads, Body body) {
    share(batch * t, threads, [=](int, long begin, long end) {
        for (long line = begin; line < end; ++line) {
            const long b = line / t;
            for (long e = 0; e < width; e += LANES)
                body(line, e, real_keys(lengths, b, s), (b * s * t + line % t) * width + e);
        }
    });
}

struct Softmax {
    Vector most, scale;

    Vector weight(Vector score) const { return exponential(score - most) * scale; }
};

template <class T>
inline Softmax column_softmax(const T* scores, long step, long keys) {
    Vector most = broadcast(-INFINITY), total = {};
    for (long i = 0; i < keys; ++i) most = larger(most, load(scores + i * step));
    for (long i = 0; i < keys; ++i) total += exponential(load(scores + i * step) - most);
    return {most, 1.0f / total};
}

template <class T>
void attention_pool_forward(long batch, long s, long t, long width, const int32_t* lengths, const T* x, const T* scores,
                            T* out, int threads) {
    const long step = t * width;
    each_column(batch, s, t, width, lengths, threads, [=](long line, long e, long keys, long first) {
        const Softmax softmax = column_softmax(scores + first, step, keys);
        Vector total = {};
        for (long i = 0; i < keys; ++i) {
            const long at = first + i * step;
            total += softmax.weight(load(scores + at)) * load(x + at);
        }
        store(out + line * width + e, total);
    });
}

template <class T>
void attention_pool_backward(long batch, long s, long t, long width, const int32_t* lengths, const T* x,
                             const T* scores, const T* d_out, T* d_x, T* d_scores, int threads) {
    const long step = t * width;
    each_column(batch, s, t, width, lengths, threads, [=](long line, long e, long keys, long first) {
        const Softmax softmax = column_softmax(scores + first, step, keys);
        const Vector d = load(d_out + line * width + e);
        Vector mean = {};
        for (long i = 0; i < keys; ++i) {
            const long at = first + i * step;
            mean += softmax.weight(load(scores + at)) * load(x + at);
        }
        for (long i = 0; i < keys; ++i) {
            const long at = first + i * step;
            const Vector weight = softmax.weight(load(scores + at));
            store(d_x + at, d * weight);
            store(d_scores + at, d * weight * (load(x + at) - mean));
        }
        for (long i = keys; i < s; ++i) {
            store(d_x + first + i * step, Vector{});
            store(d_scores + first + i * step, Vector{});
        }
    });
}

}  // namespace
