// simd-inl.h in the compilers' generic vectors: two 16-byte halves, which every supported baseline
// has. Fma rounds twice here; where a product of two lanes is exact (values with few significant
// bits, such as FP8 activations times any quantised weight) that equals the fused result.
#ifndef KURUMA_KERNELS_CPU_SIMD_PORTABLE_INL_H_
#define KURUMA_KERNELS_CPU_SIMD_PORTABLE_INL_H_

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

using I32x4 = int32_t __attribute__((vector_size(16)));
using U32x4 = uint32_t __attribute__((vector_size(16)));
using I16x8 = int16_t __attribute__((vector_size(16)));

struct F32x8 {
  F32x4 low;
  F32x4 high;
};
struct I32x8 {
  I32x4 low;
  I32x4 high;
};

KURUMA_INLINE F32x4 Fill4(float x) { return F32x4{x, x, x, x}; }

KURUMA_INLINE F32x8 Load(const float* p) { return {Load4(p), Load4(p + 4)}; }
KURUMA_INLINE void Store(float* p, F32x8 v) {
  Store4(p, v.low);
  Store4(p + 4, v.high);
}
KURUMA_INLINE F32x8 Set(float x) { return {Fill4(x), Fill4(x)}; }
KURUMA_INLINE F32x8 Zero() { return Set(0); }
KURUMA_INLINE F32x4 Low(F32x8 v) { return v.low; }
KURUMA_INLINE F32x4 High(F32x8 v) { return v.high; }
KURUMA_INLINE F32x8 Combine(F32x4 low, F32x4 high) { return {low, high}; }

KURUMA_INLINE F32x8 Add(F32x8 a, F32x8 b) { return {a.low + b.low, a.high + b.high}; }
KURUMA_INLINE F32x8 Sub(F32x8 a, F32x8 b) { return {a.low - b.low, a.high - b.high}; }
KURUMA_INLINE F32x8 Mul(F32x8 a, F32x8 b) { return {a.low * b.low, a.high * b.high}; }
KURUMA_INLINE F32x8 Div(F32x8 a, F32x8 b) { return {a.low / b.low, a.high / b.high}; }
KURUMA_INLINE F32x8 Fma(F32x8 a, F32x8 b, F32x8 c) { return Add(Mul(a, b), c); }

KURUMA_INLINE I32x8 Bits(F32x8 v) { return {(I32x4)v.low, (I32x4)v.high}; }
KURUMA_INLINE F32x8 Floats(I32x8 v) { return {(F32x4)v.low, (F32x4)v.high}; }
KURUMA_INLINE I32x8 SetInt(int32_t x) {
  const I32x4 v = {x, x, x, x};
  return {v, v};
}
KURUMA_INLINE I32x8 LoadInt(const void* p) {
  I32x8 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
KURUMA_INLINE I32x8 AddInt(I32x8 a, I32x8 b) {
  return {(I32x4)((U32x4)a.low + (U32x4)b.low), (I32x4)((U32x4)a.high + (U32x4)b.high)};
}
KURUMA_INLINE I32x8 And(I32x8 a, I32x8 b) { return {a.low & b.low, a.high & b.high}; }
KURUMA_INLINE I32x8 Or(I32x8 a, I32x8 b) { return {a.low | b.low, a.high | b.high}; }
template <int kBits>
KURUMA_INLINE I32x8 ShiftLeft(I32x8 v) {
  return {(I32x4)((U32x4)v.low << kBits), (I32x4)((U32x4)v.high << kBits)};
}
template <int kBits>
KURUMA_INLINE I32x8 ShiftRight(I32x8 v) {
  return {(I32x4)((U32x4)v.low >> kBits), (I32x4)((U32x4)v.high >> kBits)};
}
template <int kBits>
KURUMA_INLINE I32x8 ShiftLeft16(I32x8 v) {
  return {(I32x4)((I16x8)v.low << kBits), (I32x4)((I16x8)v.high << kBits)};
}
template <int kBits>
KURUMA_INLINE I32x8 ShiftRightSigned16(I32x8 v) {
  return {(I32x4)((I16x8)v.low >> kBits), (I32x4)((I16x8)v.high >> kBits)};
}

KURUMA_INLINE I32x8 Less(F32x8 a, F32x8 b) {
  return {(I32x4)(a.low < b.low), (I32x4)(a.high < b.high)};
}
KURUMA_INLINE I32x8 IsNan(F32x8 a) { return {(I32x4)(a.low != a.low), (I32x4)(a.high != a.high)}; }
KURUMA_INLINE I32x4 Pick4(I32x4 mask, I32x4 a, I32x4 b) { return (mask & a) | (~mask & b); }
KURUMA_INLINE F32x8 Select(I32x8 mask, F32x8 a, F32x8 b) {
  return {(F32x4)Pick4(mask.low, (I32x4)a.low, (I32x4)b.low),
          (F32x4)Pick4(mask.high, (I32x4)a.high, (I32x4)b.high)};
}
KURUMA_INLINE F32x8 Min(F32x8 a, F32x8 b) { return Select(Less(a, b), a, b); }
KURUMA_INLINE F32x8 Max(F32x8 a, F32x8 b) { return Select(Less(b, a), a, b); }

KURUMA_INLINE F32x8 DupEven(F32x8 a) {
  return {__builtin_shufflevector(a.low, a.low, 0, 0, 2, 2),
          __builtin_shufflevector(a.high, a.high, 0, 0, 2, 2)};
}
KURUMA_INLINE F32x8 DupOdd(F32x8 a) {
  return {__builtin_shufflevector(a.low, a.low, 1, 1, 3, 3),
          __builtin_shufflevector(a.high, a.high, 1, 1, 3, 3)};
}

KURUMA_INLINE void Prefetch(const void* p) { __builtin_prefetch(p); }

KURUMA_INLINE I32x8 LoadU16(const void* p) {
  uint16_t x[8];
  std::memcpy(x, p, sizeof(x));
  return {I32x4{x[0], x[1], x[2], x[3]}, I32x4{x[4], x[5], x[6], x[7]}};
}
KURUMA_INLINE I32x8 LoadS8(const void* p) {
  int8_t x[8];
  std::memcpy(x, p, sizeof(x));
  return {I32x4{x[0], x[1], x[2], x[3]}, I32x4{x[4], x[5], x[6], x[7]}};
}

// See simd_avx2-inl.h: value i of each eight is column 4 * (i % 4) + i / 4 of its half of 16, plus
// 2 in the odd vectors.
KURUMA_INLINE void ExpandFp4(const void* p, const uint8_t* halves, F32x8* out) {
  uint8_t bytes[16];
  std::memcpy(bytes, p, sizeof(bytes));
  for (int v = 0; v < 4; ++v) {
    uint32_t lanes[8];
    for (int i = 0; i < 8; ++i) {
      const int byte = v / 2 * 8 + v % 2 + i % 4 * 2;
      const int code = (bytes[byte] >> (i / 4 * 4)) & 15;
      lanes[i] = uint32_t{halves[code]} << 24 | uint32_t{halves[16 + code]} << 16;
    }
    out[v] = Floats(LoadInt(lanes));
  }
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_SIMD_PORTABLE_INL_H_
