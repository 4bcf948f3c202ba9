#include "modes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "server_process.h"

namespace kuruma::load {
namespace {

float MsSince(Clock::time_point start) {
  return std::chrono::duration<float, std::milli>(Clock::now() - start).count();
}

Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void IgnoreBody(size_t, std::string_view) {}

}  // namespace

std::string ChatRequest(const Target& target, bool stream) {
  const std::string body = Json{
      {"model", ""},
      {"messages", {{{"role", "user"}, {"content", target.prompt}}}},
      {"thinking", {{"type", "disabled"}}},
      {"max_tokens", target.max_tokens},
      {"stream", stream}}.dump();
  return fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(), body);
}

Json Quantiles(std::vector<float> values) {
  if (values.empty()) return nullptr;
  const auto at = [&](double share) {
    const auto rank = static_cast<size_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(rank), values.end());
    return values[rank];
  };
  return {{"p50", at(0.5)}, {"p90", at(0.9)}, {"p99", at(0.99)}, {"max", at(1)}};
}

Json RunShort(const Target& target, size_t connections) {
  const std::string request = ChatRequest(target, /*stream=*/false);
  std::vector<Clock::time_point> sent(connections);
  std::vector<float> latencies;
  std::map<int, int64_t> statuses;
  int64_t broken = 0;
  bool measures = false, goes_on = true;
  Crowd* all = nullptr;
  const auto next = [&](size_t client) {
    if (!goes_on) return;
    sent[client] = Clock::now();
    all->Send(client, request);
  };
  Crowd crowd(target.port, {.on_body = IgnoreBody,
                            .on_answer =
                                [&](size_t client, const ReplyHead& head) {
                                  if (measures) {
                                    ++statuses[head.status];
                                    latencies.push_back(MsSince(sent[client]));
                                  }
                                  next(client);
                                },
                            .on_broken =
                                [&](size_t client) {
                                  ++broken;
                                  next(client);
                                }});
  all = &crowd;
  for (size_t i = 0; i < connections; ++i) next(crowd.Open());
  const Clock::time_point warm = Clock::now() + Seconds(1);
  while (Clock::now() < warm) crowd.Poll(warm);
  measures = true;
  const double cpu = CpuSeconds(target.pid), own_cpu = OwnCpuSeconds();
  const Clock::time_point start = Clock::now(), end = start + Seconds(target.seconds);
  while (Clock::now() < end) crowd.Poll(end);
  const double seconds = MsSince(start) / 1000;
  goes_on = false;
  const auto count = static_cast<double>(latencies.size());
  Json by_status = Json::object();
  for (const auto& [status, n] : statuses) by_status[std::to_string(status)] = n;
  return {{"mode", "short"},
          {"connections", connections},
          {"requests_per_s", count / seconds},
          {"statuses", by_status},
          {"broken", broken},
          {"latency_ms", Quantiles(std::move(latencies))},
          {"server_cpu_us_per_request", 1e6 * (CpuSeconds(target.pid) - cpu) / count},
          {"generator_cpu_us_per_request", 1e6 * (OwnCpuSeconds() - own_cpu) / count}};
}

namespace {

// The open loop of so many clients. A client is idle, or has the time when its request was due.
// What falls due while every client waits for an answer is not sent, and counted: those who wait do
// not ask again, and a queue in here would only measure itself.
class RateLoad {
 public:
  RateLoad(const Target& target, const RateOptions& options)
      : target_(target),
        options_(options),
        request_(ChatRequest(target, /*stream=*/false)),
        random_(options.seed),
        crowd_(target.port,
               {.on_body = IgnoreBody,
                .on_answer = [this](size_t c, const ReplyHead& head) { Answered(c, head); },
                .on_broken = [this](size_t c) { Broke(c); }}) {}

