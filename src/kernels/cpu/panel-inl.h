// What a matrix product prepares: activations in lane order, tiles of weights, and FP8 scales.
#ifndef KURUMA_KERNELS_CPU_PANEL_INL_H_
#define KURUMA_KERNELS_CPU_PANEL_INL_H_

#include <bit>

#include "kernels/cpu/scratch-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/ops.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

constexpr int64_t kPanelPad = 16;  // floats between rows, against cache set conflicts

KURUMA_INLINE int64_t Groups(int64_t cols) { return (cols + kGroup - 1) / kGroup; }

// The activations last packed by a thread, so that tasks that share x pack it once.
struct PackedRows {
  ConstRows source;
  LaneOrder order = LaneOrder::kNatural;
  ConstRows panel;    // rows in lane order, zero filled to whole groups
  float largest = 0;  // magnitude, set for FP8

  void Pack(Scratch& scratch, LaneOrder wanted, const ConstRows& x) {
    if (source.data == x.data && source.stride == x.stride && source.rows == x.rows &&
        source.cols == x.cols && order == wanted) {
      return;
    }
    const int64_t cols = Groups(x.cols) * kGroup;
    const int64_t stride = cols + kPanelPad;
    float* out = scratch.panel.Get(x.rows * stride);
    F32x8 most = Zero();
    for (int64_t m = 0; m < x.rows; ++m) {
      float* row = out + m * stride;
      PackRow(wanted, x.row(m), x.cols, row);
      if (wanted != LaneOrder::kFp8) continue;
      for (int64_t c = 0; c < cols; c += 8) {
        most = Max(Floats(And(Bits(Load(row + c)), SetInt(0x7FFFFFFF))), most);
      }
    }
    source = x;
    order = wanted;
    panel = ConstRows(out, x.rows, cols, stride);
    largest = ReduceMax(most);
  }
};

// Rows [begin, begin + count) of w, which share scales when the format has scale blocks of rows.
Tile MakeTile(Scratch& scratch, const Matrix& w, int64_t begin, int64_t count) {
  Tile tile;
  tile.data = reinterpret_cast<const uint8_t*>(w.row(begin));
  tile.row_bytes = w.row_bytes();
  tile.cols = w.cols;
  tile.rows = count;
  if (w.scales == nullptr) return tile;
  const bool shared = w.block_rows > 1;
  tile.scales = w.scale_row(begin);
  tile.scale_step = shared ? 0 : w.scale_stride;
  if (w.block_cols == kGroup) return tile;
  // Wider blocks: repeat their bytes so that there is one per group.
  const int64_t groups = Groups(w.cols);
  const int64_t scale_rows = shared ? 1 : count;
  auto* bytes = reinterpret_cast<uint8_t*>(scratch.scales.Get(scale_rows * groups / 4 + 1));
  for (int64_t r = 0; r < scale_rows; ++r) {
    const uint8_t* from = w.scale_row(begin + r);
    for (int64_t g = 0; g < groups; ++g) bytes[r * groups + g] = from[g * kGroup / w.block_cols];
  }
  tile.scales = bytes;
  tile.scale_step = shared ? 0 : groups;
  return tile;
}

// Rows from `row` that one tile may hold: never across a boundary of scale rows.
KURUMA_INLINE int64_t TileRows(const Matrix& w, int64_t row, int64_t end, int64_t most) {
  const int64_t count = Lesser(most, end - row);
  if (w.scales == nullptr || w.block_rows == 1) return count;
  return Lesser(count, w.block_rows - (w.first_row + row) % w.block_rows);
}

// Smallest and largest scale byte of an FP8 tile.
struct ScaleRange {
  uint8_t low = 255;
  uint8_t high = 0;

  // Within reach of DecodeFp8. Larger scales mean weights beyond 57344; DequantizeRow has them.
  bool fast() const { return high <= kFp8MaxScaleByte; }

  // Whether activations up to `largest` times 2^(byte - 127 + 120) are exact: no power below 1 and
  // no result beyond float32. Ordinary weights (scales near 2^-10) leave room to 2^17.
  bool fits(float largest) const {
    if (low < 7 || !fast()) return false;
    return largest <= std::bit_cast<float>((261u - high) << 23);
  }
};

ScaleRange FindScaleRange(const Tile& tile) {
  ScaleRange range;
  const int64_t scale_rows = tile.scale_step == 0 ? 1 : tile.rows;
  for (int64_t r = 0; r < scale_rows; ++r) {
    for (int64_t g = 0; g < Groups(tile.cols); ++g) {
      const uint8_t byte = tile.scales[r * tile.scale_step + g];
      range.low = Lesser(range.low, byte);
      range.high = Greater(range.high, byte);
    }
  }
  return range;
}

// A chunk of the panel times the FP8 factors of a tile's only scale row. Columns keep their
// numbers: the result is read in `range` only.
ConstRows ScalePanel(const ConstRows& x, const uint8_t* scales, GroupRange range) {
  const int64_t stride = (range.end - range.begin) * kGroup + kPanelPad;
  float* out = ThreadScratch().scaled.Get(x.rows * stride);
  for (int64_t m = 0; m < x.rows; ++m) {
    const float* from = x.row(m) + range.begin * kGroup;
    float* to = out + m * stride;
    for (int64_t g = range.begin; g < range.end; ++g, from += kGroup, to += kGroup) {
      const F32x8 scale = Scale(kFp8Scales, scales[g]);
      KURUMA_UNROLL
      for (int j = 0; j < 4; ++j) Store(to + 8 * j, Mul(Load(from + 8 * j), scale));
    }
  }
  return {out - range.begin * kGroup, x.rows, x.cols, stride};
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_PANEL_INL_H_
