// The engine's promise: a request gets the tokens, and the bits of logits, that it gets alone.
#include "engine/engine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "tests/support/tiny_model.h"

namespace kuruma::engine {
namespace {

using scheduler::FinishReason;
using testing::LoadTiny;
using testing::OrThrow;
using testing::RandomTokens;
using testing::Tiny;

struct Answer {
  std::vector<int32_t> tokens;
  FinishReason reason = FinishReason::kStop;
  std::string digest;
  int64_t cached = 0;
  int64_t preemptions = 0;
  std::string error;
  int finished = 0;

  bool operator==(const Answer& o) const {
    return tokens == o.tokens && reason == o.reason && digest == o.digest;
  }
};

std::ostream& operator<<(std::ostream& out, const Answer& a) {
  return out << fmt::format("{} tokens, {}, digest {}", a.tokens.size(), Name(a.reason), a.digest);
}

// Collects answers; Wait until all that were expected have finished.
class Collector {
 public:
  Sink For(int key) {
    return [this, key](const Event& event) {
      const std::lock_guard lock(mutex_);
      Answer& answer = answers_[{key, event.sample}];
      if (event.kind == Event::Kind::kToken) {
        EXPECT_EQ(answer.finished, 0) << "a token after the end";
        answer.tokens.push_back(event.token.token);
      } else {
        answer.reason = event.reason;
        answer.digest = event.digest;
        answer.cached = event.cached_tokens;
        answer.preemptions = event.preemptions;
        answer.error = event.error.message();
        ++answer.finished;
        ++finished_;
        changed_.notify_all();
      }
    };
  }

  std::map<std::pair<int, int>, Answer> Wait(int samples) {
    std::unique_lock lock(mutex_);
    const bool done =
        changed_.wait_for(lock, std::chrono::seconds(240), [&] { return finished_ >= samples; });
    EXPECT_TRUE(done) << "requests hang";
    for (const auto& [key, answer] : answers_) EXPECT_LE(answer.finished, 1) << "ended twice";
    return answers_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, Answer> answers_;
  int finished_ = 0;
};

using Answers = std::map<std::pair<int, int>, Answer>;

int Samples(const std::vector<Request>& requests) {
  int samples = 0;
  for (const Request& request : requests) samples += request.n;
  return samples;
}

// All at once.
Answers Together(model::Model& model, const EngineOptions& options,
                 const std::vector<Request>& requests) {
  Collector collector;
  const auto engine = OrThrow(Engine::Create(&model, options));
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto id = engine->Submit(requests[i], collector.For(static_cast<int>(i)));
    EXPECT_TRUE(id.ok()) << id.status().message();
  }
  return collector.Wait(Samples(requests));
}

// Each on an engine of its own.
Answers Alone(model::Model& model, const EngineOptions& options,
              const std::vector<Request>& requests) {
  Answers all;
  for (size_t i = 0; i < requests.size(); ++i) {
    Collector collector;
    const auto engine = OrThrow(Engine::Create(&model, options));
    EXPECT_TRUE(engine->Submit(requests[i], collector.For(static_cast<int>(i))).ok());
    all.merge(collector.Wait(requests[i].n));
  }
  return all;
}

// Prompts that share beginnings at and around block boundaries; greedy and drawn.
std::vector<Request> Mix(const model::Model& model) {
  std::vector<Request> requests;
  const auto base = RandomTokens(model, 300, 1);
  int number = 0;
  for (const int64_t length : {1, 7, 126, 127, 128, 129, 130, 131, 254, 257, 259, 300}) {
    Request request;
    request.prompt.assign(base.begin(), base.begin() + length);
    if (number % 3 == 2) request.prompt.back() = 5;
    request.max_tokens = 4 + number % 9;
    request.sampling.temperature = number % 2;
    request.sampling.seed = static_cast<uint64_t>(number);
    request.priority = number % 4 == 0 ? 1 : 0;
    request.digests = true;
    if (number % 5 == 4) request.n = 3;
    requests.push_back(request);
    ++number;
  }
  return requests;
}

EngineOptions Plain() {
  return {.max_sequences = 1,
          .max_step_tokens = 4096,
          .kv_bytes = 64 << 20,
          .synchronous = true,
          .prefix_cache = false};
}

class Identity : public ::testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  Tiny Load(int threads = 1) {
    return LoadTiny(GetParam().first, {.numerics = GetParam().second, .threads = threads});
  }
};

TEST_P(Identity, NothingAroundARequestChangesABit) {
  Tiny tiny = Load();
  const auto requests = Mix(*tiny.model);
  const Answers expected = Alone(*tiny.model, Plain(), requests);
  const int64_t block = tiny.model->layout().block_bytes;
  std::map<std::string, EngineOptions> variants;
  for (const bool synchronous : {true, false}) {
    const std::string name = synchronous ? "sync" : "async";
    EngineOptions options{.max_sequences = 8, .max_step_tokens = 64, .kv_bytes = 64 << 20};
    options.synchronous = synchronous;
    variants[name] = options;
    options.prefix_cache = false;
    variants[name + " without cache"] = options;
    options.max_step_tokens = 9;
    variants[name + " small chunks"] = options;
    options.prefix_cache = true;
    options.max_step_tokens = 50;
    options.kv_bytes = 7 * block;
    variants[name + " little memory"] = options;
    options.chaos_seed = 11;
    variants[name + " chaos"] = options;
  }
  for (const auto& [name, options] : variants) {
    EXPECT_EQ(expected, Together(*tiny.model, options, requests)) << name;
  }
}

TEST_P(Identity, WarmEqualsColdAndHits) {
  Tiny tiny = Load();
  const auto requests = Mix(*tiny.model);
  const Answers expected = Alone(*tiny.model, Plain(), requests);
  EngineOptions options{.max_sequences = 4, .max_step_tokens = 100, .kv_bytes = 64 << 20};
  const auto engine = OrThrow(Engine::Create(tiny.model.get(), options));
  for (int round = 0; round < 2; ++round) {
    Collector collector;
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(engine->Submit(requests[i], collector.For(static_cast<int>(i))).ok());
    }
    const Answers answers = collector.Wait(Samples(requests));
    EXPECT_EQ(expected, answers);
    int64_t cached = 0;
    for (const auto& [key, answer] : answers) cached += answer.cached;
    if (round == 1) {
      EXPECT_GE(cached, 128 * 8) << "the second round must hit";
    }
  }
  EXPECT_GT(engine->counts().snapshot_hits, 0);
}

