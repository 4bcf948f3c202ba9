// Packed weights to float32 lanes, 32 columns at a time, and the lane order each format prefers.
//
// A dot product adds products in the order in which lanes come out of the decoder, so the order is
// part of a format's result; activations are put into the same order once per call (PackRow). The
// order depends on the format alone.
#ifndef KURUMA_KERNELS_CPU_DECODE_INL_H_
#define KURUMA_KERNELS_CPU_DECODE_INL_H_

#include <bit>

#include "kernels/cpu/simd-inl.h"
#include "kernels/formats.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

constexpr int64_t kGroup = 32;         // columns decoded together, four vectors
constexpr int kFp8Bias = 120;          // E4M3 bits moved to float32 positions are worth 2^-120 less
constexpr int kFp8MaxScaleByte = 134;  // 2^(byte - 127 + 120) must be a float32

struct ScaleTable {
  uint32_t bits[256];  // float32 patterns
};

constexpr uint32_t kNanBits = 0x7FC00000u;
constexpr uint32_t kInfinityBits = 0x7F800000u;

// Pattern of 2^(byte - 127 + bias); byte 255 and what overflows give NaN.
constexpr ScaleTable MakeScaleTable(int bias) {
  ScaleTable table{};
  for (int byte = 0; byte < 256; ++byte) {
    const int field = byte + bias;
    const bool valid = byte != 255 && field < 255;
    table.bits[byte] = !valid       ? kNanBits
                       : field == 0 ? 0x00400000u
                                    : static_cast<uint32_t>(field) << 23;
  }
  return table;
}

constexpr ScaleTable kPlainScales = MakeScaleTable(0);
constexpr ScaleTable kFp8Scales = MakeScaleTable(kFp8Bias);

// For every scale byte the 16 scaled FP4 values as bfloat16, which holds them exactly (subnormal
// ones too): first their high bytes, then their low bytes.
struct alignas(64) Fp4Table {
  uint8_t halves[256][32];
};

// Pattern of value * 2^(byte - 127), value one of kE2m1Values, beyond float32 infinity.
constexpr uint32_t ScaledFp4Bits(float value, int byte) {
  if (byte == 255) return kNanBits;
  const bool infinite = (byte == 254 && value >= 2) || (byte == 253 && value >= 4);
  if (infinite) return kInfinityBits;
  return std::bit_cast<uint32_t>(value * std::bit_cast<float>(kPlainScales.bits[byte]));
}

constexpr Fp4Table MakeFp4Table() {
  Fp4Table table{};
  for (int byte = 0; byte < 256; ++byte) {
    for (int code = 0; code < 16; ++code) {
      const uint32_t sign = static_cast<uint32_t>(code & 8) << 28;
      const uint32_t bits = ScaledFp4Bits(kE2m1Values[code & 7], byte) | sign;
      table.halves[byte][code] = static_cast<uint8_t>(bits >> 24);
      table.halves[byte][16 + code] = static_cast<uint8_t>(bits >> 16);
    }
  }
  return table;
}

constexpr Fp4Table kFp4 = MakeFp4Table();

KURUMA_INLINE F32x8 Scale(const ScaleTable& table, uint8_t byte) {
  return Floats(SetInt(static_cast<int32_t>(table.bits[byte])));
}

// Consecutive rows of one matrix that one pass works on.
struct Tile {
  const uint8_t* data = nullptr;
  int64_t row_bytes = 0;
  const uint8_t* scales = nullptr;  // one byte per group of 32 columns
  int64_t scale_step = 0;           // bytes from row to row; 0 when all rows share scales
  int64_t cols = 0;
  int64_t rows = 0;
};

enum class LaneOrder { kNatural, kFp8, kFp4 };

constexpr LaneOrder OrderOf(WeightFormat format) {
  return format == WeightFormat::kFp8   ? LaneOrder::kFp8
         : format == WeightFormat::kFp4 ? LaneOrder::kFp4
                                        : LaneOrder::kNatural;
}

// 32 values in natural order to the order of a decoder.
KURUMA_INLINE void PackGroup(LaneOrder order, const float* x, float* out) {
  F32x4 q[8];
  F32x4 r[8];
  KURUMA_UNROLL
  for (int i = 0; i < 8; ++i) q[i] = Load4(x + 4 * i);
  if (order == LaneOrder::kNatural) {
    KURUMA_UNROLL
    for (int i = 0; i < 8; ++i) Store4(out + 4 * i, q[i]);
    return;
  }
  Transpose4(q, r);          // r[j] = columns j, 4 + j, 8 + j, 12 + j
  Transpose4(q + 4, r + 4);  // the same of the upper 16
  KURUMA_UNROLL
  for (int j = 0; j < 4; ++j) {
    const bool fp8 = order == LaneOrder::kFp8;
    Store4(out + (fp8 ? 8 * j : 4 * j), r[j]);
    Store4(out + (fp8 ? 8 * j + 4 : 16 + 4 * j), r[4 + j]);
  }
}

// A row of `cols` activations in lane order, zeros up to a multiple of 32.
void PackRow(LaneOrder order, const float* x, int64_t cols, float* out) {
  const int64_t whole = cols / kGroup * kGroup;
  for (int64_t c = 0; c < whole; c += kGroup) PackGroup(order, x + c, out + c);
  if (whole == cols) return;
  float rest[kGroup] = {};
  for (int64_t c = whole; c < cols; ++c) rest[c - whole] = x[c];
  PackGroup(order, rest, out + whole);
}

