// The exported kernels. Each computes an operation between the matrix products of a model in one pass over memory,
// forward and backward: attention, residual connection with layer norm, bias with ReLU, reduction, lexical shortcuts,
// loss. Where the processor has the instructions, there are matrix products as well, also with 8-bit integers.
//
// Tensors are rows of features, one row for each cell of a grid [B, S, T, features] (a sequence has S = 1), in float32
// or bfloat16; sums are in float32. The number of features is a multiple of 16. Work is divided into equal contiguous
// shares, so a result depends on the number of threads only.

#include "attention.h"
#include "decoding.h"
#include "int8.h"
#include "layers.h"
#include "linear.h"
#include "loss.h"
#include "positions.h"
#include "reduction.h"
#include "replay.h"
#include "search.h"
#include "shortcut.h"

#define EXPORT(TYPE, NAME)                                                                                             \
    extern "C" int axial_attention_forward_##NAME(const Lines* g, const TYPE* q, const TYPE* k, const TYPE* v, long qs,\
                                                  long kvs, const float* bias, TYPE* out, int threads) {               \
        return guarded([&] { axial_attention_forward<TYPE>(*g, {q, k, v, qs, kvs}, bias, out, threads); });            \
    }                                                                                                                  \
    extern "C" int axial_attention_backward_##NAME(const Lines* g, const TYPE* q, const TYPE* k, const TYPE* v,        \
                                                   long qs, long kvs, const float* bias, const TYPE* d_out, TYPE* dq,  \
                                                   TYPE* dk, TYPE* dv, long dqs, long dkvs, float* d_bias,             \
                                                   int threads) {                                                      \
        return guarded([&] {                                                                                           \
            const QKV<TYPE> to = {dq, dk, dv, dqs, dkvs};                                                              \
            axial_attention_backward<TYPE>(*g, {q, k, v, qs, kvs}, bias, d_out, to, d_bias, threads);                  \
        });                                                                                                            \
    }                                                                                                                  \
    extern "C" int cached_attention_##NAME(const CacheLayout* g, const TYPE* q, long qs, const TYPE* cache,            \
                                           TYPE* out, int threads) {                                                   \
        return guarded([&] { cached_attention(*g, q, qs, cache, out, threads); });                                     \
    }                                                                                                                  \
    extern "C" int append_to_cache_##NAME(const CacheLayout* g, const TYPE* key_value, long stride, TYPE* cache,       \
                                          int threads) {                                                               \
        return guarded([&] { append_to_cache(*g, key_value, stride, cache, threads); });                               \
    }                                                                                                                  \
    extern "C" int grid_of_sides_##NAME(long cells, long width, const Broadcast<TYPE>* source,                         \
                                        const Broadcast<TYPE>* target, TYPE* out, int threads) {                       \
        return guarded([&] { grid_of_sides(cells, width, *source, *target, out, threads); });                          \
    }                                                                                                                  \
    extern "C" int add_norm_forward_##NAME(long rows, long width, const TYPE* x, const TYPE* u, const float* ub,       \
                                           const Broadcast<TYPE>* dropout, const float* w, const float* b, TYPE* sum,  \
                                           TYPE* normed, float* statistics, int threads) {                             \
        return guarded([&] { add_norm_forward(rows, width, x, u, ub, *dropout, w, b, sum, normed, statistics,          \
            threads); });                                                                                              \
    }                                                                                                                  \
    extern "C" int add_norm_backward_##NAME(long rows, long width, const TYPE* x, const float* statistics,             \
                                            const Broadcast<TYPE>* dropout, const float* w, const TYPE* d_sum,         \
                                            const TYPE* d_normed, TYPE* dx, TYPE* du, float* gradients,                \
                                            float* d_update_bias, int threads) {                                       \
        return guarded([&] { add_norm_backward(rows, width, x, statistics, *dropout, w, d_sum, d_normed,               \
            dx, du, gradients, d_update_bias, threads); });                                                            \
    }                                                                                                                  \
    extern "C" int bias_relu_forward_##NAME(long rows, long width, TYPE* x, const float* bias,                         \
                                            const Broadcast<TYPE>* dropout, int threads) {                             \
        return guarded([&] { bias_relu_forward(rows, width, x, bias, *dropout, threads); });                           \
    }                                                                                                                  \
    extern "C" int bias_relu_backward_##NAME(long rows, long width, const TYPE* result, TYPE* gradient,                \
                                             const Broadcast<TYPE>* dropout, float* d_bias, int threads) {             \
        return guarded([&] { bias_relu_backward(rows, width, result, gradient, *dropout, d_bias,                       \
            threads); });                                                                                              \
    }                                                                                                                  \
    extern "C" int attention_pool_forward_##NAME(long b, long s, long t, long width, const int32_t* lengths,           \
                                                 const TYPE* x, const TYPE* scores, TYPE* out, int threads) {          \
        return guarded([&] { attention_pool_forward(b, s, t, width, lengths, x, scores, out, threads); });             \
    }                                                                                                                  \
    extern "C" int attention_pool_backward_##NAME(long b, long s, long t, long width, const int32_t* lengths,          \
                                                  const TYPE* x, const TYPE* scores, const TYPE* d_out, TYPE* dx,      \
                                                  TYPE* d_scores, int threads) {                                       \
        return guarded([&] { attention_pool_backward(b, s, t, width, lengths, x, scores, d_out, dx, d_scores,          \
            threads); });                                                                                              \
    }                                                                                                                  \
    extern "C" int cross_entropy_forward_##NAME(long rows, long vocabulary, const TYPE* logits, const int64_t* gold,   \
                                                float* statistics, int threads) {                                      \
        return guarded([&] { cross_entropy_forward(rows, vocabulary, logits, gold, statistics,                         \
            threads); });                                                                                              \
    }                                                                                                                  \
    extern "C" int cross_entropy_backward_##NAME(long rows, long vocabulary, const TYPE* logits, const int64_t* gold,  \
                                                 const float* statistics, const float* weights, double smoothing,      \
                                                 TYPE* gradient, int threads) {                                        \
        return guarded([&] { cross_entropy_backward(rows, vocabulary, logits, gold, statistics, weights,               \
            (float)smoothing, gradient, threads); });                                                                  \
    }                                                                                                                  \
    extern "C" int divergence_##NAME(long rows, long vocabulary, const TYPE* first, const TYPE* second,                \
                                     const float* weights, float* apart, TYPE* d_first, TYPE* d_second, int threads) { \
        return guarded([&] { divergence(rows, vocabulary, first, second, weights, apart, d_first, d_second,            \
            threads); });                                                                                              \
    }                                                                                                                  \
    extern "C" int log_softmax_##NAME(long rows, long width, const TYPE* logits, float* out, int threads) {            \
        return guarded([&] { log_softmax(rows, width, logits, out, threads); });                                       \
    }                                                                                                                  \
    extern "C" int advance_beams_##NAME(long sentences, long beams, long width, const TYPE* logits, long stride,       \
                                        long length, const Hypotheses* old, const Restriction* restriction,            \
                                        const Continuations* candidates, int64_t* ranks, int64_t* rows,                \
                                        const Hypotheses* survivors, int threads) {                                    \
        return guarded([&] { return advance_beams(sentences, beams, width, logits, stride, length, *old,               \
            *restriction, *candidates, ranks, rows, *survivors, threads); });                                          \
    }                                                                                                                  \
    extern "C" int advance_positions_##NAME(long sentences, long beams, long vocabulary, const TYPE* logits,           \
                                            long stride, long length, long most, Decoder* decoder,                     \
                                            const Hypotheses* old, const Restriction* restriction,                     \
                                            const Continuations* candidates, int64_t* ranks, int64_t* rows,            \
                                            const Hypotheses* survivors, int64_t* computed, int threads) {             \
        return guarded([&] { return advance_positions(sentences, beams, vocabulary, logits, stride, length, most,      \
            *decoder, *old, *restriction, *candidates, ranks, rows, survivors, *computed, threads); });                \
    }                                                                                                                  \
    extern "C" int gated_kv_forward_##NAME(long rows, const GatedMixture<TYPE>* m, TYPE* out, int threads) {           \
        return guarded([&] { gated_kv_forward(rows, *m, out, threads); });                                             \
    }                                                                                                                  \
    extern "C" int gated_kv_backward_##NAME(long batch, const GatedMixture<TYPE>* m, const TYPE* d_out,                \
                                            TYPE* d_hidden, const Broadcast<float>* d_first,                           \
                                            const Broadcast<float>* d_second, float* d_bias, int threads) {            \
        return guarded([&] { gated_kv_backward(batch, *m, d_out, d_hidden, *d_first, *d_second, d_bias,                \
            threads); });                                                                                              \
    }                                                                                                                  \
    extern "C" int fill_dropout_mask_##NAME(long count, double rate, uint64_t seed, TYPE* out, int threads) {          \
        return guarded([&] { fill_dropout_mask(count, rate, seed, out, threads); });                                   \
    }

