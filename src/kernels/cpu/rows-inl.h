// Ops that treat each row (or each group of rows) alone: norm, quantisation, rotation, SwiGLU,
// sums.
#ifndef KURUMA_KERNELS_CPU_ROWS_INL_H_
#define KURUMA_KERNELS_CPU_ROWS_INL_H_

#include "kernels/cpu/math-inl.h"
#include "kernels/ops.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

void RmsNorm(ThreadPool& pool, ConstRows x, const uint16_t* weight, NormSpec spec, Rows y) {
  pool.ParallelFor(x.rows, RowsPerPart(x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* from = x.row(r);
      float* to = y.row(r);
      const F32x8 scale = Set(InverseRms(DotProduct(from, from, x.cols), x.cols, spec.eps));
      for (int64_t c = 0; c < x.cols; c += 8) {
        const int64_t left = x.cols - c;
        const F32x8 scaled = Mul(LoadUpTo(from + c, left), scale);
        const F32x8 result = Mul(LoadBf16UpTo(weight + c, left), scaled);
        StoreUpTo(to + c, MaybeBf16(result, spec.round_bf16), left);
      }
    }
  });
}

// Nearest E4M3 values, ties to even, magnitudes held at 448; NaN stays NaN.
KURUMA_INLINE F32x8 RoundToE4m3(F32x8 x) {
  const I32x8 sign = And(Bits(x), SetInt(static_cast<int32_t>(0x80000000u)));
  const F32x8 magnitude = Min(Set(448.0f), Floats(And(Bits(x), SetInt(0x7FFFFFFF))));
  // Normal codes keep three mantissa bits. Below 2^-6 codes are multiples of 2^-9, to which adding
  // 2^14 rounds.
  const I32x8 bits = Bits(magnitude);
  const I32x8 odd = And(ShiftRight<20>(bits), SetInt(1));
  const I32x8 up = AddInt(bits, AddInt(odd, SetInt(0x7FFFF)));
  const F32x8 normal = Floats(And(up, SetInt(static_cast<int32_t>(0xFFF00000u))));
  const F32x8 small = Sub(Add(magnitude, Set(0x1p14f)), Set(0x1p14f));
  const F32x8 rounded = Select(Less(magnitude, Set(0x1p-6f)), small, normal);
  return Select(IsNan(x), x, Floats(Or(Bits(rounded), sign)));
}

KURUMA_INLINE void QuantizeGroup(const float* x, float* y) {
  F32x8 v[4];
  F32x8 most = Set(1e-4f);
  KURUMA_UNROLL
  for (int j = 0; j < 4; ++j) {
    v[j] = Load(x + 8 * j);
    most = Max(Floats(And(Bits(v[j]), SetInt(0x7FFFFFFF))), most);  // a NaN does not count
  }
  const int exponent = CeilLog2(ReduceMax(most) * (1.0f / 448));
  const float scale = E8m0ToFloat(static_cast<uint8_t>(exponent + 127));
  const F32x8 up = Set(scale);
  const F32x8 down = Set(1.0f / scale);  // exact: a power of two in [2^-120, 2^22]
  KURUMA_UNROLL
  for (int j = 0; j < 4; ++j) Store(y + 8 * j, Mul(RoundToE4m3(Mul(v[j], down)), up));
}

void QuantizeFp8(ThreadPool& pool, ConstRows x, Rows y) {
  pool.ParallelFor(x.rows, RowsPerPart(x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = 0; c + kActivationGroup <= x.cols; c += kActivationGroup) {
        QuantizeGroup(x.row(r) + c, y.row(r) + c);
      }
    }
  });
}

// Four pairs (a, b): a' = fma(a, c, -(b s)), b' = fma(a, s, b c), the engine's two roundings.
KURUMA_INLINE F32x8 RotatePairs(F32x8 x, F32x4 c, F32x4 s) {
  const F32x8 first =
      Combine(__builtin_shufflevector(c, s, 0, 4, 1, 5), __builtin_shufflevector(c, s, 2, 6, 3, 7));
  const F32x8 second = Combine(__builtin_shufflevector(-s, c, 0, 4, 1, 5),
                               __builtin_shufflevector(-s, c, 2, 6, 3, 7));
  return Fma(DupEven(x), first, Mul(DupOdd(x), second));
}

