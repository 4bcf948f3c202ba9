// Blocks that cannot be had when they were thought to be there: every sequence still ends once,
// with the same tokens, and nothing is lost.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "scheduler/fake_engine_test_util.h"

namespace kuruma::scheduler {
namespace {

// Prompts that share beginnings, of several chunks, on little memory: there are preemptions too.
std::vector<SequenceSpec> Mix() {
  std::vector<SequenceSpec> specs;
  for (uint64_t id = 1; id <= 7; ++id) {
    SequenceSpec spec;
    spec.id = Id(id);
    spec.prompt = Prompt(static_cast<int32_t>(id % 3), 60 + 60 * static_cast<int64_t>(id));
    spec.max_tokens = 90 - 10 * static_cast<int64_t>(id);
    spec.priority = id == 5 ? 1 : 0;
    if (id == 6) spec.after = Id(3);
    specs.push_back(std::move(spec));
  }
  return specs;
}

struct Outcome {
  std::map<uint64_t, std::vector<int32_t>> answers;
  std::vector<std::string> trace;
};

Outcome RunWith(SchedulerOptions options, int ahead, int64_t fails_reserve) {
  FakeEngine engine(options, {.fails_reserve = fails_reserve});
  for (SequenceSpec& spec : Mix()) EXPECT_TRUE(engine.Admit(std::move(spec), 40).ok());
  engine.Drain(ahead);
  // A plan that comes out empty because of the failure: the engine asks again after a while.
  engine.Drain(ahead);
  engine.CheckAnswers();
  Outcome outcome{.answers = {}, .trace = engine.seen().trace};
  for (const auto& [id, run] : engine.seen().runs) outcome.answers[id] = run.answer;
  return outcome;
}

TEST(SchedulerFaults, AnyReservationMayFail) {
  for (const bool prefix_cache : {true, false}) {
    for (const int ahead : {1, 2}) {
      const SchedulerOptions options{.max_sequences = 4,
                                     .max_step_tokens = 100,
                                     .context = 1024,
                                     .total_blocks = 9,
                                     .watermark_blocks = 1,
                                     .prefix_cache = prefix_cache};
      const Outcome expected = RunWith(options, ahead, 0);
      int64_t n = 1;
      for (;; ++n) {
        const Outcome outcome = RunWith(options, ahead, n);
        ASSERT_EQ(outcome.answers, expected.answers) << "reservation " << n;
        if (::testing::Test::HasFailure()) FAIL() << "reservation " << n;
        // A failure changes a plan, so here was none.
        if (outcome.trace == expected.trace) break;
      }
      EXPECT_GT(n, 15) << "too few reservations";
    }
  }
}

}  // namespace
}  // namespace kuruma::scheduler
