// AVX-VNNI's sum of four products on a processor without it, for tests.

#include <immintrin.h>

inline __m256i emulated_dpbusd(__m256i sums, __m256i unsigned_bytes, __m256i signed_bytes) {
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(unsigned_bytes, _mm256_set1_epi16(255)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(signed_bytes, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(unsigned_bytes, 8), _mm256_srai_epi16(signed_bytes, 8));
    return _mm256_add_epi32(sums, _mm256_add_epi32(even, odd));
}

#define _mm256_dpbusd_avx_epi32 emulated_dpbusd
