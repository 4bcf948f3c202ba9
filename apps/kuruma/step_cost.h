// What a step of the model must move and compute, from the shapes of its weights and the experts it
// really chose: the measure behind `kuruma bench`'s shares of the machine's limits.
#ifndef KURUMA_APPS_STEP_COST_H_
#define KURUMA_APPS_STEP_COST_H_

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "model/model.h"

namespace kuruma {

struct StepCost {
  int64_t dense_bytes = 0;   // every weight that each step reads, head included
  int64_t expert_bytes = 0;  // distinct routed experts
  int64_t cache_bytes = 0;   // windows, compressed rows, index keys, Engram rows
  double flops = 0;          // a multiply-add counts as two

  int64_t bytes() const { return dense_bytes + expert_bytes + cache_bytes; }
};

// Costs of one loaded model. Immutable after construction.
class CostModel {
 public:
  // `model` must outlive this.
  explicit CostModel(const model::Model& model);

  // One step that appends one row to each sequence, `positions` being theirs, each row with logits.
  // `distinct_experts[layer]` is how many experts the rows of that layer chose together.
  StepCost Step(std::span<const int64_t> positions,
                const std::map<int, int64_t>& distinct_experts) const;

  // Operations of a prompt of `tokens` tokens that needs its last logits only. Decoder rows are
  // those of the prefill mode.
  double PromptFlops(int64_t tokens, model::PrefillMode mode, int64_t keep_tokens) const;

 private:
  struct Row {
    int64_t cache_bytes = 0;
    double flops = 0;
  };
  Row CacheOfRow(int layer, int64_t position) const;

  const model::Model& model_;
  int64_t dense_bytes_ = 0;
  int64_t head_bytes_ = 0;
  int64_t engram_row_bytes_ = 0;  // table rows per token
  double head_flops_ = 0;
  std::vector<int64_t> expert_bytes_;  // [layers], of one expert
  std::vector<double> row_flops_;      // [layers], matrices and chosen experts per row
};

}  // namespace kuruma

#endif  // KURUMA_APPS_STEP_COST_H_
