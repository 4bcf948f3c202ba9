// An engine without a model, for tests of the scheduler: it runs plans, checks what must hold for
// every one of them, and draws tokens that are a hash of everything before them.
#ifndef KURUMA_SCHEDULER_FAKE_ENGINE_TEST_UTIL_H_
#define KURUMA_SCHEDULER_FAKE_ENGINE_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kv/block_cache.h"
#include "scheduler/scheduler.h"

namespace kuruma::scheduler {

constexpr SequenceId Id(uint64_t number) { return static_cast<SequenceId>(number); }

// The token after `tokens`: a hash of all of them.
class NextToken {
 public:
  explicit NextToken(const std::vector<int32_t>& tokens) {
    for (const int32_t token : tokens) Add(token);
  }
  void Add(int32_t token) { hash_ = (hash_ ^ static_cast<uint64_t>(token)) * 0x9E3779B97F4A7C15u; }
  int32_t token() const { return static_cast<int32_t>(hash_ >> 40); }

 private:
  uint64_t hash_ = 1;
};

// Longer ones of a kind begin with the shorter ones.
inline std::vector<int32_t> Prompt(int32_t kind, int64_t length) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < length; ++i) prompt.push_back(i == 0 ? kind : static_cast<int32_t>(i));
  return prompt;
}

class FakeEngine {
 public:
  // `cache`: all but its blocks.
  explicit FakeEngine(const SchedulerOptions& options, kv::BlockCacheOptions cache = {})
      : cache_((cache.blocks = options.total_blocks, cache)), scheduler_(options, &cache_) {}

  // The answer ends by itself after `stops_after` tokens, if that is less than its max_tokens.
  Status Admit(SequenceSpec spec, int64_t stops_after = 1 << 30) {
    const auto id = static_cast<uint64_t>(spec.id);
    const Status status = scheduler_.Admit(spec);
    if (!status.ok()) return status;
    const NextToken next(spec.prompt);
    seen_.runs.emplace(id, Run{std::move(spec), stops_after, next});
    return status;
  }

  void Cancel(uint64_t id) { scheduler_.Cancel(Id(id)); }

  // Plans a step; false when there was none.
  bool PlanOne(double now) {
    Plan plan;
    std::vector<Finished> finished;
    scheduler_.MakePlan(now, &plan, &finished);
    Note(finished);
    seen_.preempted += static_cast<int64_t>(plan.preempted.size());
    seen_.trace.push_back(ToString(plan));
    Check(plan);
    CheckInvariants();
    std::vector<kv::SnapshotId> dropped;
    cache_.snapshots().TakeDropped(&dropped);
    for (const kv::SnapshotId id : dropped) windows_.erase(id);
    if (plan.steps.empty()) return false;
    seen_.out.push_back(plan);
    return true;
  }

  // The oldest plan is done, after `ms`.
  void CommitOne(double ms = 1) {
    const Plan plan = seen_.out.front();
    seen_.out.pop_front();
    std::vector<StepResult> results;
    for (const SequenceStep& step : plan.steps) results.push_back(ResultOf(step));
    Committed committed;
    scheduler_.Commit(results, ms, &committed);
    for (const Committed::Token& token : committed.tokens) {
      Run& run = seen_.runs.at(static_cast<uint64_t>(token.sequence));
      EXPECT_FALSE(run.reason) << "a token after the end";
      run.answer.push_back(token.token);
      run.next.Add(token.token);
    }
    for (const Committed::Saved& saved : committed.saved) {
      const auto mine = [&](const SequenceStep& step) { return step.sequence == saved.sequence; };
      const SequenceStep& step = *std::find_if(plan.steps.begin(), plan.steps.end(), mine);
      windows_[saved.id] = Tokens(step.sequence, step.first + step.rows);
    }
    Note(committed.finished);
    CheckInvariants();
  }

  // Until nothing is left, with up to `ahead` plans out; the number of plans.
  int Drain(int ahead, int limit = 100'000) {
    int plans = 0;
    while (plans < limit) {
      bool planned = false;
      while (static_cast<int>(seen_.out.size()) < ahead && PlanOne(0)) {
        planned = true;
        ++plans;
      }
      if (!planned && seen_.out.empty()) return plans;
      if (!seen_.out.empty()) CommitOne();
    }
    ADD_FAILURE() << "does not come to an end";
    return plans;
  }

