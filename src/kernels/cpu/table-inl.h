// The OpTable of a target.
#ifndef KURUMA_KERNELS_CPU_TABLE_INL_H_
#define KURUMA_KERNELS_CPU_TABLE_INL_H_

#include "kernels/cpu/hyper-inl.h"
#include "kernels/cpu/index-inl.h"
#include "kernels/cpu/route-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/sparse-inl.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

constexpr OpTable MakeTable(const char* name) {
  OpTable table{};
  table.name = name;
  table.matmul = MatMul;
  table.rms_norm = RmsNorm;
  table.quantize_fp8 = QuantizeFp8;
  table.rope = Rope;
  table.hc_mix = HcMixCoefficients;
  table.hc_collapse = HcCollapse;
  table.hc_expand = HcExpand;
  table.route = Route;
  table.swiglu = Swiglu;
  table.sum_experts = SumExperts;
  table.attention = Attention;
  table.index_scores = IndexScores;
  table.compress = Compress;
  table.engram = Engram;
  return table;
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_TABLE_INL_H_
