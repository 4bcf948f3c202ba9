// Decides what each step of the engine computes: which sequences decode, which prompts are read and
// how much of them, who begins, who has to step aside. Pure: time is an argument, blocks are
// numbers, and nothing here knows a model, a thread or a clock.
//
// A plan is made from upper bounds of lengths, so one step may be planned while another runs
// (asynchronous scheduling): what that one turns out to be is told by Commit. Source: DESIGN.md
// "Scheduling".
#ifndef KURUMA_SCHEDULER_SCHEDULER_H_
#define KURUMA_SCHEDULER_SCHEDULER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kv/block_cache.h"
#include "scheduler/plan.h"
#include "scheduler/time_model.h"

namespace kuruma::scheduler {

struct SchedulerOptions {
  int64_t max_sequences = 32;     // running at once: slots
  int64_t max_step_tokens = 512;  // rows of a step; at least max_sequences
  int64_t max_queue = 1024;       // waiting sequences; more are refused
  int64_t context = 0;            // longest sequence, prompt and answer
  int64_t total_blocks = 0;       // of the cache
  int64_t watermark_blocks = 0;   // left alone by admissions, for those that run
  int64_t starvation_plans = 8;   // a prompt that waits gets rows at least this often
  double target_tpot_ms = 0;      // longest step while sequences decode; 0: no bound
  bool prefix_cache = true;
  // Where to go on so that windows are right, when `stored` tokens of a prompt that is read up to
  // `prompt_end` were found in the cache; empty: at `stored`.
  std::function<int64_t(int64_t stored, int64_t prompt_end)> replay_from = {};
  int64_t snapshot_bytes = 0;  // size of one window snapshot; 0: none are taken
  uint64_t chaos_seed = 0;     // for tests: random chunks and preemptions; 0: none
};

// A sequence to run.
struct SequenceSpec {
  SequenceId id = {};               // never used before
  std::vector<int32_t> prompt;      // not empty
  kv::BlockKey root = {};           // kv::RootKey of model and tenant
  int64_t max_tokens = 1;           // >= 1
  int priority = 0;                 // higher ones go first
  std::optional<double> deadline;   // seconds, on the caller's clock
  std::optional<SequenceId> after;  // waits until that one has read its (equal) prompt
};

// InvalidArgument, with both numbers, for what can never run: prompt and answer exceed the context
// or all blocks.
Status CheckFits(const SchedulerOptions& options, int64_t prompt_tokens, int64_t max_tokens);

// What a commit changed.
struct Committed {
  struct Token {
    SequenceId sequence = {};
    int32_t token = 0;
    bool operator==(const Token&) const = default;
  };
  struct Exchange {  // block `index` of the sequence is now `block`: equal content, kept once
    SequenceId sequence = {};
    size_t index = 0;
    BlockId block = {};
  };
  struct Saved {  // the windows after the sequence's step are to be kept under this number
    SequenceId sequence = {};
    kv::SnapshotId id = {};
  };
  std::vector<Token> tokens;  // of answers, in the order of the plan
  std::vector<Finished> finished;
  std::vector<Exchange> exchanges;
  std::vector<Saved> saved;  // in the order of the plan
};

struct SchedulerCounts {
  int64_t waiting = 0;
  int64_t running = 0;
  int64_t preemptions = 0;    // since the beginning
  int64_t cached_tokens = 0;  // of prompts, found by admissions since the beginning
  int64_t snapshot_hits = 0;  // admissions that went on from a snapshot
  int64_t replayed_rows = 0;  // planned, of tokens found in the cache
};

// One thread.
class Scheduler {
 public:
  // `cache` must outlive it. Options have passed Check.
  Scheduler(const SchedulerOptions& options, kv::BlockCache* cache);
  ~Scheduler();

  // InvalidArgument names the first option out of range and what it may be.
  static Status Check(const SchedulerOptions& options);

  // Queues a sequence; the next plan looks at it. Errors of CheckFits; ResourceExhausted: the queue
  // is full.
  Status Admit(SequenceSpec spec);

  // Ends a sequence within one step; unknown or ended ones are ignored.
  void Cancel(SequenceId id);

  // The next step at time `now`. Plans are committed in their order; up to two may be out at a
  // time. Sequences that end without a step (cancelled, late) are appended to `*finished`. A plan
  // without steps means: nothing to do before a commit, an admission or a deadline.
  void MakePlan(double now, Plan* plan, std::vector<Finished>* finished);

  // What became of the oldest plan that is out, and how long it took. `*committed` is replaced.
  void Commit(std::span<const StepResult> results, double ms, Committed* committed);

  // What a sequence has: blocks by position / 128 while it runs, and its committed tokens.
  struct Holding {
    std::span<const BlockId> blocks;
    std::span<const int32_t> tokens;
  };
  Holding Of(SequenceId id) const;

  SchedulerCounts counts() const;

  // Internal, with what is wrong. Slow: for tests and idle moments.
  Status CheckInvariants() const;

 private:
  struct Sequence;
  struct Out {  // a plan that is out
    std::vector<SequenceStep> steps;
    StepLoad load;
  };
  using Order = std::vector<Sequence*>;

  static bool Before(const Sequence* a, const Sequence* b);

  void EndThoseDue(double now, std::vector<Finished>* finished);
  void PlanDecodes(int64_t most, Plan* plan);
  void PlanPrompts(int64_t budget, bool may_begin, Plan* plan);
  int64_t PromptBudget(const Plan& plan, bool starving) const;
  void FindReading();
  bool IsReady(const Sequence* s) const;
  bool Begin(Sequence* s, int64_t budget);
  void ChooseStart(Sequence* s, const kv::Lease& lease);
  bool ReservesFor(Sequence* s, int64_t tokens, Plan* plan);
  Sequence* Victim(const Sequence* wanting) const;
  void AddStep(Sequence* s, int64_t rows, Plan* plan);
  void Unstick(Plan* plan);
  uint32_t Chaos(uint32_t what) const;
  void Preempt(Sequence* s, Plan* plan);
  void Requeue(Sequence* s);
  void Accept(const SequenceStep& step, const StepResult& result, Sequence* s,
              Committed* committed);
  void Publish(Sequence* s, Committed* committed);
  void Save(const SequenceStep& step, Sequence* s, Committed* committed);
  void End(Sequence* s, FinishReason reason, std::vector<Finished>* finished);
  void Settle(Sequence* s);
  void LeaveSlot(Sequence* s);

  SchedulerOptions options_;
  kv::BlockCache* cache_;
  TimeModel times_;
  std::unordered_map<uint64_t, std::unique_ptr<Sequence>> sequences_;
  Order running_;  // in order of priority and arrival, as is waiting_
  Order waiting_;
  Order decoding_, reading_;  // scratch of MakePlan: those of running_ that do
  std::vector<SlotId> free_slots_;
  std::array<Out, 2> out_;  // kept for their memory
  size_t oldest_out_ = 0;
  size_t outs_ = 0;                   // plans that are out
  std::vector<Sequence*> cancelled_;  // to be told
  std::vector<kv::Replacement> replacements_;
  double next_deadline_ = std::numeric_limits<double>::infinity();  // none is due before
  int64_t plans_ = 0;
  int64_t last_prompt_plan_ = 0;  // that gave rows to a prompt, or had none waiting
  uint64_t arrivals_ = 0;
  SchedulerCounts counts_;
};

}  // namespace kuruma::scheduler

#endif  // KURUMA_SCHEDULER_SCHEDULER_H_
