// Products of 8-bit integers: what goes in, and what comes out.

#pragma once

#include "vectors.h"

namespace {

// Each row as integers from -127 to 127, and what one of them is worth.
template <class T>
void quantise_rows(long rows, long width, const T* x, int8_t* out, float* scales, int threads) {
    share(rows, threads, [=](int, long begin, long end) {
        for (long r = begin; r < end; ++r) {
            Vector most = {};
            for (long e = 0; e < width; e += LANES) {
                const Vector value = load(x + r * width + e);
                most = larger(most, larger(-value, value));
            }
            const float scale = largest(most) / 127;
            scales[r] = scale;
            const float inverse = scale > 0 ? 1 / scale : 0;
            for (long e = 0; e < width; e += LANES) {
                const Vector value = load(x + r * width + e) * inverse;
                const Vector magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
                const Bytes bytes = __builtin_convertvector((value + magic) - magic, Bytes);
                std::memcpy(out + r * width + e, &bytes, sizeof bytes);
            }
        }
    });
}

// sums * row scale * column scale + bias.
template <class T>
void dequantise(long rows, long width, const int32_t* sums, const float* row_scales, const float* column_scales,
                const float* bias, T* out, int threads) {
    share(rows, threads, [=](int, long begin, long end) {
        for (long r = begin; r < end; ++r)
            for (long e = 0; e < width; e += LANES) {
                Ints total;
                std::memcpy(&total, sums + r * width + e, sizeof total);
                Vector value = __builtin_convertvector(total, Vector) * row_scales[r] * load(column_scales + e);
                if (bias) value += load(bias + e);
                store(out + r * width + e, value);
            }
    });
}

}  // namespace
