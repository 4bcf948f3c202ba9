// Output rows of one matrix product, tile by tile, through the kernels of tile-inl.h.
#ifndef KURUMA_KERNELS_CPU_MATMUL_INL_H_
#define KURUMA_KERNELS_CPU_MATMUL_INL_H_

#include "kernels/cpu/panel-inl.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

constexpr int64_t kDirectTile = 32;      // weight rows per tile: one block of FP8 scales
constexpr int64_t kDirectFloats = 5120;  // activations of a K chunk: 20 KB of a 32 KB L1
constexpr int64_t kPanelTile = 8;        // weight rows per expanded tile ...
constexpr int64_t kPanelGroups = 20;     // ... of at most 640 columns: 20 KB
constexpr int64_t kPanelMax = 96;        // activation rows per pass over the weights

// One tile of a product and all it needs.
struct TileJob {
  const Matrix* weight = nullptr;
  int64_t first = 0;  // its first row in `weight`
  Tile tile;
  ScaleRange scales;  // of FP8 weights
  ConstRows x;        // packed
  Sums sums;

  bool fast() const { return weight->format != WeightFormat::kFp8 || scales.fast(); }
};

template <class Decoder, int R, int M>
void DirectRows(const Tile& tile, GroupRange range, const ConstRows& x, const Sums& sums) {
  int64_t row = 0;
  for (; row + R <= tile.rows; row += R) {
    DirectKernel<Decoder, R, M>(tile, row, range, x, {sums.acc + row, sums.step});
  }
  for (; row < tile.rows; ++row) {
    DirectKernel<Decoder, 1, M>(tile, row, range, x, {sums.acc + row, sums.step});
  }
}

template <class Decoder>
void DirectChunk(const Tile& tile, GroupRange range, const ConstRows& x, const Sums& sums) {
  switch (x.rows) {
    case 1:
      return DirectRows<Decoder, 4, 1>(tile, range, x, sums);
    case 2:
      return DirectRows<Decoder, 4, 2>(tile, range, x, sums);
    case 3:
      return DirectRows<Decoder, 3, 3>(tile, range, x, sums);
    case 4:
      return DirectRows<Decoder, 2, 4>(tile, range, x, sums);
    case 5:
      return DirectRows<Decoder, 2, 5>(tile, range, x, sums);
    default:
      return DirectRows<Decoder, 1, 6>(tile, range, x, sums);
  }
}

// More rows than the registers hold go in passes of four or five (the best use of them) over a
// chunk in L1. `scale_panel`: FP8 weights that leave their scales to the activations.
template <class Decoder>
void DirectTile(const TileJob& job, bool scale_panel) {
  const int64_t rows = job.x.rows;
  const int64_t passes = rows == 6 ? 1 : (rows + 4) / 5;
  const int64_t pass_rows = (rows + passes - 1) / passes;
  const int64_t groups = Groups(job.tile.cols);
  const int64_t chunks = (groups * kGroup * pass_rows + kDirectFloats - 1) / kDirectFloats;
  for (int64_t c = 0; c < chunks; ++c) {
    const GroupRange range{groups * c / chunks, groups * (c + 1) / chunks};
    for (int64_t p = 0; p < passes; ++p) {
      const int64_t from = rows * p / passes;
      const ConstRows part = job.x.Slice(from, rows * (p + 1) / passes - from);
      const Sums to{job.sums.acc + from * job.sums.step, job.sums.step};
      if (scale_panel) {
        DirectChunk<DecodeFp8Bits>(job.tile, range, ScalePanel(part, job.tile.scales, range), to);
      } else {
        DirectChunk<Decoder>(job.tile, range, part, to);
      }
    }
  }
}

