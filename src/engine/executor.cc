#include "engine/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
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
  bool broken = false;  // a step failed: the state is of no use
};

Executor::Executor(model::Model* model, int64_t slots)
    : model_(model), slots_(static_cast<size_t>(slots)) {}

Executor::~Executor() = default;

Status Executor::Run(const std::vector<SlotStep>& steps, std::vector<SlotResult>* results) {
  Status status;
  try {
    results->assign(steps.size(), SlotResult());
    status = TryRun(steps, results);
  } catch (const std::bad_alloc&) {
    status = ResourceExhausted("there is not enough memory for a step");
  }
  if (status.ok()) return status;
  for (const SlotStep& step : steps) {
    if (slots_[Index(step.slot)] != nullptr) slots_[Index(step.slot)]->broken = true;
  }
  return status;
}

Status Executor::TryRun(const std::vector<SlotStep>& steps, std::vector<SlotResult>* results) {
  inputs_.clear();
  input_of_.assign(steps.size(), 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    std::unique_ptr<Slot>& slot = slots_[Index(steps[i].slot)];
    if (steps[i].start) {
      slot.reset();  // first, so that a failure leaves none
      slot = std::make_unique<Slot>(model_->layout());
    }
    if (slot == nullptr || slot->broken) {
      (*results)[i].status = Internal("an earlier step of the sequence failed");
      continue;
    }
    input_of_[i] = inputs_.size();
    inputs_.push_back(Prepare(steps[i], slot.get()));
  }
  if (inputs_.empty()) return Status();
  KURUMA_RETURN_IF_ERROR(model_->Forward(inputs_, nullptr, &forward_));
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!(*results)[i].status.ok()) continue;
    Finish(steps[i], input_of_[i], slots_[Index(steps[i].slot)].get(), &(*results)[i]);
  }
  return Status();
}

model::SequenceInput Executor::Prepare(const SlotStep& step, Slot* slot) {
  if (step.start) {
    const SlotStart& start = *step.start;
    slot->tokens = start.tokens;
    slot->prompt_tokens = start.prompt_tokens;
    slot->sampler = std::make_unique<Sampler>(start.sampling);
    slot->keeps_logits = start.keeps_logits;
    if (start.stored > 0) {
      model::ResumePoint point{.position = start.first};
      if (start.windows != nullptr) point.windows = *start.windows;
      const auto stored = std::span(slot->tokens).first(static_cast<size_t>(start.stored));
      slot->state = model::ResumeSequence(model_->layout(), stored, {}, point);
    }
  }
  for (const SlotStep::Block& block : step.blocks) slot->state.blocks.Use(block.index, block.bytes);
  const auto from = static_cast<size_t>(slot->state.position());
  const auto rows = static_cast<size_t>(step.rows);
  KURUMA_CHECK(from + rows <= slot->tokens.size());
  return {&slot->state, std::span(slot->tokens).subspan(from, rows), step.prompt_end,
          step.draws ? model::LogitRows::kLast : model::LogitRows::kNone};
}

void Executor::Finish(const SlotStep& step, size_t input, Slot* slot, SlotResult* result) {
  const int broken = forward_.broken_layer[input];
  if (broken >= 0) {
    result->status = Internal(fmt::format("numbers are not finite from layer {} on", broken));
  } else if (step.draws) {
    result->status = Draw(forward_.Row(forward_.first_row[input]), slot, result);
  }
  slot->broken = !result->status.ok();
  if (step.saves && !slot->broken) {
    result->windows = std::make_shared<const WindowBytes>(slot->state.SaveWindows());
  }
}

Status Executor::Draw(std::span<const float> logits, Slot* slot, SlotResult* result) {
  const std::span<const int32_t> tokens(slot->tokens);
  const auto prompt = static_cast<size_t>(slot->prompt_tokens);
  KURUMA_ASSIGN_OR_RETURN(
      result->drawn, slot->sampler->Sample(logits, {tokens.first(prompt), tokens.subspan(prompt)},
                                           slot->state.position()));
  slot->tokens.push_back(result->drawn->token);
  if (slot->keeps_logits) result->logits.assign(logits.begin(), logits.end());
  return Status();
}

RunnerTraits TraitsOf(const model::Model& model, bool bounded_replay) {
  RunnerTraits traits{.digest = "",
                      .vocab = model.config().vocab,
                      .context = model.config().max_positions,
                      .block_bytes = model.layout().block_bytes,
                      .snapshot_bytes = model.layout().snapshot_bytes,
                      .replay_from = {}};
  // Compact prefill cuts windows at a place that depends on the prompt's length: windows that were
  // saved for one prompt are not those of another.
  if (model.prefill() == model::PrefillMode::kCompact) traits.snapshot_bytes = 0;
  if (bounded_replay) {
    traits.replay_from = [window = model.config().window](int64_t stored, int64_t) {
      return std::max<int64_t>(0, stored - window);
    };
  } else {
    traits.replay_from = [&model](int64_t stored, int64_t prompt_end) {
      return model.ReplayFrom(stored, prompt_end);
    };
  }
  return traits;
}

}  // namespace kuruma::engine
