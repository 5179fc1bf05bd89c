// Matrices as the products read them: in panels of columns, in the type in which they are multiplied.

#pragma once

#include "tiles.h"

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#define HAS_GEMM 1
#endif

#ifdef HAS_GEMM

namespace {

// Operands of bfloat16 products: pairs of bfloat16 where the processor has fast instructions for these, else float.
#if defined(HAS_TILES) || (defined(FAST_BF16_DOT) && defined(__AVX512BF16__))
using Half = BFloat16;
#else
using Half = float;
#endif

template <class T>
using Number = std::conditional_t<std::is_same_v<T, BFloat16>, Half, float>;  // the type of operands of products in T

// Weights of bfloat16 that are multiplied as float: half as many bytes to read. Two vectors of columns lie in one of words,
// the first in its lower halves.
struct Narrow {
    uint16_t bits;
};

template <class T>  // the type of packed weights
using Packed = std::conditional_t<std::is_same_v<T, BFloat16> && std::is_same_v<Half, float>, Narrow, Number<T>>;
template <class N>
constexpr long STEP = std::is_same_v<N, BFloat16> ? 2 : 1;  // terms of a sum that one instruction multiplies

constexpr long WIDTH = LANES / 4;  // vectors of a tile's columns: 24 sums in 32 registers, or 12 in 16
constexpr long TILE = 6;           // rows of a tile
constexpr long PANEL = WIDTH * LANES;  // columns whose weights are stored together, those of a tile: they stay in the
                                       // nearest cache from one tile to the next
constexpr long BLOCK = 16 * TILE;      // rows of a block
#ifdef HAS_TILES
template <class T>
constexpr bool IN_TILES = std::is_same_v<T, BFloat16>;
template <class T>  // rows that are multiplied at once
constexpr long ROWS_AT_ONCE = IN_TILES<T> ? 2 * SIDE : TILE;
template <class T>
constexpr long LONG_TILES = IN_TILES<T> ? 8 : 21 * STEP<Number<T>>;
using Registers = TileRegisters;
#else
template <class T>
constexpr long ROWS_AT_ONCE = TILE;
template <class T>
constexpr long LONG_TILES = 21 * STEP<Number<T>>;
struct Registers {};
#endif
template <class T>  // rows of a block in products that sum over rows: its sums are read and written once
constexpr long LONG_BLOCK = LONG_TILES<T> * ROWS_AT_ONCE<T>;
constexpr long SUMMED_ROWS = LANES == 16 ? 4 : TILE;  // rows of a tile of such sums
constexpr long SUMMED_PANEL = SUMMED_ROWS * LANES;    // columns of the operand that has these rows: whole tiles and vectors
constexpr long PART = 1024;  // features of a part of many

// Rows of equal blocks of at most LONG_BLOCK, tiles whole: a short last block would read and write the sums for little.
template <class T>
inline long even_block(long rows) {
    const long blocks = std::max(1L, (rows + LONG_BLOCK<T> - 1) / LONG_BLOCK<T>);
    return (rows + blocks * ROWS_AT_ONCE<T> - 1) / (blocks * ROWS_AT_ONCE<T>) * ROWS_AT_ONCE<T>;
}

template <class T>
struct Matrix {
    const T* data;
    long row, column;  // strides
};

template <long WIDE = PANEL>
inline long padded_to_panels(long columns) {
    return (columns + WIDE - 1) / WIDE * WIDE;
}

// Packs one step of the vector of columns `c`: a row as float or narrow, or two rows as pairs, of which the second may be
// null.
inline void put(Vector x, long, float* out) { store(out, x); }

inline void put(Vector x, long c, Narrow* out) {
    Words words = (Words)x >> 16;
    if (c % (2 * LANES)) {
        std::memcpy(&words, out, sizeof words);
        words |= (Words)x;
    }
    std::memcpy(out, &words, sizeof words);
}

template <class T, class N>
inline void pack_step(const T* row, const T*, long c, N* out) {
    put(load(row), c, out);
}

inline void pack_step(const BFloat16* first, const BFloat16* second, long, BFloat16* out) {
    const Words high = second ? (Words)load(second) : Words{}, both = high | (Words)load(first) >> 16;
    std::memcpy(out, &both, sizeof both);
}

// Packs at most LANES steps of a vector of columns that are contiguous along rows, as in weights read transposed.
template <long WIDE, class T, class N>
inline void pack_steps(const T* from, long column, long steps, long c, N* out) {
    Vector words[LANES] = {};
    for (long lane = 0; lane < LANES; ++lane)
        if constexpr (STEP<N> == 1)
            words[lane] = load(from + lane * column);
        else
            std::memcpy(&words[lane], from + lane * column, 4 * steps);
    transpose(words);
    for (long step = 0; step < steps; ++step)
        if constexpr (STEP<N> == 1)
            put(words[step], c, out + step * WIDE);
        else
            std::memcpy(out + step * STEP<N> * WIDE, &words[step], sizeof words[step]);
}

// Packs a matrix as [panels][steps][WIDE][STEP], the order in which tiles read it, padded with zeros. Either its
// columns or its rows are adjacent in memory; if rows are, their number is a multiple of LANES. Adjacent columns can be
// padded to more rows.
template <long WIDE = PANEL, class T, class N>
inline void pack(const Matrix<T> m, long rows, long columns, N* out, long padded_rows = 0) {
    constexpr long SIZE = STEP<N>, VECTOR = std::is_same_v<N, Narrow> ? 2 * LANES : LANES;
    const long steps = (std::max(rows, padded_rows) + SIZE - 1) / SIZE;
    for (long c = 0; c < columns; c += LANES) {
        const T* from = m.data + c * m.column;
        N* to = out + (c / WIDE * steps * WIDE + c % WIDE / VECTOR * VECTOR) * SIZE;
        if (m.column == 1) {
            for (long r = 0; r < rows; r += SIZE)
                pack_step(from + r * m.row, r + 1 < rows ? from + (r + 1) * m.row : nullptr, c, to + r * WIDE);
            for (long step = (rows + SIZE - 1) / SIZE; step < steps; ++step)
                std::fill_n(to + step * SIZE * WIDE, SIZE * LANES, N{});
        } else
            for (long r = 0; r < rows; r += SIZE * LANES)
                pack_steps<WIDE>(from + r, m.column, std::min(LANES, (rows - r) / SIZE), c, to + r * WIDE);
    }
}

template <class T>
inline Buffer<Packed<T>> packed(const Matrix<T> m, long rows, long columns) {
    Buffer<Packed<T>> out(rows * padded_to_panels(columns));
    pack(m, rows, columns, out.data());
    return out;
}

// Operands in the type in which they are multiplied: in place, or converted into `held`.
inline const float* operands(const float* x, long, Buffer<float>&) { return x; }

inline const Half* operands(const BFloat16* x, long count, Buffer<float>& held) {
    if constexpr (std::is_same_v<Half, BFloat16>) return (const Half*)x;
    held.resize(count);
    for (long i = 0; i < count; i += LANES) store(held.data() + i, load(x + i));
    return (const Half*)held.data();
}

}  // namespace

#endif
