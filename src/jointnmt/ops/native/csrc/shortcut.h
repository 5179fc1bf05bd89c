// Lexical shortcuts.

#pragma once

#include "layers.h"

namespace {

// The gated mixture of a hidden and a lexical input. The lexical input is a sum of parts, each broadcast along axes of
// the grid. With fusion, the lexical and the hidden input are the first and the second half of hidden + lexical.
template <class T>
struct GatedMixture {
    const T* hidden;
    long stride;             // between the hidden inputs of neighbouring cells
    const float* bias;
    Broadcast<T> first, second;  // the parts; the second may be null
    long width;              // features of the result
    int fusion;

    struct Cell {
        Vector lexical, hidden, gate;
    };

    inline Vector part(const T* a, const T* b, long e) const {
        const Vector x = load(a + e);
        return b ? x + load(b + e) : x;
    }

    // Both inputs and the gate at features e of a cell, whose rows are given.
    inline Cell at(const T* row, const T* a, const T* b, long e) const {
        Cell cell;
        cell.lexical = part(a, b, e);
        cell.hidden = load(row + e);
        if (fusion) {
            cell.lexical += cell.hidden;
            cell.hidden = load(row + width + e) + part(a, b, width + e);
        }
        const Vector x = cell.lexical + cell.hidden + load(bias + e);
        const Vector small = exponential(x > Vector{} ? -x : x);  // no larger than 1
        cell.gate = (x > Vector{} ? broadcast(1) : small) / (1.0f + small);
        return cell;
    }
};

template <class T>
void gated_kv_forward(long rows, const GatedMixture<T>& m, T* out, int threads) {
    share(rows, threads, [&, m](int, long begin, long end) {
        for (long r = begin; r < end; ++r) {
            const T *row = m.hidden + r * m.stride, *a = m.first.row(r), *b = m.second.data ? m.second.row(r) : nullptr;
            for (long e = 0; e < m.width; e += LANES) {
                const auto cell = m.at(row, a, b, e);
                store(out + r * m.width + e, cell.hidden + cell.gate * (cell.lexical - cell.hidden));
            }
        }
    });
}

// d_first, d_second: gradients of the parts, in float, summed over the cells to which a part is broadcast:
// [B, S, T, inputs] with the strides of the parts. d_hidden is contiguous.
template <class T>
void gated_kv_backward(long batch, const GatedMixture<T>& m, const T* d_out, T* d_hidden,
                       const Broadcast<float>& d_first, const Broadcast<float>& d_second, float* d_bias,
                       int threads) {
    const long cells = m.first.s * m.first.t, width = m.width, inputs = m.fusion ? 2 * width : width;
    Totals biases(d_bias, width, threads);
    share(batch, threads, [&, m, d_first, d_second](int thread, long begin, long end) {
        float* totals = biases.of(thread);
        for (long r = begin * cells; r < end * cells; ++r) {
            const T *row = m.hidden + r * m.stride, *a = m.first.row(r), *b = m.second.data ? m.second.row(r) : nullptr;
            float *to_a = const_cast<float*>(d_first.row(r)), *to_b = b ? const_cast<float*>(d_second.row(r)) : nullptr;
            auto give = [&](long e, Vector d) {
                store(to_a + e, load(to_a + e) + d);
                if (to_b) store(to_b + e, load(to_b + e) + d);
            };
            for (long e = 0; e < width; e += LANES) {
                const auto cell = m.at(row, a, b, e);
                const Vector d = load(d_out + r * width + e);
                const Vector d_sum = d * (cell.lexical - cell.hidden) * cell.gate * (1.0f - cell.gate);
                const Vector of_lexical = d_sum + d * cell.gate, of_hidden = d_sum + d - d * cell.gate;
                store(totals + e, load(totals + e) + d_sum);
                give(e, of_lexical);
                store(d_hidden + r * inputs + e, m.fusion ? of_lexical : of_hidden);
                if (m.fusion) {
                    give(width + e, of_hidden);
                    store(d_hidden + r * inputs + width + e, of_hidden);
                }
            }
        }
    });
    biases.reduce();
}

}  // namespace
