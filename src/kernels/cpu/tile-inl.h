// Inner loops of the matrix product. Every output is ONE chain of fused multiply-adds per lane:
//   acc[lane] = fma(w[32 g + 8 j + lane], x[32 g + 8 j + lane], acc[lane]),  g ascending, j = 0..3
// in lane order, then ReduceAdd. All loops below are that chain for different shapes, cut along K
// at will with the accumulators kept in memory; so a shape changes speed, never bits.
#ifndef KURUMA_KERNELS_CPU_TILE_INL_H_
#define KURUMA_KERNELS_CPU_TILE_INL_H_

#include "kernels/cpu/decode-inl.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

// Accumulators of a tile: acc[m * step + r] for activation row m and weight row r.
struct Sums {
  F32x8* acc = nullptr;
  int64_t step = 0;
};

// Activation rows in lane order, `stride` floats apart, zero filled to whole groups.
struct Panel {
  const float* x = nullptr;
  int64_t stride = 0;
};

// The sums so far, or zeros for the first chunk of K.
template <int R, int M>
KURUMA_INLINE void LoadSums(const Sums& sums, bool first, F32x8 (&acc)[R][M]) {
  if (first) {
    KURUMA_UNROLL
    for (int m = 0; m < M; ++m) {
      KURUMA_UNROLL
      for (int r = 0; r < R; ++r) acc[r][m] = Zero();
    }
    return;
  }
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
KURUMA_INLINE void FmaGroup(const F32x8 (&w)[4], const float* x, int64_t stride,
                            F32x8 (&acc)[M]) {
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
// the tile, groups [begin, end).
template <class Decoder, int R, int M>
void DirectKernel(const Tile& tile, int64_t row, int64_t begin, int64_t end, const Panel& panel,
                  const Sums& sums) {
  F32x8 acc[R][M];
  LoadSums<R, M>(sums, begin == 0, acc);
  const int64_t whole = Lesser(end, tile.cols / kGroup);
  const uint8_t* ahead = tile.data + (row + kAheadRows) * tile.row_bytes;
  for (int64_t g = begin; g < whole; ++g) {
    KURUMA_UNROLL
    for (int r = 0; r < R; ++r) {
      F32x8 w[4];
      Prefetch(ahead + r * tile.row_bytes + g * Decoder::kGroupBytes);
      Decoder::Group(tile, row + r, g, w);
      FmaGroup<M>(w, panel.x + g * kGroup, panel.stride, acc[r]);
    }
  }
  if (whole < end) {
    KURUMA_UNROLL
    for (int r = 0; r < R; ++r) {
      F32x8 w[4];
      Decoder::Tail(tile, row + r, whole, w);
      FmaGroup<M>(w, panel.x + whole * kGroup, panel.stride, acc[r]);
    }
  }
  StoreSums<R, M>(acc, sums);
}

// Groups [begin, end) of every row of the tile as float32, `stride` floats from row to row.
// The tile comes as a copy: vector stores may alias anything, and members of a reference would be
// read again after each.
template <class Decoder>
void ExpandTile(const Tile tile, int64_t begin, int64_t end, float* out, int64_t stride) {
  const int64_t whole = Lesser(end, tile.cols / kGroup);
  for (int64_t r = 0; r < tile.rows; ++r) {
    float* to = out + r * stride;
    const uint8_t* ahead = tile.data + (tile.rows + r) * tile.row_bytes;
    F32x8 w[4];
    for (int64_t g = begin; g < whole; ++g, to += kGroup) {
      Prefetch(ahead + g * Decoder::kGroupBytes);
      Decoder::Group(tile, r, g, w);
      KURUMA_UNROLL
      for (int j = 0; j < 4; ++j) Store(to + 8 * j, w[j]);
    }
    if (whole < end) {
      Decoder::Tail(tile, r, whole, w);
      KURUMA_UNROLL
      for (int j = 0; j < 4; ++j) Store(to + 8 * j, w[j]);
    }
  }
}

// Many activation rows: R expanded weight rows against M activation rows, `vectors` steps along K.
template <int R, int M>
KURUMA_INLINE void ChainKernel(const Panel& w, const Panel& x, int64_t vectors,
                               F32x8 (&acc)[R][M]) {
  const float* wp = w.x;
  const float* xp = x.x;
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
void PanelKernel(const Panel& w, const Panel& x, int64_t vectors, bool first, const Sums& sums) {
  F32x8 acc[R][M];
  LoadSums<R, M>(sums, first, acc);
  ChainKernel<R, M>(w, x, vectors, acc);
  StoreSums<R, M>(acc, sums);
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_TILE_INL_H_
