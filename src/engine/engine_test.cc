// The engine's promise: a request gets the tokens, and the bits of logits, that it gets alone.
#include "engine/engine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <random>

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
