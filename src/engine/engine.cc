#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/sha256.h"
#include "engine/device_thread.h"
#include "engine/executor.h"
#include "kv/block_cache.h"
#include "scheduler/scheduler.h"
#include "store/block_pool.h"

namespace kuruma::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kDeadlinePoll = std::chrono::milliseconds(20);

double Seconds(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

// The engine's thread and everything it owns. One readable loop: take what came in, plan a step,
// hand it to the model, commit the one before.
class Engine::Loop {
 public:
  Loop(model::Model* model, const EngineOptions& options,
       const scheduler::SchedulerOptions& scheduling, std::unique_ptr<store::BlockPool> pool)
      : model_(model),
        options_(options),
        scheduling_(scheduling),
        pool_(std::move(pool)),
        cache_({.blocks = scheduling.total_blocks}),
        scheduler_(scheduling, &cache_),
        device_(model, options.max_sequences, options.bounded_replay, options.synchronous),
        thread_([this] { Main(); }) {}

  ~Loop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  Result<RequestId> Submit(Request request, Sink sink);

  void Cancel(RequestId id) {
    {
      const std::lock_guard lock(mutex_);
      cancels_.push_back(id);
    }
    wake_.notify_one();
  }

  EngineCounts counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  struct Shared {  // of the samples of a request
    RequestId id;
    Request request;
    Sink sink;
    kv::BlockKey root;
    Clock::time_point submitted;
    std::vector<SequenceId> sequences;
    int left;
  };
  struct Sample {
    std::shared_ptr<Shared> shared;
    int number = 0;
    bool begun = false;
    int64_t cached_tokens = 0;
    int64_t preemptions = 0;
    std::unique_ptr<Sha256> digest;  // of the logits drawn from, if wanted
    Status error;
  };

  void Main();
  bool TakeInbox();
  void Begin(const std::shared_ptr<Shared>& shared);
  bool PlanNext();
  SlotStep MakeStep(const scheduler::SequenceStep& step);
  void CommitOldest();
  scheduler::StepResult Judge(const scheduler::SequenceStep& step, const SlotResult& result,
                              const Status& run);
  void Deliver(const scheduler::Plan& plan, std::vector<SlotResult>& results,
               const scheduler::Committed& committed);
  void Finish(const scheduler::Finished& finished);
  void UpdateCounts();

  model::Model* model_;
  const EngineOptions options_;
  const scheduler::SchedulerOptions scheduling_;
  std::unique_ptr<store::BlockPool> pool_;
  kv::BlockCache cache_;
  scheduler::Scheduler scheduler_;
  std::unordered_map<uint64_t, Sample> samples_;  // by sequence
  std::unordered_map<uint64_t, std::shared_ptr<Shared>> requests_;
  std::deque<scheduler::Plan> out_;
  uint64_t next_sequence_ = 1;
  bool paused_ = true;  // the model had nothing to do
  EngineCounts mine_;   // what counts() will show

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::vector<std::shared_ptr<Shared>> inbox_;
  std::vector<RequestId> cancels_;
  bool stopping_ = false;
  uint64_t next_request_ = 1;
  int64_t queued_ = 0;  // samples that have not begun
  EngineCounts counts_;

  DeviceThread device_;
  std::thread thread_;
};

Result<RequestId> Engine::Loop::Submit(Request request, Sink sink) {
  const int64_t vocab = model_->config().vocab;
  if (request.prompt.empty()) return InvalidArgument("the prompt has no tokens");
  for (const int32_t token : request.prompt) {
    if (token < 0 || token >= vocab) {
      return InvalidArgument("token " + std::to_string(token) + " is not in the vocabulary of " +
                             std::to_string(vocab) + " tokens");
    }
  }
  if (request.max_tokens < 1) return InvalidArgument("max_tokens must be at least 1");
  if (request.n < 1 || request.n > 128) return InvalidArgument("n must be in 1..128");
  KURUMA_RETURN_IF_ERROR(CheckSamplingParams(request.sampling, vocab));
  KURUMA_RETURN_IF_ERROR(scheduler::CheckFits(
      scheduling_, static_cast<int64_t>(request.prompt.size()), request.max_tokens));
  auto shared = std::make_shared<Shared>();
  shared->root = kv::RootKey("", request.tenant);
  shared->left = request.n;
  shared->request = std::move(request);
  shared->sink = std::move(sink);
  shared->submitted = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return InvalidArgument("the engine is shutting down");
    if (queued_ + shared->left > options_.max_queue) {
      return ResourceExhausted("the queue is full: " + std::to_string(queued_) + " of " +
                               std::to_string(options_.max_queue) + " places are taken");
    }
    queued_ += shared->left;
    shared->id = RequestId{next_request_++};
    inbox_.push_back(shared);
  }
  wake_.notify_one();
  return shared->id;
}

