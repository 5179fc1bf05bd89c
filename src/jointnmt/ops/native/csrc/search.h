// Search: log-softmax and top-k of rows of logits, and a position of beam search.

#pragma once

#include "loss.h"

namespace {

// The `count` largest of the values that are taken, and their indices, in descending order, equal ones as they are
// taken.
template <class Value>
struct Largest {
    Value* kept;
    int64_t* at;
    long count, found = 0;

    void take(Value value, int64_t index) {
        if (found == count && !(value > kept[count - 1])) return;
        long rank = found < count ? found++ : count - 1;
        for (; rank && value > kept[rank - 1]; --rank) kept[rank] = kept[rank - 1], at[rank] = at[rank - 1];
        kept[rank] = value, at[rank] = index;
    }
};

// The largest values of a row, ties by index. Returns whether any value is NaN.
inline bool topk_row(long width, const float* row, Largest<float> largest) {
    bool has_nan = false;
    const auto take = [&](long index) {
        has_nan |= row[index] != row[index];
        largest.take(row[index], index);
    };
    long v = 0;
    for (; v < width && largest.found < largest.count; ++v) take(v);
    for (; v + LANES <= width; v += LANES) {
        const Ints worse = load(row + v) <= broadcast(largest.kept[largest.count - 1]);
        if (any(~worse))  // also true for NaN
            for (long i = 0; i < LANES; ++i) take(v + i);
    }
    for (; v < width; ++v) take(v);
    return has_nan;
}

// The `count` largest values of each row and their indices, in descending order, ties by index. Returns whether any
// value is NaN.
inline bool topk(long rows, long width, const float* values, long count, float* best, int64_t* indices, int threads) {
    std::vector<char> has_nan(threads);
    share(rows, threads, [=, &has_nan](int thread, long begin, long end) {
        for (long r = begin; r < end; ++r)
            has_nan[thread] |= topk_row(width, values + r * width, {best + r * count, indices + r * count, count});
    });
    return std::any_of(has_nan.begin(), has_nan.end(), [](char each) { return each; });
}

// Which tokens may come next.
struct Restriction {
    const int64_t* required;  // of each sentence: the only token, or -1 for any that is not banned
    const int64_t* banned;
    long num_banned;
    int64_t end;  // the token that ends a sentence

    void apply(long sentence, long width, float* row) const {
        const int64_t only = required[sentence];
        const float kept = only < 0 ? 0 : row[only];
        for (long i = 0; i < num_banned; ++i) row[banned[i]] = -INFINITY;
        if (only < 0) return;
        std::fill(row, row + width, -INFINITY);
        row[only] = kept;
    }
};

// Continuations of hypotheses by one token: which is continued, counted through all sentences, by what, and the token's
// log-probability.
struct Continuations {
    int64_t *rows, *ids;
    float* tokens;
};

// Beams of sentences, all of `length` tokens after the begin mark, and their log-probabilities, by token and in all.
struct Hypotheses {
    int64_t* ids;
    float* tokens;
    double* sums;

    // Lets hypothesis `to` be that of another beam and one token more.
    void extend(long to, const Hypotheses& old, long length, const Continuations& by, long from) const {
        const long row = by.rows[from];
        std::memcpy(ids + to * (length + 2), old.ids + row * (length + 1), (length + 1) * sizeof(int64_t));
        std::memcpy(tokens + to * (length + 1), old.tokens + row * length, length * sizeof(float));
        ids[to * (length + 2) + length + 1] = by.ids[from];
        tokens[to * (length + 1) + length] = by.tokens[from];
        sums[to] = old.sums[row] + by.tokens[from];
    }
};

// The `count` best continuations of the `beams` hypotheses of each sentence, best first, ties by beam, then token.
// `stride` is that of the rows of logits, totals are the hypotheses' log-probabilities. They come out in `to`. Returns
// whether any log-probability of a token is NaN.
template <class T>
bool best_continuations(long sentences, long beams, long width, const T* logits, long stride, const double* totals,
                        const Restriction& restriction, long count, const Continuations& to, int threads) {
    const long of_row = std::min(count, width), rows = sentences * beams;
    Buffer<float> values(rows * of_row);
    std::vector<int64_t> places(rows * of_row);
    std::vector<char> has_nan(threads);
    share(rows, threads, [&, beams, width, logits, stride, of_row](int thread, long begin, long end) {
        Buffer<float> row(width);
        for (long r = begin; r < end; ++r) {
            log_softmax_row(width, logits + r * stride, row.data());
            restriction.apply(r / beams, width, row.data());
            has_nan[thread] |= topk_row(width, row.data(), {&values[r * of_row], &places[r * of_row], of_row});
        }
    });
    std::vector<double> kept(count);
    std::vector<int64_t> at(count);
    for (long s = 0; s < sentences; ++s) {
        Largest<double> best = {kept.data(), at.data(), count};
        for (long i = s * beams * of_row; i < (s + 1) * beams * of_row; ++i)
            best.take(totals[i / of_row] + values[i], i);
        for (long rank = 0; rank < count; ++rank) {
            const long i = at[rank], place = s * count + rank;
            to.rows[place] = i / of_row, to.ids[place] = places[i], to.tokens[place] = values[i];
        }
    }
    return std::any_of(has_nan.begin(), has_nan.end(), [](char each) { return each; });
}

// What search has to look at: a token's log-probability is NaN; one of the best `beams` candidates ends its sentence, or
// a sentence has no survivor.
enum Outcome { HAS_NAN = 1, ANY_SETTLED = 2 };

// A position of beam search: the 2 * `beams` best continuations of each sentence; of these the ranks of the best that
// do not end it, the survivors; which hypotheses they continue; and what they are. Returns bits of `Outcome`. There are
// as many survivors as beams if the vocabulary has two tokens or more.
template <class T>
int advance_beams(long sentences, long beams, long width, const T* logits, long stride, long length,
                  const Hypotheses& old, const Restriction& restriction, const Continuations& candidates,
                  int64_t* ranks, int64_t* rows, const Hypotheses& survivors, int threads) {
    const long count = 2 * beams;
    const bool has_nan = best_continuations(sentences, beams, width, logits, stride, old.sums, restriction, count,
                                            candidates, threads);
    bool any_settled = false;
    for (long s = 0; s < sentences; ++s) {
        long kept = 0;
        for (long rank = 0; rank < count && kept < beams; ++rank) {
            const long from = s * count + rank, to = s * beams + kept;
            if (candidates.ids[from] == restriction.end) {
                const double total = old.sums[candidates.rows[from]] + candidates.tokens[from];
                any_settled |= rank < beams && total > -INFINITY;
                continue;
            }
            survivors.extend(to, old, length, candidates, from);
            ranks[to] = rank, rows[to] = candidates.rows[from];
            any_settled |= !kept++ && survivors.sums[to] == -INFINITY;
        }
    }
    return (has_nan ? HAS_NAN : 0) | (any_settled ? ANY_SETTLED : 0);
}

}  // namespace
