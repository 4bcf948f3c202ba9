#include "workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace kuruma {
namespace {

constexpr WorkloadLimits kLimits{.vocab = 500, .context = 4096};

Workload Make(const WorkloadOptions& options) {
  Result<Workload> workload = MakeWorkload(options, kLimits);
  EXPECT_TRUE(workload.ok()) << workload.status().message();
  return workload.ok() ? *workload : Workload();
}

Workload Trace(std::string_view text, uint64_t seed = 0) {
  Result<Workload> workload = ParseTrace(text, "t.jsonl", seed, kLimits);
  EXPECT_TRUE(workload.ok()) << workload.status().message();
  return workload.ok() ? *workload : Workload();
}

bool SameBeginning(const WorkloadRequest& a, const WorkloadRequest& b, int64_t tokens) {
  return std::equal(a.prompt.begin(), a.prompt.begin() + tokens, b.prompt.begin());
}

TEST(MakeWorkload, TheSeedDecides) {
  const WorkloadOptions options{.range_ratio = 0.5, .request_rate = 3, .seed = 5};
  const Workload first = Make(options);
  const Workload again = Make(options);
  WorkloadOptions changed = options;
  changed.seed = uint64_t{5} << 32 | 5;
  const Workload other = Make(changed);
  for (size_t i = 0; i < first.requests.size(); ++i) {
    EXPECT_EQ(first.requests[i].prompt, again.requests[i].prompt);
    EXPECT_EQ(first.requests[i].output_tokens, again.requests[i].output_tokens);
    EXPECT_EQ(first.requests[i].arrival_s, again.requests[i].arrival_s);
    EXPECT_NE(first.requests[i].prompt, other.requests[i].prompt);
  }
}

TEST(MakeWorkload, LengthsFillTheirRange) {
  const Workload exact = Make({.input_len = 10, .output_len = 4});
  for (const WorkloadRequest& r : exact.requests) {
    EXPECT_EQ(r.prompt.size(), 10u);
    EXPECT_EQ(r.output_tokens, 4);
    for (const int32_t token : r.prompt) EXPECT_TRUE(token >= 0 && token < kLimits.vocab);
  }
  std::set<int64_t> inputs, outputs;
  const Workload mixed =
      Make({.num_prompts = 2000, .input_len = 10, .output_len = 4, .range_ratio = 0.5});
  for (const WorkloadRequest& r : mixed.requests) {
    inputs.insert(static_cast<int64_t>(r.prompt.size()));
    outputs.insert(r.output_tokens);
  }
  EXPECT_EQ(inputs, (std::set<int64_t>{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(outputs, (std::set<int64_t>{2, 3, 4, 5, 6}));
  const Workload short_ones = Make({.input_len = 1, .output_len = 1, .range_ratio = 0.99});
  for (const WorkloadRequest& r : short_ones.requests) EXPECT_GE(r.prompt.size(), 1u);
}

TEST(MakeWorkload, PrefixesAreSharedInTurn) {
  const Workload w = Make({.num_prompts = 6, .input_len = 8, .prefix_len = 20, .num_prefixes = 3});
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(w.requests[i].prompt.size(), 28u);
    for (size_t j = 0; j < i; ++j) {
      EXPECT_EQ(SameBeginning(w.requests[i], w.requests[j], 20), i % 3 == j % 3);
      EXPECT_NE(w.requests[i].prompt, w.requests[j].prompt);
    }
  }
}

TEST(MakeWorkload, ArrivalsArePoisson) {
  EXPECT_FALSE(Make({}).timed);
  constexpr double kRate = 4;
  const Workload w = Make({.num_prompts = 20000, .input_len = 1, .request_rate = kRate});
  EXPECT_TRUE(w.timed);
  EXPECT_EQ(w.requests[0].arrival_s, 0);
  double sum = 0, squares = 0;
  const auto gaps = static_cast<double>(w.requests.size() - 1);
  for (size_t i = 1; i < w.requests.size(); ++i) {
    const double gap = w.requests[i].arrival_s - w.requests[i - 1].arrival_s;
    ASSERT_GE(gap, 0);
    sum += gap;
    squares += gap * gap;
  }
  // Exponential: mean 1 / rate, and a standard deviation of the same size.
  EXPECT_NEAR(sum / gaps, 1 / kRate, 0.01);
  EXPECT_NEAR(std::sqrt(squares / gaps - std::pow(sum / gaps, 2)), 1 / kRate, 0.01);
}

TEST(MakeWorkload, RefusesWhatCannotRun) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  const std::pair<WorkloadOptions, const char*> cases[] = {
      {{.num_prompts = 0}, "--num-prompts must be in 1..1000000, got 0"},
      {{.input_len = 0}, "--input-len must be in 1.."},
      {{.input_len = kHuge}, "--input-len must be in 1.."},
      {{.output_len = -1}, "--output-len must be in 1.."},
      {{.range_ratio = 1}, "--range-ratio must be at least 0 and below 1, got 1"},
      {{.range_ratio = kNan}, "--range-ratio"},
      {{.prefix_len = -1}, "--prefix-len must be in 0.."},
      {{.num_prefixes = 0}, "--num-prefixes must be in 1.."},
      {{.request_rate = 0}, "--request-rate must be in 0.000001..inf, got 0"},
      {{.request_rate = -1}, "--request-rate"},
      {{.request_rate = kNan}, "--request-rate"},
      {{.input_len = 4033}, "the context is 4096"},
      {{.input_len = 3000, .range_ratio = 0.4}, "the context is 4096"},
      {{.input_len = 1000, .prefix_len = 3033}, "the context is 4096"},
      {{.num_prompts = 1000000, .input_len = 4000}, "268435456 tokens"}};
  for (const auto& [options, words] : cases) {
    const Result<Workload> workload = MakeWorkload(options, kLimits);
    ASSERT_FALSE(workload.ok()) << words;
    EXPECT_NE(workload.status().message().find(words), std::string::npos)
        << workload.status().message();
  }
  EXPECT_TRUE(MakeWorkload({.input_len = 4032}, kLimits).ok());
}

TEST(ParseTrace, ReadsRequestsInOrderOfArrival) {
  const Workload w = Trace(
      "{\"arrival_s\": 2, \"input_len\": 5, \"output_len\": 3}\r\n\n"
      "{\"arrival_s\":0.5,\"input_len\":7,\"output_len\":1,\"prefix_len\":4,\"prefix\":9}\n"
      "{\"arrival_s\":0.5,\"input_len\":6,\"output_len\":2,\"prefix_len\":2,\"prefix\":9}");
  EXPECT_TRUE(w.timed);
  ASSERT_EQ(w.requests.size(), 3u);
  EXPECT_EQ(w.requests[0].arrival_s, 0.5);
  EXPECT_EQ(w.requests[0].prompt.size(), 11u);
  EXPECT_EQ(w.requests[1].prompt.size(), 8u);
  EXPECT_TRUE(SameBeginning(w.requests[0], w.requests[1], 2));
  EXPECT_EQ(w.requests[2].arrival_s, 2);
  EXPECT_EQ(w.requests[2].prompt.size(), 5u);
  EXPECT_EQ(w.requests[2].output_tokens, 3);
}

TEST(ParseTrace, NamesTheLine) {
  const char* good = "{\"arrival_s\":0,\"input_len\":5,\"output_len\":3}\n";
  const std::pair<const char*, const char*> cases[] = {
      {"x", "expected one JSON object"},
      {"[1]", "expected one JSON object"},
      {"{\"input_len\":5,\"output_len\":3}", "arrival_s is missing"},
      {"{\"arrival_s\":0,\"output_len\":3}", "input_len is missing"},
      {"{\"arrival_s\":0,\"input_len\":5}", "output_len is missing"},
      {"{\"arrival_s\":-1,\"input_len\":5,\"output_len\":3}", "arrival_s must be"},
      {"{\"arrival_s\":1e10,\"input_len\":5,\"output_len\":3}", "0..1000000000, got 1"},
      {"{\"arrival_s\":\"0\",\"input_len\":5,\"output_len\":3}", "got string"},
      {"{\"arrival_s\":0,\"input_len\":0,\"output_len\":3}", "input_len must be an integer in 1.."},
      {"{\"arrival_s\":0,\"input_len\":5,\"output_len\":1.5}", "output_len must be an integer"},
      {"{\"arrival_s\":0,\"input_len\":18446744073709551615,\"output_len\":3}", "input_len must"},
      {"{\"arrival_s\":0,\"input_len\":5,\"output_len\":3,\"prefix\":-1}", "prefix must"},
      {"{\"arrival_s\":0,\"input_len\":5,\"output_len\":3,\"prefixlen\":1}", "\"prefixlen\""},
      {"{\"arrival_s\":0,\"input_len\":5,\"output_len\":4092}", "have 4097 tokens; the context"}};
  for (const auto& [line, words] : cases) {
    const auto workload = ParseTrace(good + std::string("\n") + line, "t.jsonl", 0, kLimits);
    ASSERT_FALSE(workload.ok()) << line;
    const std::string message = workload.status().message();
    EXPECT_EQ(message.find("t.jsonl: line 3: "), 0u) << message;
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }
}

TEST(ParseTrace, NothingInItIsRefused) {
  for (const char* text : {"", "\n", " \n\r\n"}) {
    const auto workload = ParseTrace(text, "t.jsonl", 0, kLimits);
    ASSERT_FALSE(workload.ok());
    EXPECT_EQ(workload.status().message(), "t.jsonl: no requests");
  }
}

TEST(MakeWarmup, HasTheLengthsButNotTheTokens) {
  const Workload w = Make({.num_prompts = 2, .input_len = 99, .range_ratio = 0.9});
  const Workload warmup = MakeWarmup(w, 3, 0, kLimits.vocab);
  ASSERT_EQ(warmup.requests.size(), 3u);
  EXPECT_FALSE(warmup.timed);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(warmup.requests[i].prompt.size(), w.requests[i % 2].prompt.size());
    EXPECT_EQ(warmup.requests[i].output_tokens, w.requests[i % 2].output_tokens);
    EXPECT_FALSE(SameBeginning(warmup.requests[i], w.requests[i % 2], 9));  // 9 is the shortest
  }
  EXPECT_TRUE(MakeWarmup(w, 0, 0, kLimits.vocab).requests.empty());
}

}  // namespace
}  // namespace kuruma
