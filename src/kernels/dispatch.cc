#include "kernels/dispatch.h"

#include <fmt/format.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/reference/reference.h"

namespace kuruma::kernels {

const OpTable& ReferenceOps() {
  static constexpr OpTable kTable{
      .name = "reference",
      .matmul = reference::MatMul,
      .rms_norm = reference::RmsNorm,
      .quantize_fp8 = reference::QuantizeFp8,
      .rope = reference::Rope,
      .hc_mix = reference::HcMixCoefficients,
      .hc_collapse = reference::HcCollapse,
      .hc_expand = reference::HcExpand,
      .route = reference::Route,
      .swiglu = reference::Swiglu,
      .sum_experts = reference::SumExperts,
      .attention = reference::Attention,
      .index_scores = reference::IndexScores,
      .compress = reference::Compress,
      .engram = reference::Engram,
  };
  return kTable;
}

std::vector<const OpTable*> RunnableCpuOps() {
  std::vector<const OpTable*> tables{&CpuPortableOps()};
  if (CpuHasAvx2()) tables.push_back(&CpuAvx2Ops());
  return tables;
}

Result<const OpTable*> FindOps(const std::string& name) {
  if (name == "reference") return &ReferenceOps();
  const std::vector<const OpTable*> runnable = RunnableCpuOps();
  if (name == "cpu") return runnable.back();
  std::string known = "reference, cpu";
  for (const OpTable* table : runnable) {
    if (name == table->name) return table;
    known += std::string(", ") + table->name;
  }
  return InvalidArgument(fmt::format(
      "kernels \"{}\" are unknown or cannot run on this processor (here: {})", name, known));
}

}  // namespace kuruma::kernels
