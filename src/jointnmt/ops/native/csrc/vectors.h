// Vectors of floats in registers, stored as float or bfloat16, and the division of work among threads.

#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif
#if defined(__AVX512F__) || defined(__AVX2__) || defined(__FMA__)
#include <immintrin.h>
#endif

namespace {

#ifdef __AVX512F__
constexpr long LANES = 16;
#else
constexpr long LANES = 8;  // compilers spill vectors of several registers to memory
#endif
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
#ifdef __AVX512F__  // instructions that compilers do not emit by themselves
    return (Vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#elif defined(__AVX2__) && defined(__FMA__)
    return (Vector)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)h), 16);
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
    const Words whole = x == x ? rounded : quiet;
#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)
    const __m256i two = (__m256i)whole;
    const __m128i h = _mm_packus_epi32(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
#else
    const Halves h = __builtin_convertvector(whole, Halves);
#endif
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
    return {(uint16_t)(x == x ? (w + 0x7fff + ((w >> 16) & 1)) >> 16 : (w >> 16) | 0x40)};
}

// sum + left * right, rounded once where the processor can. Left to the compiler, it would be contracted in tiles of some
// sizes and not in others, and a row's product would depend on the number of rows.
inline Vector multiply_add(Vector sum, Vector left, Vector right) {
#if defined(__AVX512F__)
    return (Vector)_mm512_fmadd_ps((__m512)left, (__m512)right, (__m512)sum);
#elif defined(__FMA__)
    return (Vector)_mm256_fmadd_ps((__m256)left, (__m256)right, (__m256)sum);
#else
    return sum + left * right;
#endif
}

// Rounded to the precision of T.
template <class T>
inline Vector rounded(Vector x, const T*) {
    T held[LANES];
    store(held, x);
    return load(held);
}

// The maximum; y if either is NaN.
inline Vector larger(Vector x, Vector y) { return x > y ? x : y; }

#ifdef __AVX512F__
inline float sum(Vector x) { return _mm512_reduce_add_ps((__m512)x); }
inline float largest(Vector x) { return _mm512_reduce_max_ps((__m512)x); }
#else
// Reduces the lanes pairwise.
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

// Whether any lane of a comparison holds.
inline bool any(Ints x) {
#ifdef __AVX512F__
    return _mm512_test_epi32_mask((__m512i)x, (__m512i)x);
#else
    int32_t all = 0;
    for (long i = 0; i < LANES; ++i) all |= x[i];
    return all;
#endif
}

// e^x for x <= 88, within 2 units in the last place; nearly 0 where e^x would be subnormal. The constants are those of
// Cephes' expf (Moshier).
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

// The number of real keys of a sentence, at most those that there are; without lengths, all.
inline long real_keys(const int32_t* lengths, long sentence, long all) {
    return lengths ? std::clamp<long>(lengths[sentence], 0, all) : all;
}

// Exchanges the lanes of a whose index has bit WIDTH set with the lanes of b whose index has not.
template <int WIDTH, size_t... LANE>
inline void exchange_lanes(Vector& a, Vector& b, std::index_sequence<LANE...>) {
    const Vector x = a, y = b;
#ifdef __clang__  // which has no __builtin_shuffle, as GCC before 12 has no __builtin_shufflevector
    a = __builtin_shufflevector(x, y, (LANE & WIDTH ? LANES + LANE - WIDTH : LANE)...);
    b = __builtin_shufflevector(x, y, (LANE & WIDTH ? LANES + LANE : LANE + WIDTH)...);
#else
    a = __builtin_shuffle(x, y, Ints{(int)(LANE & WIDTH ? LANES + LANE - WIDTH : LANE)...});
    b = __builtin_shuffle(x, y, Ints{(int)(LANE & WIDTH ? LANES + LANE : LANE + WIDTH)...});
#endif
}

template <int WIDTH>
inline void exchange(Vector* rows) {
    for (int i = 0; i < LANES; ++i)
        if (!(i & WIDTH)) exchange_lanes<WIDTH>(rows[i], rows[i + WIDTH], std::make_index_sequence<LANES>());
}

// Transposes a square block of LANES vectors in place by exchanging halves, quarters, pairs and neighbours.
template <int WIDTH = LANES / 2>
inline void transpose(Vector* rows) {
    exchange<WIDTH>(rows);
    if constexpr (WIDTH > 1) transpose<WIDTH / 2>(rows);
}

// Numbers that begin where a line of the cache does: to load a vector that lies in two lines takes twice as long.
template <class T>
struct InWholeLines {
    using value_type = T;
    static constexpr std::align_val_t LINE{64};

    InWholeLines() = default;
    template <class U>
    InWholeLines(const InWholeLines<U>&) {}
    T* allocate(size_t count) { return (T*)::operator new(count * sizeof(T), LINE); }
    void deallocate(T* numbers, size_t) { ::operator delete(numbers, LINE); }
    template <class U>
    bool operator==(const InWholeLines<U>&) const {
        return true;
    }
};

template <class T>
using Buffer = std::vector<T, InWholeLines<T>>;

// Divides 0 ... count among `threads` threads, each of which calls body(thread, begin, end), perhaps for nothing. Throws
// bad_alloc after all have ended if one of them ran out of memory. The team is whole, or one thread: libgomp would end
// the surplus threads of a smaller one, and create them again for the next.
template <class Body>
void share(long count, int threads, Body body) {
    threads = count > 1 ? threads : 1;
#ifdef _OPENMP
    std::atomic<bool> failed{false};
#pragma omp parallel num_threads(threads)
    {
        const int thread = omp_get_thread_num(), team = omp_get_num_threads();
        try {
            body(thread, count * thread / team, count * (thread + 1) / team);
        } catch (const std::bad_alloc&) {
            failed = true;
        }
    }
    if (failed) throw std::bad_alloc();
#else
    body(0, 0, count);
#endif
}

// One array of sums for each thread; the first thread adds to `out` itself.
class Totals {
  public:
    Totals(float* out, long size, int threads) : out(out), size(size), threads(threads), held(size * (threads - 1)) {}

    float* of(int thread) { return thread ? held.data() + (thread - 1) * size : out; }

    void reduce() const {
        if (held.empty()) return;
        const long vectors = size / LANES, shares = (vectors + SHARE - 1) / SHARE;
        share(shares, threads, [&](int, long begin, long end) {
            for (long v = begin * SHARE; v < std::min(end * SHARE, vectors); ++v) {
                Vector total = load(out + v * LANES);
                for (int other = 0; other < threads - 1; ++other) total += load(held.data() + other * size + v * LANES);
                store(out + v * LANES, total);
            }
        });
    }

  private:
    static constexpr long SHARE = 64;  // vectors: fewer are not worth a second thread

    float* out;
    long size;  // a multiple of LANES
    int threads;
    Buffer<float> held;
};

constexpr int NO_MEMORY = -1;

// The return value of a kernel: that of the body, 0 if it has none, or NO_MEMORY.
template <class Body>
int guarded(Body body) {
    try {
        if constexpr (!std::is_void_v<decltype(body())>) return body();
        body();
        return 0;
    } catch (const std::bad_alloc&) {
        return NO_MEMORY;
    }
}

}  // namespace
