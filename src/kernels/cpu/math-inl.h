// Elementary functions and sums shared by the ops that are not matrix products.
#ifndef KURUMA_KERNELS_CPU_MATH_INL_H_
#define KURUMA_KERNELS_CPU_MATH_INL_H_

#include <cmath>

#include "kernels/cpu/scratch-inl.h"
#include "kernels/cpu/simd-inl.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

// e^x with a relative error below 2e-7; 0 below -87, held at e^88 above 88 (finite). NaN stays NaN.
// x = n ln 2 + r with |r| <= 0.35: the Taylor series to r^7 leaves 5e-9, the rest is rounding.
KURUMA_INLINE F32x8 Exp(F32x8 x) {
  const F32x8 lowest = Set(-87.0f);
  const F32x8 held = Max(lowest, Min(Set(88.0f), x));  // the second operand's NaN is the result
  const F32x8 magic = Set(12582912.0f);                // 1.5 * 2^23: low bits become the integer
  const F32x8 shifted = Fma(held, Set(1.44269504f), magic);
  const F32x8 n = Sub(shifted, magic);
  // ln 2 in two parts; n times the first (9 bits) is exact.
  F32x8 r = Fma(n, Set(-0.693359375f), held);
  r = Fma(n, Set(2.12194440e-4f), r);
  F32x8 p = Set(1.0f / 5040);
  p = Fma(p, r, Set(1.0f / 720));
  p = Fma(p, r, Set(1.0f / 120));
  p = Fma(p, r, Set(1.0f / 24));
  p = Fma(p, r, Set(1.0f / 6));
  p = Fma(p, r, Set(0.5f));
  p = Fma(Mul(r, r), p, r);
  p = Add(p, Set(1.0f));
  const F32x8 scaled = Floats(AddInt(Bits(p), ShiftLeft<23>(Bits(shifted))));
  return Select(Less(x, lowest), Zero(), scaled);
}

KURUMA_INLINE float ExpScalar(float x) { return Low(Exp(Set(x)))[0]; }

KURUMA_INLINE F32x8 Sigmoid(F32x8 x) { return Div(Set(1.0f), Add(Set(1.0f), Exp(Sub(Zero(), x)))); }

// Sum of a[i] * b[i]: 32 partial sums by i % 32, added pairwise, then ReduceAdd.
KURUMA_INLINE float DotProduct(const float* a, const float* b, int64_t count) {
  F32x8 sum[4] = {Zero(), Zero(), Zero(), Zero()};
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    KURUMA_UNROLL
    for (int j = 0; j < 4; ++j) {
      sum[j] = Fma(Load(a + i + 8 * j), Load(b + i + 8 * j), sum[j]);
    }
  }
  for (; i + 8 <= count; i += 8) sum[0] = Fma(Load(a + i), Load(b + i), sum[0]);
  if (i < count) sum[1] = Fma(LoadPart(a + i, count - i), LoadPart(b + i, count - i), sum[1]);
  return ReduceAdd(Add(Add(sum[0], sum[1]), Add(sum[2], sum[3])));
}

// 1 / sqrt(sum / count + eps), where eps may be far below float32's usual epsilon.
KURUMA_INLINE float InverseRms(float square_sum, int64_t count, double eps) {
  const double mean = static_cast<double>(square_sum) / static_cast<double>(count);
  return static_cast<float>(1.0 / __builtin_sqrt(mean + eps));
}

// Rows that make a part worth a second thread: about 4 us of simple work on their elements.
KURUMA_INLINE int64_t RowsPerPart(int64_t elements_per_row) {
  return Greater<int64_t>(1, 16384 / Greater<int64_t>(1, elements_per_row));
}

// Eight lanes or the last few of a row, for loops that end in a partial vector.
KURUMA_INLINE F32x8 LoadUpTo(const float* p, int64_t count) {
  return count >= 8 ? Load(p) : LoadPart(p, count);
}
KURUMA_INLINE void StoreUpTo(float* p, F32x8 v, int64_t count) {
  if (count >= 8) {
    Store(p, v);
  } else {
    StorePart(p, v, count);
  }
}
KURUMA_INLINE F32x8 LoadBf16UpTo(const uint16_t* p, int64_t count) {
  if (count >= 8) return Floats(ShiftLeft<16>(LoadU16(p)));
  uint16_t lanes[8] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return Floats(ShiftLeft<16>(LoadU16(lanes)));
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_MATH_INL_H_
