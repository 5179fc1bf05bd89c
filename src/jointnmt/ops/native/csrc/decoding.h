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

// Those that a hypothesis attends to: the listed ones, or the first of a line.
struct Slots {
    const int64_t* listed;
    long count;

    Slots(const CacheLayout& g, long sentence, long row) {
        listed = g.own ? g.own->slots + (sentence * g.rows + row) * g.own->seen : nullptr;
        count = listed ? g.own->seen : real_keys(g.lengths, sentence, g.capacity);
    }
    long operator[](long j) const { return listed ? listed[j] : j; }

    // Prefetches those of another line, slots of `width` numbers, that the hypothesis before, if any, doesn't share.
    template <class T>
    void prefetch_in(const T* line, long width, const Slots* before) const {
        for (long j = 0; j < count; ++j)
            if (!before || (*before)[j] != (*this)[j]) prefetch_numbers(line + (*this)[j] * width, width);
    }
};

// Turns scores into weights that are not normalised, and returns the normaliser. There is room for a whole vector more.
inline float softmax_weights(float* scores, long count) {
    const float most = *std::max_element(scores, scores + count);
    for (long j = count; j % LANES; ++j) scores[j] = -INFINITY;
    Vector totals = {};
    for (long j = 0; j < count; j += LANES) {
        const Vector e = exponential(load(scores + j) - most);
        store(scores + j, e);
        totals += e;
    }
    return 1.0f / sum(totals);
}

// One head of one hypothesis: query (scaled) and out [D]; keys: of the first slot, the values `width` numbers further.
template <class T>
inline void attend(const float* query, const T* keys, const Slots& slots, long width, long size, float* weights,
                   T* out) {
    for (long j = 0; j < slots.count; ++j) {
        const T* key = keys + slots[j] * 2 * width;
        Vector total = {};
        for (long d = 0; d < size; d += LANES) total += load(query + d) * load(key + d);
        weights[j] = sum(total);
    }
    const float normalizer = softmax_weights(weights, slots.count);
    for (long d = 0; d < size; d += LANES) {
        Vector value = {};
        for (long j = 0; j < slots.count; ++j) value += weights[j] * load(keys + slots[j] * 2 * width + width + d);
        store(out + d, value * normalizer);
    }
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
            const T* slots_of_line = cache + line * g.capacity * 2 * width;
            const bool has_next = line + 1 < end && (line + 1) % g.lines;  // a line of the same sentence
            for (long r = 0; r < g.rows; ++r) {
                const Slots slots(g, line / g.lines, r);
                const T* row = q + (line * g.rows + r) * q_stride;
                T* to = out + (line * g.rows + r) * width;
                if (!slots.count) {
                    std::fill_n(to, width, T{});
                    continue;
                }
                if (has_next && (slots.listed || !r)) {
                    const Slots before(g, line / g.lines, r ? r - 1 : 0);
                    slots.prefetch_in(slots_of_line + g.capacity * 2 * width, 2 * width, r ? &before : nullptr);
                }
                for (long e = 0; e < width; e += LANES) store(query + e, load(row + e) * scale);
                for (long h = 0; h < width; h += g.size)
                    attend(query + h, slots_of_line + h, slots, width, g.size, weights, to + h);
            }
        }
    });
}

}  // namespace
