// matmul of an OpTable: cuts the output rows of all tasks into shares, shares into tiles, tiles into
// the kernels of tile-inl.h.
#ifndef KURUMA_KERNELS_CPU_MATMUL_INL_H_
#define KURUMA_KERNELS_CPU_MATMUL_INL_H_

#include <bit>
#include <span>

#include "kernels/cpu/scratch-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/ops.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

constexpr int64_t kDirectMax = 16;      // activation rows up to which weights stay in registers
constexpr int64_t kDirectTile = 32;     // weight rows per tile: one block of FP8 scales
constexpr int64_t kDirectFloats = 5120; // activations of a K chunk: 20 KB of a 32 KB L1
constexpr int64_t kPanelTile = 8;      // weight rows per expanded tile ...
constexpr int64_t kPanelGroups = 20;    // ... of at most 320 columns: 20 KB
constexpr int64_t kPanelMax = 96;       // activation rows per pass over the weights
constexpr int64_t kPanelPad = 16;       // floats between rows, against cache set conflicts

KURUMA_INLINE int64_t Groups(int64_t cols) { return (cols + kGroup - 1) / kGroup; }

// The activations last packed by a thread, so that tasks that share x pack it once.
struct PackedRows {
  const float* source = nullptr;
  int64_t source_stride = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  LaneOrder order = LaneOrder::kNatural;
  Panel panel;
  float largest = 0;  // magnitude in FP8 panels

  void Pack(Scratch& scratch, LaneOrder wanted, const ConstRows& x) {
    if (source == x.data && source_stride == x.stride && rows == x.rows && cols == x.cols &&
        order == wanted) {
      return;
    }
    const int64_t stride = Groups(x.cols) * kGroup + kPanelPad;
    float* out = scratch.panel.Get(x.rows * stride);
    for (int64_t m = 0; m < x.rows; ++m) PackRow(wanted, x.row(m), x.cols, out + m * stride);
    source = x.data;
    source_stride = x.stride;
    rows = x.rows;
    cols = x.cols;
    order = wanted;
    panel = {out, stride};
    if (order != LaneOrder::kFp8) return;
    F32x8 most = Zero();
    for (int64_t i = 0; i < x.rows * stride; i += 8) {
      if (i % stride < stride - kPanelPad) {
        most = Max(Floats(And(Bits(Load(out + i)), SetInt(0x7FFFFFFF))), most);
      }
    }
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
  int64_t count = Lesser(most, end - row);
  if (w.scales != nullptr && w.block_rows > 1) {
    count = Lesser(count, w.block_rows - (w.first_row + row) % w.block_rows);
  }
  return count;
}

// Smallest and largest scale byte of a tile.
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

// Groups [begin, end) of the panel times the FP8 factors of the tile's only scale row.
Panel ScalePanel(const Panel& x, int64_t rows, const uint8_t* scales, int64_t begin, int64_t end) {
  const int64_t stride = (end - begin) * kGroup + kPanelPad;
  float* out = ThreadScratch().scaled.Get(rows * stride);
  for (int64_t m = 0; m < rows; ++m) {
    const float* from = x.x + m * x.stride + begin * kGroup;
    float* to = out + m * stride;
    for (int64_t g = begin; g < end; ++g, from += kGroup, to += kGroup) {
      const F32x8 scale = Scale(kFp8Scales, scales[g]);
      KURUMA_UNROLL
      for (int j = 0; j < 4; ++j) Store(to + 8 * j, Mul(Load(from + 8 * j), scale));
    }
  }
  return {out - begin * kGroup, stride};
}

template <class Decoder, int R, int M>
void DirectRows(const Tile& tile, int64_t begin, int64_t end, const Panel& x, const Sums& sums) {
  int64_t row = 0;
  for (; row + R <= tile.rows; row += R) {
    DirectKernel<Decoder, R, M>(tile, row, begin, end, x, {sums.acc + row, sums.step});
  }
  for (; row < tile.rows; ++row) {
    DirectKernel<Decoder, 1, M>(tile, row, begin, end, x, {sums.acc + row, sums.step});
  }
}

template <class Decoder>
void DirectChunk(const Tile& tile, int64_t begin, int64_t end, int64_t rows, const Panel& x,
                 const Sums& sums) {
  switch (rows) {
    case 1:
      return DirectRows<Decoder, 4, 1>(tile, begin, end, x, sums);
    case 2:
      return DirectRows<Decoder, 4, 2>(tile, begin, end, x, sums);
    case 3:
      return DirectRows<Decoder, 3, 3>(tile, begin, end, x, sums);
    case 4:
      return DirectRows<Decoder, 2, 4>(tile, begin, end, x, sums);
    case 5:
      return DirectRows<Decoder, 2, 5>(tile, begin, end, x, sums);
    default:
      return DirectRows<Decoder, 2, 6>(tile, begin, end, x, sums);
  }
}

// `scale_panel`: FP8 weights that leave their scales to the activations. More rows than the
// registers hold go in passes of four or five (the best use of them) over a chunk in L1.
template <class Decoder>
void DirectTile(const Tile& tile, int64_t rows, const Panel& x, bool scale_panel,
                const Sums& sums) {
  const int64_t passes = rows == 6 ? 1 : (rows + 4) / 5;
  const int64_t pass_rows = (rows + passes - 1) / passes;
  const int64_t groups = Groups(tile.cols);
  const int64_t chunks = (groups * kGroup * pass_rows + kDirectFloats - 1) / kDirectFloats;
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t begin = groups * c / chunks;
    const int64_t end = groups * (c + 1) / chunks;
    for (int64_t p = 0; p < passes; ++p) {
      const int64_t from = rows * p / passes;
      const int64_t count = rows * (p + 1) / passes - from;
      const Panel part{x.x + from * x.stride, x.stride};
      const Sums to{sums.acc + from * sums.step, sums.step};
      if (scale_panel) {
        const Panel scaled = ScalePanel(part, count, tile.scales, begin, end);
        DirectChunk<DecodeFp8Bits>(tile, begin, end, count, scaled, to);
      } else {
        DirectChunk<Decoder>(tile, begin, end, count, part, to);
      }
    }
  }
}

