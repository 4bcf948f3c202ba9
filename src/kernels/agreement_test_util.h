// Inputs and comparisons for tests that hold every CPU table against the reference and against
// itself: close to the float64 result, and bit-identical whatever else is in the batch and however
// many threads run.
#ifndef KURUMA_KERNELS_AGREEMENT_TEST_UTIL_H_
#define KURUMA_KERNELS_AGREEMENT_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/dispatch.h"

namespace kuruma::kernels {

// ------------------------------------------------------------------------------ inputs from a seed

using Rng = std::mt19937;
using Floats = std::vector<float>;

inline Floats Normal(Rng& rng, int64_t count, float scale = 1) {
  std::normal_distribution<float> normal(0, scale);
  Floats x(count);
  for (float& v : x) v = normal(rng);
  return x;
}

inline Floats ToBf16(Floats x) {
  for (float& v : x) v = RoundBf16(v);
  return x;
}

inline Floats ToFp8(Floats x) {
  QuantizeDequantizeFp8(x, x.data());
  return x;
}

inline std::vector<uint16_t> Bf16Codes(const Floats& x) {
  std::vector<uint16_t> codes(x.size());
  std::transform(x.begin(), x.end(), codes.begin(), FloatToBf16);
  return codes;
}

// A matrix with its memory.
struct OwnedMatrix {
  std::vector<std::byte> data;
  std::vector<uint8_t> scales;
  Matrix view;
};

struct MatrixShape {
  WeightFormat format;
  int64_t rows;
  int64_t cols;
  int64_t block_rows = 32;
  int64_t block_cols = 32;
  int first_scale = 115;  // scale bytes are first_scale .. first_scale + 7
};

inline OwnedMatrix RandomMatrix(Rng& rng, const MatrixShape& shape) {
  OwnedMatrix m;
  m.view.format = shape.format;
  m.view.rows = shape.rows;
  m.view.cols = shape.cols;
  m.data.resize(shape.rows * m.view.row_bytes());
  const bool fp8 = shape.format == WeightFormat::kFp8;
  if (fp8 || shape.format == WeightFormat::kFp4) {
    for (std::byte& b : m.data) {
      b = static_cast<std::byte>(rng());
      if (fp8 && (b & std::byte{127}) == std::byte{127}) b = std::byte{0};  // NaN codes
    }
    m.view.block_rows = fp8 ? shape.block_rows : 1;
    m.view.block_cols = shape.block_cols;
    m.view.scale_stride = (shape.cols + shape.block_cols - 1) / shape.block_cols;
    const int64_t scale_rows = (shape.rows + m.view.block_rows - 1) / m.view.block_rows;
    m.scales.resize(scale_rows * m.view.scale_stride);
    for (uint8_t& s : m.scales) s = static_cast<uint8_t>(shape.first_scale + rng() % 8);
    m.view.scales = m.scales.data();
  } else {
    const Floats x = Normal(rng, shape.rows * shape.cols, 0.05f);
    const std::vector<uint16_t> codes = Bf16Codes(x);
    if (shape.format == WeightFormat::kF32) std::memcpy(m.data.data(), x.data(), m.data.size());
    if (shape.format == WeightFormat::kBf16) {
      std::memcpy(m.data.data(), codes.data(), m.data.size());
    }
  }
  m.view.data = m.data.data();
  return m;
}

// ------------------------------------------------------------------------- one op on some input

// An op with fixed inputs of `rows` rows. `run` computes output rows [begin, begin + count) alone,
// each `cols` long. `allowed` is the largest difference from the reference for an element.
struct Case {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;
  std::function<void(const OpTable& ops, ThreadPool& pool, int64_t begin, int64_t count,
                     float* out)>
      run;
  std::function<double(int64_t row, int64_t col, float expected)> allowed;
};

inline constexpr double kUlp = 0x1p-24;      // half the spacing of float32 at 1
inline constexpr double kBf16Step = 0x1p-7;  // spacing of bfloat16 at 1

// A few float32 roundings, and when the result is rounded to bfloat16, one step of that: a value
// next to a rounding boundary may fall on the other side.
inline auto Relative(double ulps, bool bf16, double floor) {
  return [=](int64_t, int64_t, float expected) {
    return std::fabs(expected) * (ulps * kUlp + (bf16 ? kBf16Step : 0)) + floor;
  };
}

inline Floats RunCase(const Case& c, const OpTable& ops, ThreadPool& pool) {
  Floats out(c.rows * c.cols, -1);
  c.run(ops, pool, 0, c.rows, out.data());
  return out;
}

// Index of the first element whose bits differ, or -1.
inline int64_t FirstDifference(const Floats& a, const Floats& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

inline std::string Place(const Case& c, int64_t i) {
  return c.name + " row " + std::to_string(i / c.cols) + " col " + std::to_string(i % c.cols);
}

inline void ExpectAgrees(const Case& c, const OpTable& ops, const Floats& expected,
                         const Floats& actual) {
  int64_t worst = 0;
  double worst_share = -1;
  for (int64_t i = 0; i < c.rows * c.cols; ++i) {
    const double allowed = c.allowed(i / c.cols, i % c.cols, expected[i]);
    const double error = std::fabs(static_cast<double>(actual[i]) - expected[i]);
    const double share = error == 0 ? 0 : std::isfinite(error) ? error / allowed : INFINITY;
    if (share > worst_share) {
      worst_share = share;
      worst = i;
    }
  }
  if (c.rows * c.cols == 0) return;
  EXPECT_LE(worst_share, 1) << ops.name << ": " << Place(c, worst) << " is " << actual[worst]
                            << ", reference " << expected[worst];
}

// Each row alone gives the bits it has among the others. `stride` skips rows of large cases.
inline int64_t FirstBatchDifference(const Case& c, const OpTable& ops, ThreadPool& pool) {
  const Floats together = RunCase(c, ops, pool);
  Floats apart = together;
  const int64_t stride = std::max<int64_t>(1, c.rows / 8);
  for (int64_t r = 0; r < c.rows; r += stride) {
    c.run(ops, pool, r, 1, apart.data() + r * c.cols);
  }
  return FirstDifference(together, apart);
}

inline void CheckCase(const Case& c) {
  ThreadPool one(1), two(2), three(3);
  const Floats expected = RunCase(c, ReferenceOps(), two);
  for (const OpTable* ops : RunnableCpuOps()) {
    const Floats actual = RunCase(c, *ops, one);
    ExpectAgrees(c, *ops, expected, actual);
    for (ThreadPool* pool : {&two, &three}) {
      const int64_t i = FirstDifference(actual, RunCase(c, *ops, *pool));
      EXPECT_EQ(i, -1) << ops->name << " on " << pool->threads() << " threads: " << Place(c, i);
    }
    const int64_t i = FirstBatchDifference(c, *ops, two);
    EXPECT_EQ(i, -1) << ops->name << " alone: " << Place(c, i);
  }
}

}  // namespace kuruma::kernels

#endif  // KURUMA_KERNELS_AGREEMENT_TEST_UTIL_H_
