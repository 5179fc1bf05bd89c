// Attention of the newest position over cached keys and values.

#pragma once

#include "vectors.h"

namespace {

// What changes from position to position.
struct OwnSlots {
    const int64_t* slots;  // [G, rows, seen]: those each hypothesis attends to
    long seen;
    long newest;  // the first of the newest position
};

struct CacheLayout {
    long sentences, lines, rows;  // G sentences, positions of the other axis, hypotheses of each sentence
    long heads, size;             // H and D
    long capacity;                // slots of the cache of a line
    const OwnSlots* own;          // null: each hypothesis attends to the first `lengths`
    const int32_t* lengths;       // of each sentence
};

// Prefetches `count` numbers into the second-level cache.
template <class T>
inline void prefetch_numbers(const T* p, long count) {
    for (long i = 0; i < count; i += 64 / (long)sizeof(T)) __builtin_prefetch(p + i, 0, 2);
}

// Writes keys and values of the newest position, [G, lines, rows, 2 * H * D], into their slots.
template <class T>
void append_to_cache(const CacheLayout& g, const T* key_value, long stride, T* cache, int threads) {
    const long width = 2 * g.heads * g.size;
    share(g.sentences * g.lines, threads, [=, &g](int, long begin, long end) {
        for (long line = begin; line < end; ++line)
            for (long r = 0; r < g.rows; ++r)
                std::memcpy(cache + (line * g.capacity + g.own->newest + r) * width,
                            key_value + (line * g.rows + r) * stride, width * sizeof(T));
    });
}

// q, out: [G, lines, rows, H * D]; cache: [G, lines, capacity, 2 * H * D], the keys, then the values of each slot.
template <class T>
void cached_attention(const CacheLayout& g, const T* q, long q_stride, const T* cache, T* out, int threads) {
    const long width = g.heads * g.size, own_seen = g.own ? g.own->seen : 0;
    const float scale = 1.0f / std::sqrt((float)g.size);
    share(g.sentences * g.lines, threads, [=, &g](int, long begin, long end) {
        Buffer<float> held(width + std::max(own_seen, g.capacity) + 2 * LANES);
        float *query = held.data(), *weights = query + (width + LANES - 1) / LANES * LANES;
        for (long line = begin; line < end; ++line) {
            const long sentence = line / g.lines;
            const T* own = cache + line * g.capacity * 2 * width;
            for (long r = 0; r < g.rows; ++r) {
                const int64_t* slots = g.own ? g.own->slots + (sentence * g.rows + r) * own_seen : nullptr;
                const long seen = slots ? own_seen : real_keys(g.lengths, sentence, g.capacity);
                if (!seen) {
                    std::fill_n(out + (line * g.rows + r) * width, width, T{});
                    continue;
                }
                const T* row = q + (line * g.rows + r) * q_stride;
                const bool has_next = line + 1 < end && (line + 1) % g.lines && (slots || !r);  // has the same slots
                const int64_t* previous = slots && r ? slots - own_seen : nullptr;  // the row before shares most slots
                for (long j = 0; has_next && j < seen; ++j)
                    if (!previous || previous[j] != slots[j])
                        prefetch_numbers(own + (g.capacity + (slots ? slots[j] : j)) * 2 * width, 2 * width);
                for (long e = 0; e < width; e += LANES) store(query + e, load(row + e) * scale);
                for (long h = 0; h < g.heads; ++h) {
                    const T* keys = own + h * g.size;
                    for (long j = 0; j < seen; ++j) {
                        const T* key = keys + (slots ? slots[j] : j) * 2 * width;
                        Vector total = {};
                        for (long d = 0; d < g.size; d += LANES) total += load(query + h * g.size + d) * load(key + d);
                        weights[j] = sum(total);
                    }
                    const float most = *std::max_element(weights, weights + seen);
                    for (long j = seen; j % LANES; ++j) weights[j] = -INFINITY;
                    Vector totals = {};
                    for (long j = 0; j < seen; j += LANES) {
                        const Vector e = exponential(load(weights + j) - most);
                        store(weights + j, e);
                        totals += e;
                    }
                    const float normalizer = 1.0f / sum(totals);
                    T* to = out + (line * g.rows + r) * width + h * g.size;
                    for (long d = 0; d < g.size; d += LANES) {
                        Vector value = {};
                        for (long j = 0; j < seen; ++j)
                            value += weights[j] * load(keys + (slots ? slots[j] : j) * 2 * width + width + d);
                        store(to + d, value * normalizer);
                    }
                }
            }
        }
    });
}

}  // namespace
