// Log-softmax and top-k of rows of logits, for search.

#pragma once

#include "vectors.h"

namespace {

template <class T>
void log_softmax(long rows, long width, const T* logits, float* out, int threads) {
    const long whole = width / LANES * LANES;
    share(rows, threads, [=](int, long begin, long end) {
        for (long r = begin; r < end; ++r) {
            const T* row = logits + r * width;
            float* to = out + r * width;
            Vector tail = broadcast(-INFINITY), most, totals = {};
            for (long v = whole; v < width; ++v) tail[v - whole] = single(row + v);
            most = tail;
            for (long v = 0; v < whole; v += LANES) most = larger(most, load(row + v));
            const float highest = largest(most);
            for (long v = 0; v < whole; v += LANES) totals += exponential(load(row + v) - highest);
            float total = sum(totals);
            for (long v = whole; v < width; ++v) total += std::exp(tail[v - whole] - highest);
            const float rest = std::log(total);  // subtracted last, for precision where a token is nearly certain
            for (long v = 0; v < whole; v += LANES) store(to + v, load(row + v) - highest - rest);
            for (long v = whole; v < width; ++v) to[v] = tail[v - whole] - highest - rest;
        }
    });
}

// The `count` largest values of each row and their indices, in descending order, ties by index. Returns whether any
// value is NaN.
inline bool topk(long rows, long width, const float* values, long count, float* best, int64_t* indices, int threads) {
    std::vector<char> has_nan(threads);
    share(rows, threads, [=, &has_nan](int thread, long begin, long end) {
        for (long r = begin; r < end; ++r) {
            const float* row = values + r * width;
            float* kept = best + r * count;
            int64_t* at = indices + r * count;
            long found = 0;
            const auto take = [&](long index) {
                const float value = row[index];
                if (value != value) has_nan[thread] = 1;
                if (found == count && !(value > kept[count - 1])) return;
                long rank = found < count ? found++ : count - 1;
                for (; rank && value > kept[rank - 1]; --rank) kept[rank] = kept[rank - 1], at[rank] = at[rank - 1];
                kept[rank] = value, at[rank] = index;
            };
            long v = 0;
            for (; v < width && found < count; ++v) take(v);
            for (; v + LANES <= width; v += LANES) {
                const Ints worse = load(row + v) <= broadcast(kept[count - 1]);
                if (any(~worse))  // also true for NaN
                    for (long i = 0; i < LANES; ++i) take(v + i);
            }
            for (; v < width; ++v) take(v);
        }
    });
    return std::any_of(has_nan.begin(), has_nan.end(), [](char each) { return each; });
}

}  // namespace
