// The vector vocabulary of the CPU kernels: 8 float32 lanes (F32x8), the same 256 bits as integers
// (I32x8) and 4-lane halves (F32x4), in one spelling for every target.
//
// Included once per target file, which defines KURUMA_CPU_TARGET (a namespace name) first. All
// code of a target lives in an unnamed namespace inside it and is force-inlined where it is small:
// nothing that was compiled for a newer processor can be merged into an older target by the linker.
// A wider target (AVX-512) adds a simd_<target>-inl.h with the same names.
#ifndef KURUMA_KERNELS_CPU_SIMD_INL_H_
#define KURUMA_KERNELS_CPU_SIMD_INL_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#define KURUMA_INLINE inline __attribute__((always_inline))

// Repeats a loop of constant length at compile time, so that arrays of vectors become registers.
#define KURUMA_UNROLL _Pragma("GCC unroll 16")

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

using F32x4 = float __attribute__((vector_size(16)));

// Like std::min and std::max, but private to the target.
template <typename T>
KURUMA_INLINE T Lesser(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
KURUMA_INLINE T Greater(T a, T b) {
  return a < b ? b : a;
}

KURUMA_INLINE F32x4 Load4(const float* p) {
  F32x4 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
KURUMA_INLINE void Store4(float* p, F32x4 v) { std::memcpy(p, &v, sizeof(v)); }

// r[j][i] = q[i][j].
KURUMA_INLINE void Transpose4(const F32x4* q, F32x4* r) {
  const F32x4 low01 = __builtin_shufflevector(q[0], q[1], 0, 4, 1, 5);
  const F32x4 high01 = __builtin_shufflevector(q[0], q[1], 2, 6, 3, 7);
  const F32x4 low23 = __builtin_shufflevector(q[2], q[3], 0, 4, 1, 5);
  const F32x4 high23 = __builtin_shufflevector(q[2], q[3], 2, 6, 3, 7);
  r[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  r[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  r[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  r[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#if defined(__AVX2__) && defined(__FMA__)
#include "kernels/cpu/simd_avx2-inl.h"
#else
#include "kernels/cpu/simd_portable-inl.h"
#endif

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

// Sum of the lanes, always as ((0+4)+(2+6)) + ((1+5)+(3+7)).
KURUMA_INLINE float ReduceAdd(F32x8 v) {
  const F32x4 half = Low(v) + High(v);
  return (half[0] + half[2]) + (half[1] + half[3]);
}

// Four sums at once, each in the order of ReduceAdd.
KURUMA_INLINE F32x4 ReduceAdd4(F32x8 a, F32x8 b, F32x8 c, F32x8 d) {
  const F32x4 ha = Low(a) + High(a);
  const F32x4 hb = Low(b) + High(b);
  const F32x4 hc = Low(c) + High(c);
  const F32x4 hd = Low(d) + High(d);
  const F32x4 ab =
      __builtin_shufflevector(ha, hb, 0, 4, 1, 5) + __builtin_shufflevector(ha, hb, 2, 6, 3, 7);
  const F32x4 cd =
      __builtin_shufflevector(hc, hd, 0, 4, 1, 5) + __builtin_shufflevector(hc, hd, 2, 6, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

KURUMA_INLINE float ReduceMax(F32x8 v) {
  const F32x4 a = Low(v);
  const F32x4 b = High(v);
  return Greater(Greater(Greater(a[0], b[0]), Greater(a[1], b[1])),
                 Greater(Greater(a[2], b[2]), Greater(a[3], b[3])));
}

// Round to nearest even bfloat16 values; finite lanes.
KURUMA_INLINE F32x8 RoundToBf16(F32x8 v) {
  const I32x8 bits = Bits(v);
  const I32x8 odd = And(ShiftRight<16>(bits), SetInt(1));
  const I32x8 bias = AddInt(odd, SetInt(0x7FFF));
  return Floats(And(AddInt(bits, bias), SetInt(static_cast<int32_t>(0xFFFF0000u))));
}

KURUMA_INLINE F32x8 MaybeBf16(F32x8 v, bool round) { return round ? RoundToBf16(v) : v; }

// The first `count` (1..7) floats at p, zeros after them.
KURUMA_INLINE F32x8 LoadPart(const float* p, int64_t count) {
  float lanes[8] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return Load(lanes);
}
KURUMA_INLINE void StorePart(float* p, F32x8 v, int64_t count) {
  float lanes[8];
  Store(lanes, v);
  for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_SIMD_INL_H_