// Decoders. Group(tile, r, g, w): columns [32 g, 32 g + 32) of row r; Tail: the last, partial
// group, zero filled. Quantised rows have no partial group. kDirectMax: up to so many activation
// rows decoding in registers, again for every few rows, was measured to beat expanding a tile once.

struct DecodeF32 {
  static constexpr int64_t kGroupBytes = 128;
  static constexpr int64_t kDirectMax = 8;
  KURUMA_INLINE static void Group(const Tile& t, int64_t r, int64_t g, F32x8* w) {
    const uint8_t* p = t.data + r * t.row_bytes + g * kGroupBytes;
    KURUMA_UNROLL
    for (int j = 0; j < 4; ++j) w[j] = Floats(LoadInt(p + 32 * j));
  }
  KURUMA_INLINE static void Tail(const Tile& t, int64_t r, int64_t g, F32x8* w) {
    float lanes[kGroup] = {};
    std::memcpy(lanes, t.data + r * t.row_bytes + g * kGroupBytes,
                static_cast<size_t>(t.cols - g * kGroup) * 4);
    KURUMA_UNROLL
    for (int j = 0; j < 4; ++j) w[j] = Load(lanes + 8 * j);
  }
};

struct DecodeBf16 {
  static constexpr int64_t kGroupBytes = 64;
  static constexpr int64_t kDirectMax = 16;
  KURUMA_INLINE static void Widen(const uint8_t* p, F32x8* w) {
    KURUMA_UNROLL
    for (int j = 0; j < 4; ++j) w[j] = Floats(ShiftLeft<16>(LoadU16(p + 16 * j)));
  }
  KURUMA_INLINE static void Group(const Tile& t, int64_t r, int64_t g, F32x8* w) {
    Widen(t.data + r * t.row_bytes + g * kGroupBytes, w);
  }
  KURUMA_INLINE static void Tail(const Tile& t, int64_t r, int64_t g, F32x8* w) {
    uint8_t bytes[kGroupBytes] = {};
    std::memcpy(bytes, t.data + r * t.row_bytes + g * kGroupBytes,
                static_cast<size_t>(t.cols - g * kGroup) * 2);
    Widen(bytes, w);
  }
};

// A code s eeee mmm placed at sign, exponent bit 26 and below is the value times 2^-120, subnormal
// codes included. Order: lane i of the four vectors is column 4 i, 4 i + 1, 4 i + 2, 4 i + 3.
// This decoder leaves the factor 2^(scale + 120) to the activations (ScalePanel).
struct DecodeFp8Bits {
  static constexpr int64_t kGroupBytes = 32;
  KURUMA_INLINE static void Group(const Tile& t, int64_t r, int64_t g, F32x8* w) {
    const I32x8 codes = LoadInt(t.data + r * t.row_bytes + g * kGroupBytes);
    const I32x8 keep = SetInt(static_cast<int32_t>(0x87F087F0u));
    const I32x8 upper = SetInt(static_cast<int32_t>(0xFFFF0000u));
    const I32x8 odd = And(ShiftRightSigned16<4>(codes), keep);
    const I32x8 even = And(ShiftRightSigned16<4>(ShiftLeft16<8>(codes)), keep);
    w[0] = Floats(ShiftLeft<16>(even));
    w[1] = Floats(ShiftLeft<16>(odd));
    w[2] = Floats(And(even, upper));
    w[3] = Floats(And(odd, upper));
  }
  KURUMA_INLINE static void Tail(const Tile& t, int64_t r, int64_t g, F32x8* w) {
    Group(t, r, g, w);
  }
};

// The same with the factor applied: one exact product per vector.
struct DecodeFp8 {
  static constexpr int64_t kGroupBytes = 32;
  static constexpr int64_t kDirectMax = 12;
  KURUMA_INLINE static void Group(const Tile& t, int64_t r, int64_t g, F32x8* w) {
    const F32x8 scale = Scale(kFp8Scales, t.scales[r * t.scale_step + g]);
    DecodeFp8Bits::Group(t, r, g, w);
    KURUMA_UNROLL
    for (int j = 0; j < 4; ++j) w[j] = Mul(w[j], scale);
  }
  KURUMA_INLINE static void Tail(const Tile& t, int64_t r, int64_t g, F32x8* w) {
    Group(t, r, g, w);
  }
};

// Lane order of ExpandFp4 (simd-*-inl.h). A group's scale selects the table of its values.
struct DecodeFp4 {
  static constexpr int64_t kGroupBytes = 16;
  static constexpr int64_t kDirectMax = 6;
  KURUMA_INLINE static void Group(const Tile& t, int64_t r, int64_t g, F32x8* w) {
    const uint8_t* halves = kFp4.halves[t.scales[r * t.scale_step + g]];
    ExpandFp4(t.data + r * t.row_bytes + g * kGroupBytes, halves, w);
  }
  KURUMA_INLINE static void Tail(const Tile& t, int64_t r, int64_t g, F32x8* w) {
    Group(t, r, g, w);
  }
};

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_DECODE_INL_H_
