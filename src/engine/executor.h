// Runs planned steps: packs the rows of all sequences into one batch, one forward pass, draws.
//
// It knows slots, not requests. What was drawn in one step feeds the next one here, so that steps
// can be planned before their tokens are known.
#ifndef KURUMA_ENGINE_EXECUTOR_H_
#define KURUMA_ENGINE_EXECUTOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engine/sampler.h"
#include "model/model.h"

namespace kuruma::engine {

// What a slot needs to begin: everything about the sequence but its blocks.
struct SlotStart {
  std::vector<int32_t> tokens;  // prompt, and answer after a preemption
  int64_t prompt_tokens = 0;    // of those, the prompt: penalties tell it from the answer
  int64_t stored = 0;           // leading tokens whose global KV is in the blocks
  SamplingParams sampling;
  bool keeps_logits = false;  // results hold the logits that tokens are drawn from
};

// Rows of one slot.
struct SlotStep {
  SlotId slot = {};
  int64_t rows = 0;
  int64_t prompt_end = 0;  // 0: decoding
  bool draws = false;
  std::optional<SlotStart> start;  // the slot is taken over
  std::vector<std::byte*> blocks;  // the whole table
};

struct SlotResult {
  std::optional<SampledToken> drawn;
  std::vector<float> logits;  // if the slot keeps them
  Status status;              // not ok: no rows of use; only this slot is concerned
};

// One thread at a time.
class Executor {
 public:
  // `bounded_replay`: after a prefix hit one window is replayed instead of everything that results
  // depend on (approximate).
  Executor(model::Model* model, int64_t slots, bool bounded_replay);
  ~Executor();

  // One step. Not ok: nothing was computed for any slot.
  Status Run(const std::vector<SlotStep>& steps, std::vector<SlotResult>* results);

 private:
  struct Slot;

  void Start(const SlotStep& step, Slot* slot);
  SlotResult Draw(std::span<const float> logits, Slot* slot);

  model::Model* model_;
  bool bounded_replay_;
  std::vector<std::unique_ptr<Slot>> slots_;
  model::ForwardResult forward_;
};

}  // namespace kuruma::engine

#endif  // KURUMA_ENGINE_EXECUTOR_H_
