// Log-probabilities, and the training loss.

#pragma once

#include "vectors.h"

namespace {

// The log-sum-exp of a row in two summands, as their sum loses what makes a nearly certain token less than certain.
struct Normalizer {
    float highest, rest;
};

template <class T>
inline Normalizer normalizer_of(long width, const T* row) {
    const long whole = width / LANES * LANES;
    Vector tail = broadcast(-INFINITY), most, totals = {};
    for (long v = whole; v < width; ++v) tail[v - whole] = single(row + v);
    most = tail;
    for (long v = 0; v < whole; v += LANES) most = larger(most, load(row + v));
    const float highest = largest(most);
    for (long v = 0; v < whole; v += LANES) totals += exponential(load(row + v) - highest);
    float total = sum(totals);
    for (long v = whole; v < width; ++v) total += std::exp(tail[v - whole] - highest);
    return {highest, std::log(total)};
}

template <class T>
inline void log_softmax_row(long width, const T* row, float* to) {
    const long whole = width / LANES * LANES;
    const Normalizer n = normalizer_of(width, row);
    for (long v = 0; v < whole; v += LANES) store(to + v, load(row + v) - n.highest - n.rest);
    for (long v = whole; v < width; ++v) to[v] = single(row + v) - n.highest - n.rest;
}

template <class T>
void log_softmax(long rows, long width, const T* logits, float* out, int threads) {
    share(rows, threads, [=](int, long begin, long end) {
        for (long r = begin; r < end; ++r) log_softmax_row(width, logits + r * width, out + r * width);
    });
}

// Label-smoothed cross-entropy of rows of logits.
// statistics: [rows, 3], the log-sum-exp of the logits, the gold token's negative log-likelihood, and the mean negative
// log-likelihood of all tokens.
template <class T>
void cross_entropy_forward(long rows, long vocabulary, const T* logits, const int64_t* gold, float* statistics,
                           int threads) {
    const long whole = vocabulary / LANES * LANES;
    share(rows, threads, [=](int, long begin, long end) {
        for (long r = begin; r < end; ++r) {
            const T* row = logits + r * vocabulary;
            const Normalizer n = normalizer_of(vocabulary, row);
            const float denominator = n.highest + n.rest;
            Vector sums = {};
            for (long v = 0; v < whole; v += LANES) sums += load(row + v);
            float all = sum(sums);
            for (long v = whole; v < vocabulary; ++v) all += single(row + v);
            statistics[3 * r] = denominator;
            statistics[3 * r + 1] = denominator - single(row + gold[r]);
            statistics[3 * r + 2] = denominator - all / vocabulary;
        }
    });
}

// weights: of each row, times the gradient of the summed loss.
template <class T>
void cross_entropy_backward(long rows, long vocabulary, const T* logits, const int64_t* gold, const float* statistics,
                            const float* weights, float smoothing, T* gradient, int threads) {
    const long whole = vocabulary / LANES * LANES;
    const float even = smoothing / vocabulary;
    share(rows, threads, [=](int, long begin, long end) {
        for (long r = begin; r < end; ++r) {
            const T* row = logits + r * vocabulary;
            T* to = gradient + r * vocabulary;
            const float denominator = statistics[3 * r], weight = weights[r];
            for (long v = 0; v < whole; v += LANES)
                store(to + v, (exponential(load(row + v) - denominator) - even) * weight);
            for (long v = whole; v < vocabulary; ++v)
                to[v] = converted((std::exp(single(row + v) - denominator) - even) * weight, to);
            const float right = std::exp(single(row + gold[r]) - denominator) - even - (1 - smoothing);
            to[gold[r]] = converted(right * weight, to);
        }
    });
}

// Of rows of two predictions' logits, the mean of the Kullback-Leibler divergences in both directions, and its gradients,
// all times the weight of the row. With p and q the probabilities and d = log p - log q, it is the sum of (p - q) d / 2
// over the vocabulary, and its gradient by the first logits (p (d + 1 - KL(p, q)) - q) / 2.
template <class T>
void divergence(long rows, long vocabulary, const T* first, const T* second, const float* weights, float* apart,
                T* d_first, T* d_second, int threads) {
    const long whole = vocabulary / LANES * LANES, padded = whole + LANES;
    share(rows, threads, [=](int, long begin, long end) {
        Buffer<float> log_p(padded, -100.0f), log_q(padded, -100.0f);  // of what pads, equal and nearly impossible
        for (long r = begin; r < end; ++r) {
            log_softmax_row(vocabulary, first + r * vocabulary, log_p.data());
            log_softmax_row(vocabulary, second + r * vocabulary, log_q.data());
            Vector forwards = {}, backwards = {};
            for (long v = 0; v < padded; v += LANES) {
                const Vector a = load(&log_p[v]), b = load(&log_q[v]);
                forwards += exponential(a) * (a - b);
                backwards += exponential(b) * (b - a);
            }
            const float of_p = sum(forwards), of_q = sum(backwards), weight = weights[r] / 2;
            apart[r] = weight * (of_p + of_q);
            for (long v = 0; v < padded; v += LANES) {
                const Vector a = load(&log_p[v]), b = load(&log_q[v]), p = exponential(a), q = exponential(b);
                const Vector by_p = (p * (a - b + (1 - of_p)) - q) * weight, by_q = (q * (b - a + (1 - of_q)) - p) * weight;
                const long at = r * vocabulary + v;
                if (v < whole) {
                    store(d_first + at, by_p);
                    store(d_second + at, by_q);
                }
                for (long i = 0; v == whole && i < vocabulary - whole; ++i) {
                    d_first[at + i] = converted(by_p[i], d_first);
                    d_second[at + i] = converted(by_q[i], d_second);
                }
            }
        }
    });
}

}  // namespace
