// Runs planned steps on the model: packs the rows of all sequences into one batch, one forward
// pass, draws.
//
// It knows slots, not requests. What was drawn in one step feeds the next one here, so that steps
// can be planned before their tokens are known.
#ifndef KURUMA_ENGINE_EXECUTOR_H_
#define KURUMA_ENGINE_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/runner.h"
#include "model/model.h"

namespace kuruma::engine {

class Executor : public Runner {
 public:
  // `model` must outlive it.
  Executor(model::Model* model, int64_t slots);
  ~Executor() override;

  // ResourceExhausted: no memory for the step. A slot's status is Internal when its numbers are not
  // finite; it names the layer where that began.
  Status Run(const std::vector<SlotStep>& steps, std::vector<SlotResult>* results) override;

 private:
  struct Slot;

  Status TryRun(const std::vector<SlotStep>& steps, std::vector<SlotResult>* results);
  model::SequenceInput Prepare(const SlotStep& step, Slot* slot);
  void Finish(const SlotStep& step, size_t input, Slot* slot, SlotResult* result);
  Status Draw(std::span<const float> logits, Slot* slot, SlotResult* result);

  model::Model* model_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<model::SequenceInput> inputs_;
  model::ForwardResult forward_;
};

// The traits of a model. `bounded_replay`: after a prefix hit one window is replayed instead of
// everything that results depend on (approximate).
RunnerTraits TraitsOf(const model::Model& model, bool bounded_replay);

}  // namespace kuruma::engine

#endif  // KURUMA_ENGINE_EXECUTOR_H_
