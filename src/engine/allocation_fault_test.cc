// Memory that cannot be had: any allocation of a call into the engine, or of its threads, may fail.
// A call answers with a status, requests that were accepted end once, and the engine goes on.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <new>
#include <vector>

#include "engine/engine.h"
#include "tests/support/heap.h"
#include "tests/support/tiny_model.h"

namespace kuruma::engine {
namespace {

using testing::FailingAllocation;
using testing::LoadTiny;
using testing::OrThrow;
using testing::RandomTokens;
using testing::Tiny;
using Threads = FailingAllocation::Threads;

constexpr int64_t kMost = 20'000;  // allocations of a run; more means that it never ends

EngineOptions Options() {
  return {.max_sequences = 2, .max_step_tokens = 32, .max_queue = 3, .kv_bytes = 8 << 20};
}

// Three short requests fill the queue; all kinds of fields are in use.
std::vector<Request> Requests(const model::Model& model) {
  std::vector<Request> requests;
  for (int i = 0; i < 3; ++i) {
    Request request;
    request.prompt = RandomTokens(model, 10 + 130 * i, static_cast<uint32_t>(i));
    request.max_tokens = 3;
    request.sampling.logit_bias = {{5, 1.0}};
    request.sampling.top_logprobs = 2;
    request.tenant = "a tenant whose name is not short";
    request.digests = i == 1;
    requests.push_back(std::move(request));
  }
  return requests;
}

// Counts ends, allocates nothing.
class Ends {
 public:
  Sink sink() {
    return [this](const Event& event) {
      if (event.kind != Event::Kind::kFinished) return;
      const std::lock_guard lock(mutex_);
      ++count_;
      changed_.notify_all();
    };
  }
  bool Reach(int wanted) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return count_ >= wanted; }) &&
           count_ == wanted;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

// The engine takes as much as it ever did, and all of it ends.
void ExpectWorks(Engine& engine, const std::vector<Request>& requests) {
  Ends ends;
  for (const Request& request : requests) {
    const auto id = engine.Submit(request, ends.sink());
    ASSERT_TRUE(id.ok()) << id.status().message();
  }
  ASSERT_TRUE(ends.Reach(static_cast<int>(requests.size())));
}

struct Attempt {
  Status status;
  bool happened = false;  // an allocation failed
};

// Calls `call`, a Status(), while allocation `n` of this thread fails. It must not throw.
template <typename Call>
Attempt WithFailure(int64_t n, const Call& call) {
  const FailingAllocation failure(n, Threads::kThis);
  Attempt attempt;
  try {
    attempt.status = call();
  } catch (const std::bad_alloc&) {
    ADD_FAILURE() << "allocation " << n << " fails: an exception escapes";
    attempt.status = ResourceExhausted("");
  }
  attempt.happened = failure.happened();
  return attempt;
}

// `attempt` with n = 1, 2, ... until nothing fails any more.
void FailEach(const std::function<Attempt(int64_t n)>& attempt) {
  for (int64_t n = 1; n < kMost; ++n) {
    const Attempt made = attempt(n);
    if (::testing::Test::HasFatalFailure()) return;
    const StatusCode code = made.status.code();
    EXPECT_TRUE(made.status.ok() || code == StatusCode::kResourceExhausted)
        << "allocation " << n << ": " << made.status.message();
    if (made.happened) continue;
    EXPECT_TRUE(made.status.ok()) << made.status.message();
    EXPECT_GT(n, 1) << "nothing was allocated";
    return;
  }
  FAIL() << "does not come to an end";
}

TEST(AllocationFaults, SubmitAnswers) {
  const Tiny tiny = LoadTiny("nano", {});
  const auto engine = OrThrow(Engine::Create(tiny.model.get(), Options()));
  const std::vector<Request> requests = Requests(*tiny.model);
  FailEach([&](int64_t n) {
    Ends ends;
    Request request = requests[1];
    Sink sink = ends.sink();
    const Attempt attempt = WithFailure(
        n, [&] { return engine->Submit(std::move(request), std::move(sink)).status(); });
    if (attempt.status.ok()) {
      EXPECT_TRUE(ends.Reach(1)) << "accepted, and never ended";
    }
    return attempt;
  });
  ExpectWorks(*engine, requests);
}

TEST(AllocationFaults, CreateAnswers) {
  const Tiny tiny = LoadTiny("nano", {});
  const std::vector<Request> requests = Requests(*tiny.model);
  FailEach([&](int64_t n) {
    std::unique_ptr<Engine> engine;
    const Attempt attempt = WithFailure(n, [&] {
      auto created = Engine::Create(tiny.model.get(), Options());
      if (created.ok()) engine = std::move(created.value());
      return created.status();
    });
    if (engine != nullptr && !attempt.happened) ExpectWorks(*engine, requests);
    return attempt;
  });
}

TEST(AllocationFaults, CancelAndCountsAnswer) {
  const Tiny tiny = LoadTiny("nano", {});
  const auto engine = OrThrow(Engine::Create(tiny.model.get(), Options()));
  const std::vector<Request> requests = Requests(*tiny.model);
  FailEach([&](int64_t n) {
    Ends ends;
    const RequestId id = OrThrow(engine->Submit(requests[2], ends.sink()));
    const Attempt attempt = WithFailure(n, [&] {
      engine->Cancel(id);
      return Status();
    });
    EXPECT_TRUE(ends.Reach(1));
    return attempt;
  });
  ExpectWorks(*engine, requests);
}

// How a run with a failing allocation ends: as it should, with or without a failure, or stuck.
enum Outcome { kDone, kFailed, kStuck };

// Calls `child` in a process of its own, made before there are threads; its status.
int InChild(const std::function<Outcome()>& child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child());
  int status = -1;
  waitpid(pid, &status, 0);
  return status;
}

// The threads of the engine: whatever fails there, requests end (some with an error), and those
// after them are served.
TEST(AllocationFaults, TheEngineSurvivesOnItsOwnThreads) {
  const Tiny tiny = LoadTiny("nano", {});  // has no threads: children may use it
  const std::vector<Request> requests = Requests(*tiny.model);
  const auto run = [&](int64_t n) {
    Ends ends;
    const auto engine = OrThrow(Engine::Create(tiny.model.get(), Options()));
    bool failed;
    {
      const FailingAllocation failure(n, Threads::kOthers);
      for (const Request& request : requests) OrThrow(engine->Submit(request, ends.sink()));
      if (!ends.Reach(static_cast<int>(requests.size()))) return kStuck;
      failed = failure.happened();
    }
    ExpectWorks(*engine, requests);
    if (::testing::Test::HasFailure()) return kStuck;
    return failed ? kFailed : kDone;
  };
  std::vector<int64_t> dead;
  int runs = 0;
  for (int64_t n = 1; n < kMost; n += 1 + n / 16, ++runs) {  // thinned out: a process for each
    const int status = InChild([&] { return run(n); });
    if (WIFEXITED(status) && WEXITSTATUS(status) == kDone) break;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != kFailed) dead.push_back(n);
  }
  EXPECT_TRUE(dead.empty()) << fmt::format("of {} allocations {} end the process: {}", runs,
                                           dead.size(), fmt::join(dead, " "));
}

}  // namespace
}  // namespace kuruma::engine