// A conversation: each prompt begins with the prompt and the answer before. Windows are restored
// (all memory), rebuilt (none for snapshots), or partly one and partly the other.
TEST_P(Identity, TurnsGoOnWhereTheLastOneEnded) {
  Tiny tiny = Load();
  const int64_t one = tiny.model->layout().snapshot_bytes;
  for (const int64_t bytes : {int64_t{256} << 20, 2 * one, int64_t{0}}) {
    EngineOptions options{.max_sequences = 3, .max_step_tokens = 60, .kv_bytes = 64 << 20};
    options.snapshot_bytes = bytes;
    const auto engine = OrThrow(Engine::Create(tiny.model.get(), options));
    std::vector<Request> talks(2);
    talks[0].prompt = RandomTokens(*tiny.model, 90, 8);
    talks[1].prompt = RandomTokens(*tiny.model, 140, 9);
    for (int turn = 0; turn < 5; ++turn) {
      Collector collector;
      for (size_t i = 0; i < talks.size(); ++i) {
        talks[i].max_tokens = 40 + 9 * turn;
        talks[i].sampling.temperature = turn % 2;
        talks[i].digests = true;
        ASSERT_TRUE(engine->Submit(talks[i], collector.For(static_cast<int>(i))).ok());
      }
      const Answers answers = collector.Wait(2);
      EXPECT_EQ(Alone(*tiny.model, Plain(), talks), answers) << turn << ", snapshots " << bytes;
      for (size_t i = 0; i < talks.size(); ++i) {
        const auto& answer = answers.at({static_cast<int>(i), 0}).tokens;
        talks[i].prompt.insert(talks[i].prompt.end(), answer.begin(), answer.end());
        const auto more = RandomTokens(*tiny.model, 17, static_cast<uint32_t>(turn));
        talks[i].prompt.insert(talks[i].prompt.end(), more.begin(), more.end());
      }
    }
    const EngineCounts counts = engine->counts();
    EXPECT_GT(counts.cached_tokens, 0);
    if (bytes == 0) {
      EXPECT_EQ(counts.snapshot_hits, 0);
      EXPECT_GT(counts.replayed_rows, 0);
    } else if (bytes > 2 * one) {
      EXPECT_GT(counts.snapshot_hits, 3);
      EXPECT_EQ(counts.replayed_rows, 0) << "every turn's windows were saved";
    }
  }
}

TEST_P(Identity, ThreadsDoNotMatter) {
  Tiny one = Load(1), two = Load(2);
  const auto requests = Mix(*one.model);
  EngineOptions options{.max_sequences = 6, .max_step_tokens = 70, .kv_bytes = 64 << 20};
  EXPECT_EQ(Together(*one.model, options, requests), Together(*two.model, options, requests));
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, Identity, ::testing::Values(std::pair{"nano", "release"}, std::pair{"edge", "exact"}),
    [](const auto& info) { return info.param.first + "_" + info.param.second; });

