// Positions of a beam search one after the other, without a return to Python in between.

#pragma once

#include "decoding.h"
#include "replay.h"
#include "search.h"

namespace {

// How a decoder state computes its next positions, R rows for each sentence, N in all, and what it remembers.
struct Decoder {
    const Call* calls;  // which read `embedded` and write the logits
    long num_calls;
    const float* table;      // [V, E]: embeddings of the target
    const float* positions;  // [most, E]: added to them, from the next position on
    double scale;            // by which they are multiplied before
    void* embedded;          // [N, E]
    long in_bfloat16;        // whether it is, or else in float32
    long width;              // E
    OwnSlots* own;
    int64_t* slots[2];  // the first has those of each row, [N, columns]; either has room for `most` columns more
    long columns;
    long used;  // slots of each sentence

    // Moves every row's past to where it goes on, `rows` (null: where it is), and gives it a slot more.
    void remember(long position, long count, long rows_of_sentence, const int64_t* rows) {
        const long before = columns + position, after = before + 1;
        int64_t* to = slots[(position + 1) % 2];
        for (long n = 0; n < count; ++n) {
            std::memcpy(to + n * after, slots[position % 2] + (rows ? rows[n] : n) * before, before * sizeof(int64_t));
            to[n * after + before] = used + n % rows_of_sentence;
        }
        *own = {to, after, used};
        used += rows_of_sentence;
    }

    void embed(long position, long row, int64_t token) {
        in_bfloat16 ? embed(position, token, (BFloat16*)embedded + row * width)
                    : embed(position, token, (float*)embedded + row * width);
    }

    template <class T>
    void embed(long position, int64_t token, T* to) {
        for (long e = 0; e < width; e += LANES) {
            float scaled[LANES];
            store(scaled, load(table + token * width + e) * (float)scale);
            asm volatile("" : : "r"(scaled) : "memory");  // rounded before it is added, as PyTorch does
            store(to + e, load(scaled) + load(positions + position * width + e));
        }
    }
};

// Up to `most` positions of beam search (see `advance_beams`), until there is something to look at. `old` are the
// hypotheses before, `survivors` two of room for those after each position by turns, `rows` room for the hypotheses that
// are continued, `restriction` has the required tokens of each position. Writes how many positions were computed, and
// returns what the last of them brought.
template <class T>
int advance_positions(long sentences, long beams, long vocabulary, const T* logits, long stride, long length, long most,
                      Decoder& decoder, const Hypotheses& old, Restriction restriction, const Continuations& candidates,
                      int64_t* ranks, int64_t* rows, const Hypotheses* survivors, int64_t& computed, int threads) {
    const long count = sentences * beams;
    for (computed = 0; computed < most;) {
        const Hypotheses& from = computed ? survivors[(computed + 1) % 2] : old;
        decoder.remember(computed, count, beams, computed ? rows : nullptr);
        for (long n = 0; n < count; ++n) decoder.embed(computed, n, from.ids[n * (length + 1) + length]);
        if (replay(decoder.calls, decoder.num_calls)) throw std::bad_alloc();
        const int found = advance_beams(sentences, beams, vocabulary, logits, stride, length, from, restriction,
                                        candidates, ranks, rows, survivors[computed % 2], threads);
        ++computed, ++length, restriction.required += sentences;
        if (found) return found;
    }
    return 0;
}

}  // namespace
