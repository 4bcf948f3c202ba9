// The number formats of a DeepSeek-V4.1 checkpoint and of its caches: scalar conversions, exact.
// Sources: OCP 8-bit Floating Point (E4M3FN, E8M0), OCP Microscaling (E2M1), and the released
// checkpoint's packing: two FP4 codes per byte along K, the LOW nibble is the even column.
// Everything here is pure and may run on any thread.
#ifndef KURUMA_KERNELS_FORMATS_H_
#define KURUMA_KERNELS_FORMATS_H_

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kuruma::kernels {

inline constexpr int kActivationGroup = 32;  // columns that share an activation scale
inline constexpr int kCacheGroup = 16;       // columns that share a scale in a compressed row

// ------------------------------------------------------------------------------- scalar formats

inline float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Round to nearest, ties to even. Finite input only (NaN payloads may become infinity).
inline uint16_t FloatToBf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

inline float RoundBf16(float x) { return Bf16ToFloat(FloatToBf16(x)); }

// Value of an E4M3FN byte; 0x7F and 0xFF are NaN.
float E4m3ToFloat(uint8_t code);

// Nearest E4M3 code, ties to even, magnitudes above 448 saturate, NaN stays NaN.
uint8_t FloatToE4m3(float x);

// 2^(byte - 127), byte 0 being the subnormal 2^-127; byte 255 is NaN.
inline float E8m0ToFloat(uint8_t byte) {
  if (byte == 255) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(byte == 0 ? 0x00400000u : uint32_t{byte} << 23);
}

inline constexpr std::array<float, 16> kE2m1Values = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                                      -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// Nearest E2M1 code (0..15), midpoints go to the even code, magnitudes above 6 saturate; the sign
// of zero is kept.
uint8_t FloatToE2m1(float x);

// Smallest integer e with 2^e >= x, read from the bits of a positive normal float32.
inline int CeilLog2(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<int>(bits >> 23) - 127 + ((bits & 0x7FFFFF) != 0);
}

// ------------------------------------------------------------------------ activation round trips

// Per-32 FP8 quantisation with power-of-two scales, immediately undone: y = q * s.
// `x` and `y` [n], n a multiple of 32, may be the same memory. Source: engine kernels' rule, amax
// floored at 1e-4, s = 2^ceil(log2(amax * f32(1/448))).
void QuantizeDequantizeFp8(std::span<const float> x, float* y);

// ------------------------------------------------------------------------------- rows of a cache

// How a cached row of `dim` values is stored.
enum class RowFormat {
  kF32,      // dim floats (exact numerics)
  kFp8,      // dim E4M3 codes, then dim/32 E8M0 scales (window rows)
  kFp4E4m3,  // dim/2 bytes of E2M1 codes, then dim/16 E4M3 scales (compressed rows)
  kFp4E8m0,  // dim/2 bytes of E2M1 codes, then dim/32 E8M0 scales (index vectors)
};

// Bytes of one row. `dim` must be a multiple of 32 for the packed formats.
int64_t RowBytes(RowFormat format, int64_t dim);

// How kFp4E4m3 forms scale and codes: the released engine multiplies by float32 reciprocals, the
// single-file reference divides. They differ at exact rounding midpoints only.
enum class Fp4Division { kReciprocal, kTrue };

// Quantises one row into `dst` (RowBytes long).
void StoreRow(RowFormat format, Fp4Division division, std::span<const float> x, std::byte* dst);

// Values of a stored row; y has room for `dim` floats.
void LoadRow(RowFormat format, const std::byte* src, int64_t dim, float* y);

// How a cache of equal rows is spread over blocks: row j is at
// blocks[j / rows_per_block] + offset + (j % rows_per_block) * row_bytes.
struct PagedRows {
  int64_t rows_per_block = 1;
  int64_t offset = 0;  // bytes from the start of a block
  int64_t row_bytes = 0;
  RowFormat format = RowFormat::kF32;

  const std::byte* row(const std::byte* const* blocks, int64_t j) const {
    return blocks[j / rows_per_block] + offset + (j % rows_per_block) * row_bytes;
  }
};

// ------------------------------------------------------------------------------ packed matrices

enum class WeightFormat { kF32, kBf16, kFp8, kFp4 };

// A read-only view of a checkpoint matrix W [rows, cols], packed as on disk. `scales` holds one
// E8M0 byte per tile of block_rows x block_cols, `scale_stride` bytes from tile row to tile row;
// edge tiles may be partial. The view stays valid while the checkpoint is mapped.
struct Matrix {
  WeightFormat format = WeightFormat::kF32;
  const std::byte* data = nullptr;  // first row of the whole matrix
  const uint8_t* scales = nullptr;  // null for kF32 and kBf16
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t first_row = 0;  // this view starts at that row of the whole matrix
  int64_t block_rows = 1;
  int64_t block_cols = 1;
  int64_t scale_stride = 0;

  int64_t row_bytes() const {
    switch (format) {
      case WeightFormat::kF32:
        return cols * 4;
      case WeightFormat::kBf16:
        return cols * 2;
      case WeightFormat::kFp8:
        return cols;
      case WeightFormat::kFp4:
        return cols / 2;
    }
    return 0;
  }
  const std::byte* row(int64_t r) const { return data + (first_row + r) * row_bytes(); }
  const uint8_t* scale_row(int64_t r) const {
    return scales + (first_row + r) / block_rows * scale_stride;
  }
  // Rows [begin, begin + count) of this view.
  Matrix Slice(int64_t begin, int64_t count) const {
    Matrix part = *this;
    part.first_row += begin;
    part.rows = count;
    return part;
  }
};

// Values of row r of a matrix (exact: every packed value times its scale is a float32).
void DequantizeRow(const Matrix& w, int64_t r, float* y);

}  // namespace kuruma::kernels

#endif  // KURUMA_KERNELS_FORMATS_H_
