#include "load.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/tiny_model.h"

namespace kuruma {
namespace {

using testing::LoadTiny;
using testing::OrThrow;
using testing::Tiny;

Workload Make(const Tiny& tiny, const WorkloadOptions& options) {
  const model::ModelConfig& config = tiny.model->config();
  return OrThrow(MakeWorkload(options, {.vocab = config.vocab, .context = config.max_positions}));
}

std::unique_ptr<engine::Engine> Start(const Tiny& tiny, const engine::EngineOptions& options = {}) {
  return OrThrow(engine::Engine::Create(tiny.model.get(), options));
}

// Requests in flight when the request `which` was sent, itself included.
int InFlightAt(const LoadResult& load, size_t which) {
  const double sent_ms = load.times[which].sent_ms;
  int count = 1;
  for (size_t i = 0; i < load.times.size(); ++i) {
    const RequestTimes& t = load.times[i];
    count += i != which && t.sent_ms <= sent_ms && t.token_ms.back() > sent_ms ? 1 : 0;
  }
  return count;
}

TEST(RunLoad, AnswersAllWithNoMoreInFlightThanAllowed) {
  const Tiny tiny = LoadTiny("nano", {});
  const Workload w = Make(
      tiny, {.num_prompts = 12, .input_len = 9, .output_len = 6, .range_ratio = 0.9, .seed = 3});
  int64_t input = 0, output = 0;
  for (const WorkloadRequest& r : w.requests) {
    input += static_cast<int64_t>(r.prompt.size());
    output += r.output_tokens;
  }
  for (const int64_t concurrency : {1, 3, 50}) {
    const auto engine = Start(tiny);
    const LoadResult load = OrThrow(RunLoad(engine.get(), w, {concurrency, ""}));
    EXPECT_EQ(load.failed, 0);
    EXPECT_EQ(load.prompt_tokens, input);
    EXPECT_EQ(load.output_tokens, output);
    EXPECT_EQ(load.counts.tokens, output);
    ASSERT_EQ(load.times.size(), 12u);
    for (size_t i = 0; i < 12; ++i) {
      const RequestTimes& t = load.times[i];
      EXPECT_EQ(static_cast<int64_t>(t.token_ms.size()), w.requests[i].output_tokens);
      EXPECT_LE(t.sent_ms, t.token_ms.front());
      EXPECT_TRUE(std::is_sorted(t.token_ms.begin(), t.token_ms.end()));
      EXPECT_LE(t.token_ms.back(), load.duration_s * 1000);
      EXPECT_LE(InFlightAt(load, i), concurrency);
    }
  }
}

TEST(RunLoad, CountsAreThoseOfThisLoadAlone) {
  const Tiny tiny = LoadTiny("nano", {});
  const Workload w = Make(tiny, {.num_prompts = 3, .input_len = 5, .output_len = 4});
  const auto engine = Start(tiny, {.synchronous = true});
  for (int i = 0; i < 3; ++i) {
    const LoadResult load = OrThrow(RunLoad(engine.get(), w, {1, ""}));
    EXPECT_EQ(load.counts.tokens, 12);
    EXPECT_EQ(load.counts.steps, 12);
    EXPECT_EQ(load.counts.rows, 3 * (5 + 3));
  }
}

TEST(RunLoad, TimedRequestsCountFromTheirArrival) {
  const Tiny tiny = LoadTiny("nano", {});
  Workload w = Make(tiny, {.num_prompts = 3, .input_len = 5, .output_len = 2});
  w.timed = true;
  w.requests[1].arrival_s = 0.001;
  w.requests[2].arrival_s = 0.03;
  const auto engine = Start(tiny);
  const LoadResult load = OrThrow(RunLoad(engine.get(), w, {1, ""}));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(load.times[i].sent_ms, w.requests[i].arrival_s * 1000);
    EXPECT_GT(load.times[i].token_ms.front(), load.times[i].sent_ms);
  }
}

TEST(RunLoad, ARefusedRequestEndsTheOthers) {
  const Tiny tiny = LoadTiny("nano", {});
  Workload w = Make(tiny, {.num_prompts = 3, .input_len = 5, .output_len = 2000});
  w.requests[2].prompt[1] = -1;
  const auto engine = Start(tiny);
  const Result<LoadResult> load = RunLoad(engine.get(), w, {3, ""});
  ASSERT_FALSE(load.ok());
  EXPECT_EQ(load.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(load.status().message().find("request 3: token -1"), 0u) << load.status().message();
  // Nothing of it is left.
  w.requests.resize(1);
  w.requests[0].output_tokens = 2;
  EXPECT_EQ(OrThrow(RunLoad(engine.get(), w, {1, ""})).output_tokens, 2);
}

TEST(RunLoad, NothingToDoIsDoneAtOnce) {
  const Tiny tiny = LoadTiny("nano", {});
  const LoadResult load = OrThrow(RunLoad(Start(tiny).get(), Workload(), {1, ""}));
  EXPECT_EQ(load.times.size(), 0u);
  EXPECT_EQ(load.counts.steps, 0);
}

}  // namespace
}  // namespace kuruma
