// simd-inl.h for AVX2 + FMA.
#ifndef KURUMA_KERNELS_CPU_SIMD_AVX2_INL_H_
#define KURUMA_KERNELS_CPU_SIMD_AVX2_INL_H_

#include <immintrin.h>

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

using F32x8 = __m256;
using I32x8 = __m256i;

KURUMA_INLINE F32x8 Load(const float* p) { return _mm256_loadu_ps(p); }
KURUMA_INLINE void Store(float* p, F32x8 v) { _mm256_storeu_ps(p, v); }
KURUMA_INLINE F32x8 Zero() { return _mm256_setzero_ps(); }
KURUMA_INLINE F32x8 Set(float x) { return _mm256_set1_ps(x); }
KURUMA_INLINE F32x4 Low(F32x8 v) { return _mm256_castps256_ps128(v); }
KURUMA_INLINE F32x4 High(F32x8 v) { return _mm256_extractf128_ps(v, 1); }
KURUMA_INLINE F32x8 Combine(F32x4 low, F32x4 high) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
}

KURUMA_INLINE F32x8 Add(F32x8 a, F32x8 b) { return _mm256_add_ps(a, b); }
KURUMA_INLINE F32x8 Sub(F32x8 a, F32x8 b) { return _mm256_sub_ps(a, b); }
KURUMA_INLINE F32x8 Mul(F32x8 a, F32x8 b) { return _mm256_mul_ps(a, b); }
KURUMA_INLINE F32x8 Div(F32x8 a, F32x8 b) { return _mm256_div_ps(a, b); }
// a * b + c with one rounding.
KURUMA_INLINE F32x8 Fma(F32x8 a, F32x8 b, F32x8 c) { return _mm256_fmadd_ps(a, b, c); }
// A NaN in `a` gives b.
KURUMA_INLINE F32x8 Min(F32x8 a, F32x8 b) { return _mm256_min_ps(a, b); }
KURUMA_INLINE F32x8 Max(F32x8 a, F32x8 b) { return _mm256_max_ps(a, b); }

KURUMA_INLINE I32x8 Bits(F32x8 v) { return _mm256_castps_si256(v); }
KURUMA_INLINE F32x8 Floats(I32x8 v) { return _mm256_castsi256_ps(v); }
KURUMA_INLINE I32x8 SetInt(int32_t x) { return _mm256_set1_epi32(x); }
KURUMA_INLINE I32x8 LoadInt(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
KURUMA_INLINE I32x8 AddInt(I32x8 a, I32x8 b) { return _mm256_add_epi32(a, b); }
KURUMA_INLINE I32x8 And(I32x8 a, I32x8 b) { return _mm256_and_si256(a, b); }
KURUMA_INLINE I32x8 Or(I32x8 a, I32x8 b) { return _mm256_or_si256(a, b); }
template <int kBits>
KURUMA_INLINE I32x8 ShiftLeft(I32x8 v) {
  return _mm256_slli_epi32(v, kBits);
}
template <int kBits>
KURUMA_INLINE I32x8 ShiftRight(I32x8 v) {
  return _mm256_srli_epi32(v, kBits);
}
// Arithmetic shifts of 16-bit halves.
template <int kBits>
KURUMA_INLINE I32x8 ShiftLeft16(I32x8 v) {
  return _mm256_slli_epi16(v, kBits);
}
template <int kBits>
KURUMA_INLINE I32x8 ShiftRightSigned16(I32x8 v) {
  return _mm256_srai_epi16(v, kBits);
}

// All ones where a < b (false for NaN).
KURUMA_INLINE I32x8 Less(F32x8 a, F32x8 b) {
  return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
KURUMA_INLINE I32x8 IsNan(F32x8 a) {
  return _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
// mask ? a : b, mask lanes all ones or zero.
KURUMA_INLINE F32x8 Select(I32x8 mask, F32x8 a, F32x8 b) {
  return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(mask));
}

// (a0 a0 a2 a2 ...) and (a1 a1 a3 a3 ...).
KURUMA_INLINE F32x8 DupEven(F32x8 a) { return _mm256_moveldup_ps(a); }
KURUMA_INLINE F32x8 DupOdd(F32x8 a) { return _mm256_movehdup_ps(a); }

KURUMA_INLINE void Prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}

// Eight unsigned 16-bit or signed 8-bit integers, widened.
KURUMA_INLINE I32x8 LoadU16(const void* p) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
KURUMA_INLINE I32x8 LoadS8(const void* p) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
}

// Sixteen bytes of FP4 codes as 32 scaled values in the lane order of FP4 panels (decode-inl.h).
// `halves`: the high, then the low byte of the 16 values' bfloat16 form; two look-ups find them.
KURUMA_INLINE void ExpandFp4(const void* p, const uint8_t* halves, F32x8* out) {
  const auto* tables = reinterpret_cast<const __m128i*>(halves);
  const __m256i high_table = _mm256_broadcastsi128_si256(_mm_load_si128(tables));
  const __m256i low_table = _mm256_broadcastsi128_si256(_mm_load_si128(tables + 1));
  const __m256i packed =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  const __m256i shifts = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
  const __m256i codes = _mm256_and_si256(_mm256_srlv_epi32(packed, shifts), _mm256_set1_epi8(15));
  const __m256i high = _mm256_shuffle_epi8(high_table, codes);
  const __m256i low = _mm256_shuffle_epi8(low_table, codes);
  const __m256i first = _mm256_unpacklo_epi8(low, high);
  const __m256i second = _mm256_unpackhi_epi8(low, high);
  const __m256i odd = _mm256_set1_epi32(static_cast<int32_t>(0xFFFF0000u));
  out[0] = _mm256_castsi256_ps(_mm256_slli_epi32(first, 16));
  out[1] = _mm256_castsi256_ps(_mm256_and_si256(first, odd));
  out[2] = _mm256_castsi256_ps(_mm256_slli_epi32(second, 16));
  out[3] = _mm256_castsi256_ps(_mm256_and_si256(second, odd));
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_SIMD_AVX2_INL_H_