void Rope(ThreadPool& pool, const RopeSpec& spec, Rows x) {
  const int64_t pairs = spec.cos.cols;
  const int64_t width = spec.heads * 2 * pairs;
  pool.ParallelFor(x.rows, RowsPerPart(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t p = 0; p < pairs; p += 4) {
        const int64_t left = pairs - p;
        const F32x4 c = Low(LoadPart(spec.cos.row(r) + p, Lesser<int64_t>(4, left)));
        const F32x4 turn = Low(LoadPart(spec.sin.row(r) + p, Lesser<int64_t>(4, left)));
        const F32x4 s = spec.inverse ? -turn : turn;
        for (int64_t h = 0; h < spec.heads; ++h) {
          float* at = x.row(r) + (h + 1) * spec.head_dim - 2 * pairs + 2 * p;
          const F32x8 rotated = RotatePairs(LoadUpTo(at, 2 * left), c, s);
          StoreUpTo(at, MaybeBf16(rotated, spec.round_bf16), 2 * left);
        }
      }
    }
  });
}

void Swiglu(ThreadPool& pool, const SwigluSpec& spec, ConstRows gate, ConstRows up, Rows y) {
  const F32x8 limit = Set(spec.limit);
  const F32x8 lower = Set(-spec.limit);
  pool.ParallelFor(y.rows, RowsPerPart(4 * y.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const F32x8 weight = Set(spec.weights != nullptr ? spec.weights[r] : 1.0f);
      for (int64_t c = 0; c < y.cols; c += 8) {
        const int64_t left = y.cols - c;
        const F32x8 g = Min(limit, LoadUpTo(gate.row(r) + c, left));
        const F32x8 u = Max(lower, Min(limit, LoadUpTo(up.row(r) + c, left)));
        const F32x8 result = Mul(Mul(Mul(g, Sigmoid(g)), u), weight);
        StoreUpTo(y.row(r) + c, MaybeBf16(result, spec.round_bf16), left);
      }
    }
  });
}

// Parts in the order of the index, then the shared expert.
void SumExperts(ThreadPool& pool, const ExpertSum& spec, ConstRows parts, Rows y) {
  pool.ParallelFor(y.rows, RowsPerPart(y.cols * (spec.index.cols + 1)),
                   [&](int64_t begin, int64_t end, int) {
                     for (int64_t r = begin; r < end; ++r) {
                       for (int64_t c = 0; c < y.cols; c += 8) {
                         const int64_t left = y.cols - c;
                         F32x8 sum = Zero();
                         for (int64_t i = 0; i < spec.index.cols; ++i) {
                           sum = Add(sum, LoadUpTo(parts.row(spec.index.row(r)[i]) + c, left));
                         }
                         sum = Add(sum, LoadUpTo(spec.shared.row(r) + c, left));
                         StoreUpTo(y.row(r) + c, MaybeBf16(sum, spec.round_bf16), left);
                       }
                     }
                   });
}

void Compress(ThreadPool& pool, ConstRows kv, ConstRows gate, bool round_bf16, Rows y) {
  const int64_t ratio = y.rows == 0 ? 0 : kv.rows / y.rows;
  pool.ParallelFor(y.rows, RowsPerPart(4 * ratio * y.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t group = begin; group < end; ++group) {
      for (int64_t c = 0; c < y.cols; c += 8) {
        const int64_t left = y.cols - c;
        F32x8 most = LoadUpTo(gate.row(group * ratio) + c, left);
        for (int64_t i = 1; i < ratio; ++i) {
          most = Max(most, LoadUpTo(gate.row(group * ratio + i) + c, left));
        }
        F32x8 total = Zero();
        F32x8 sum = Zero();
        for (int64_t i = 0; i < ratio; ++i) {
          const F32x8 p = Exp(Sub(LoadUpTo(gate.row(group * ratio + i) + c, left), most));
          total = Add(total, p);
          sum = Fma(p, LoadUpTo(kv.row(group * ratio + i) + c, left), sum);
        }
        StoreUpTo(y.row(group) + c, MaybeBf16(Div(sum, total), round_bf16), left);
      }
    }
  });
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_ROWS_INL_H_
