// What the engine has run: planned steps, as slots and rows. Executor runs them on the model; load
// tests and scripted answers have runners of their own.
#ifndef KURUMA_ENGINE_RUNNER_H_
#define KURUMA_ENGINE_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engine/sampler.h"

namespace kuruma::engine {

using WindowBytes = std::vector<std::byte>;

// What a slot needs to begin: everything about the sequence but its blocks.
struct SlotStart {
  std::vector<int32_t> tokens;  // prompt, and answer after a preemption
  int64_t prompt_tokens = 0;    // of those, the prompt: penalties tell it from the answer
  int64_t stored = 0;           // leading tokens whose global KV is in the blocks
  int64_t first = 0;            // position of the first row, at most `stored`
  std::shared_ptr<const WindowBytes> windows;  // those at `first`; null: rows rebuild them
  SamplingParams sampling;
  bool keeps_logits = false;  // results hold the logits that tokens are drawn from
};

// Rows of one slot.
struct SlotStep {
  SlotId slot = {};
  int64_t rows = 0;
  int64_t prompt_end = 0;  // 0: decoding
  bool draws = false;
  bool saves = false;              // the result holds the windows after these rows
  std::optional<SlotStart> start;  // the slot is taken over
  std::vector<std::byte*> blocks;  // the whole table
};

struct SlotResult {
  std::optional<SampledToken> drawn;
  std::vector<float> logits;                   // if the slot keeps them
  std::shared_ptr<const WindowBytes> windows;  // if the step saves them
  Status status;  // not ok: no rows of use; only this slot is concerned, until it is taken over
};

// One thread at a time, not always the same one.
class Runner {
 public:
  virtual ~Runner() = default;

  // One step; `*results` gets one entry per element of `steps`. What a slot draws feeds its next
  // row. Not ok: nothing of use was computed for any slot, and those that are not taken over anew
  // must report errors from now on.
  virtual Status Run(const std::vector<SlotStep>& steps, std::vector<SlotResult>* results) = 0;
};

// What the engine has to know of what a runner runs.
struct RunnerTraits {
  std::string digest;          // names the model in keys of blocks
  int64_t vocab = 0;           // tokens are 0..vocab-1
  int64_t context = 0;         // longest sequence
  int64_t block_bytes = 0;     // global KV of 128 tokens
  int64_t snapshot_bytes = 0;  // windows of one sequence; 0: there are none to save
  // scheduler::SchedulerOptions::replay_from
  std::function<int64_t(int64_t stored, int64_t prompt_end)> replay_from = {};
};

}  // namespace kuruma::engine

#endif  // KURUMA_ENGINE_RUNNER_H_