// Rows of a tile whose scales the fast decoder cannot hold, in the lane order of its format.
void ExpandSlowly(const Matrix& w, int64_t first, int64_t count, int64_t begin, int64_t end,
                  float* out, int64_t stride) {
  float* natural = ThreadScratch().natural.Get(w.cols);
  for (int64_t r = 0; r < count; ++r) {
    DequantizeRow(w, first + r, natural);
    const int64_t cols = Lesser(w.cols, end * kGroup) - begin * kGroup;
    PackRow(OrderOf(w.format), natural + begin * kGroup, cols, out + r * stride);
  }
}

// One expanded chunk of a tile against all rows of the panel, four weight rows by three (or two).
void MultiplyPanel(const Panel& w, int64_t tile_rows, const Panel& x, int64_t rows,
                   int64_t vectors, bool first, const Sums& sums) {
  int64_t m = 0;
  while (m < rows) {
    const int64_t left = rows - m;
    const int64_t take = left == 4 || left == 2 ? 2 : left == 1 ? 1 : 3;
    const Panel part{x.x + m * x.stride, x.stride};
    for (int64_t r = 0; r < tile_rows; r += 4) {
      const Panel wr{w.x + r * w.stride, w.stride};
      const Sums to{sums.acc + m * sums.step + r, sums.step};
      if (take == 3) PanelKernel<4, 3>(wr, part, vectors, first, to);
      if (take == 2) PanelKernel<4, 2>(wr, part, vectors, first, to);
      if (take == 1) PanelKernel<4, 1>(wr, part, vectors, first, to);
    }
    m += take;
  }
}

