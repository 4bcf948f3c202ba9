// Many sequences that decode side by side, driven as the engine drives them: for measurements.
#ifndef KURUMA_SCHEDULER_DECODE_LOAD_TEST_UTIL_H_
#define KURUMA_SCHEDULER_DECODE_LOAD_TEST_UTIL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kv/block_cache.h"
#include "scheduler/scheduler.h"

namespace kuruma::scheduler {

struct DecodeLoadOptions {
  int64_t sequences = 256;
  int64_t prompt_tokens = 300;  // sequence i has `spread` * i more
  int64_t spread = 0;
  int64_t max_tokens = 1 << 14;
  int64_t waiting = 0;    // sequences that cannot begin: there is no slot,
  bool has_slot = false;  // or a slot, but no block
};

// Reads all prompts when it is made; after that every Step is one row of every sequence, planned
// while another step is out. One thread.
class DecodeLoad {
 public:
  explicit DecodeLoad(const DecodeLoadOptions& load)
      : options_(Options(load)), cache_({.blocks = options_.total_blocks}) {
    scheduler_.emplace(options_, &cache_);
    for (int64_t i = 0; i < load.sequences; ++i) Admit(load.prompt_tokens + load.spread * i, load);
    Plan();
    while (plans_[0].rows() != load.sequences || plans_[1].rows() != load.sequences) Step();
    while (cache_.counts().free > options_.watermark_blocks) Step();  // nobody can begin any more
    for (int64_t i = 0; i < load.waiting; ++i) Admit(load.prompt_tokens, load);
  }

  // Plans the next step, looks up what each sequence of it holds, commits the one before. Returns
  // the blocks that were seen.
  size_t Step() {
    Plan();
    size_t blocks = 0;
    for (const SequenceStep& step : plans_[newest_].steps) {
      blocks += scheduler_->Of(step.sequence).blocks.size();
    }
    const auto& steps = plans_[1 - newest_].steps;
    results_.assign(steps.size(), StepResult());
    for (size_t i = 0; i < steps.size(); ++i) {
      // Differs between sequences, or they would soon share blocks.
      if (steps[i].draws) results_[i].token = static_cast<int32_t>(steps[i].sequence);
    }
    scheduler_->Commit(results_, 1, &committed_);
    return blocks;
  }

  const Scheduler& scheduler() const { return *scheduler_; }

 private:
  static SchedulerOptions Options(const DecodeLoadOptions& load) {
    const auto blocks = [](int64_t tokens) { return tokens / kv::kBlockTokens + 1; };
    SchedulerOptions options;
    options.max_sequences = load.sequences + (load.has_slot ? 1 : 0);
    options.max_step_tokens = 2 * load.sequences;
    options.max_queue = load.sequences + load.waiting;
    options.context = load.prompt_tokens + load.spread * load.sequences + load.max_tokens;
    // Answers have what admissions must leave alone, and some more while prompts are read.
    options.watermark_blocks = load.sequences * blocks(load.max_tokens);
    options.total_blocks = options.watermark_blocks + 4 * load.sequences;
    for (int64_t i = 0; i < load.sequences; ++i) {
      options.total_blocks += blocks(load.prompt_tokens + load.spread * i);
    }
    return options;
  }

  void Admit(int64_t prompt_tokens, const DecodeLoadOptions& load) {
    SequenceSpec spec;
    spec.id = static_cast<SequenceId>(++admitted_);
    for (int64_t i = 0; i < prompt_tokens; ++i) {
      spec.prompt.push_back(static_cast<int32_t>(random_() % 100'000));
    }
    spec.max_tokens = load.max_tokens;
    spec.deadline = 1e9;
    if (!scheduler_->Admit(std::move(spec)).ok()) throw std::runtime_error("not admitted");
  }

  void Plan() {
    newest_ = 1 - newest_;
    scheduler_->MakePlan(0, &plans_[newest_], &finished_);
  }

  SchedulerOptions options_;
  std::mt19937 random_;
  uint64_t admitted_ = 0;
  kv::BlockCache cache_;
  std::optional<Scheduler> scheduler_;
  std::array<scheduler::Plan, 2> plans_;
  size_t newest_ = 0;
  std::vector<StepResult> results_;
  Committed committed_;
  std::vector<Finished> finished_;
};

}  // namespace kuruma::scheduler

#endif  // KURUMA_SCHEDULER_DECODE_LOAD_TEST_UTIL_H_
