// One request while it is answered: events of the engine on one side, the client on the other.
#ifndef KURUMA_SERVER_ANSWERING_H_
#define KURUMA_SERVER_ANSWERING_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/answer.h"
#include "api/error.h"
#include "base/metrics.h"
#include "engine/engine.h"
#include "server/http.h"
#include "server/job.h"
#include "server/work_pool.h"

namespace kuruma::server {

// What the server measures of answers, under the names that other servers use.
struct AnswerMetrics {
  explicit AnswerMetrics(MetricsRegistry* registry);

  Histogram& ttft_seconds;  // from a request's first byte to its first token
  Histogram& inter_token_seconds;
  Histogram& e2e_seconds;
  Histogram& prompt_tokens;
  Histogram& generation_tokens;
  Counter& disconnects;
};

// An error in the form that clients of `protocol` understand; 429 says when to try again.
void SendApiError(api::Protocol protocol, const api::ApiError& error, HttpReply* reply);

// What every answer needs; outlives all of them.
struct AnswerContext {
  engine::Engine* engine = nullptr;
  const text::Tokenizer* tokenizer = nullptr;
  WorkPool* work = nullptr;
  AnswerMetrics* metrics = nullptr;
};

// Tokens wait in a mailbox until a thread of the work pool makes an answer of them, so that the
// engine's thread never waits and a connection's order is kept. Lives as long as somebody may call
// it.
class Answering : public std::enable_shared_from_this<Answering> {
 public:
  using Clock = std::chrono::steady_clock;

  // Submits the job's requests; on failure the client has its error. Called by the work pool.
  static void Start(const AnswerContext& context, Job job, Clock::time_point received,
                    std::shared_ptr<HttpReply> reply);

  Answering(const AnswerContext& context, const Job& job, Clock::time_point received,
            std::shared_ptr<HttpReply> reply);

 private:
  struct Entry {
    engine::Event event;
    int first_choice = 0;  // of the request that the event belongs to
    Clock::time_point time;
  };

  Status Submit(Job job);
  void Take(const engine::Event& event, int first_choice);  // the engine's thread
  void Work();
  void Handle(const Entry& entry);
  void HandleEnd(const Entry& entry, int choice);
  void Deliver();
  void Leave();  // the client did; any thread
  void Cancel();

  const AnswerContext context_;
  const Clock::time_point received_;
  const std::shared_ptr<HttpReply> reply_;
  const std::vector<int32_t> end_tokens_;
  const bool stream_;
  const api::Protocol protocol_;
  const HttpHeaders seed_;  // the drawn one
  int64_t prompt_tokens_ = 0;
  std::unique_ptr<api::AnswerBuilder> builder_;
  // Of the thread that works:
  bool started_ = false;
  bool complete_ = false;
  int64_t tokens_ = 0;
  int open_choices_;
  std::vector<Clock::time_point> last_token_;  // by choice

  std::atomic<bool> gone_ = false;
  std::mutex mutex_;  // of what follows
  std::vector<Entry> mailbox_;
  bool working_ = false;  // a task is posted or runs
  bool cancelled_ = false;
  std::vector<RequestId> ids_;
};

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_ANSWERING_H_