TEST(Engine, SamplesOfOneRequestAreSingleRunsWithOtherStreams) {
  Tiny tiny = LoadTiny("nano", {});
  Request request;
  request.prompt = RandomTokens(*tiny.model, 200, 3);
  request.max_tokens = 6;
  request.sampling.seed = 5;
  request.n = 4;
  EngineOptions options{.max_sequences = 4, .max_step_tokens = 64, .kv_bytes = 64 << 20};
  const Answers four = Together(*tiny.model, options, {request});
  EXPECT_GT(four.at({0, 3}).cached, 0) << "samples share the prompt's blocks";
  request.n = 1;
  for (int k = 0; k < 4; ++k) {
    request.sampling.stream = static_cast<uint32_t>(k);
    const Answers single = Alone(*tiny.model, Plain(), {request});
    EXPECT_EQ(single.at({0, 0}).tokens, four.at({0, k}).tokens) << k;
  }
}

TEST(Engine, StopsEndASampleAtItsToken) {
  Tiny tiny = LoadTiny("nano", {});
  Request request;
  request.prompt = RandomTokens(*tiny.model, 20, 4);
  request.max_tokens = 30;
  request.sampling.temperature = 0;
  const auto whole = Alone(*tiny.model, Plain(), {request}).at({0, 0}).tokens;
  ASSERT_EQ(whole.size(), 30u);
  for (const bool synchronous : {true, false}) {
    EngineOptions options = Plain();
    options.synchronous = synchronous;
    int seen = 0;
    request.stops = [&](int, int32_t) { return ++seen == 7; };
    const Answer answer = Alone(*tiny.model, options, {request}).at({0, 0});
    EXPECT_EQ(answer.tokens, std::vector<int32_t>(whole.begin(), whole.begin() + 7));
    EXPECT_EQ(answer.reason, FinishReason::kStop);
    EXPECT_EQ(seen, 7) << "asked again after the end";
  }
}

// Answers with the number of rows a slot has seen, or does what the test wants.
class FakeRunner : public Runner {
 public:
  // `act` sees the number of the step and how many slots take part.
  explicit FakeRunner(std::function<Status(int64_t step, size_t slots)> act)
      : act_(std::move(act)) {}

  Status Run(const std::vector<SlotStep>& steps, std::vector<SlotResult>* results) override {
    results->assign(steps.size(), SlotResult());
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].draws) (*results)[i].drawn = SampledToken{.token = 1, .logprob = 0, .top = {}};
    }
    return act_(++steps_, steps.size());
  }

 private:
  std::function<Status(int64_t step, size_t slots)> act_;
  int64_t steps_ = 0;
};

