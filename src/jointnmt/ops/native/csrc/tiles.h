// Products of bfloat16 and of 8-bit integers in the tiles of AMX: registers of up to 16 rows of 64 bytes, which are
// multiplied by each other.

#pragma once

#include "vectors.h"

#if defined(__AMX_BF16__) && defined(__AMX_INT8__)
#define HAS_TILES 1

namespace {

constexpr long SIDE = 16;   // rows of a tile, and columns of one of sums
constexpr long ROW = 64;    // bytes of a row of a tile
constexpr long PAIRS = 16;  // pairs of bfloat16 in a row, each multiplied by one of a column
constexpr long TILE_SIZE = SIDE * 2 * PAIRS;  // numbers of a tile of bfloat16

// Has the compiler write everything to memory first: of GCC's instructions for tiles, it does not know what they read.
inline void write_all(const void* also) { __asm__ volatile("" ::"r"(also) : "memory"); }

// The tile registers of a thread: 0 to 3 for sums of two by two tiles, 4 and 5 for the rows on the left, 6 and 7 for
// the columns on the right. Others on the thread use them too, between the kernels, so each kernel sets them up anew.
class TileRegisters {
  public:
    TileRegisters() = default;
    TileRegisters(const TileRegisters&) = delete;
    TileRegisters& operator=(const TileRegisters&) = delete;
    ~TileRegisters() {
        if (rows) _tile_release();
    }

    // For at most 2 * SIDE rows on the left; none beyond them is read or written.
    void set_rows(long count) {
        if (count == rows) return;
        rows = count;
        struct alignas(64) {
            uint8_t palette = 1, start = 0, reserved[14] = {};
            uint16_t bytes[16] = {};
            uint8_t rows[16] = {};
        } layout;
        for (long tile = 0; tile < 8; ++tile) layout.bytes[tile] = ROW, layout.rows[tile] = SIDE;
        layout.rows[0] = layout.rows[1] = layout.rows[4] = (uint8_t)std::min(count, SIDE);
        layout.rows[2] = layout.rows[3] = layout.rows[5] = (uint8_t)(count > SIDE ? count - SIDE : 1);
        write_all(&layout);
        _tile_loadconfig(&layout);
    }

  private:
    long rows = 0;
};

// sums += left * right, of bfloat16, or of unsigned and signed integers.
#define MULTIPLY(sums, left, right)                                                                                    \
    if constexpr (std::is_same_v<T, BFloat16>)                                                                         \
        _tile_dpbf16ps(sums, left, right);                                                                             \
    else                                                                                                               \
        _tile_dpbusd(sums, left, right);

// One step of two by two tiles of sums, or fewer: += left * right. Strides are in bytes.
template <class T, bool LOWER, bool WIDER>
inline void step_of_tiles(const char* left, const char* lower, long row, const char* right, long width) {
    _tile_loadd(6, right, width);
    _tile_loadd(4, left, row);
    MULTIPLY(0, 4, 6)
    if constexpr (WIDER) {
        _tile_loadd(7, right + ROW, width);
        MULTIPLY(1, 4, 7)
    }
    if constexpr (LOWER) {
        _tile_loadd(5, lower, row);
        MULTIPLY(2, 5, 6)
        if constexpr (WIDER) MULTIPLY(3, 5, 7)
    }
}

template <bool LOWER, bool WIDER, class Sum>
inline void store_tiles(Sum* out, long stride) {
    _tile_stored(0, out, 4 * stride);
    if constexpr (WIDER) _tile_stored(1, out + SIDE, 4 * stride);
    if constexpr (LOWER) {
        _tile_stored(2, out + SIDE * stride, 4 * stride);
        if constexpr (WIDER) _tile_stored(3, out + SIDE * stride + SIDE, 4 * stride);
    }
}

template <class T, bool LOWER, bool WIDER, class Sum>
inline void multiply_tiles(const char* x, long row, const char* panel, long width, Sum* out, long stride) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (long at = 0; at < row; at += ROW)
        step_of_tiles<T, LOWER, WIDER>(x + at, x + SIDE * row + at, row, panel + at / ROW * SIDE * width, width);
    store_tiles<LOWER, WIDER>(out, stride);
}