void Engine::Loop::Main() {
  const size_t ahead = options_.synchronous ? 1 : 2;
  while (true) {
    const bool ends = TakeInbox();
    const Clock::time_point start = Clock::now();
    const bool planned = out_.size() < ahead && PlanNext();
    mine_.plan_ms += MsSince(start);
    if (planned && out_.size() < ahead) continue;  // one more while that one runs
    if (!out_.empty()) {
      CommitOldest();
    } else if (samples_.empty()) {
      UpdateCounts();
      if (ends) return;
      paused_ = true;
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !inbox_.empty() || !cancels_.empty(); });
    } else {  // all wait: for a deadline, or for a sequence they share a prompt with
      paused_ = true;
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kDeadlinePoll);
    }
    UpdateCounts();
  }
}

// True when the engine is to end.
bool Engine::Loop::TakeInbox() {
  std::vector<std::shared_ptr<Shared>> inbox;
  std::vector<RequestId> cancels;
  bool ends = false;
  {
    const std::lock_guard lock(mutex_);
    inbox.swap(inbox_);
    cancels.swap(cancels_);
    ends = stopping_;
  }
  for (const auto& shared : inbox) Begin(shared);
  if (ends) {
    for (const auto& [id, shared] : requests_) cancels.push_back(RequestId{id});
  }
  for (const RequestId id : cancels) {
    const auto found = requests_.find(static_cast<uint64_t>(id));
    if (found == requests_.end()) continue;
    for (const SequenceId sequence : found->second->sequences) scheduler_.Cancel(sequence);
  }
  return ends;
}

void Engine::Loop::Begin(const std::shared_ptr<Shared>& shared) {
  const Request& request = shared->request;
  requests_[static_cast<uint64_t>(shared->id)] = shared;
  for (int number = 0; number < request.n; ++number) {
    scheduler::SequenceSpec spec;
    spec.id = SequenceId{next_sequence_++};
    spec.prompt = request.prompt;
    spec.root = shared->root;
    spec.max_tokens = request.max_tokens;
    spec.priority = request.priority;
    if (request.timeout_s) spec.deadline = Seconds(shared->submitted) + *request.timeout_s;
    if (number > 0 && options_.prefix_cache) spec.after = shared->sequences.front();
    Sample sample;
    sample.shared = shared;
    sample.number = number;
    if (request.digests) sample.digest = std::make_unique<Sha256>();
    samples_[static_cast<uint64_t>(spec.id)] = std::move(sample);
    shared->sequences.push_back(spec.id);
    const Status admitted = scheduler_.Admit(std::move(spec));
    KURUMA_CHECK(admitted.ok());  // Submit checked what Admit checks
  }
}

bool Engine::Loop::PlanNext() {
  scheduler::Plan plan;
  std::vector<scheduler::Finished> finished;
  scheduler_.MakePlan(Seconds(Clock::now()), &plan, &finished);
  for (const scheduler::Finished& f : finished) Finish(f);
  for (const SequenceId id : plan.preempted) {
    const auto found = samples_.find(static_cast<uint64_t>(id));
    if (found != samples_.end()) ++found->second.preemptions;
  }
  mine_.preemptions += static_cast<int64_t>(plan.preempted.size());
  if (plan.steps.empty()) return false;
  std::vector<SlotStep> steps;
  steps.reserve(plan.steps.size());
  for (const scheduler::SequenceStep& step : plan.steps) steps.push_back(MakeStep(step));
  ++mine_.steps;
  mine_.rows += plan.rows();
  device_.Post(std::move(steps), std::exchange(paused_, false));
  out_.push_back(std::move(plan));
  return true;
}

SlotStep Engine::Loop::MakeStep(const scheduler::SequenceStep& step) {
  const scheduler::Scheduler::Holding holding = scheduler_.Of(step.sequence);
  SlotStep out{.slot = step.slot,
               .rows = step.rows,
               .prompt_end = step.prompt_end,
               .draws = step.draws,
               .start = {},
               .blocks = {}};
  out.blocks.reserve(holding.blocks.size());
  for (const BlockId block : holding.blocks) out.blocks.push_back(pool_->At(block));
  if (!step.begins) return out;
  Sample& sample = samples_.at(static_cast<uint64_t>(step.sequence));
  const Request& request = sample.shared->request;
  if (!sample.begun) {
    sample.cached_tokens = step.first;
    const std::lock_guard lock(mutex_);
    --queued_;
  }
  sample.begun = true;
  SlotStart start{.tokens = {holding.tokens.begin(), holding.tokens.end()},
                  .prompt_tokens = static_cast<int64_t>(request.prompt.size()),
                  .stored = step.first,
                  .sampling = request.sampling,
                  .keeps_logits = request.digests};
  start.sampling.stream += static_cast<uint32_t>(sample.number);
  out.start = std::move(start);
  return out;
}

void Engine::Loop::CommitOldest() {
  DeviceThread::Done done = device_.Wait();
  const Clock::time_point start = Clock::now();
  const scheduler::Plan plan = std::move(out_.front());
  out_.pop_front();
  mine_.run_ms += done.ms;
  mine_.idle_ms += done.idle_ms;
  if (!done.status.ok()) LogWarn("a step failed: {}", done.status.message());
  std::vector<scheduler::StepResult> results;
  results.reserve(plan.steps.size());
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    results.push_back(Judge(plan.steps[i], done.results[i], done.status));
  }
  scheduler::Committed committed;
  scheduler_.Commit(results, done.ms, &committed);
  Deliver(plan, done.results, committed);
  mine_.plan_ms += MsSince(start);
}

