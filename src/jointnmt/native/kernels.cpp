// What lies between the matrix products of a model, each in one pass over memory: attention at sentence lengths, the
// residual connection with layer norm, bias with ReLU, the reduction, lexical shortcuts and the loss; forwards and
// backwards.
//
// Tensors are rows of features, one row for each cell of a grid [B, S, T, features] (a sequence has S = 1), in float or
// bfloat16; sums are float. Features come in whole vectors of 16. Threads take equal shares of the work in order, so
// that a result depends on their number alone.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace {

constexpr long LANES = 16;
typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

struct BFloat16 {
    uint16_t bits;
};

inline Vector broadcast(float x) { return x - Vector{}; }

inline Vector load(const float* p) {
    Vector x;
    std::memcpy(&x, p, sizeof x);
    return x;
}

inline Vector load(const BFloat16* p) {
    Halves h;
    std::memcpy(&h, p, sizeof h);
#ifdef __AVX512F__  // in one instruction, which compilers do not find by themselves
    return (Vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#else
    return (Vector)(__builtin_convertvector(h, Words) << 16);
#endif
}

inline void store(float* p, Vector x) { std::memcpy(p, &x, sizeof x); }

inline void store(BFloat16* p, Vector x) {
#ifdef __AVX512BF16__
    const __m256bh h = _mm512_cvtneps_pbh((__m512)x);
    std::memcpy(p, &h, sizeof h);
#else
    const Words w = (Words)x;
    const Words rounded = (w + 0x7fff + ((w >> 16) & 1)) >> 16;  // to nearest even
    const Words quiet = (w >> 16) | 0x40;
    const Halves h = __builtin_convertvector(x == x ? rounded : quiet, Halves);
    std::memcpy(p, &h, sizeof h);
#endif
}

// Single numbers.
inline float single(const float* p) { return *p; }

inline float single(const BFloat16* p) {
    const uint32_t w = (uint32_t)p->bits << 16;
    float x;
    std::memcpy(&x, &w, sizeof x);
    return x;
}

inline float converted(float x, float*) { return x; }
inline BFloat16 converted(float x, BFloat16*) {
    uint32_t w;
    std::memcpy(&w, &x, sizeof w);
    return {(uint16_t)((w + 0x7fff + ((w >> 16) & 1)) >> 16)};
}

// As a tensor of this type holds it.
template <class T>
inline Vector rounded(Vector x, const T*) {
    T held[LANES];
    store(held, x);
    return load(held);
}

// The larger of both; y if one is not a number.
inline Vector larger(Vector x, Vector y) { return x > y ? x : y; }

#ifdef __AVX512F__
inline float sum(Vector x) { return _mm512_reduce_add_ps((__m512)x); }
inline float largest(Vector x) { return _mm512_reduce_max_ps((__m512)x); }
#else
// The lanes made one by halves.
template <class Combine>
inline float fold(Vector x, Combine combine) {
    float lanes[LANES];
    store(lanes, x);
    for (long half = LANES / 2; half; half /= 2)
        for (long i = 0; i < half; ++i) lanes[i] = combine(lanes[i], lanes[i + half]);
    return lanes[0];
}

inline float sum(Vector x) {
    return fold(x, [](float a, float b) { return a + b; });
}

inline float largest(Vector x) {
    return fold(x, [](float a, float b) { return a > b ? a : b; });
}
#endif

// e^x for x <= 88, to 2 units in the last place; all but 0 below the normal numbers.
inline Vector exponential(Vector x) {
    x = larger(broadcast(-87.33f), x);
    const Vector magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    const Vector n = (x * 1.44269504f + magic) - magic;
    const Vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    Vector p = broadcast(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const Ints power = (__builtin_convertvector(n, Ints) + 127) << 23;
    return p * (Vector)power;
}

inline int thread_number() {
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

// Calls body(thread, begin, end) with each thread's share of 0 ... count.
template <class Body>
void share(long count, int threads, Body body) {
    threads = (int)std::max<long>(1, std::min<long>(threads, count));
#pragma omp parallel num_threads(threads)
    {
        const int thread = thread_number();
        body(thread, count * thread / threads, count * (thread + 1) / threads);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Small matrix products in float, all of whose operands lie in the nearest cache.

// C[m, n] = sum over k in [begin, end) of A(m, k) * B[k, n] for ROWS rows and VECTORS * 16 columns.
template <int ROWS, int VECTORS>
inline void tile(const float* a, long row, long column, const float* b, long ldb, float* c, long ldc, long begin, long end) {
    Vector total[ROWS][VECTORS] = {};
    for (long k = begin; k < end; ++k) {
        Vector right[VECTORS];
        for (int v = 0; v < VECTORS; ++v) right[v] = load(b + k * ldb + v * LANES);
        for (int m = 0; m < ROWS; ++m) {
            const Vector left = broadcast(a[m * row + k * column]);
            for (int v = 0; v < VECTORS; ++v) total[m][v] += left * right[v];
        }
    }
    for (int m = 0; m < ROWS; ++m)
        for (int v = 0; v < VECTORS; ++v) store(c + m * ldc + v * LANES, total[m][v]);
}

constexpr long TILE_ROWS = 8;

template <int VECTORS, int ROWS = TILE_ROWS>
inline void tile_of(long rows, const float* a, long row, long column, const float* b, long ldb, float* c, long ldc,
                    long begin, long end) {
    if constexpr (ROWS > 1)
        if (rows < ROWS) return tile_of<VECTORS, ROWS - 1>(rows, a, row, column, b, ldb, c, ldc, begin, end);
    tile<ROWS, VECTORS>(a, row, column, b, ldb, c, ldc, begin, end);
}

struct Range {
    long begin, end;
};

// A matrix read by strides, so that it can be read transposed.
struct Left {
    const float* data;
    long row, column;
};

// C = A B for all rows of C. Of rows `first` to `last` only the columns that `columns(first, last)` names are computed,
// in whole vectors, and only over the k that `terms(first, last)` names.
template <class Columns, class Terms>
inline void product(Left a, const float* b, long ldb, float* c, long ldc, long rows, Columns columns, Terms terms) {
    for (long m = 0; m < rows; m += TILE_ROWS) {
        const long count = std::min(TILE_ROWS, rows - m);
        const Range wanted = columns(m, m + count), k = terms(m, m + count);
        const float* left = a.data + m * a.row;
        for (long n = wanted.begin; n < wanted.end;) {
            float* to = c + m * ldc + n;
            if (wanted.end - n >= 2 * LANES) {
                tile_of<2>(count, left, a.row, a.column, b + n, ldb, to, ldc, k.begin, k.end);
                n += 2 * LANES;
            } else {
                tile_of<1>(count, left, a.row, a.column, b + n, ldb, to, ldc, k.begin, k.end);
                n += LANES;
            }
        }
    }
}

// 16 rows of 16 become 16 columns, in place: four rounds of exchanging halves, quarters, pairs and neighbours.
template <int WIDTH>
inline void exchange(Vector* rows) {
    Ints low, high;
    for (int l = 0; l < LANES; ++l) {
        low[l] = l & WIDTH ? LANES + l - WIDTH : l;
        high[l] = l & WIDTH ? LANES + l : l + WIDTH;
    }
    for (int i = 0; i < LANES; ++i)
        if (!(i & WIDTH)) {
            const Vector a = rows[i], b = rows[i + WIDTH];
            rows[i] = __builtin_shuffle(a, b, low);
            rows[i + WIDTH] = __builtin_shuffle(a, b, high);
        }
}

// to[d, i] = from[i, d]; columns from `length` to `padded` become zero.
inline void transpose(const float* from, long length, long size, long padded, float* to) {
    for (long i = 0; i < padded; i += LANES)
        for (long d = 0; d < size; d += LANES) {
            Vector rows[LANES];
            for (long r = 0; r < LANES; ++r) rows[r] = i + r < length ? load(from + (i + r) * size + d) : Vector{};
            exchange<8>(rows), exchange<4>(rows), exchange<2>(rows), exchange<1>(rows);
            for (long r = 0; r < LANES; ++r) store(to + (d + r) * padded + i, rows[r]);
        }
}

// ---------------------------------------------------------------------------------------------------------------------
// Attention along one axis, separately for every line along it. Weights are held transposed, [keys, queries], so that
// the softmax over the keys works on 16 queries at once.

struct Lines {
    long batch, lines, length;   // sentences, lines in each, places along a line
    long plane, between, step;   // rows from one sentence, one line, one place to the next
    long heads, size;            // H and D
    const int32_t* lengths;      // keys of each sentence that are not padding; null: all
    int causal;                  // whether a place sees only itself and what precedes it
    const float* noise;          // factors of the weights, [queries, keys] for each sentence, line and head; null: none
    long noise_batch, noise_line, noise_head;
};

// What the places of a line see.
struct Sight {
    long length, padded, keys;
    bool causal;

    // Queries that see any of some keys, in whole vectors.
    Range queries_of(long first, long) const { return {causal ? first / LANES * LANES : 0, padded}; }
    // The same, in products that sum over queries.
    Range terms_of(long first, long) const { return {causal ? first : 0, length}; }
    // Keys that any of some queries sees.
    Range keys_of(long, long last) const { return {0, causal ? std::min(keys, last) : keys}; }
};

// One head of one line, in float, and where the kernels keep what they make of it.
struct Workspace {
    const Lines& g;
    const long padded, size;
    std::vector<float> held;
    float *q, *k, *v, *o, *turned, *weights, *dk, *dv, *d_weights;

    static float* aligned(std::vector<float>& s) { return (float*)(((uintptr_t)s.data() + 63) & ~(uintptr_t)63); }

    explicit Workspace(const Lines& lines)
        : g(lines), padded((g.length + LANES - 1) / LANES * LANES), size(g.size),
          held(padded * size * 7 + padded * padded * 2 + LANES) {
        float* next = aligned(held);
        for (float** each : {&q, &k, &v, &o, &turned, &dk, &dv}) *each = next, next += padded * size;
        for (float** each : {&weights, &d_weights}) *each = next, next += padded * padded;
    }

    // c = A B with rows of D features
    template <class Terms>
    void combine(Left a, const float* b, float* c, long rows, Terms terms) const {
        product(a, b, size, c, size, rows, [&](long, long) { return Range{0, size}; }, terms);
    }

    // c[key, query] = rows[key] . columns[query]
    void compare(const float* rows, const float* columns, float* c, const Sight& sight) {
        transpose(columns, g.length, size, padded, turned);
        product({rows, size, 1}, turned, padded, c, padded, sight.keys,
                [&](long first, long last) { return sight.queries_of(first, last); },
                [&](long, long) { return Range{0, size}; });
    }

    // weights = softmax(q k^T) over the keys, zero where a query does not see.
    void weigh(const Sight& sight) {
        compare(k, q, weights, sight);
        Ints lane;
        for (int i = 0; i < LANES; ++i) lane[i] = i;
        for (long n = 0; n < padded; n += LANES) {
            const long end = sight.keys_of(n, n + LANES).end;
            const Ints query = lane + (int)n;
            float* column = weights + n;
            Vector most = broadcast(-INFINITY);
            for (long j = 0; j < end; ++j) {
                Vector x = load(column + j * padded);
                if (sight.causal && j > n) {
                    x = query >= (int)j ? x : broadcast(-INFINITY);
                    store(column + j * padded, x);
                }
                most = larger(most, x);
            }
            Vector total = {};
            for (long j = 0; j < end; ++j) {
                Vector e = exponential(load(column + j * padded) - most);
                if (sight.causal && j > n) e = query >= (int)j ? e : Vector{};
                store(column + j * padded, e);
                total += e;
            }
            const Vector scale = 1.0f / total;
            for (long j = 0; j < end; ++j) store(column + j * padded, load(column + j * padded) * scale);
            for (long j = end; j < sight.keys; ++j) store(column + j * padded, Vector{});
        }
    }

    // d_weights becomes the gradient of the scores: weights * (d_weights - sum over keys of weights * d_weights).
    void through_softmax(const Sight& sight) {
        for (long n = 0; n < padded; n += LANES) {
            const long end = sight.keys_of(n, n + LANES).end;
            Vector total = {};
            for (long j = 0; j < end; ++j) total += load(weights + j * padded + n) * load(d_weights + j * padded + n);
            for (long j = 0; j < end; ++j) {
                float* at = d_weights + j * padded + n;
                store(at, load(weights + j * padded + n) * (load(at) - total));
            }
            for (long j = end; j < sight.keys; ++j) store(d_weights + j * padded + n, Vector{});
        }
    }

    void multiply(float* x, const float* noise, const Sight& sight) const {
        for (long i = 0; i < g.length; ++i)
            for (long j = 0; j < sight.keys; ++j) x[j * padded + i] *= noise[i * g.length + j];
    }
};

// Where one head of one line lies.
struct Place {
    long b, first, feature;
    const float* noise;

    Place(const Lines& g, long line, long head)
        : b(line / g.lines), first(b * g.plane + line % g.lines * g.between), feature(head * g.size),
          noise(g.noise ? g.noise + b * g.noise_batch + line % g.lines * g.noise_line + head * g.noise_head : nullptr) {}

    Sight sight(const Lines& g, long padded) const {
        return {g.length, padded, g.lengths ? g.lengths[b] : g.length, g.causal != 0};
    }
};

template <class T>
inline void fetch(const T* from, long stride, const float* bias, long length, long size, float scale, float* to) {
    for (long i = 0; i < length; ++i)
        for (long d = 0; d < size; d += LANES) {
            Vector x = load(from + i * stride + d);
            if (bias) x += load(bias + d);
            store(to + i * size + d, x * scale);
        }
}

// Stores a gradient's rows, and adds them up for the bias's.
template <class T>
inline void deliver(const float* from, long length, long size, float scale, T* to, long stride, float* bias) {
    for (long d = 0; d < size; d += LANES) {
        Vector total = {};
        for (long i = 0; i < length; ++i) {
            const Vector x = load(from + i * size + d) * scale;
            store(to + i * stride + d, x);
            total += x;
        }
        if (bias) store(bias + d, load(bias + d) + total);
    }
}

// Queries, keys and values, or their gradients: a row of each cell.
template <class T>
struct Roles {
    T *q, *k, *v;
    long query_stride, key_stride;
};

// Asks for a line's rows before they are needed: what lies this far apart, the processor does not foresee.
template <class T>
inline void prefetch(const T* rows, long stride, long features, long length) {
    for (long i = 0; i < length; ++i)
        for (long f = 0; f < features * (long)sizeof(T); f += 64)
            __builtin_prefetch((const char*)(rows + i * stride) + f);
}

template <class T>
void prefetch_roles(const Lines& g, const Roles<const T>& from, long line) {
    const Place at(g, line, 0);
    const long width = g.heads * g.size;
    prefetch(from.q + at.first * from.query_stride, g.step * from.query_stride, width, g.length);
    prefetch(from.k + at.first * from.key_stride, g.step * from.key_stride, 2 * width, g.length);
}

template <class T>
void fetch_roles(Workspace& w, const Roles<const T>& from, const Place& at, const float* bias) {
    const Lines& g = w.g;
    const long f = at.feature, width = g.heads * g.size, qs = from.query_stride, ks = from.key_stride;
    const float scale = 1.0f / std::sqrt((float)g.size);
    fetch(from.q + at.first * qs + f, g.step * qs, bias ? bias + f : nullptr, g.length, g.size, scale, w.q);
    fetch(from.k + at.first * ks + f, g.step * ks, bias ? bias + width + f : nullptr, g.length, g.size, 1, w.k);
    fetch(from.v + at.first * ks + f, g.step * ks, bias ? bias + 2 * width + f : nullptr, g.length, g.size, 1, w.v);
}

template <class T>
void attention_forward(const Lines& g, const Roles<const T>& from, const float* bias, T* out, int threads) {
    const long width = g.heads * g.size;
    share(g.batch * g.lines, threads, [&](int, long begin, long end) {
        Workspace w(g);
        for (long line = begin; line < end; ++line) {
            if (line + 1 < end) prefetch_roles(g, from, line + 1);
            for (long h = 0; h < g.heads; ++h) {
                const Place at(g, line, h);
                const Sight sight = at.sight(g, w.padded);
                fetch_roles(w, from, at, bias);
                w.weigh(sight);
                if (at.noise) w.multiply(w.weights, at.noise, sight);
                w.combine({w.weights, 1, w.padded}, w.v, w.o, g.length,
                          [&](long first, long last) { return sight.keys_of(first, last); });
                T* to = out + at.first * width + at.feature;
                deliver(w.o, g.length, g.size, 1, to, g.step * width, nullptr);
            }
        }
    });
}

template <class T>
void attention_backward(const Lines& g, const Roles<const T>& from, const float* bias, const T* d_out,
                        const Roles<T>& to, float* d_bias, int threads) {
    const float scale = 1.0f / std::sqrt((float)g.size);
    const long width = g.heads * g.size;
    std::vector<float> sums(d_bias ? threads * 3 * width : 0);
    share(g.batch * g.lines, threads, [&](int thread, long begin, long end) {
        Workspace w(g);
        for (long line = begin; line < end; ++line) {
            if (line + 1 < end) {
                prefetch_roles(g, from, line + 1);
                prefetch(d_out + Place(g, line + 1, 0).first * width, g.step * width, width, g.length);
            }
            for (long h = 0; h < g.heads; ++h) {
                const Place at(g, line, h);
                const Sight sight = at.sight(g, w.padded);
                const long f = at.feature;
                auto keys_of = [&](long first, long last) { return sight.keys_of(first, last); };
                auto terms_of = [&](long first, long last) { return sight.terms_of(first, last); };
                fetch_roles(w, from, at, bias);
                fetch(d_out + at.first * width + f, g.step * width, nullptr, g.length, g.size, 1, w.o);
                w.weigh(sight);
                w.compare(w.v, w.o, w.d_weights, sight);
                if (at.noise) w.multiply(w.d_weights, at.noise, sight);
                w.through_softmax(sight);
                if (at.noise) w.multiply(w.weights, at.noise, sight);
                std::fill(w.dk + sight.keys * g.size, w.dk + g.length * g.size, 0.0f);  // padding gets nothing
                std::fill(w.dv + sight.keys * g.size, w.dv + g.length * g.size, 0.0f);
                w.combine({w.d_weights, w.padded, 1}, w.q, w.dk, sight.keys, terms_of);
                w.combine({w.weights, w.padded, 1}, w.o, w.dv, sight.keys, terms_of);
                w.combine({w.d_weights, 1, w.padded}, w.k, w.q, g.length, keys_of);
                float* t = d_bias ? sums.data() + thread * 3 * width + f : nullptr;
                const long qs = to.query_stride, ks = to.key_stride;
                deliver(w.q, g.length, g.size, scale, to.q + at.first * qs + f, g.step * qs, t);
                deliver(w.dk, g.length, g.size, 1, to.k + at.first * ks + f, g.step * ks, t ? t + width : t);
                deliver(w.dv, g.length, g.size, 1, to.v + at.first * ks + f, g.step * ks, t ? t + 2 * width : t);
            }
        }
    });
    if (d_bias)
        for (int t = 0; t < threads; ++t)
            for (long i = 0; i < 3 * width; ++i) d_bias[i] += sums[t * 3 * width + i];
}

// ---------------------------------------------------------------------------------------------------------------------
// A tensor that is shared along axes of the grid [B, S, T, features], such as the noise of dropout.

template <class T>
struct Shared {
    const T* data;  // null: none
    long s, t;      // places of the grid [B, S, T]
    long by_b, by_s, by_t;

    const T* row(uint32_t cell) const {
        const uint32_t line = cell / (uint32_t)t, b = line / (uint32_t)s;
        return data + b * by_b + (line - b * (uint32_t)s) * by_s + (cell - line * (uint32_t)t) * by_t;
    }
};

// ---------------------------------------------------------------------------------------------------------------------
// x + noise * (update + update_bias), and the layer norm of that, if `normed` is not null.

template <class T>
void residual_norm_forward(long rows, long width, const T* x, const T* update, const float* update_bias,
                           const Shared<T> noise, const float* weight, const float* bias, T* sum_out, T* normed,
                           float* statistics, int threads) {
    share(rows, threads, [=](int, long begin, long end) {
        std::vector<float> held(width + LANES);
        float* row = Workspace::aligned(held);
        for (long r = begin; r < end; ++r) {
            const T* factors = update && noise.data ? noise.row(r) : nullptr;
            Vector total = {};
            for (long e = 0; e < width; e += LANES) {
                Vector value = load(x + r * width + e);
                if (update) {
                    Vector u = load(update + r * width + e);
                    if (update_bias) u += load(update_bias + e);
                    if (factors) u *= load(factors + e);
                    value = rounded(value + u, x);  // the norm is of what others will read
                    store(sum_out + r * width + e, value);
                }
                store(row + e, value);
                total += value;
            }
            if (!normed) continue;
            const float mean = sum(total) / width;
            Vector squares = {};
            for (long e = 0; e < width; e += LANES) {
                const Vector centred = load(row + e) - mean;
                squares += centred * centred;
            }
            const float scale = 1.0f / std::sqrt(sum(squares) / width + 1e-5f);
            for (long e = 0; e < width; e += LANES)
                store(normed + r * width + e, (load(row + e) - mean) * scale * load(weight + e) + load(bias + e));
            statistics[2 * r] = mean;
            statistics[2 * r + 1] = scale;
        }
    });
}

// gradients: [3, width] of weight, bias and update_bias.
template <class T>
void residual_norm_backward(long rows, long width, const T* x, const float* statistics, const Shared<T> noise,
                            const float* weight, const T* d_sum, const T* d_normed, T* d_x, T* d_update,
                            float* gradients, int threads) {
    std::vector<float> sums(threads * 3 * width);
    share(rows, threads, [=, &sums](int thread, long begin, long end) {
        float* totals = sums.data() + thread * 3 * width;
        for (long r = begin; r < end; ++r) {
            const float mean = d_normed ? statistics[2 * r] : 0, scale = d_normed ? statistics[2 * r + 1] : 0;
            const T* factors = d_update && noise.data ? noise.row(r) : nullptr;
            Vector along = {}, even = {};
            for (long e = 0; d_normed && e < width; e += LANES) {
                const Vector d = load(d_normed + r * width + e), hat = (load(x + r * width + e) - mean) * scale;
                store(totals + e, load(totals + e) + d * hat);
                store(totals + width + e, load(totals + width + e) + d);
                along += d * load(weight + e) * hat;
                even += d * load(weight + e);
            }
            const float mean_along = sum(along) / width, mean_even = sum(even) / width;
            for (long e = 0; e < width; e += LANES) {
                Vector d = {};
                if (d_normed) {
                    const Vector hat = (load(x + r * width + e) - mean) * scale;
                    d = (load(d_normed + r * width + e) * load(weight + e) - mean_even - hat * mean_along) * scale;
                }
                if (d_sum) d += load(d_sum + r * width + e);
                store(d_x + r * width + e, d);
                if (d_update) {
                    if (factors) d *= load(factors + e);
                    store(d_update + r * width + e, d);
                    store(totals + 2 * width + e, load(totals + 2 * width + e) + d);
                }
            }
        }
    });
    for (int t = 0; t < threads; ++t)
        for (long i = 0; i < 3 * width; ++i) gradients[i] += sums[t * 3 * width + i];
}

// ---------------------------------------------------------------------------------------------------------------------
// noise * max(0, x + bias), in place.

template <class T>
void bias_relu_forward(long rows, long width, T* x, const float* bias, const Shared<T> noise, int threads) {
    share(rows, threads, [=](int, long begin, long end) {
        for (long r = begin; r < end; ++r) {
            const T* factors = noise.data ? noise.row(r) : nullptr;
            for (long e = 0; e < width; e += LANES) {
                Vector value = larger(Vector{}, load(x + r * width + e) + load(bias + e));
                if (factors) value *= load(factors + e);
                store(x + r * width + e, value);
            }
        }
    });
}

template <class T>
void bias_relu_backward(long rows, long width, const T* result, T* gradient, const Shared<T> noise, float* d_bias,
                        int threads) {
    std::vector<float> sums(threads * width);
    share(rows, threads, [=, &sums](int thread, long begin, long end) {
        float* totals = sums.data() + thread * width;
        for (long r = begin; r < end; ++r) {
            const T* factors = noise.data ? noise.row(r) : nullptr;
            for (long e = 0; e < width; e += LANES) {
                Vector d = load(gradient + r * width + e);
                d = load(result + r * width + e) > Vector{} ? d : Vector{};
                if (factors) d *= load(factors + e);
                store(gradient + r * width + e, d);
                store(totals + e, load(totals + e) + d);
            }
        }
    });
    for (int t = 0; t < threads; ++t)
        for (long i = 0; i < width; ++i) d_bias[i] += sums[t * width + i];
}

// ---------------------------------------------------------------------------------------------------------------------
// Reduction of the grid along S: for every feature a softmax over the source positions, and the mean it weighs.

// Calls body(b, t, e, keys, first) for every target position and vector of features; `first` is the element at s = 0.
template <class Body>
void each_column(long batch, long s, long t, long width, const int32_t* lengths, int threads, Body body) {
    share(batch * t, threads, [=](int, long begin, long end) {
        for (long line = begin; line < end; ++line) {
            const long b = line / t;
            for (long e = 0; e < width; e += LANES)
                body(line, e, lengths ? lengths[b] : s, (b * s * t + line % t) * width + e);
        }
    });
}

struct Softmax {
    Vector most, scale;
};

template <class T>
inline Softmax column_softmax(const T* scores, long step, long keys) {
    Vector most = broadcast(-INFINITY), total = {};
    for (long i = 0; i < keys; ++i) most = larger(most, load(scores + i * step));
    for (long i = 0; i < keys; ++i) total += exponential(load(scores + i * step) - most);
    return {most, 1.0f / total};
}

template <class T>
void reduction_forward(long batch, long s, long t, long width, const int32_t* lengths, const T* x, const T* scores,
                       T* out, int threads) {
    const long step = t * width;
    each_column(batch, s, t, width, lengths, threads, [=](long line, long e, long keys, long first) {
        const Softmax softmax = column_softmax(scores + first, step, keys);
        Vector total = {};
        for (long i = 0; i < keys; ++i) {
            const long at = first + i * step;
            total += exponential(load(scores + at) - softmax.most) * softmax.scale * load(x + at);
        }
        store(out + line * width + e, total);
    });
}

template <class T>
void reduction_backward(long batch, long s, long t, long width, const int32_t* lengths, const T* x, const T* scores,
                        const T* d_out, T* d_x, T* d_scores, int threads) {
    const long step = t * width;
    each_column(batch, s, t, width, lengths, threads, [=](long line, long e, long keys, long first) {
        const Softmax softmax = column_softmax(scores + first, step, keys);
        const Vector d = load(d_out + line * width + e);
        Vector mean = {};
        for (long i = 0; i < keys; ++i) {
            const long at = first + i * step;
            mean += exponential(load(scores + at) - softmax.most) * softmax.scale * load(x + at);
        }
        for (long i = 0; i < keys; ++i) {
            const long at = first + i * step;
            const Vector weight = exponential(load(scores + at) - softmax.most) * softmax.scale;
            store(d_x + at, d * weight);
            store(d_scores + at, d * weight * (load(x + at) - mean));
        }
        for (long i = keys; i < s; ++i) store(d_x + first + i * step, Vector{}), store(d_scores + first + i * step, Vector{});
    });
}

// ---------------------------------------------------------------------------------------------------------------------
// Label-smoothed cross entropy of rows of logits.

// statistics: [rows, 3], the logarithm of the softmax's denominator, the gold token's negative log-likelihood, and the
// mean of all tokens' negative log-likelihoods.
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
            for (long v = whole; v < vocabulary; ++v) total += std::exp(tail[v - whole] - highest), all += tail[v - whole];
            const float denominator = highest + std::log(total);
            statistics[3 * r] = denominator;
            statistics[3 * r + 1] = denominator - single(row + gold[r]);
            statistics[3 * r + 2] = denominator - all / vocabulary;
        }
    });
}

// weights: of each row, the gradient of the summed loss included.
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

// ---------------------------------------------------------------------------------------------------------------------
// Lexical shortcuts: what a gate mixes of a hidden and a lexical input. The lexical input is the sum of parts, each
// shared along axes of the grid; with fusion, both inputs are of the first and of the second half of hidden + lexical.

template <class T>
struct Mixture {
    const T* hidden;
    const float* bias;
    Shared<T> first, second;  // the parts; the second may be null
    long width;              // features of the result
    int fusion;

    struct Cell {
        Vector lexical, hidden, gate;
    };

    inline Vector part(const T* a, const T* b, long e) const {
        const Vector x = load(a + e);
        return b ? x + load(b + e) : x;
    }

    // The mixture's inputs and gate at features e of a cell, whose rows are given.
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

    long inputs() const { return fusion ? 2 * width : width; }
};

template <class T>
void mixture_forward(long rows, const Mixture<T>& m, T* out, T* gates, int threads) {
    share(rows, threads, [&, m](int, long begin, long end) {
        for (long r = begin; r < end; ++r) {
            const T *row = m.hidden + r * m.inputs(), *a = m.first.row(r), *b = m.second.data ? m.second.row(r) : nullptr;
            for (long e = 0; e < m.width; e += LANES) {
                const auto cell = m.at(row, a, b, e);
                store(out + r * m.width + e, cell.hidden + cell.gate * (cell.lexical - cell.hidden));
                if (gates) store(gates + r * m.width + e, cell.gate);
            }
        }
    });
}

// d_first, d_second: gradients of the parts, summed over what shares them, in float and as wide as the inputs; of
// [B, S, T, inputs] with the parts' own strides.
template <class T>
void mixture_backward(long batch, const Mixture<T>& m, const T* d_out, T* d_hidden, const Shared<float>& d_first,
                      const Shared<float>& d_second, float* d_bias, int threads) {
    const long cells = m.first.s * m.first.t, inputs = m.inputs(), width = m.width;
    std::vector<float> sums(threads * width);
    share(batch, threads, [&, m, d_first, d_second](int thread, long begin, long end) {
        float* totals = sums.data() + thread * width;
        for (long r = begin * cells; r < end * cells; ++r) {
            const T *row = m.hidden + r * inputs, *a = m.first.row(r), *b = m.second.data ? m.second.row(r) : nullptr;
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
    for (int t = 0; t < threads; ++t)
        for (long i = 0; i < width; ++i) d_bias[i] += sums[t * width + i];
}

// ---------------------------------------------------------------------------------------------------------------------
// Factors of dropout: 0 with probability `rate`, else 1 / (1 - rate); a pure function of seed and place.

inline uint64_t mixed(uint64_t x) {  // SplitMix64 (Steele, Lea, Flood 2014)
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

template <class T>
void fill_noise(long count, double rate, uint64_t seed, T* out, int threads) {
    const uint32_t limit = (uint32_t)std::min(rate * 4294967296.0, 4294967295.0);
    const T kept = converted((float)(1 / (1 - rate)), out), dropped = converted(0, out);
    share((count + 1) / 2, threads, [&](int, long begin, long end) {
        for (long i = begin; i < end; ++i) {
            const uint64_t bits = mixed(seed + (uint64_t)(i + 1) * 0x9e3779b97f4a7c15ull);
            out[2 * i] = (uint32_t)bits < limit ? dropped : kept;
            if (2 * i + 1 < count) out[2 * i + 1] = (uint32_t)(bits >> 32) < limit ? dropped : kept;
        }
    });
}

}  // namespace

#define EXPORT(TYPE, NAME)                                                                                             \
    extern "C" void attention_forward_##NAME(const Lines* g, const TYPE* q, const TYPE* k, const TYPE* v, long qs,     \
                                             long kvs, const float* bias, TYPE* out, int threads) {                    \
        attention_forward<TYPE>(*g, {q, k, v, qs, kvs}, bias, out, threads);                                                 \
    }                                                                                                                  \
    extern "C" void attention_backward_##NAME(const Lines* g, const TYPE* q, const TYPE* k, const TYPE* v, long qs,    \
                                              long kvs, const float* bias, const TYPE* d_out, TYPE* dq, TYPE* dk,      \
                                              TYPE* dv, float* d_bias, int threads) {                                  \
        attention_backward<TYPE>(*g, {q, k, v, qs, kvs}, bias, d_out, {dq, dk, dv, qs, kvs}, d_bias, threads);                            \
    }                                                                                                                  \
    extern "C" void residual_norm_forward_##NAME(long rows, long width, const TYPE* x, const TYPE* u, const float* ub, \
                                                 const Shared<TYPE>* noise, const float* w, const float* b, TYPE* sum,  \
                                                 TYPE* normed, float* statistics, int threads) {                       \
        residual_norm_forward(rows, width, x, u, ub, *noise, w, b, sum, normed, statistics, threads);                  \
    }                                                                                                                  \
    extern "C" void residual_norm_backward_##NAME(long rows, long width, const TYPE* x, const float* statistics,       \
                                                  const Shared<TYPE>* noise, const float* w, const TYPE* d_sum,         \
                                                  const TYPE* d_normed, TYPE* dx, TYPE* du, float* gradients,          \
                                                  int threads) {                                                       \
        residual_norm_backward(rows, width, x, statistics, *noise, w, d_sum, d_normed, dx, du, gradients, threads);    \
    }                                                                                                                  \
    extern "C" void bias_relu_forward_##NAME(long rows, long width, TYPE* x, const float* bias,                        \
                                             const Shared<TYPE>* noise, int threads) {                                  \
        bias_relu_forward(rows, width, x, bias, *noise, threads);                                                      \
    }                                                                                                                  \
    extern "C" void bias_relu_backward_##NAME(long rows, long width, const TYPE* result, TYPE* gradient,               \
                                              const Shared<TYPE>* noise, float* d_bias, int threads) {                  \
        bias_relu_backward(rows, width, result, gradient, *noise, d_bias, threads);                                    \
    }                                                                                                                  \
    extern "C" void reduction_forward_##NAME(long b, long s, long t, long width, const int32_t* lengths,               \
                                             const TYPE* x, const TYPE* scores, TYPE* out, int threads) {              \
        reduction_forward(b, s, t, width, lengths, x, scores, out, threads);                                           \
    }                                                                                                                  \
    extern "C" void reduction_backward_##NAME(long b, long s, long t, long width, const int32_t* lengths,              \
                                              const TYPE* x, const TYPE* scores, const TYPE* d_out, TYPE* dx,          \
                                              TYPE* d_scores, int threads) {                                           \
        reduction_backward(b, s, t, width, lengths, x, scores, d_out, dx, d_scores, threads);                          \
    }                                                                                                                  \
    extern "C" void cross_entropy_forward_##NAME(long rows, long vocabulary, const TYPE* logits, const int64_t* gold,  \
                                                 float* statistics, int threads) {                                     \
        cross_entropy_forward(rows, vocabulary, logits, gold, statistics, threads);                                    \
    }                                                                                                                  \
    extern "C" void cross_entropy_backward_##NAME(long rows, long vocabulary, const TYPE* logits, const int64_t* gold, \
                                                  const float* statistics, const float* weights, double smoothing,     \
                                                  TYPE* gradient, int threads) {                                       \
        cross_entropy_backward(rows, vocabulary, logits, gold, statistics, weights, (float)smoothing, gradient,        \
                               threads);                                                                               \
    }                                                                                                                  \
    extern "C" void mixture_forward_##NAME(long rows, const Mixture<TYPE>* m, TYPE* out, TYPE* gates, int threads) {   \
        mixture_forward(rows, *m, out, gates, threads);                                                                \
    }                                                                                                                  \
    extern "C" void mixture_backward_##NAME(long batch, const Mixture<TYPE>* m, const TYPE* d_out, TYPE* d_hidden,     \
                                            const Shared<float>* d_first, const Shared<float>* d_second, float* d_bias,  \
                                            int threads) {                                                             \
        mixture_backward(batch, *m, d_out, d_hidden, *d_first, *d_second, d_bias, threads);                            \
    }                                                                                                                  \
    extern "C" void fill_noise_##NAME(long count, double rate, uint64_t seed, TYPE* out, int threads) {                \
        fill_noise(count, rate, seed, out, threads);                                                                   \
    }

EXPORT(float, float32)
EXPORT(BFloat16, bfloat16)
