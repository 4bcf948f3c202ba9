#include "kernels/formats.h"

#include <algorithm>

namespace kuruma::kernels {
namespace {

constexpr float kE4m3Max = 448.0f;

std::array<float, 256> MakeE4m3Table() {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> 3) & 15;
    const int mantissa = code & 7;
    float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    if ((code & 127) == 127) value = std::bit_cast<float>(0x7FC00000u);
    table[code] = (code & 128) != 0 ? -value : value;
  }
  return table;
}

const std::array<float, 256> kE4m3Table = MakeE4m3Table();

float AbsMax(std::span<const float> x) {
  float most = 0;
  for (float v : x) most = std::max(most, std::fabs(v));
  return most;
}

// 2^e for e in [-127, 127].
float PowerOfTwo(int e) { return E8m0ToFloat(static_cast<uint8_t>(e + 127)); }

// Exponent of the scale of one activation group.
int Fp8ScaleExponent(std::span<const float> group) {
  return CeilLog2(std::max(AbsMax(group), 1e-4f) * (1.0f / kE4m3Max));
}

int IndexScaleExponent(std::span<const float> group) {
  return CeilLog2(std::max(AbsMax(group), 6 * 0x1p-126f) * (1.0f / 6));
}

void StoreFp8(std::span<const float> x, std::byte* dst) {
  auto* codes = reinterpret_cast<uint8_t*>(dst);
  uint8_t* scales = codes + x.size();
  for (size_t g = 0; g < x.size() / kActivationGroup; ++g) {
    const auto group = x.subspan(g * kActivationGroup, kActivationGroup);
    const int exponent = Fp8ScaleExponent(group);
    const float scale = PowerOfTwo(exponent);
    for (int i = 0; i < kActivationGroup; ++i) {
      codes[g * kActivationGroup + i] = FloatToE4m3(group[i] / scale);
    }
    scales[g] = static_cast<uint8_t>(exponent + 127);
  }
}

void PackFp4(size_t column, uint8_t code, uint8_t* packed) {
  if (column % 2 == 0) {
    packed[column / 2] = code;
  } else {
    packed[column / 2] = static_cast<uint8_t>(packed[column / 2] | (code << 4));
  }
}

void StoreFp4E8m0(std::span<const float> x, std::byte* dst) {
  auto* packed = reinterpret_cast<uint8_t*>(dst);
  uint8_t* scales = packed + x.size() / 2;
  for (size_t g = 0; g < x.size() / kActivationGroup; ++g) {
    const auto group = x.subspan(g * kActivationGroup, kActivationGroup);
    const int exponent = IndexScaleExponent(group);
    const float scale = PowerOfTwo(exponent);
    for (int i = 0; i < kActivationGroup; ++i) {
      PackFp4(g * kActivationGroup + i, FloatToE2m1(group[i] / scale), packed);
    }
    scales[g] = static_cast<uint8_t>(exponent + 127);
  }
}

void StoreFp4E4m3(Fp4Division division, std::span<const float> x, std::byte* dst) {
  auto* packed = reinterpret_cast<uint8_t*>(dst);
  uint8_t* scales = packed + x.size() / 2;
  const bool reciprocal = division == Fp4Division::kReciprocal;
  for (size_t g = 0; g < x.size() / kCacheGroup; ++g) {
    const auto group = x.subspan(g * kCacheGroup, kCacheGroup);
    const float most = std::max(AbsMax(group), 6 * 0x1p-9f);
    scales[g] = FloatToE4m3(reciprocal ? most * (1.0f / 6) : most / 6.0f);
    const float scale = E4m3ToFloat(scales[g]);
    const float inverse = 1.0f / scale;
    for (int i = 0; i < kCacheGroup; ++i) {
      const float scaled = reciprocal ? group[i] * inverse : group[i] / scale;
      PackFp4(g * kCacheGroup + i, FloatToE2m1(scaled), packed);
    }
  }
}

}  // namespace

float E4m3ToFloat(uint8_t code) { return kE4m3Table[code]; }

uint8_t FloatToE4m3(float x) {
  if (std::isnan(x)) return 0x7F;
  const uint32_t sign = (std::bit_cast<uint32_t>(x) >> 24) & 0x80;
  const float magnitude = std::min(std::fabs(x), kE4m3Max);
  // Below the smallest normal 2^-6 codes are multiples of 2^-9; adding 2^14 rounds to them.
  if (magnitude < 0x1p-6f) {
    const float rounded = magnitude + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x46800000u));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = bits + 0x7FFFF + ((bits >> 20) & 1);  // keep three mantissa bits
  return static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
}