// Those that a decoding position calls. What comes first is how much they compute, as a number or as the first field of
// a structure, and is proportional to the number of sentences; nothing else depends on that number.
#define EXPORT_REPLAYED(NAME)                                                                                          \
    REPLAYED(axial_attention_forward_##NAME)                                                                           \
    REPLAYED(cached_attention_##NAME)                                                                                  \
    REPLAYED(append_to_cache_##NAME)                                                                                   \
    REPLAYED(grid_of_sides_##NAME)                                                                                     \
    REPLAYED(add_norm_forward_##NAME)                                                                                  \
    REPLAYED(bias_relu_forward_##NAME)                                                                                 \
    REPLAYED(attention_pool_forward_##NAME)                                                                            \
    REPLAYED(gated_kv_forward_##NAME)

EXPORT(float, float32)
EXPORT(BFloat16, bfloat16)
EXPORT_REPLAYED(float32)
EXPORT_REPLAYED(bfloat16)

extern "C" int topk_float32(long rows, long width, const float* values, long count, float* best, int64_t* indices,
                                int threads) {
    return guarded([&] { return topk(rows, width, values, count, best, indices, threads); });
}

#ifdef HAS_GEMM
#define EXPORT_PRODUCTS(TYPE, NAME)                                                                                    \
    extern "C" int linear_forward_##NAME(long rows, long inputs, long features, const TYPE* x, const TYPE* weight,     \
                                         const float* bias, TYPE* out, int threads) {                                  \
        return guarded([&] { linear_forward(rows, inputs, features, x, weight, bias, out, threads); });                \
    }                                                                                                                  \
    extern "C" int linear_backward_##NAME(long rows, long inputs, long features, const Rows<TYPE>* x,                  \
                                          const TYPE* weight, const TYPE* d_out, TYPE* d_x, float* d_weight,           \
                                          float* d_bias, int threads) {                                                \
        return guarded([&] { linear_backward(rows, inputs, features, *x, weight, d_out, d_x, d_weight, d_bias,         \
            threads); });                                                                                              \
    }                                                                                                                  \
    extern "C" int mlp_forward_##NAME(long rows, long embed, long ffn, const TYPE* x, const TYPE* weight1,             \
                                      const float* bias, const Broadcast<TYPE>* dropout, const TYPE* weight2,          \
                                      const float* bias2, TYPE* hidden, TYPE* out, int threads) {                      \
        return guarded([&] { mlp_forward(rows, embed, ffn, x, weight1, bias, *dropout, weight2, bias2, hidden, out,    \
            threads); });                                                                                              \
    }                                                                                                                  \
    extern "C" int mlp_backward_##NAME(long rows, long embed, long ffn, const Rows<TYPE>* x,                           \
                                       const TYPE* hidden, const TYPE* weight1, const Broadcast<TYPE>* dropout,        \
                                       const TYPE* weight2, const TYPE* d_out, TYPE* d_x, float* d_weight1,            \
                                       float* d_bias, float* d_weight2, float* d_bias2, int threads) {                 \
        return guarded([&] { mlp_backward(rows, embed, ffn, *x, hidden, weight1, *dropout, weight2, d_out, d_x,        \
            d_weight1, d_bias, d_weight2, d_bias2, threads); });                                                       \
    }

// Of weights that are packed once.
#define EXPORT_PACKED(TYPE, NAME)                                                                                      \
    extern "C" void pack_weights_##NAME(long features, long inputs, const TYPE* weight, Packed<TYPE>* packed) {        \
        pack(Matrix<TYPE>{weight, 1, inputs}, inputs, features, packed);                                                     \
    }                                                                                                                  \
    extern "C" int linear_##NAME(long rows, const TYPE* x, const Weights<TYPE>* w, TYPE* out, int threads) {           \
        return guarded([&] { linear(rows, x, *w, out, threads); });                                                    \
    }                                                                                                                  \
    extern "C" int mlp_##NAME(long rows, const TYPE* x, const Weights<TYPE>* first, const Weights<TYPE>* second,       \
                              TYPE* out, int threads) {                                                                \
        return guarded([&] { mlp<TYPE>(rows, x, *first, {}, *second, nullptr, out, threads); });                       \
    }                                                                                                                  \
    REPLAYED(linear_##NAME)                                                                                            \
    REPLAYED(mlp_##NAME)

EXPORT_PRODUCTS(float, float32)
EXPORT_PACKED(float, float32)
EXPORT_PRODUCTS(BFloat16, bfloat16)
EXPORT_PACKED(BFloat16, bfloat16)

extern "C" int multiplies_as_float() { return std::is_same_v<Half, float>; }
#endif

#ifdef _OPENMP
extern "C" int uses_threads() { return 1; }
#endif

#ifdef HAS_INT8_GEMM
extern "C" void pack_weights_int8(long features, long inputs, const int8_t* weight, int8_t* packed, int32_t* sums) {
    pack_int8(features, inputs, weight, packed, sums);
}

// The largest integer of a row that is multiplied, which may have either sign.
extern "C" int largest_int8() { return LARGEST; }

#define EXPORT_INT8(TYPE, NAME)                                                                                        \
    extern "C" int linear_int8_##NAME(long rows, const TYPE* x, const Int8Weights* w, TYPE* out, int threads) {        \
        return guarded([&] { linear_int8(rows, x, *w, out, threads); });                                               \
    }                                                                                                                  \
    extern "C" int mlp_int8_##NAME(long rows, const TYPE* x, const Int8Weights* first,                                 \
                                            const Int8Weights* second, TYPE* out, int threads) {                       \
        return guarded([&] { mlp_int8(rows, x, *first, *second, out, threads); });                                     \
    }                                                                                                                  \
    REPLAYED(linear_int8_##NAME)                                                                                       \
    REPLAYED(mlp_int8_##NAME)

EXPORT_INT8(float, float32)
EXPORT_INT8(BFloat16, bfloat16)
#endif