// Many activation rows: the tile is expanded chunk by chunk into memory that stays in L1.
template <class Decoder>
void PanelTile(const Matrix& w, int64_t first, const Tile& tile, bool fast, int64_t rows,
               const Panel& x, const Sums& sums) {
  const int64_t groups = Groups(tile.cols);
  const int64_t chunks = (groups + kPanelGroups - 1) / kPanelGroups;
  const int64_t stride = kPanelGroups * kGroup + kPanelPad;
  const int64_t padded = (tile.rows + 3) / 4 * 4;
  float* expanded = ThreadScratch().weights.Get(padded * stride);
  for (int64_t i = tile.rows * stride; i < padded * stride; ++i) expanded[i] = 0;
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t begin = groups * c / chunks;
    const int64_t end = groups * (c + 1) / chunks;
    if (fast) {
      ExpandTile<Decoder>(tile, begin, end, expanded, stride);
    } else {
      ExpandSlowly(w, first, tile.rows, begin, end, expanded, stride);
    }
    MultiplyPanel({expanded, stride}, padded, {x.x + begin * kGroup, x.stride}, rows,
                  (end - begin) * 4, begin == 0, sums);
  }
}

void StoreTile(const Sums& sums, int64_t tile_rows, int64_t first, bool round, const Rows& y) {
  for (int64_t m = 0; m < y.rows; ++m) {
    float* out = y.row(m) + first;
    const F32x8* acc = sums.acc + m * sums.step;
    for (int64_t r = 0; r < tile_rows; r += 4) {
      const F32x4 four = ReduceAdd4(acc[r], acc[r + 1], acc[r + 2], acc[r + 3]);
      const F32x4 result = Low(MaybeBf16(Combine(four, four), round));
      const int64_t count = Lesser<int64_t>(4, tile_rows - r);
      if (count == 4) {
        Store4(out + r, result);
      } else {
        for (int64_t i = 0; i < count; ++i) out[r + i] = result[i];
      }
    }
  }
}

// Output rows [begin, end) of a task for at most kPanelMax activation rows.
template <class Decoder>
void MultiplyRows(const MatMulTask& task, int64_t begin, int64_t end, const PackedRows& packed,
                  const Rows& y) {
  Scratch& scratch = ThreadScratch();
  const bool fp8 = task.weight.format == WeightFormat::kFp8;
  const bool direct = y.rows <= kDirectMax;
  const int64_t most = direct ? kDirectTile : kPanelTile;
  Sums sums;
  sums.step = most;
  sums.acc = reinterpret_cast<F32x8*>(scratch.sums.Get(y.rows * most * 8));
  for (int64_t row = begin; row < end;) {
    const int64_t count = TileRows(task.weight, row, end, most);
    const Tile tile = MakeTile(scratch, task.weight, row, count);
    const ScaleRange range = fp8 ? FindScaleRange(tile) : ScaleRange();
    const bool fast = !fp8 || range.fast();
    if (direct && fast) {
      const bool scale_panel = fp8 && tile.scale_step == 0 && range.fits(packed.largest);
      DirectTile<Decoder>(tile, y.rows, packed.panel, scale_panel, sums);
    } else {
      PanelTile<Decoder>(task.weight, row, tile, fast, y.rows, packed.panel, sums);
    }
    StoreTile(sums, count, row, task.round_bf16, y);
    row += count;
  }
}

void MultiplyTask(const MatMulTask& task, int64_t begin, int64_t end, PackedRows& packed) {
  const int64_t blocks = (task.x.rows + kPanelMax - 1) / kPanelMax;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t from = task.x.rows * b / blocks;
    const int64_t count = task.x.rows * (b + 1) / blocks - from;
    packed.Pack(ThreadScratch(), OrderOf(task.weight.format), task.x.Slice(from, count));
    const Rows y = task.y.Slice(from, count);
    switch (task.weight.format) {
      case WeightFormat::kF32:
        MultiplyRows<DecodeF32>(task, begin, end, packed, y);
        break;
      case WeightFormat::kBf16:
        MultiplyRows<DecodeBf16>(task, begin, end, packed, y);
        break;
      case WeightFormat::kFp8:
        MultiplyRows<DecodeFp8>(task, begin, end, packed, y);
        break;
      case WeightFormat::kFp4:
        MultiplyRows<DecodeFp4>(task, begin, end, packed, y);
        break;
    }
  }
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_MATMUL_INL_H_
