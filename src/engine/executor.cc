#include "engine/executor.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kuruma::engine {
struct Executor::Slot {
  explicit Slot(const model::StateLayout& layout) : state(layout) {}

  model::SequenceState state;
  std::vector<int32_t> tokens;  // known ones: prompt and everything drawn
  int64_t prompt_tokens = 0;
  std::unique_ptr<Sampler> sampler;
  bool keeps_logits = false;
};

Executor::Executor(model::Model* model, int64_t slots, bool bounded_replay)
    : model_(model), bounded_replay_(bounded_replay), slots_(static_cast<size_t>(slots)) {}

Executor::~Executor() = default;

Status Executor::Run(const std::vector<SlotStep>& steps, std::vector<SlotResult>* results) {
  results->assign(steps.size(), SlotResult());
  std::vector<model::SequenceInput> inputs;
  inputs.reserve(steps.size());
  for (const SlotStep& step : steps) {
    std::unique_ptr<Slot>& slot = slots_[Index(step.slot)];
    if (step.start) {
      slot = std::make_unique<Slot>(model_->layout());
      Start(step, slot.get());
    }
    slot->state.UseBlocks(step.blocks);
    // After a prefix hit the rows that are replayed come before those of the plan.
    const int64_t from = slot->state.position();
    const int64_t end = step.start ? step.start->stored + step.rows : from + step.rows;
    KURUMA_CHECK(end <= static_cast<int64_t>(slot->tokens.size()));
    inputs.push_back({&slot->state,
                      std::span(slot->tokens)
                          .subspan(static_cast<size_t>(from), static_cast<size_t>(end - from)),
                      step.prompt_end,
                      step.draws ? model::LogitRows::kLast : model::LogitRows::kNone});
  }
  KURUMA_RETURN_IF_ERROR(model_->Forward(inputs, nullptr, &forward_));
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!steps[i].draws) continue;
    (*results)[i] = Draw(forward_.Row(forward_.first_row[i]), slots_[Index(steps[i].slot)].get());
  }
  return Status();
}

void Executor::Start(const SlotStep& step, Slot* slot) {
  const SlotStart& start = *step.start;
  slot->tokens = start.tokens;
  slot->prompt_tokens = start.prompt_tokens;
  slot->sampler = std::make_unique<Sampler>(start.sampling);
  slot->keeps_logits = start.keeps_logits;
  if (start.stored == 0) return;
  const int64_t window = model_->config().window;
  const int64_t from = bounded_replay_ ? std::max<int64_t>(0, start.stored - window)
                                       : model_->ReplayFrom(start.stored, step.prompt_end);
  slot->state = model::ResumeSequence(
      model_->layout(), std::span(slot->tokens).first(static_cast<size_t>(start.stored)),
      step.blocks, from);
}

SlotResult Executor::Draw(std::span<const float> logits, Slot* slot) {
  const std::span<const int32_t> tokens(slot->tokens);
  const auto prompt = static_cast<size_t>(slot->prompt_tokens);
  Result<SampledToken> drawn = slot->sampler->Sample(
      logits, {tokens.first(prompt), tokens.subspan(prompt)}, slot->state.position());
  SlotResult result;
  if (!drawn.ok()) {
    result.status = drawn.status();
    return result;
  }
  slot->tokens.push_back(drawn->token);
  result.drawn = *std::move(drawn);
  if (slot->keeps_logits) result.logits.assign(logits.begin(), logits.end());
  return result;
}

}  // namespace kuruma::engine
