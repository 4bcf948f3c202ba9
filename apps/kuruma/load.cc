#include "load.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "report.h"

namespace kuruma {
namespace {

class Load {
 public:
  Load(engine::Engine* engine, const Workload& workload, const LoadOptions& options)
      : engine_(engine),
        workload_(workload),
        options_(options),
        requests_(workload.requests.size()) {}

  Result<LoadResult> Run() {
    const engine::EngineCounts before = engine_->counts();
    Progress progress(options_.label, static_cast<int64_t>(requests_.size()));
    watch_ = Stopwatch();
    Status status;
    for (size_t i = 0; i < requests_.size() && status.ok(); ++i) {
      if (workload_.timed) SleepUntil(workload_.requests[i].arrival_s);
      WaitUntilInFlight(options_.concurrency - 1, &progress);
      status = Send(i);
    }
    if (!status.ok()) {
      for (const Sent& request : requests_) engine_->Cancel(request.id);  // ended ones are ignored
    }
    WaitUntilInFlight(0, &progress);
    if (!status.ok()) return status;
    return Collect(before);
  }

 private:
  struct Sent {
    RequestTimes times;  // token_ms: written by the engine's thread
    RequestId id = {};
    engine::Event end;
  };

  void SleepUntil(double arrival_s) {
    const double left_s = arrival_s - watch_.ms() / 1000;
    if (left_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left_s));
  }

  void WaitUntilInFlight(int64_t most, Progress* progress) {
    std::unique_lock lock(mutex_);
    while (in_flight_ > most) {
      changed_.wait(lock);
      progress->Update(ended_);
    }
  }

  Status Send(size_t i) {
    const WorkloadRequest& what = workload_.requests[i];
    engine::Request request;
    request.prompt = what.prompt;
    request.max_tokens = what.output_tokens;
    request.sampling.temperature = 0;
    Sent& sent = requests_[i];
    sent.times.token_ms.reserve(what.output_tokens);
    {
      const std::lock_guard lock(mutex_);
      ++in_flight_;
    }
    sent.times.sent_ms = workload_.timed ? what.arrival_s * 1000 : watch_.ms();
    const Result<RequestId> id = engine_->Submit(
        std::move(request), [this, i](const engine::Event& event) { Take(i, event); });
    if (!id.ok()) {
      const std::lock_guard lock(mutex_);
      --in_flight_;
      return Status(id.status().code(),
                    fmt::format("request {}: {}", i + 1, id.status().message()));
    }
    sent.id = *id;
    return Status();
  }

  // On the engine's thread.
  void Take(size_t i, const engine::Event& event) {
    const double now_ms = watch_.ms();
    Sent& request = requests_[i];
    if (event.kind == engine::Event::Kind::kToken) {
      request.times.token_ms.push_back(now_ms);
      return;
    }
    const std::lock_guard lock(mutex_);
    request.end = event;
    last_end_ms_ = now_ms;
    --in_flight_;
    ++ended_;
    changed_.notify_one();
  }

  LoadResult Collect(const engine::EngineCounts& before) {
    LoadResult result;
    int64_t tokens = 0;  // also those of requests that failed later
    result.duration_s = last_end_ms_ / 1000;
    for (size_t i = 0; i < requests_.size(); ++i) {
      Sent& request = requests_[i];
      const auto count = static_cast<int64_t>(request.times.token_ms.size());
      tokens += count;
      if (request.end.reason != scheduler::FinishReason::kLength) {
        if (result.failed++ == 0) {
          result.first_error = request.end.error.ok() ? std::string(Name(request.end.reason))
                                                      : request.end.error.message();
        }
        continue;
      }
      result.prompt_tokens += static_cast<int64_t>(workload_.requests[i].prompt.size());
      result.cached_tokens += request.end.cached_tokens;
      result.output_tokens += count;
      result.times.push_back(std::move(request.times));
    }
    result.counts = CountsSince(before, tokens);
    return result;
  }

  // The engine publishes its counts a moment after the last event.
  engine::EngineCounts CountsSince(const engine::EngineCounts& before, int64_t tokens) {
    engine::EngineCounts now = engine_->counts();
    while (now.tokens < before.tokens + tokens || now.running > 0 || now.waiting > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      now = engine_->counts();
    }
    now.steps -= before.steps;
    now.rows -= before.rows;
    now.tokens -= before.tokens;
    now.preemptions -= before.preemptions;
    now.block_hits -= before.block_hits;
    now.block_lookups -= before.block_lookups;
    now.evictions -= before.evictions;
    now.plan_ms -= before.plan_ms;
    now.run_ms -= before.run_ms;
    now.idle_ms -= before.idle_ms;
    return now;
  }

  engine::Engine* engine_;
  const Workload& workload_;
  const LoadOptions& options_;
  std::vector<Sent> requests_;
  Stopwatch watch_;

  std::mutex mutex_;  // of what follows, and of the requests' ends
  std::condition_variable changed_;
  int64_t in_flight_ = 0;
  int64_t ended_ = 0;
  double last_end_ms_ = 0;
};

}  // namespace

Result<LoadResult> RunLoad(engine::Engine* engine, const Workload& workload,
                           const LoadOptions& options) {
  return Load(engine, workload, options).Run();
}

}  // namespace kuruma
