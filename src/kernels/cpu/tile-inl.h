// Inner loops of the matrix product. Every output is ONE chain of fused multiply-adds per lane:
//   acc[lane] = fma(w[32 g + 8 j + lane], x[32 g + 8 j + lane], acc[lane]),  g ascending, j = 0..3
// in lane order, then ReduceAdd. All loops below are that chain for different shapes, cut along K
// at will with the accumulators kept in memory; so a shape changes speed, never bits.
#ifndef KURUMA_KERNELS_CPU_TILE_INL_H_
#define KURUMA_KERNELS_CPU_TILE_INL_H_

#include "base/view.h"
#include "kernels/cpu/decode-inl.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

// Groups of 32 columns along K.
struct GroupRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Accumulators of a tile: acc[m * step + r] for activation row m and weight row r. Unset before
// the first chunk of K.
struct Sums {
  F32x8* acc = nullptr;
  int64_t step = 0;
};

template <int R, int M>
KURUMA_INLINE void LoadSums(const Sums& sums, bool first, F32x8 (&acc)[R][M]) {
  KURUMA_UNROLL
  for (int m = 0; m < M; ++m) {
    KURUMA_UNROLL
    for (int r = 0; r < R; ++r) acc[r][m] = Zero();
  }
  if (first) return;
  KURUMA_UNROLL
  for (int m = 0; m < M; ++m) {
    KURUMA_UNROLL
    for (int r = 0; r < R; ++r) acc[r][m] = sums.acc[m * sums.step + r];
  }
}

template <int R, int M>
KURUMA_INLINE void StoreSums(const F32x8 (&acc)[R][M], const Sums& sums) {
  KURUMA_UNROLL
  for (int m = 0; m < M; ++m) {
    KURUMA_UNROLL
    for (int r = 0; r < R; ++r) sums.acc[m * sums.step + r] = acc[r][m];
  }
}

// One group of one weight row against M activation rows. With several, the pointer is made opaque:
// otherwise the compiler keeps activations for the next weight row and spills accumulators for it.
template <int M>
KURUMA_INLINE void FmaGroup(const F32x8 (&w)[4], const float* x, int64_t stride, F32x8 (&acc)[M]) {
  if (M > 1) asm volatile("" : "+r"(x));
  KURUMA_UNROLL
  for (int j = 0; j < 4; ++j) {
    KURUMA_UNROLL
    for (int m = 0; m < M; ++m) acc[m] = Fma(w[j], Load(x + m * stride + 8 * j), acc[m]);
  }
}

// Rows between the weights being multiplied and those being fetched: the next tile, early enough to
// be in L2 when its turn comes.
constexpr int64_t kAheadRows = 32;

// Few activation rows: weights are decoded in registers and used at once. Rows [row, row + R) of
// the tile; x holds M rows in lane order from column 0, zero filled to whole groups.
template <class Decoder, int R, int M>
void DirectKernel(const Tile& tile, int64_t row, GroupRange range, const ConstRows& x,
                  const Sums& sums) {
  F32x8 acc[R][M];
  LoadSums<R, M>(sums, range.begin == 0, acc);
  const int64_t whole = Lesser(range.end, tile.cols / kGroup);
  const uint8_t* ahead = tile.data + (row + kAheadRows) * tile.row_bytes;
  for (int64_t g = range.begin; g < whole; ++g) {
    KURUMA_UNROLL
    for (int r = 0; r < R; ++r) {
      F32x8 w[4];
      Prefetch(ahead + r * tile.row_bytes + g * Decoder::kGroupBytes);
      Decoder::Group(tile, row + r, g, w);
      FmaGroup<M>(w, x.data + g * kGroup, x.stride, acc[r]);
    }
  }
  if (whole < range.end) {
    KURUMA_UNROLL
    for (int r = 0; r < R; ++r) {
      F32x8 w[4];
      Decoder::Tail(tile, row + r, whole, w);
      FmaGroup<M>(w, x.data + whole * kGroup, x.stride, acc[r]);
    }
  }
  StoreSums<R, M>(acc, sums);
}

KURUMA_INLINE void StoreGroup(float* to, const F32x8 (&w)[4]) {
  KURUMA_UNROLL
  for (int j = 0; j < 4; ++j) Store(to + 8 * j, w[j]);
}

// A chunk of every row of the tile as float32; out.row(r) starts at the chunk. The tile comes as a
// copy: vector stores may alias anything, and members of a reference would be read again after
// each.
template <class Decoder>
void ExpandTile(const Tile tile, GroupRange range, Rows out) {
  const int64_t whole = Lesser(range.end, tile.cols / kGroup);
  for (int64_t r = 0; r < tile.rows; ++r) {
    float* to = out.row(r);
    const uint8_t* ahead = tile.data + (tile.rows + r) * tile.row_bytes;
    F32x8 w[4];
    for (int64_t g = range.begin; g < whole; ++g, to += kGroup) {
      Prefetch(ahead + g * Decoder::kGroupBytes);
      Decoder::Group(tile, r, g, w);
      StoreGroup(to, w);
    }
    if (whole < range.end) {
      Decoder::Tail(tile, r, whole, w);
      StoreGroup(to, w);
    }
  }
}

// Many activation rows: R expanded weight rows against M activation rows, `vectors` steps along K.
template <int R, int M>
KURUMA_INLINE void ChainKernel(const ConstRows& w, const ConstRows& x, int64_t vectors,
                               F32x8 (&acc)[R][M]) {
  const float* wp = w.data;
  const float* xp = x.data;
  for (int64_t i = 0; i < vectors; ++i, wp += 8, xp += 8) {
    F32x8 xv[M];
    KURUMA_UNROLL
    for (int m = 0; m < M; ++m) xv[m] = Load(xp + m * x.stride);
    KURUMA_UNROLL
    for (int r = 0; r < R; ++r) {
      const F32x8 wv = Load(wp + r * w.stride);
      KURUMA_UNROLL
      for (int m = 0; m < M; ++m) acc[r][m] = Fma(wv, xv[m], acc[r][m]);
    }
  }
}

template <int R, int M>
void PanelKernel(const ConstRows& w, const ConstRows& x, bool first, const Sums& sums) {
  F32x8 acc[R][M];
  LoadSums<R, M>(sums, first, acc);
  ChainKernel<R, M>(w, x, w.cols / 8, acc);
  StoreSums<R, M>(acc, sums);
}

// How many of `left` rows the next kernel takes: three, but never one alone after others, because
// few chains leave the multipliers waiting.
KURUMA_INLINE int64_t NextRows(int64_t left) {
  return left == 4 || left == 2 ? 2 : left == 1 ? 1 : 3;
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_TILE_INL_H_
