// The defining implementations: plain loops, float64 sums, one rounding to float32 (and to bfloat16
// where asked). Meanings and shapes are those of OpTable; only kernels/dispatch.cc includes this.
#ifndef KURUMA_KERNELS_REFERENCE_REFERENCE_H_
#define KURUMA_KERNELS_REFERENCE_REFERENCE_H_

#include "kernels/ops.h"

namespace kuruma::kernels::reference {

// float64 -> float32, then to a bfloat16 value where the numerics mode asks for it.
inline float Round(double value, bool round_bf16) {
  const float single = static_cast<float>(value);
  return round_bf16 ? RoundBf16(single) : single;
}

inline double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

void MatMul(ThreadPool& pool, std::span<const MatMulTask> tasks);
void RmsNorm(ThreadPool& pool, ConstRows x, const uint16_t* weight, NormSpec spec, Rows y);
void QuantizeFp8(ThreadPool& pool, ConstRows x, Rows y);
void Rope(ThreadPool& pool, const RopeSpec& spec, Rows x);
void HcMixCoefficients(ThreadPool& pool, const HcSite& site, ConstRows streams, HcMix out);
void HcCollapse(ThreadPool& pool, ConstRows streams, ConstRows pre, bool round_bf16, Rows u);
void HcExpand(ThreadPool& pool, ConstRows y, const HcMix& mix, bool round_bf16, Rows streams);
void Route(ThreadPool& pool, const RouterSpec& spec, ConstRows u, const RouterResult& out);
void Swiglu(ThreadPool& pool, const SwigluSpec& spec, ConstRows gate, ConstRows up, Rows y);
void SumExperts(ThreadPool& pool, const ExpertSum& spec, ConstRows parts, Rows y);
void Attention(ThreadPool& pool, const AttentionSpec& spec,
               std::span<const AttentionQuery> queries);
void IndexScores(ThreadPool& pool, const IndexSpec& spec, std::span<const IndexQuery> queries);
void Compress(ThreadPool& pool, ConstRows kv, ConstRows gate, bool round_bf16, Rows y);
void Engram(ThreadPool& pool, const EngramSpec& spec, ConstRows kv, Rows streams, Rows gates);

}  // namespace kuruma::kernels::reference

#endif  // KURUMA_KERNELS_REFERENCE_REFERENCE_H_
