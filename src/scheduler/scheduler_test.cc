#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "scheduler/fake_engine_test_util.h"
#include "tests/support/sanitized.h"

namespace kuruma::scheduler {
namespace {

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

// What is planned in plain cases is in tests/traces.
TEST(Scheduler, EqualPromptsShareBlocks) {
  FakeEngine engine(Small());
  ASSERT_TRUE(engine.Admit(Spec(1, 1, 300, 1)).ok());
  SequenceSpec second = Spec(2, 1, 300, 1);
  second.after = Id(1);
  ASSERT_TRUE(engine.Admit(second).ok());
  ASSERT_TRUE(engine.Admit(Spec(3, 3, 10, 1)).ok()) << "not held up by one that is not ready";
  engine.Drain(1);
  engine.CheckAnswers();
  EXPECT_EQ(engine.scheduler().counts().cached_tokens, 256);
}

TEST(Scheduler, RefusalsHaveCodes) {
  SchedulerOptions options = Small();
  options.total_blocks = 2;
  options.max_queue = 1;
  FakeEngine engine(options);
  EXPECT_EQ(engine.Admit(Spec(1, 1, 1000, 25)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine.Admit(Spec(1, 1, 250, 7)).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(engine.Admit(Spec(1, 1, 10, 1)).ok());
  EXPECT_EQ(engine.Admit(Spec(2, 1, 10, 1)).code(), StatusCode::kResourceExhausted);
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
  EXPECT_EQ(message([](auto& o) {
              o.prefix_cache = false;
              o.snapshot_bytes = 7;
            }),
            "snapshot_bytes must be 0, or more with a prefix cache, got 7");
}

TEST(Scheduler, TheLatestStepsAsideAndComesBack) {
  SchedulerOptions options = Small();
  options.total_blocks = 4;
  options.prefix_cache = false;
  FakeEngine engine(options);
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
    FakeEngine engine(Small());
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
  FakeEngine engine(options);
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
  const uint32_t storms = testing::kSanitized ? 40 : 300;
  int64_t preempted = 0;
  for (uint32_t seed = 0; seed < storms; ++seed) {
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
    const int64_t snapshots = options.prefix_cache ? draw(0, 3) : 0;
    options.snapshot_bytes = snapshots > 0 ? 1 : 0;
    const int64_t replayed = 80 * draw(0, 2);
    options.replay_from = [replayed](int64_t stored, int64_t) {
      return std::max<int64_t>(0, stored - replayed);
    };
    FakeEngine engine(options, {.snapshot_bytes = snapshots});
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
  EXPECT_GT(preempted, storms / 3) << "the storms are too mild";
}

INSTANTIATE_TEST_SUITE_P(StepsAhead, Storms, ::testing::Values(1, 2));

}  // namespace
}  // namespace kuruma::scheduler