scheduler::StepResult Engine::Loop::Judge(const scheduler::SequenceStep& step,
                                          const SlotResult& result, const Status& run) {
  const auto found = samples_.find(static_cast<uint64_t>(step.sequence));
  if (found == samples_.end()) return {};  // has ended; this step was planned before that was known
  Sample& sample = found->second;
  const Status& status = run.ok() ? result.status : run;
  if (!status.ok()) {
    sample.error = status;
    return {.token = -1, .stops = false, .failed = true};
  }
  scheduler::StepResult judged;
  if (!step.draws) return judged;
  judged.token = result.drawn->token;
  const auto& stops = sample.shared->request.stops;
  judged.stops = stops && stops(sample.number, judged.token);
  return judged;
}

void Engine::Loop::Deliver(const scheduler::Plan& plan, std::vector<SlotResult>& results,
                           const scheduler::Committed& committed) {
  size_t at = 0;
  for (const scheduler::Committed::Token& token : committed.tokens) {
    while (plan.steps[at].sequence != token.sequence) ++at;
    Sample& sample = samples_.at(static_cast<uint64_t>(token.sequence));
    if (sample.digest) {
      const std::vector<float>& logits = results[at].logits;
      sample.digest->Add(logits.data(), logits.size() * sizeof(float));
    }
    Event event;
    event.request = sample.shared->id;
    event.sample = sample.number;
    event.token = *std::move(results[at].drawn);
    ++mine_.tokens;
    sample.shared->sink(event);
  }
  for (const scheduler::Finished& f : committed.finished) Finish(f);
}

void Engine::Loop::Finish(const scheduler::Finished& finished) {
  const auto found = samples_.find(static_cast<uint64_t>(finished.sequence));
  KURUMA_CHECK(found != samples_.end());
  Sample sample = std::move(found->second);
  samples_.erase(found);
  if (!sample.begun) {
    const std::lock_guard lock(mutex_);
    --queued_;
  }
  Event event;
  event.kind = Event::Kind::kFinished;
  event.request = sample.shared->id;
  event.sample = sample.number;
  event.reason = finished.reason;
  event.error = sample.error;
  event.cached_tokens = sample.cached_tokens;
  event.preemptions = sample.preemptions;
  if (sample.digest) event.digest = Hex(sample.digest->Finish());
  if (--sample.shared->left == 0) requests_.erase(static_cast<uint64_t>(sample.shared->id));
  sample.shared->sink(event);
}

void Engine::Loop::UpdateCounts() {
  const scheduler::SchedulerCounts s = scheduler_.counts();
  const kv::BlockCacheCounts blocks = cache_.counts();
  mine_.waiting = s.waiting;
  mine_.running = s.running;
  mine_.block_hits = blocks.hits;
  mine_.block_lookups = blocks.lookups;
  mine_.evictions = blocks.evictions;
  const std::lock_guard lock(mutex_);
  counts_ = mine_;
}

Result<std::unique_ptr<Engine>> Engine::Create(model::Model* model, const EngineOptions& options) {
  const int64_t block_bytes = model->layout().block_bytes;
  scheduler::SchedulerOptions scheduling{.max_sequences = options.max_sequences,
                                         .max_step_tokens = options.max_step_tokens,
                                         .max_queue = int64_t{1} << 40,  // counted in Submit
                                         .context = model->config().max_positions,
                                         .total_blocks = options.kv_bytes / block_bytes,
                                         .watermark_blocks = 0,
                                         .target_tpot_ms = options.target_tpot_ms,
                                         .prefix_cache = options.prefix_cache,
                                         .chaos_seed = options.chaos_seed};
  if (scheduling.total_blocks < 1) {
    return InvalidArgument("kv_bytes (--kv-memory) must be at least one block of " +
                           std::to_string(block_bytes) + " bytes, got " +
                           std::to_string(options.kv_bytes));
  }
  if (options.max_queue < 1) return InvalidArgument("max_queue must be at least 1");
  scheduling.watermark_blocks = std::min(options.max_sequences, scheduling.total_blocks / 16);
  KURUMA_RETURN_IF_ERROR(scheduler::Scheduler::Check(scheduling));
  KURUMA_ASSIGN_OR_RETURN(auto pool,
                          store::BlockPool::Create(scheduling.total_blocks, block_bytes));
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Loop>(model, options, scheduling, std::move(pool))));
}

Engine::Engine(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Engine::~Engine() = default;

Result<RequestId> Engine::Submit(Request request, Sink sink) {
  return loop_->Submit(std::move(request), std::move(sink));
}
void Engine::Cancel(RequestId id) { loop_->Cancel(id); }
EngineCounts Engine::counts() const { return loop_->counts(); }

}  // namespace kuruma::engine
