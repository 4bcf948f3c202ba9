// The engine: many requests share steps of one model. This is the interface to embed it by.
//
// Results never depend on what else runs, on the order of arrival, chunking, preemption, the cache
// or asynchrony: each request gets the tokens it would get alone.
#ifndef KURUMA_ENGINE_ENGINE_H_
#define KURUMA_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/metrics.h"
#include "base/status.h"
#include "engine/runner.h"
#include "engine/sampler.h"
#include "model/model.h"
#include "scheduler/plan.h"

namespace kuruma::engine {

struct EngineOptions {
  int64_t max_sequences = 32;     // running at once
  int64_t max_step_tokens = 512;  // rows of a step
  int64_t max_queue = 1024;       // waiting sequences
  // Memory of the block cache. 0: half of what the process may still use, but no more than four
  // times what max_sequences of the longest sequences hold.
  int64_t kv_bytes = 0;
  double target_tpot_ms = 0;    // longest step while sequences decode; 0: no bound
  bool synchronous = false;     // plan a step only when the one before is done
  bool prefix_cache = true;     // find and keep global KV of equal beginnings
  bool bounded_replay = false;  // approximate after a hit: one window instead of all that matters
  int64_t snapshot_bytes = int64_t{256} << 20;  // memory of window snapshots; 0: none are kept
  uint64_t chaos_seed = 0;                      // for tests: random chunks and preemptions; 0: none
  MetricsRegistry* metrics = nullptr;  // must outlive the engine; null: nothing is recorded
};

struct Request {
  std::vector<int32_t> prompt;      // not empty, ids of the vocabulary
  SamplingParams sampling;          // sample k of n draws from stream `sampling.stream` + k
  int64_t max_tokens = 256;         // >= 1, per sample
  int n = 1;                        // samples, which share the prompt's blocks
  int priority = 0;                 // higher ones go first
  std::optional<double> timeout_s;  // from submission; then it ends with what there is
  std::string tenant;               // requests of different tenants never share blocks
  // Called for every token on the engine's thread: true ends the sample (end tokens, stop strings).
  // Tokens beyond are never delivered. Empty: only max_tokens ends it.
  std::function<bool(int sample, int32_t token)> stops;
  bool digests = false;  // Event::digest at the end
};

struct Event {
  enum class Kind { kToken, kFinished };
  Kind kind = Kind::kToken;
  RequestId request = {};
  int sample = 0;
  int64_t cached_tokens = 0;  // of the prompt, found in the cache at first
  SampledToken token;         // kToken
  // kFinished, once per sample:
  scheduler::FinishReason reason = scheduler::FinishReason::kStop;
  Status error;  // reason kFailed: why
  int64_t preemptions = 0;
  std::string digest;  // SHA-256 in hex of the logits that all tokens were drawn from
};

// Receives events on the engine's thread; must not block it nor call the engine, except Cancel.
using Sink = std::function<void(const Event& event)>;

struct EngineCounts {
  int64_t waiting = 0;
  int64_t running = 0;
  int64_t steps = 0;
  int64_t rows = 0;           // of all steps, replayed ones included
  int64_t replayed_rows = 0;  // to rebuild windows after a prefix hit
  int64_t tokens = 0;         // drawn and delivered
  int64_t prompt_tokens = 0;  // of samples that began; a preempted one counts once
  int64_t cached_tokens = 0;  // of those, found in the cache
  int64_t preemptions = 0;
  int64_t block_hits = 0;
  int64_t block_lookups = 0;
  int64_t evictions = 0;
  int64_t snapshot_hits = 0;  // admissions that went on from saved windows
  int64_t blocks = 0;         // of the cache
  int64_t blocks_in_use = 0;  // of those, held by running sequences
  int64_t finished = 0;       // samples that ended with stop or length
  int64_t failed = 0;         // that ended otherwise
  int64_t slow_steps = 0;     // took ten times as long as predicted
  double plan_ms = 0;         // in planning and committing
  double run_ms = 0;          // in steps
  double idle_ms = 0;         // the model waited for a plan although there were sequences to run
};

// Thread safe.
class Engine {
 public:
  // Starts the threads. The model must outlive the engine and is its own from now on.
  // InvalidArgument: an option out of range; ResourceExhausted: no memory for the cache.
  static Result<std::unique_ptr<Engine>> Create(model::Model* model, const EngineOptions& options);

  // The same over another runner, with room for options.max_sequences slots.
  static Result<std::unique_ptr<Engine>> Create(std::unique_ptr<Runner> runner,
                                                const RunnerTraits& traits,
                                                const EngineOptions& options);

  // Stop.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // What Submit would refuse whatever else runs: parameters out of range, or more than context or
  // cache can hold, with both numbers (InvalidArgument).
  Status Check(const Request& request) const;

  // Queues a request; each of its samples gets its events in order and kFinished once, unless this
  // fails: as Check says, or ResourceExhausted, the queue is full.
  Result<RequestId> Submit(Request request, Sink sink);

  // The request ends within one step. Unknown and ended ones are ignored.
  void Cancel(RequestId id);

  EngineCounts counts() const;

  // Ends all requests (kCancelled) and joins the engine's thread: no sink is called any more. Later
  // requests are refused. Not to be called by a sink.
  void Stop();

 private:
  class Loop;
  explicit Engine(std::unique_ptr<Loop> loop);

  std::unique_ptr<Loop> loop_;
};

}  // namespace kuruma::engine

#endif  // KURUMA_ENGINE_ENGINE_H_