uint8_t FloatToE2m1(float x) {
  const uint8_t sign = std::signbit(x) ? 8 : 0;
  const float magnitude = std::fabs(x);
  // Midpoints .25 .75 1.25 1.75 2.5 3.5 5; an exact hit goes to the even code.
  uint8_t code = 0;
  code += magnitude > 0.25f;
  code += magnitude >= 0.75f;
  code += magnitude > 1.25f;
  code += magnitude >= 1.75f;
  code += magnitude > 2.5f;
  code += magnitude >= 3.5f;
  code += magnitude > 5.0f;
  return sign | code;
}

void QuantizeDequantizeFp8(std::span<const float> x, float* y) {
  for (size_t g = 0; g < x.size() / kActivationGroup; ++g) {
    const auto group = x.subspan(g * kActivationGroup, kActivationGroup);
    const float scale = PowerOfTwo(Fp8ScaleExponent(group));
    for (int i = 0; i < kActivationGroup; ++i) {
      y[g * kActivationGroup + i] = E4m3ToFloat(FloatToE4m3(group[i] / scale)) * scale;
    }
  }
}

int64_t RowBytes(RowFormat format, int64_t dim) {
  switch (format) {
    case RowFormat::kF32:
      return dim * 4;
    case RowFormat::kFp8:
      return dim + dim / kActivationGroup;
    case RowFormat::kFp4E4m3:
      return dim / 2 + dim / kCacheGroup;
    case RowFormat::kFp4E8m0:
      return dim / 2 + dim / kActivationGroup;
  }
  return 0;
}

void StoreRow(RowFormat format, Fp4Division division, std::span<const float> x, std::byte* dst) {
  switch (format) {
    case RowFormat::kF32:
      std::copy(x.begin(), x.end(), reinterpret_cast<float*>(dst));
      break;
    case RowFormat::kFp8:
      StoreFp8(x, dst);
      break;
    case RowFormat::kFp4E4m3:
      StoreFp4E4m3(division, x, dst);
      break;
    case RowFormat::kFp4E8m0:
      StoreFp4E8m0(x, dst);
      break;
  }
}

void LoadRow(RowFormat format, const std::byte* src, int64_t dim, float* y) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(src);
  switch (format) {
    case RowFormat::kF32:
      std::copy_n(reinterpret_cast<const float*>(src), dim, y);
      break;
    case RowFormat::kFp8:
      for (int64_t i = 0; i < dim; ++i) {
        y[i] = E4m3ToFloat(bytes[i]) * E8m0ToFloat(bytes[dim + i / kActivationGroup]);
      }
      break;
    case RowFormat::kFp4E4m3:
      for (int64_t i = 0; i < dim; ++i) {
        const int code = (bytes[i / 2] >> (i % 2 * 4)) & 15;
        y[i] = kE2m1Values[code] * E4m3ToFloat(bytes[dim / 2 + i / kCacheGroup]);
      }
      break;
    case RowFormat::kFp4E8m0:
      for (int64_t i = 0; i < dim; ++i) {
        const int code = (bytes[i / 2] >> (i % 2 * 4)) & 15;
        y[i] = kE2m1Values[code] * E8m0ToFloat(bytes[dim / 2 + i / kActivationGroup]);
      }
      break;
  }
}

void DequantizeRow(const Matrix& w, int64_t r, float* y) {
  const std::byte* row = w.row(r);
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  switch (w.format) {
    case WeightFormat::kF32:
      std::copy_n(reinterpret_cast<const float*>(row), w.cols, y);
      break;
    case WeightFormat::kBf16:
      for (int64_t c = 0; c < w.cols; ++c) {
        y[c] = Bf16ToFloat(reinterpret_cast<const uint16_t*>(row)[c]);
      }
      break;
    case WeightFormat::kFp8:
      for (int64_t c = 0; c < w.cols; ++c) {
        y[c] = E4m3ToFloat(bytes[c]) * E8m0ToFloat(w.scale_row(r)[c / w.block_cols]);
      }
      break;
    case WeightFormat::kFp4:
      for (int64_t c = 0; c < w.cols; ++c) {
        const int code = (bytes[c / 2] >> (c % 2 * 4)) & 15;
        y[c] = kE2m1Values[code] * E8m0ToFloat(w.scale_row(r)[c / w.block_cols]);
      }
      break;
  }
}

}  // namespace kuruma::kernels