  // Every sequence ended once, with the tokens it would have alone.
  void CheckAnswers() {
    for (const auto& [id, run] : seen_.runs) {
      ASSERT_TRUE(run.reason) << id << " never ended; the last plan was " << seen_.trace.back();
      NextToken alone(run.spec.prompt);
      for (const int32_t token : run.answer) {
        ASSERT_EQ(token, alone.token()) << id;
        alone.Add(token);
      }
      const auto length = static_cast<int64_t>(run.answer.size());
      if (*run.reason == FinishReason::kStop) {
        EXPECT_EQ(length, run.stops_after) << id;
      }
      if (*run.reason == FinishReason::kLength) {
        EXPECT_EQ(length, run.spec.max_tokens) << id;
      }
    }
    EXPECT_EQ(scheduler_.counts().running + scheduler_.counts().waiting, 0);
    const kv::BlockCacheCounts blocks = cache_.counts();
    EXPECT_EQ(blocks.private_blocks + blocks.pinned, 0) << "blocks leak";
  }

  struct Run {
    SequenceSpec spec;
    int64_t stops_after = 0;
    NextToken next;  // after prompt and answer
    std::vector<int32_t> answer = {};
    std::optional<FinishReason> reason = {};
  };
  struct Seen {
    std::map<uint64_t, Run> runs = {};
    std::deque<Plan> out = {};  // planned, not committed
    std::vector<std::string> trace = {};
    std::vector<Finished> finished = {};
    int64_t preempted = 0;
  };
  const Seen& seen() const { return seen_; }
  Scheduler& scheduler() { return scheduler_; }

 private:
  StepResult ResultOf(const SequenceStep& step) {
    const Run& run = seen_.runs.at(static_cast<uint64_t>(step.sequence));
    StepResult result;
    // What was drawn after the end of the answer was known to nobody is thrown away.
    if (!step.draws || run.reason) return result;
    const auto length = static_cast<int64_t>(run.spec.prompt.size() + run.answer.size());
    EXPECT_EQ(step.first + step.rows, length) << "the token is not the next one";
    result.token = run.next.token();
    result.stops = static_cast<int64_t>(run.answer.size()) + 1 >= run.stops_after;
    return result;
  }

  void CheckInvariants() {
    const Status status = scheduler_.CheckInvariants();
    ASSERT_TRUE(status.ok()) << status.message();
  }

  void Note(const std::vector<Finished>& finished) {
    for (const Finished& f : finished) {
      Run& run = seen_.runs.at(static_cast<uint64_t>(f.sequence));
      EXPECT_FALSE(run.reason) << "ended twice";
      run.reason = f.reason;
      seen_.finished.push_back(f);
    }
  }

  // The first `count` tokens of a sequence.
  std::vector<int32_t> Tokens(SequenceId id, int64_t count) const {
    const Run& run = seen_.runs.at(static_cast<uint64_t>(id));
    std::vector<int32_t> tokens = run.spec.prompt;
    tokens.insert(tokens.end(), run.answer.begin(), run.answer.end());
    tokens.resize(static_cast<size_t>(count));
    return tokens;
  }

  // What must hold for every plan.
  void Check(const Plan& plan) {
    std::set<SlotId> slots;
    const std::set<SequenceId> preempted(plan.preempted.begin(), plan.preempted.end());
    for (const SequenceStep& step : plan.steps) {
      EXPECT_GT(step.rows, 0);
      EXPECT_FALSE(preempted.contains(step.sequence)) << "made room and came back in one plan";
      EXPECT_TRUE(slots.insert(step.slot).second) << "a slot twice in a step";
      const Run& run = seen_.runs.at(static_cast<uint64_t>(step.sequence));
      EXPECT_FALSE(run.reason) << "a step after the end";
      const int64_t end = step.first + step.rows;
      EXPECT_TRUE(step.prompt_end == 0 || end <= step.prompt_end);
      const auto length = static_cast<int64_t>(run.spec.prompt.size() + run.answer.size());
      EXPECT_EQ(step.draws, step.prompt_end == 0 || end == length);
      EXPECT_TRUE(!step.begins || step.first <= step.stored);
      if (step.snapshot) {
        EXPECT_EQ(windows_.at(*step.snapshot), Tokens(step.sequence, step.first))
            << "windows of something else";
      }
      const auto blocks = scheduler_.Of(step.sequence).blocks;
      EXPECT_GE(static_cast<int64_t>(blocks.size()) * kv::kBlockTokens, end);
    }
  }

  kv::BlockCache cache_;
  Scheduler scheduler_;
  Seen seen_;
  std::map<kv::SnapshotId, std::vector<int32_t>> windows_;  // saved ones: behind which tokens
};

}  // namespace kuruma::scheduler

#endif  // KURUMA_SCHEDULER_FAKE_ENGINE_TEST_UTIL_H_
