// The training loss.

#pragma once

#include "vectors.h"

namespace {

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
            Vector tail = broadcast(-INFINITY), most, totals = {}, sums = {};
            for (long v = whole; v < vocabulary; ++v) tail[v - whole] = single(row + v);
            most = tail;
            for (long v = 0; v < whole; v += LANES) most = larger(most, load(row + v));
            const float highest = largest(most);
            for (long v = 0; v < whole; v += LANES) {
                const Vector x = load(row + v);
                totals += exponential(x - highest);
                sums += x;
            }
            float total = sum(totals), all = sum(sums);
            for (long v = whole; v < vocabulary; ++v) {
                total += std::exp(tail[v - whole] - highest);
                all += tail[v - whole];
            }
            const float denominator = highest + std::log(total);
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

}  // namespace