  Json Run() {
    constexpr double kPatienceSeconds = 10;
    constexpr auto kTick = std::chrono::microseconds(200);  // arrivals in it go out together
    OpenConnections();
    const double cpu = CpuSeconds(target_.pid), own_cpu = OwnCpuSeconds();
    const Clock::time_point start = Clock::now(), end = start + Seconds(target_.seconds);
    std::exponential_distribution<double> gap(options_.rate);
    for (Clock::time_point due = start; due < end; due += Seconds(gap(random_))) {
      for (auto now = Clock::now(); now < due; now = Clock::now()) {
        crowd_.Poll(std::max(due, now + kTick));
      }
      Ask(due);
    }
    const Clock::time_point last = end + Seconds(kPatienceSeconds);
    while (Clock::now() < last && under_way_ > 0) crowd_.Poll(last);
    const double spent = CpuSeconds(target_.pid) - cpu, own = OwnCpuSeconds() - own_cpu;
    return Report(spent, own);
  }

 private:
  // Before the clock starts: the clients of a busy server are there already.
  void OpenConnections() {
    constexpr size_t kAtOnce = 50;
    constexpr double kPauseSeconds = 0.02;
    due_.resize(options_.connections);
    while (idle_.size() < options_.connections) {
      idle_.push_back(crowd_.Open());
      if (idle_.size() % kAtOnce != 0) continue;
      const Clock::time_point next = Clock::now() + Seconds(kPauseSeconds);
      while (Clock::now() < next) crowd_.Poll(next);
    }
  }

  void Ask(Clock::time_point due) {
    if (idle_.empty()) {
      ++not_sent_;
      return;
    }
    const size_t client = idle_.back();
    idle_.pop_back();
    due_[client] = due;
    ++under_way_;
    crowd_.Send(client, request_);
  }

  void Free(size_t client) {
    --under_way_;
    idle_.push_back(client);
  }

  void Answered(size_t client, const ReplyHead& head) {
    const float ms = MsSince(due_[client]);
    if (head.status == 200) {
      accepted_ms_.push_back(ms);
    } else if (head.status == 429) {
      refused_ms_.push_back(ms);
      if (!head.has_retry_after) ++without_retry_after_;
    } else {
      ++(head.status >= 500 ? server_errors_ : other_);
    }
    Free(client);
  }

  void Broke(size_t client) {
    ++broken_;
    Free(client);
  }

  Json Report(double server_cpu, double own_cpu) {
    const auto in_time = std::count_if(accepted_ms_.begin(), accepted_ms_.end(),
                                       [&](float ms) { return ms <= options_.bound_ms; });
    const size_t answers = accepted_ms_.size() + refused_ms_.size();
    const auto per_answer = [&](double s) { return 1e6 * s / static_cast<double>(answers); };
    return {{"mode", "rate"},
            {"rate", options_.rate},
            {"bound_ms", options_.bound_ms},
            {"goodput_per_s", static_cast<double>(in_time) / target_.seconds},
            {"accepted", accepted_ms_.size()},
            {"accepted_late", static_cast<int64_t>(accepted_ms_.size()) - in_time},
            {"status_429", refused_ms_.size()},
            {"status_429_without_retry_after", without_retry_after_},
            {"status_5xx", server_errors_},
            {"other_status", other_},
            {"broken", broken_},
            {"unanswered", under_way_},
            {"not_sent", not_sent_},
            {"connections", due_.size()},
            {"latency_ms", Quantiles(std::move(accepted_ms_))},
            {"refusal_ms", Quantiles(std::move(refused_ms_))},
            {"server_cpu_us_per_answer", per_answer(server_cpu)},
            {"generator_cpu_us_per_answer", per_answer(own_cpu)}};
  }

  const Target target_;
  const RateOptions options_;
  const std::string request_;
  std::mt19937_64 random_;
  std::vector<Clock::time_point> due_;  // by client
  std::vector<size_t> idle_;
  std::vector<float> accepted_ms_, refused_ms_;
  size_t under_way_ = 0;
  int64_t not_sent_ = 0, without_retry_after_ = 0, server_errors_ = 0, other_ = 0, broken_ = 0;
  Crowd crowd_;
};

}  // namespace

Json RunRate(const Target& target, const RateOptions& options) {
  return RateLoad(target, options).Run();
}

}  // namespace kuruma::load
