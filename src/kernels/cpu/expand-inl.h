// Cached rows to float32 in natural order, and small products of such rows.
#ifndef KURUMA_KERNELS_CPU_EXPAND_INL_H_
#define KURUMA_KERNELS_CPU_EXPAND_INL_H_

#include "kernels/cpu/tile-inl.h"
#include "kernels/formats.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

struct E4m3Table {
  float values[256];
};

constexpr E4m3Table MakeE4m3Table() {
  E4m3Table table{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> 3) & 15;
    const int units = exponent == 0 ? code & 7 : (8 | (code & 7)) << (exponent - 1);
    const float value = static_cast<float>(units) * 0x1p-9f;
    const bool nan = (code & 127) == 127;
    table.values[code] = nan ? __builtin_nanf("") : (code & 128) != 0 ? -value : value;
  }
  return table;
}

constexpr E4m3Table kE4m3 = MakeE4m3Table();

// Eight E4M3 codes times 2^-120 (see DecodeFp8).
KURUMA_INLINE F32x8 LoadFp8Bits(const uint8_t* p) {
  return Floats(And(ShiftLeft<20>(LoadS8(p)), SetInt(static_cast<int32_t>(0x87F00000u))));
}

// `scales` one E8M0 byte per 32. A cached row's scale is at most 2^120 (activations are float32
// divided by 448), so it is applied in two exact steps.
void ExpandFp8Row(const uint8_t* codes, const uint8_t* scales, int64_t dim, float* y) {
  const F32x8 unbias = Set(0x1p120f);
  for (int64_t g = 0; g < dim / kGroup; ++g) {
    const F32x8 scale = Scale(kPlainScales, scales[g]);
    KURUMA_UNROLL
    for (int j = 0; j < 4; ++j) {
      const F32x8 value = Mul(LoadFp8Bits(codes + g * kGroup + 8 * j), unbias);
      Store(y + g * kGroup + 8 * j, Mul(value, scale));
    }
  }
}

// 32 FP4 codes in natural order: back from the lane order of ExpandFp4.
KURUMA_INLINE void ExpandFp4Natural(const uint8_t* p, uint8_t scale, F32x4* q) {
  F32x8 w[4];
  ExpandFp4(p, kFp4.halves[scale], w);
  KURUMA_UNROLL
  for (int half = 0; half < 2; ++half) {
    const F32x4 columns[4] = {Low(w[2 * half]), High(w[2 * half]), Low(w[2 * half + 1]),
                              High(w[2 * half + 1])};
    Transpose4(columns, q + 4 * half);
  }
}

// One E4M3 scale per 16 columns.
void ExpandFp4E4m3Row(const uint8_t* codes, const uint8_t* scales, int64_t dim, float* y) {
  constexpr uint8_t kOne = 127;
  for (int64_t g = 0; g < dim / kGroup; ++g) {
    F32x4 q[8];
    ExpandFp4Natural(codes + g * kGroup / 2, kOne, q);
    const float low = kE4m3.values[scales[2 * g]];
    const float high = kE4m3.values[scales[2 * g + 1]];
    KURUMA_UNROLL
    for (int i = 0; i < 8; ++i) Store4(y + g * kGroup + 4 * i, q[i] * (i < 4 ? low : high));
  }
}

// One E8M0 scale per 32 columns.
void ExpandFp4E8m0Row(const uint8_t* codes, const uint8_t* scales, int64_t dim, float* y) {
  for (int64_t g = 0; g < dim / kGroup; ++g) {
    F32x4 q[8];
    ExpandFp4Natural(codes + g * kGroup / 2, scales[g], q);
    KURUMA_UNROLL
    for (int i = 0; i < 8; ++i) Store4(y + g * kGroup + 4 * i, q[i]);
  }
}

// Same values as LoadRow.
void ExpandRow(RowFormat format, const std::byte* src, int64_t dim, float* y) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(src);
  switch (format) {
    case RowFormat::kF32:
      std::memcpy(y, src, static_cast<size_t>(dim) * sizeof(float));
      break;
    case RowFormat::kFp8:
      ExpandFp8Row(bytes, bytes + dim, dim, y);
      break;
    case RowFormat::kFp4E4m3:
      ExpandFp4E4m3Row(bytes, bytes + dim / 2, dim, y);
      break;
    case RowFormat::kFp4E8m0:
      ExpandFp4E8m0Row(bytes, bytes + dim / 2, dim, y);
      break;
  }
}

// out.row(m)[r] = keys_r . heads_m for four keys and M heads.
template <int M>
KURUMA_INLINE void DotTile(const ConstRows& keys, const ConstRows& heads, const Rows& out) {
  F32x8 acc[4][M];
  KURUMA_UNROLL
  for (int r = 0; r < 4; ++r) {
    KURUMA_UNROLL
    for (int m = 0; m < M; ++m) acc[r][m] = Zero();
  }
  ChainKernel<4, M>(keys, heads, heads.cols / 8, acc);
  KURUMA_UNROLL
  for (int m = 0; m < M; ++m) {
    Store4(out.row(m), ReduceAdd4(acc[0][m], acc[1][m], acc[2][m], acc[3][m]));
  }
}

// out [heads, keys] = all dot products, one chain each as in tile-inl.h, in natural order. Works on
// fours of keys: keys and the rows of out have room up to there. heads.cols is a multiple of 8.
void DotKeys(const ConstRows& keys, const ConstRows& heads, const Rows& out) {
  for (int64_t j = 0; j < keys.rows; j += 4) {
    const ConstRows four = keys.Slice(j, 4);
    for (int64_t h = 0; h < heads.rows;) {
      const int64_t take = NextRows(heads.rows - h);
      const ConstRows some = heads.Slice(h, take);
      const Rows to = out.Slice(h, take).Columns(j, 4);
      if (take == 3) DotTile<3>(four, some, to);
      if (take == 2) DotTile<2>(four, some, to);
      if (take == 1) DotTile<1>(four, some, to);
      h += take;
    }
  }
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_EXPAND_INL_H_