// Rows of a tile whose scales the fast decoder cannot hold, in the lane order of its format.
void ExpandSlowly(const TileJob& job, GroupRange range, Rows out) {
  const Matrix& w = *job.weight;
  float* natural = ThreadScratch().natural.Get(w.cols);
  for (int64_t r = 0; r < job.tile.rows; ++r) {
    DequantizeRow(w, job.first + r, natural);
    const int64_t cols = Lesser(w.cols, range.end * kGroup) - range.begin * kGroup;
    PackRow(OrderOf(w.format), natural + range.begin * kGroup, cols, out.row(r));
  }
}

// One expanded chunk of a tile against all rows of the panel, four weight rows by three (or two).
void MultiplyPanel(const ConstRows& w, const ConstRows& x, bool first, const Sums& sums) {
  for (int64_t m = 0; m < x.rows;) {
    const int64_t take = NextRows(x.rows - m);
    const ConstRows part = x.Slice(m, take);
    for (int64_t r = 0; r < w.rows; r += 4) {
      const ConstRows four = w.Slice(r, 4);
      const Sums to{sums.acc + m * sums.step + r, sums.step};
      if (take == 3) PanelKernel<4, 3>(four, part, first, to);
      if (take == 2) PanelKernel<4, 2>(four, part, first, to);
      if (take == 1) PanelKernel<4, 1>(four, part, first, to);
    }
    m += take;
  }
}

// Many activation rows: the tile is expanded chunk by chunk into memory that stays in L1.
template <class Decoder>
void PanelTile(const TileJob& job) {
  const int64_t groups = Groups(job.tile.cols);
  const int64_t chunks = (groups + kPanelGroups - 1) / kPanelGroups;
  const int64_t stride = kPanelGroups * kGroup + kPanelPad;
  const int64_t padded = (job.tile.rows + 3) / 4 * 4;
  float* expanded = ThreadScratch().weights.Get(padded * stride);
  for (int64_t i = job.tile.rows * stride; i < padded * stride; ++i) expanded[i] = 0;
  for (int64_t c = 0; c < chunks; ++c) {
    const GroupRange range{groups * c / chunks, groups * (c + 1) / chunks};
    const int64_t cols = (range.end - range.begin) * kGroup;
    const Rows w(expanded, padded, cols, stride);
    if (job.fast()) {
      ExpandTile<Decoder>(job.tile, range, w);
    } else {
      ExpandSlowly(job, range, w);
    }
    MultiplyPanel(w, job.x.Columns(range.begin * kGroup, cols), c == 0, job.sums);
  }
}

void StoreTile(const TileJob& job, bool round, const Rows& y) {
  for (int64_t m = 0; m < y.rows; ++m) {
    float* out = y.row(m) + job.first;
    const F32x8* acc = job.sums.acc + m * job.sums.step;
    for (int64_t r = 0; r < job.tile.rows; r += 4) {
      const F32x4 four = ReduceAdd4(acc[r], acc[r + 1], acc[r + 2], acc[r + 3]);
      const F32x4 result = Low(MaybeBf16(Combine(four, four), round));
      const int64_t count = Lesser<int64_t>(4, job.tile.rows - r);
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
  const bool few = y.rows <= Decoder::kDirectMax;
  const int64_t most = few ? kDirectTile : kPanelTile;
  TileJob job;
  job.weight = &task.weight;
  job.x = packed.panel;
  job.sums = {reinterpret_cast<F32x8*>(scratch.sums.Get(y.rows * most * 8)), most};
  for (job.first = begin; job.first < end; job.first += job.tile.rows) {
    job.tile =
        MakeTile(scratch, task.weight, job.first, TileRows(task.weight, job.first, end, most));
    if (fp8) job.scales = FindScaleRange(job.tile);
    if (few && job.fast()) {
      const bool shared_scales = fp8 && job.tile.scale_step == 0;
      DirectTile<Decoder>(job, shared_scales && job.scales.fits(packed.largest));
    } else {
      PanelTile<Decoder>(job);
    }
    StoreTile(job, task.round_bf16, y);
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
