#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>

namespace kuruma::scheduler {
namespace {

constexpr SequenceId Id(uint64_t number) { return static_cast<SequenceId>(number); }

// Token number `position` of a sequence is a function of its prompt and the position.
int32_t TokenAt(const std::vector<int32_t>& prompt, int64_t position) {
  return static_cast<int32_t>((prompt[0] * 7919 + position * 104'729) % 50'000);
}

std::vector<int32_t> Prompt(int32_t kind, int64_t length) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < length; ++i) prompt.push_back(i == 0 ? kind : static_cast<int32_t>(i));
  return prompt;
}

// An engine without a model.
class Engine {
 public:
  explicit Engine(const SchedulerOptions& options)
      : cache_({.blocks = options.total_blocks}), scheduler_(options, &cache_) {}

  // The answer ends by itself after `stops_after` tokens, if that is less than its max_tokens.
  Status Admit(SequenceSpec spec, int64_t stops_after = 1 << 30) {
    const auto id = static_cast<uint64_t>(spec.id);
    const Status status = scheduler_.Admit(spec);
    if (status.ok()) seen_.runs[id] = {.spec = std::move(spec), .stops_after = stops_after};
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
    if (plan.steps.empty()) return false;
    seen_.out.push_back(plan);
    return true;
  }

  void CommitOne() {
    const Plan plan = seen_.out.front();
    seen_.out.pop_front();
    std::vector<StepResult> results;
    for (const SequenceStep& step : plan.steps) {
      const Run& run = seen_.runs[static_cast<uint64_t>(step.sequence)];
      StepResult result;
      if (step.draws) {
        const int64_t position = step.first + step.rows;
        result.token = TokenAt(run.spec.prompt, position);
        const auto prompt = static_cast<int64_t>(run.spec.prompt.size());
        result.stops = position - prompt + 1 >= run.stops_after;
      }
      results.push_back(result);
    }
    Committed committed;
    scheduler_.Commit(results, 1, &committed);
    for (const Committed::Token& token : committed.tokens) {
      Run& run = seen_.runs[static_cast<uint64_t>(token.sequence)];
      EXPECT_FALSE(run.reason) << "a token after the end";
      run.answer.push_back(token.token);
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
      const auto prompt = static_cast<int64_t>(run.spec.prompt.size());
      for (size_t i = 0; i < run.answer.size(); ++i) {
        ASSERT_EQ(run.answer[i], TokenAt(run.spec.prompt, prompt + static_cast<int64_t>(i))) << id;
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
    std::vector<int32_t> answer = {};
    std::optional<FinishReason> reason = {};
  };
  struct Seen {
    std::map<uint64_t, Run> runs = {};
    std::deque<Plan> out = {};  // planned, not committed
    std::vector<std::string> trace = {};
    int64_t preempted = 0;
  };
  const Seen& seen() const { return seen_; }
  Scheduler& scheduler() { return scheduler_; }

 private:
  void CheckInvariants() {
    const Status status = scheduler_.CheckInvariants();
    ASSERT_TRUE(status.ok()) << status.message();
  }

  void Note(const std::vector<Finished>& finished) {
    for (const Finished& f : finished) {
      Run& run = seen_.runs[static_cast<uint64_t>(f.sequence)];
      EXPECT_FALSE(run.reason) << "ended twice";
      run.reason = f.reason;
    }
  }

  // What must hold for every plan.
  void Check(const Plan& plan) {
    std::set<SlotId> slots;
    for (const SequenceStep& step : plan.steps) {
      EXPECT_GT(step.rows, 0);
      EXPECT_TRUE(slots.insert(step.slot).second) << "a slot twice in a step";
      EXPECT_TRUE(step.prompt_end == 0 || step.first + step.rows <= step.prompt_end);
      EXPECT_EQ(step.draws, step.prompt_end == 0 || step.first + step.rows == step.prompt_end);
      const auto blocks = scheduler_.Of(step.sequence).blocks;
      EXPECT_GE(static_cast<int64_t>(blocks.size()) * kv::kBlockTokens, step.first + step.rows);
      EXPECT_FALSE(seen_.runs[static_cast<uint64_t>(step.sequence)].reason)
          << "a step after the end";
    }
  }

  kv::BlockCache cache_;
  Scheduler scheduler_;
  Seen seen_;
};

SchedulerOptions Small() {
  return {.max_sequences = 4, .max_step_tokens = 64, .context = 1024, .total_blocks = 16};
}

SequenceSpec Spec(uint64_t id, int32_t kind, int64_t prompt, int64_t max_tokens) {
  SequenceSpec spec;
  spec.id = Id(id);
  spec.prompt = Prompt(kind, prompt);
  spec.max_tokens = max_tokens;
  return spec;
}

using Trace = std::vector<std::string>;

TEST(Scheduler, PromptsFillWhatDecodesLeave) {
  Engine engine(Small());
  ASSERT_TRUE(engine.Admit(Spec(1, 1, 100, 3)).ok());
  ASSERT_TRUE(engine.Admit(Spec(2, 2, 40, 2)).ok());
  engine.Drain(1);
  engine.CheckAnswers();
  EXPECT_EQ(engine.seen().trace,
            (Trace{"1: 1@0! 0+64/100", "2: 1@0 64+36/100* | 2@1! 0+28/40",
                   "3: 1@0 100+1* | 2@1 28+12/40*", "4: 1@0 101+1* | 2@1 40+1*", "5:"}));
}

TEST(Scheduler, OneStepAheadWastesNothingAtMaxTokens) {
  Engine engine(Small());
  ASSERT_TRUE(engine.Admit(Spec(1, 1, 10, 3)).ok());
  engine.Drain(2);
  engine.CheckAnswers();
  EXPECT_EQ(engine.seen().trace,
            (Trace{"1: 1@0! 0+10/10*", "2: 1@0 10+1*", "3: 1@0 11+1*", "4:", "5:"}));
}

TEST(Scheduler, OneStepAheadWastesOneRowAtAStop) {
  Engine engine(Small());
  ASSERT_TRUE(engine.Admit(Spec(1, 1, 10, 9), 2).ok());
  engine.Drain(2);
  engine.CheckAnswers();
  EXPECT_EQ(engine.seen().trace,
            (Trace{"1: 1@0! 0+10/10*", "2: 1@0 10+1*", "3: 1@0 11+1*", "4:", "5:"}));
}

TEST(Scheduler, PriorityGoesFirst) {
  Engine engine(Small());
  ASSERT_TRUE(engine.Admit(Spec(1, 1, 60, 1)).ok());
  SequenceSpec urgent = Spec(2, 2, 60, 1);
  urgent.priority = 1;
  ASSERT_TRUE(engine.Admit(urgent).ok());
  engine.Drain(1);
  EXPECT_EQ(engine.seen().trace[0], "1: 2@0! 0+60/60* | 1@1! 0+4/60");
}

TEST(Scheduler, EqualPromptsShareBlocks) {
  Engine engine(Small());
  ASSERT_TRUE(engine.Admit(Spec(1, 1, 300, 1)).ok());
  SequenceSpec second = Spec(2, 1, 300, 1);
  second.after = Id(1);
  ASSERT_TRUE(engine.Admit(second).ok());
  ASSERT_TRUE(engine.Admit(Spec(3, 3, 10, 1)).ok()) << "not held up by one that is not ready";
  engine.Drain(1);
  engine.CheckAnswers();
  EXPECT_EQ(engine.scheduler().counts().cached_tokens, 256);
  EXPECT_EQ(engine.seen().trace[4], "5: 1@0 256+44/300* | 3@1! 0+10/10*");
  EXPECT_EQ(engine.seen().trace[5], "6: 2@1! 256+44/300*");
}

TEST(Scheduler, RefusesWhatCanNeverRun) {
  Engine engine(Small());
  const Status over = engine.Admit(Spec(1, 1, 1000, 25));
  EXPECT_EQ(over.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(over.message(), "the prompt has 1000 tokens and max_tokens is 25; the context is 1024");
  SchedulerOptions few = Small();
  few.total_blocks = 2;
  EXPECT_NE(
      Engine(few).Admit(Spec(1, 1, 250, 7)).message().find("384 tokens of cache; there are 256"),
      std::string::npos);
  few.max_queue = 2;
  Engine full(few);
  EXPECT_TRUE(full.Admit(Spec(1, 1, 10, 1)).ok());
  EXPECT_TRUE(full.Admit(Spec(2, 1, 10, 1)).ok());
  EXPECT_EQ(full.Admit(Spec(3, 1, 10, 1)).code(), StatusCode::kResourceExhausted);
}

TEST(Scheduler, OptionsOutOfRange) {
  const auto message = [](auto change) {
    SchedulerOptions options = Small();
    change(options);
    return Scheduler::Check(options).message();
  };
  EXPECT_TRUE(Scheduler::Check(Small()).ok());
  EXPECT_EQ(message([](auto& o) { o.max_sequences = 0; }),
            "max_sequences must be in 1..1048576, got 0");
  EXPECT_EQ(message([](auto& o) { o.max_step_tokens = 3; }),
            "max_step_tokens must be at least max_sequences (4), got 3");
  EXPECT_EQ(message([](auto& o) { o.watermark_blocks = 17; }),
            "watermark_blocks must be in 0..16, got 17");
  EXPECT_NE(message([](auto& o) { o.target_tpot_ms = -1; }), "");
  EXPECT_NE(message([](auto& o) { o.total_blocks = 0; }), "");
}

TEST(Scheduler, TheLatestStepsAsideAndComesBack) {
  SchedulerOptions options = Small();
  options.total_blocks = 4;
  options.prefix_cache = false;
  Engine engine(options);
  ASSERT_TRUE(engine.Admit(Spec(1, 1, 60, 200)).ok());
  ASSERT_TRUE(engine.Admit(Spec(2, 2, 60, 200)).ok());
  ASSERT_TRUE(engine.Admit(Spec(3, 3, 60, 200)).ok());
  engine.Drain(1);
  engine.CheckAnswers();
  EXPECT_GT(engine.seen().preempted, 0);
  EXPECT_LT(engine.seen().preempted, 5) << "no ping-pong";
}

TEST(Scheduler, CancelAndDeadlineAnswerOnce) {
  for (const int ahead : {1, 2}) {
    Engine engine(Small());
    for (uint64_t id = 1; id <= 6; ++id) ASSERT_TRUE(engine.Admit(Spec(id, 1, 40, 50)).ok());
    SequenceSpec late = Spec(7, 1, 40, 50);
    late.deadline = 5;
    ASSERT_TRUE(engine.Admit(late).ok());
    engine.Cancel(6);  // before its first step
    for (int i = 0; i < ahead; ++i) ASSERT_TRUE(engine.PlanOne(0));
    engine.Cancel(1);  // while a step is out
    engine.Cancel(1);
    engine.CommitOne();
    engine.PlanOne(4.9);
    EXPECT_EQ(engine.seen().runs.at(1).reason, FinishReason::kCancelled);
    EXPECT_EQ(engine.seen().runs.at(6).reason, FinishReason::kCancelled);
    EXPECT_EQ(engine.seen().runs.at(6).answer.size(), 0u);
    while (engine.seen().out.size() > 0) engine.CommitOne();
    EXPECT_FALSE(engine.seen().runs.at(7).reason);
    engine.PlanOne(5);
    EXPECT_EQ(engine.seen().runs.at(7).reason, FinishReason::kDeadline);
    engine.Cancel(99);
    engine.Drain(ahead);
    engine.Cancel(2);  // long gone
    engine.CheckAnswers();
  }
}

TEST(Scheduler, APromptIsNotStarvedByDecodes) {
  SchedulerOptions options = Small();
  options.max_sequences = 5;
  options.max_step_tokens = 5;
  options.starvation_plans = 6;
  Engine engine(options);
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(engine.Admit(Spec(id, 1, 1, 400)).ok());
  for (int i = 0; i < 10; ++i) {
    engine.PlanOne(0);
    engine.CommitOne();
  }
  SequenceSpec more = Spec(5, 5, 1, 400);
  ASSERT_TRUE(engine.Admit(more).ok());
  ASSERT_TRUE(engine.Admit(Spec(6, 6, 50, 2)).ok());
  engine.Drain(1);
  engine.CheckAnswers();
}

// Random arrivals, cancellations and deadlines on little memory; twice, and one step ahead.
class Storms : public ::testing::TestWithParam<int> {};

TEST_P(Storms, EverySequenceEndsOnceWithItsOwnTokens) {
  int64_t preempted = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint32_t>(high - low + 1));
    };
    SchedulerOptions options{
        .max_sequences = draw(1, 6), .context = 600, .total_blocks = draw(5, 12)};
    options.max_step_tokens = options.max_sequences + draw(0, 100);
    options.watermark_blocks = draw(0, 2);
    options.starvation_plans = draw(1, 8);
    options.prefix_cache = draw(0, 3) > 0;
    options.chaos_seed = draw(0, 1) > 0 ? seed + 1 : 0;
    options.target_tpot_ms = draw(0, 1) > 0 ? 1.5 : 0;
    Engine engine(options);
    uint64_t next = 1;
    for (int round = 0; round < 400; ++round) {
      if (draw(0, 9) == 0 && next < 40) {
        SequenceSpec spec =
            Spec(next, static_cast<int32_t>(draw(1, 3)), draw(1, 400), draw(1, 200));
        spec.priority = static_cast<int>(draw(0, 2));
        if (draw(0, 5) == 0) spec.deadline = round + static_cast<double>(draw(0, 200));
        if (draw(0, 3) == 0 && next > 1)
          spec.after = Id(static_cast<uint64_t>(draw(1, static_cast<int64_t>(next) - 1)));
        ASSERT_TRUE(engine.Admit(spec, draw(1, 300)).ok());
        ++next;
      }
      if (draw(0, 60) == 0 && next > 1)
        engine.Cancel(static_cast<uint64_t>(draw(1, static_cast<int64_t>(next) - 1)));
      if (static_cast<int>(engine.seen().out.size()) < GetParam()) engine.PlanOne(round);
      if (engine.seen().out.size() > 0 &&
          (draw(0, 1) == 0 || static_cast<int>(engine.seen().out.size()) == GetParam())) {
        engine.CommitOne();
      }
      if (HasFatalFailure()) return;
    }
    engine.Drain(GetParam());
    engine.CheckAnswers();
    if (HasFailure()) FAIL() << "seed " << seed;
    preempted += engine.seen().preempted;
  }
  EXPECT_GT(preempted, 100) << "the storms are too mild";
}

INSTANTIATE_TEST_SUITE_P(StepsAhead, Storms, ::testing::Values(1, 2));

}  // namespace
}  // namespace kuruma::scheduler