std::unique_ptr<Engine> FakeEngine(const EngineOptions& options,
                                   std::function<Status(int64_t step, size_t slots)> act) {
  const RunnerTraits traits{
      .digest = "", .vocab = 10, .context = 10'000, .block_bytes = 128, .replay_from = {}};
  return OrThrow(Engine::Create(std::make_unique<FakeRunner>(std::move(act)), traits, options));
}

TEST(Engine, AFailedStepEndsItsRequestsAndNoOthers) {
  for (const bool synchronous : {true, false}) {
    EngineOptions options{.max_sequences = 4, .max_step_tokens = 64, .kv_bytes = 1 << 20};
    options.synchronous = synchronous;
    int together = 0;
    const auto engine = FakeEngine(options, [&](int64_t, size_t slots) {
      return slots == 2 && ++together == 5 ? ResourceExhausted("no memory") : Status();
    });
    Collector collector;
    Request request;
    request.prompt = {1, 2, 3};
    request.max_tokens = 5000;
    ASSERT_TRUE(engine->Submit(request, collector.For(0)).ok());
    ASSERT_TRUE(engine->Submit(request, collector.For(1)).ok());
    for (const auto& [key, answer] : collector.Wait(2)) {
      EXPECT_EQ(answer.reason, FinishReason::kFailed);
      EXPECT_LT(answer.tokens.size(), 5000u);
      EXPECT_EQ(answer.error.rfind("step ", 0), 0u) << answer.error;
      EXPECT_NE(answer.error.find(": no memory"), std::string::npos) << answer.error;
    }
    request.max_tokens = 20;
    ASSERT_TRUE(engine->Submit(request, collector.For(2)).ok());
    EXPECT_EQ(collector.Wait(3).at({2, 0}).tokens.size(), 20u) << "the engine goes on";
  }
}

TEST(Engine, AStepThatHangsIsReported) {
  for (const bool synchronous : {true, false}) {
    EngineOptions options{.max_sequences = 1, .max_step_tokens = 64, .kv_bytes = 1 << 20};
    options.synchronous = synchronous;
    const auto engine = FakeEngine(options, [](int64_t step, size_t) {
      if (step == 30) std::this_thread::sleep_for(std::chrono::milliseconds(1100));
      return Status();
    });
    Collector collector;
    Request request;
    request.prompt = {1, 2, 3};
    request.max_tokens = 40;
    ASSERT_TRUE(engine->Submit(request, collector.For(0)).ok());
    collector.Wait(1);
    engine->Cancel(RequestId{99});  // one more round of the loop: counts are those of the end
    EXPECT_EQ(engine->counts().slow_steps, 1);
  }
}

TEST(Engine, MetricsAddUp) {
  MetricsRegistry registry;
  EngineOptions options{.max_sequences = 2, .max_step_tokens = 64, .kv_bytes = 1 << 20};
  options.metrics = &registry;
  {
    const auto engine = FakeEngine(options, [](int64_t, size_t) { return Status(); });
    Collector collector;
    Request request;
    request.prompt.assign(300, 1);
    request.max_tokens = 7;
    request.n = 2;
    ASSERT_TRUE(engine->Submit(request, collector.For(0)).ok());
    collector.Wait(2);
  }
  const std::string text = registry.Text();
  for (const char* line :
       {"kuruma_prompt_tokens_total 600\n", "kuruma_prompt_tokens_cached_total 256\n",
        "kuruma_generation_tokens_total 14\n", "kuruma_num_requests_running 0\n",
        "kuruma_request_success_total{finished_reason=\"length\"} 2\n",
        "kuruma_prefix_cache_hits_total 2\n", "kuruma_kv_cache_usage_perc 0\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

TEST(Engine, CancelTimeoutAndShutdownAnswerOnce) {
  Tiny tiny = LoadTiny("nano", {});
  EngineOptions options{.max_sequences = 2, .max_step_tokens = 8, .kv_bytes = 64 << 20};
  Collector collector;
  {
    const auto engine = OrThrow(Engine::Create(tiny.model.get(), options));
    Request request;
    request.prompt = RandomTokens(*tiny.model, 40, 5);
    request.max_tokens = 400;
    const auto first = engine->Submit(request, collector.For(0));
    const auto second = engine->Submit(request, collector.For(1));
    const auto third = engine->Submit(request, collector.For(2));  // waits
    engine->Cancel(*third);
    engine->Cancel(*first);
    engine->Cancel(*first);
    engine->Cancel(RequestId{99});
    Request late = request;
    late.timeout_s = 0;
    ASSERT_TRUE(engine->Submit(late, collector.For(3)).ok());
    const Answers some = collector.Wait(3);
    EXPECT_EQ(some.at({0, 0}).reason, FinishReason::kCancelled);
    EXPECT_EQ(some.at({2, 0}).reason, FinishReason::kCancelled);
    EXPECT_EQ(some.at({3, 0}).reason, FinishReason::kDeadline);
    engine->Cancel(*third);
  }
  EXPECT_EQ(collector.Wait(4).at({1, 0}).finished, 1);
}

TEST(Engine, RefusesWithNumbers) {
  Tiny tiny = LoadTiny("nano", {});
  EngineOptions options = Plain();
  options.max_queue = 3;
  const auto engine = OrThrow(Engine::Create(tiny.model.get(), options));
  const Sink sink = [](const Event&) {};
  const auto refused = [&](auto change) {
    Request request;
    request.prompt = {1, 2};
    change(request);
    const auto id = engine->Submit(request, sink);
    return id.ok() ? "accepted" : id.status().message();
  };
  const int64_t context = tiny.model->config().max_positions;
  EXPECT_EQ(refused([&](Request& r) { r.max_tokens = context; }),
            fmt::format("the prompt has 2 tokens and max_tokens is {}; the context is {}", context,
                        context));
  EXPECT_EQ(refused([](Request& r) { r.prompt = {}; }), "the prompt has no tokens");
  EXPECT_EQ(refused([](Request& r) {
              r.prompt = {1, 256};
            }),
            "token 256 is not in the vocabulary of 256 tokens");
  EXPECT_EQ(refused([](Request& r) { r.n = 0; }), "n must be in 1..128");
  EXPECT_EQ(refused([](Request& r) { r.max_tokens = 0; }), "max_tokens must be at least 1");
  EXPECT_NE(refused([](Request& r) { r.sampling.top_p = 2; }), "accepted");
  EXPECT_EQ(refused([](Request& r) { r.n = 4; }), "the queue is full: 0 of 3 places are taken");
  options.kv_bytes = 1;
  EXPECT_EQ(Engine::Create(tiny.model.get(), options).status().code(),
            StatusCode::kInvalidArgument);
  options.kv_bytes = tiny.model->layout().block_bytes;
  const auto small = OrThrow(Engine::Create(tiny.model.get(), options));
  Request request;
  request.prompt = {1, 2};
  request.max_tokens = 200;
  EXPECT_EQ(small->Submit(request, sink).status().message(),
            "prompt and answer need 256 tokens of cache; there are 128 (a larger --kv-memory has "
            "more)");
}

}  // namespace
}  // namespace kuruma::engine