// out [rows, SIDE * vectors] = rows of x, at most 2 * SIDE, times the first columns of a panel. A row has `row` bytes,
// a multiple of ROW. The panel has `width` bytes for every four of them, four for each of its columns.
template <class T, class Sum>
inline void multiply_tiles(TileRegisters& registers, long rows, long vectors, const T* x, long row, const void* panel,
                           long width, Sum* out, long stride) {
    registers.set_rows(rows);
    write_all(x);
    for (long v = 0; v < vectors; v += 2) {
        const bool lower = rows > SIDE, wider = v + 1 < vectors;
        const auto run = lower ? wider ? multiply_tiles<T, true, true, Sum> : multiply_tiles<T, true, false, Sum>
                               : wider ? multiply_tiles<T, false, true, Sum> : multiply_tiles<T, false, false, Sum>;
        run((const char*)x, row, (const char*)panel + ROW * v, width, out + SIDE * v, stride);
    }
}

inline long padded_to_tiles(long rows) { return (rows + 2 * PAIRS - 1) / (2 * PAIRS) * (2 * PAIRS); }

// Packs rows that are to be summed over as the left operand, [features / SIDE][blocks][SIDE features][PAIRS], padded
// with zeros: a tile is contiguous, and its rows are features.
inline void pack_left_tiles(const BFloat16* x, long rows, long features, BFloat16* out) {
    for (long f = 0; f < features; f += SIDE)
        for (long first = 0; first < rows; first += 2 * PAIRS, out += TILE_SIZE) {
            Vector words[PAIRS] = {};
            for (long pair = 0, r = first; pair < PAIRS && r < rows; ++pair, r += 2) {
                Words both = (Words)load(x + r * features + f) >> 16;
                if (r + 1 < rows) both |= (Words)load(x + (r + 1) * features + f);
                words[pair] = (Vector)both;
            }
            transpose(words);
            std::memcpy(out, words, sizeof words);
        }
}

template <bool LOWER, bool WIDER>
inline void add_tiles(const BFloat16* left, const BFloat16* right, long width, long blocks, float* totals,
                      long stride) {
    _tile_loadd(0, totals, 4 * stride);
    if constexpr (WIDER) _tile_loadd(1, totals + SIDE, 4 * stride);
    if constexpr (LOWER) _tile_loadd(2, totals + SIDE * stride, 4 * stride);
    if constexpr (LOWER && WIDER) _tile_loadd(3, totals + SIDE * stride + SIDE, 4 * stride);
    for (long b = 0; b < blocks; ++b)
        step_of_tiles<BFloat16, LOWER, WIDER>((const char*)(left + b * TILE_SIZE),
                                              (const char*)(left + (blocks + b) * TILE_SIZE), ROW,
                                              (const char*)(right + 2 * PAIRS * b * width), 4 * width);
    store_tiles<LOWER, WIDER>(totals, stride);
}

// totals [features, columns] += left^T right, summed over `count` rows, padded to tiles; `left` is packed as above,
// `right` in panels that are `width` wide.
inline void add_tiles(TileRegisters& registers, long count, long features, long columns, const BFloat16* left,
                      const BFloat16* right, long width, float* totals) {
    registers.set_rows(2 * SIDE);
    write_all(left);
    const long blocks = padded_to_tiles(count) / (2 * PAIRS);
    for (long c = 0; c < columns; c += 2 * SIDE)
        for (long f = 0; f < features; f += 2 * SIDE) {
            const bool lower = f + SIDE < features, wider = c + SIDE < columns;
            const auto run = lower ? wider ? add_tiles<true, true> : add_tiles<true, false>
                                   : wider ? add_tiles<false, true> : add_tiles<false, false>;
            run(left + f * blocks * 2 * PAIRS, right + (c / width * blocks * 2 * PAIRS * width + c % width * 2), width,
                blocks, totals + f * columns + c, columns);
        }
}

#undef MULTIPLY

}  // namespace

#endif
