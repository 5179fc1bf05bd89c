// The projection of a sum's layer norm.

#pragma once

#include "vectors.h"

namespace {

// Both sides of a grid whose cells are sums, x[b, s, t] = source[b, s] + target[b, t], as rows [B, S + T], the source's
// first: each row less its own mean, and what a projection makes of that, weighed as the norm weighs it. A cell's layer
// norm, projected, is the sum of its two projected rows divided by the deviation of x, that of the centred rows' sum.
template <class T>
struct Sides {
    const float* centred;
    const T* projected;
    long s, t, width, features;

    // Calls body(cell, row, column, scale) for all cells from `begin`; row and column are those of its sides, and scale
    // is the inverse of its deviation.
    template <class Body>
    inline void each_cell(long begin, long end, Body body) const {
        for (long cell = begin; cell < end; ++cell) {
            const long first = cell / (s * t) * (s + t), place = cell % (s * t);
            const long row = first + place / t, column = first + s + place % t;
            const float *a = centred + row * width, *b = centred + column * width;
            Vector squares = {};
            for (long e = 0; e < width; e += LANES) {
                const Vector x = load(a + e) + load(b + e);
                squares += x * x;
            }
            body(cell, row, column, 1.0f / std::sqrt(sum(squares) / width + 1e-5f));
        }
    }
};

template <class T>
void projected_sum_forward(long batch, const Sides<T>& sides, T* out, int threads) {
    const long features = sides.features;
    share(batch * sides.s * sides.t, threads, [=](int, long begin, long end) {
        sides.each_cell(begin, end, [=](long cell, long row, long column, float scale) {
            const T *p = sides.projected + row * features, *q = sides.projected + column * features;
            for (long f = 0; f < features; f += LANES)
                store(out + cell * features + f, (load(p + f) + load(q + f)) * scale);
        });
    });
}

inline void add_to(float* sums, Vector x) { store(sums, load(sums) + x); }

// d_centred and d_projected are zero at first. Threads share the sentences: cells of one add to the same rows.
template <class T>
void projected_sum_backward(long batch, const Sides<T>& sides, const T* d_out, float* d_centred, float* d_projected,
                            int threads) {
    const long width = sides.width, features = sides.features, cells = sides.s * sides.t;
    share(batch, threads, [=](int, long begin, long end) {
        sides.each_cell(begin * cells, end * cells, [=](long cell, long row, long column, float scale) {
            const T *p = sides.projected + row * features, *q = sides.projected + column * features;
            float *d_p = d_projected + row * features, *d_q = d_projected + column * features;
            Vector of_scale = {};
            for (long f = 0; f < features; f += LANES) {
                const Vector d = load(d_out + cell * features + f);
                of_scale += d * (load(p + f) + load(q + f));
                add_to(d_p + f, d * scale);
                add_to(d_q + f, d * scale);
            }
            const float along = -sum(of_scale) * scale * scale * scale / width;
            const float *a = sides.centred + row * width, *b = sides.centred + column * width;
            for (long e = 0; e < width; e += LANES) {
                const Vector d = (load(a + e) + load(b + e)) * along;
                add_to(d_centred + row * width + e, d);
                add_to(d_centred + column * width + e, d);
            }
        });
    });
}

}  // namespace
