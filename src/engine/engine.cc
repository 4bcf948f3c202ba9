#include "engine/engine.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/sha256.h"
#include "device/host.h"
#include "engine/device_thread.h"
#include "engine/engine_metrics.h"
#include "engine/executor.h"
#include "kv/block_cache.h"
#include "scheduler/scheduler.h"
#include "store/block_pool.h"

namespace kuruma::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kDeadlinePoll = std::chrono::milliseconds(20);
constexpr double kSlow = 10;               // times the prediction: worth a warning
constexpr double kLeastPatienceMs = 1000;  // a busy machine is no reason for one
constexpr double kForeverMs = 1e12;
constexpr int64_t kMostSequences = 65536;
constexpr const char* kNoMemory = "there is not enough memory for the engine";

double Seconds(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Cancelling must not fail: without memory it waits for some.
void AppendOrWait(RequestId id, std::vector<RequestId>* ids) {
  while (true) {
    try {
      return ids->push_back(id);
    } catch (const std::bad_alloc&) {
      std::this_thread::yield();
    }
  }
}

int64_t UsefulBytes(const RunnerTraits& traits, const EngineOptions& options) {
  constexpr int64_t kUnknown = int64_t{2} << 30;
  const int64_t free = device::FindAvailableMemory().bytes;
  const double blocks = std::ceil(static_cast<double>(traits.context) / kv::kBlockTokens);
  const double useful = 4.0 * static_cast<double>(options.max_sequences) * blocks *
                        static_cast<double>(traits.block_bytes);
  const double half = static_cast<double>(free < 0 ? kUnknown : free) / 2;
  return static_cast<int64_t>(std::min(useful, half));
}

}  // namespace

// The engine's thread and everything it owns. One readable loop: take what came in, plan a step,
// hand it to the model, commit the one before.
class Engine::Loop {
 public:
  struct Parts {
    EngineOptions options;
    RunnerTraits traits;
    scheduler::SchedulerOptions scheduling;
    std::unique_ptr<store::BlockPool> pool;
    std::unique_ptr<Runner> runner;
  };

  explicit Loop(Parts parts)
      : options_(parts.options),
        traits_(std::move(parts.traits)),
        scheduling_(std::move(parts.scheduling)),
        pool_(std::move(parts.pool)),
        metrics_(options_.metrics),
        device_(std::move(parts.runner), options_.synchronous) {
    mine_.blocks = scheduling_.total_blocks;
    MakeScheduler();
    thread_ = std::thread([this] { Main(); });
  }

  ~Loop() { Stop(); }

  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  Status Check(const Request& request) const;
  Result<RequestId> Submit(Request request, Sink sink);

  void Cancel(RequestId id) {
    {
      const std::lock_guard lock(mutex_);
      AppendOrWait(id, &cancels_);
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
    std::vector<char> ended;  // by sample
    int left;
  };
  struct Sample {
    std::shared_ptr<Shared> shared;
    int number = 0;
    bool begun = false;
    int64_t cached_tokens = 0;
    int64_t preemptions = 0;
    size_t told_blocks = 0;          // of the block table, that the runner knows
    std::vector<size_t> exchanged;   // of those, places that have changed
    std::unique_ptr<Sha256> digest;  // of the logits drawn from, if wanted
    Status error;
  };

  void Main();
  bool Round();
  void GiveUp();
  void EndOf(Shared* shared);
  void MakeScheduler();
  bool TakeInbox();
  void Begin(const std::shared_ptr<Shared>& shared);
  Result<RequestId> Enqueue(Request request, Sink sink);
  bool PlanNext();
  void MakeStep(const scheduler::SequenceStep& step, SlotStep* out);
  void FillBlocks(const scheduler::SequenceStep& step, std::span<const BlockId> table,
                  SlotStep* out);
  void CommitOldest();
  void KeepSnapshots(const scheduler::Plan& plan, const std::vector<SlotResult>& results,
                     const scheduler::Committed& committed);
  scheduler::StepResult Judge(const scheduler::SequenceStep& step, const SlotResult& result,
                              int64_t plan);
  void Deliver(const scheduler::Plan& plan, std::vector<SlotResult>& results,
               const scheduler::Committed& committed);
  void Finish(const scheduler::Finished& finished);
  void UpdateCounts();

  const EngineOptions options_;
  const RunnerTraits traits_;
  const scheduler::SchedulerOptions scheduling_;
  std::unique_ptr<store::BlockPool> pool_;
  std::optional<kv::BlockCache> cache_;
  std::optional<scheduler::Scheduler> scheduler_;
  std::unordered_map<uint64_t, Sample> samples_;  // by sequence
  std::unordered_map<uint64_t, std::shared_ptr<Shared>> requests_;
  std::vector<std::shared_ptr<Shared>> taken_;  // out of the inbox, not begun
  std::vector<RequestId> to_cancel_;
  // Steps that are out, in a ring: used again and again, so that nothing is allocated while
  // sequences decode.
  struct Turn {
    scheduler::Plan plan;
    StepJob job;
  };
  std::array<Turn, 2> turns_;
  size_t oldest_ = 0;
  size_t outs_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<const WindowBytes>> snapshots_;  // by SnapshotId
  std::vector<kv::SnapshotId> dropped_;  // scratch, as are the next three
  std::vector<scheduler::Finished> finished_;
  std::vector<scheduler::StepResult> results_;
  scheduler::Committed committed_;
  uint64_t next_sequence_ = 1;
  bool paused_ = true;  // the model had nothing to do
  EngineCounts mine_;   // what counts() will show
  EngineMetrics metrics_;

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

Status Engine::Loop::Check(const Request& request) const {
  const int64_t vocab = traits_.vocab;
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
  return scheduler::CheckFits(scheduling_, static_cast<int64_t>(request.prompt.size()),
                              request.max_tokens);
}

Result<RequestId> Engine::Loop::Submit(Request request, Sink sink) {
  try {
    KURUMA_RETURN_IF_ERROR(Check(request));
    return Enqueue(std::move(request), std::move(sink));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory");
  }
}

Result<RequestId> Engine::Loop::Enqueue(Request request, Sink sink) {
  auto shared = std::make_shared<Shared>();
  shared->root = kv::RootKey(traits_.digest, request.tenant);
  shared->left = request.n;
  shared->ended.resize(static_cast<size_t>(request.n));
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
    shared->id = RequestId{next_request_};
    inbox_.push_back(shared);
    queued_ += shared->left;
    ++next_request_;
  }
  wake_.notify_one();
  return shared->id;
}

void Engine::Loop::Main() {
  while (true) {
    try {
      if (!scheduler_) MakeScheduler();
      if (!Round()) return;
    } catch (const std::bad_alloc&) {
      GiveUp();
    }
  }
}

// One round of the loop; false when the engine has ended.
bool Engine::Loop::Round() {
  const size_t ahead = options_.synchronous ? 1 : turns_.size();
  const bool ends = TakeInbox();
  const Clock::time_point start = Clock::now();
  const bool planned = outs_ < ahead && PlanNext();
  mine_.plan_ms += MsSince(start);
  if (planned && outs_ < ahead) return true;  // one more while that one runs
  if (outs_ > 0) {
    CommitOldest();
  } else if (samples_.empty()) {
    UpdateCounts();
    if (ends) return false;
    paused_ = true;
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return stopping_ || !inbox_.empty() || !cancels_.empty(); });
  } else {  // all wait: for a deadline, or for a sequence they share a prompt with
    paused_ = true;
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, kDeadlinePoll);
  }
  UpdateCounts();
  return true;
}

void Engine::Loop::MakeScheduler() {
  cache_.emplace(kv::BlockCacheOptions{.blocks = scheduling_.total_blocks,
                                       .snapshot_bytes = options_.snapshot_bytes});
  scheduler_.emplace(scheduling_, &*cache_);
}

// There was no memory somewhere in the loop, and so nothing is known for certain: all requests end,
// and the engine begins anew. Allocates nothing.
void Engine::Loop::GiveUp() {
  for (; outs_ > 0; --outs_) {
    device_.Wait(kForeverMs, [](double) {});
    oldest_ = (oldest_ + 1) % turns_.size();
  }
  {
    const std::lock_guard lock(mutex_);  // before anybody hears of it and sends more
    queued_ = 0;
    for (const auto& shared : inbox_) queued_ += shared->left;
  }
  for (const auto& shared : taken_) EndOf(shared.get());
  for (const auto& [id, shared] : requests_) EndOf(shared.get());
  taken_.clear();
  requests_.clear();
  samples_.clear();
  snapshots_.clear();
  scheduler_.reset();
  cache_.reset();
  paused_ = true;
}

void Engine::Loop::EndOf(Shared* shared) {
  for (size_t number = 0; number < shared->ended.size(); ++number) {
    if (shared->ended[number] != 0) continue;
    shared->ended[number] = 1;
    Event event;
    event.kind = Event::Kind::kFinished;
    event.request = shared->id;
    event.sample = static_cast<int>(number);
    event.reason = scheduler::FinishReason::kFailed;
    event.error = ResourceExhausted("out of memory");  // short: fits without allocating
    ++mine_.failed;
    shared->sink(event);
  }
}

// True when the engine is to end.
bool Engine::Loop::TakeInbox() {
  bool ends = false;
  {
    const std::lock_guard lock(mutex_);
    taken_.swap(inbox_);
    to_cancel_.swap(cancels_);
    ends = stopping_;
  }
  for (const auto& shared : taken_) Begin(shared);
  taken_.clear();
  if (ends) {
    for (const auto& [id, shared] : requests_) to_cancel_.push_back(RequestId{id});
  }
  for (const RequestId id : to_cancel_) {
    const auto found = requests_.find(static_cast<uint64_t>(id));
    if (found == requests_.end()) continue;
    for (const SequenceId sequence : found->second->sequences) scheduler_->Cancel(sequence);
  }
  to_cancel_.clear();
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
    const Status admitted = scheduler_->Admit(std::move(spec));
    KURUMA_CHECK(admitted.ok());  // Submit checked what Admit checks
  }
}

bool Engine::Loop::PlanNext() {
  Turn& turn = turns_[(oldest_ + outs_) % turns_.size()];
  scheduler::Plan& plan = turn.plan;
  finished_.clear();
  scheduler_->MakePlan(Seconds(Clock::now()), &plan, &finished_);
  for (const scheduler::Finished& f : finished_) Finish(f);
  for (const SequenceId id : plan.preempted) {
    const auto found = samples_.find(static_cast<uint64_t>(id));
    if (found != samples_.end()) ++found->second.preemptions;
  }
  mine_.preemptions += static_cast<int64_t>(plan.preempted.size());
  if (plan.steps.empty()) return false;
  turn.job.steps.resize(plan.steps.size());
  for (size_t i = 0; i < plan.steps.size(); ++i) MakeStep(plan.steps[i], &turn.job.steps[i]);
  ++mine_.steps;
  mine_.rows += plan.rows();
  turn.job.after_pause = std::exchange(paused_, false);
  device_.Post(&turn.job);
  ++outs_;
  return true;
}

void Engine::Loop::MakeStep(const scheduler::SequenceStep& step, SlotStep* out) {
  const scheduler::Scheduler::Holding holding = scheduler_->Of(step.sequence);
  out->slot = step.slot;
  out->rows = step.rows;
  out->prompt_end = step.prompt_end;
  out->draws = step.draws;
  out->saves = step.saves;
  out->start.reset();
  FillBlocks(step, holding.blocks, out);
  if (!step.begins) return;
  Sample& sample = samples_.at(static_cast<uint64_t>(step.sequence));
  const Request& request = sample.shared->request;
  if (!sample.begun) {
    sample.begun = true;
    sample.cached_tokens = step.stored;
    mine_.prompt_tokens += static_cast<int64_t>(request.prompt.size());
    mine_.cached_tokens += step.stored;
    const std::lock_guard lock(mutex_);
    --queued_;
  }
  SlotStart start{.tokens = {holding.tokens.begin(), holding.tokens.end()},
                  .prompt_tokens = static_cast<int64_t>(request.prompt.size()),
                  .stored = step.stored,
                  .first = step.first,
                  .windows = {},
                  .sampling = request.sampling,
                  .keeps_logits = request.digests};
  if (step.snapshot) start.windows = snapshots_.at(static_cast<uint64_t>(*step.snapshot));
  start.sampling.stream += static_cast<uint32_t>(sample.number);
  out->start = std::move(start);
}

// Only what is new to the runner, since a long sequence has thousands of blocks.
void Engine::Loop::FillBlocks(const scheduler::SequenceStep& step, std::span<const BlockId> table,
                              SlotStep* out) {
  Sample& sample = samples_.at(static_cast<uint64_t>(step.sequence));
  out->blocks.clear();
  if (step.begins) {
    sample.told_blocks = 0;
    sample.exchanged.clear();
  }
  for (const size_t index : sample.exchanged) {
    out->blocks.push_back({static_cast<int64_t>(index), pool_->At(table[index])});
  }
  sample.exchanged.clear();
  for (; sample.told_blocks < table.size(); ++sample.told_blocks) {
    const auto index = static_cast<int64_t>(sample.told_blocks);
    out->blocks.push_back({index, pool_->At(table[sample.told_blocks])});
  }
}

void Engine::Loop::CommitOldest() {
  Turn& turn = turns_[oldest_];
  const scheduler::Plan& plan = turn.plan;
  const double patience_ms =
      plan.predicted_ms > 0 ? std::max(kSlow * plan.predicted_ms, kLeastPatienceMs) : kForeverMs;
  StepJob& job = *device_.Wait(patience_ms, [&](double ms) {
    LogWarn("step {} of {} rows has taken {:.0f} ms, {:.1f} ms were predicted", plan.number,
            plan.rows(), ms, plan.predicted_ms);
    ++mine_.slow_steps;
  });
  KURUMA_CHECK(&job == &turn.job);
  const Clock::time_point start = Clock::now();
  oldest_ = (oldest_ + 1) % turns_.size();
  --outs_;
  mine_.run_ms += job.ms;
  mine_.idle_ms += job.idle_ms;
  if (!job.status.ok()) {
    LogWarn("step {} failed: {}", plan.number, job.status.message());
    SlotResult failed;
    failed.status = job.status;
    job.results.assign(plan.steps.size(), failed);
  }
  results_.clear();
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    results_.push_back(Judge(plan.steps[i], job.results[i], plan.number));
  }
  scheduler_->Commit(results_, job.ms, &committed_);
  for (const scheduler::Committed::Exchange& exchange : committed_.exchanges) {
    const auto found = samples_.find(static_cast<uint64_t>(exchange.sequence));
    if (found != samples_.end()) found->second.exchanged.push_back(exchange.index);
  }
  KeepSnapshots(plan, job.results, committed_);
  Deliver(plan, job.results, committed_);
  metrics_.Stepped(job.ms, plan.rows());
  mine_.plan_ms += MsSince(start);
}

void Engine::Loop::KeepSnapshots(const scheduler::Plan& plan,
                                 const std::vector<SlotResult>& results,
                                 const scheduler::Committed& committed) {
  size_t at = 0;
  for (const scheduler::Committed::Saved& saved : committed.saved) {
    while (plan.steps[at].sequence != saved.sequence) ++at;
    snapshots_[static_cast<uint64_t>(saved.id)] = results[at].windows;
  }
  cache_->snapshots().TakeDropped(&dropped_);
  for (const kv::SnapshotId id : dropped_) snapshots_.erase(static_cast<uint64_t>(id));
}

scheduler::StepResult Engine::Loop::Judge(const scheduler::SequenceStep& step,
                                          const SlotResult& result, int64_t plan) {
  const auto found = samples_.find(static_cast<uint64_t>(step.sequence));
  if (found == samples_.end()) return {};  // has ended; this step was planned before that was known
  Sample& sample = found->second;
  const Status& status = result.status;
  if (!status.ok()) {
    sample.error = Status(status.code(), "step " + std::to_string(plan) + ": " + status.message());
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
    event.cached_tokens = sample.cached_tokens;
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
  metrics_.Finished(finished.reason);
  const bool answered = finished.reason == scheduler::FinishReason::kStop ||
                        finished.reason == scheduler::FinishReason::kLength;
  ++(answered ? mine_.finished : mine_.failed);
  sample.shared->ended[static_cast<size_t>(sample.number)] = 1;
  if (--sample.shared->left == 0) requests_.erase(static_cast<uint64_t>(sample.shared->id));
  sample.shared->sink(event);
}

void Engine::Loop::UpdateCounts() {
  const scheduler::SchedulerCounts s = scheduler_->counts();
  const kv::BlockCacheCounts blocks = cache_->counts();
  mine_.waiting = s.waiting;
  mine_.running = s.running;
  mine_.block_hits = blocks.hits;
  mine_.block_lookups = blocks.lookups;
  mine_.evictions = blocks.evictions;
  mine_.blocks_in_use = blocks.private_blocks + blocks.pinned;
  mine_.snapshot_hits = s.snapshot_hits;
  mine_.replayed_rows = s.replayed_rows;
  metrics_.Update(mine_);
  const std::lock_guard lock(mutex_);
  counts_ = mine_;
}

Result<std::unique_ptr<Engine>> Engine::Create(model::Model* model,
                                               const EngineOptions& options) try {
  if (options.max_sequences < 1 || options.max_sequences > kMostSequences) {
    return InvalidArgument("max_sequences must be in 1.." + std::to_string(kMostSequences) +
                           ", got " + std::to_string(options.max_sequences));
  }
  return Create(std::make_unique<Executor>(model, options.max_sequences),
                TraitsOf(*model, options.bounded_replay), options);
} catch (const std::bad_alloc&) {
  return ResourceExhausted(kNoMemory);
}

Result<std::unique_ptr<Engine>> Engine::Create(std::unique_ptr<Runner> runner,
                                               const RunnerTraits& traits,
                                               const EngineOptions& options) try {
  const int64_t block_bytes = traits.block_bytes;
  const int64_t kv_bytes = options.kv_bytes != 0 ? options.kv_bytes : UsefulBytes(traits, options);
  const bool saves = options.prefix_cache && options.snapshot_bytes >= traits.snapshot_bytes;
  scheduler::SchedulerOptions scheduling{.max_sequences = options.max_sequences,
                                         .max_step_tokens = options.max_step_tokens,
                                         .max_queue = int64_t{1} << 40,  // counted in Submit
                                         .context = traits.context,
                                         .total_blocks = kv_bytes / block_bytes,
                                         .watermark_blocks = 0,
                                         .target_tpot_ms = options.target_tpot_ms,
                                         .prefix_cache = options.prefix_cache,
                                         .replay_from = traits.replay_from,
                                         .snapshot_bytes = saves ? traits.snapshot_bytes : 0,
                                         .chaos_seed = options.chaos_seed};
  if (scheduling.total_blocks < 1) {
    return InvalidArgument("the cache (--kv-memory) must be at least one block of " +
                           std::to_string(block_bytes) + " bytes, got " + std::to_string(kv_bytes) +
                           " bytes");
  }
  if (options.max_queue < 1) return InvalidArgument("max_queue must be at least 1");
  scheduling.watermark_blocks = std::min(options.max_sequences, scheduling.total_blocks / 16);
  KURUMA_RETURN_IF_ERROR(scheduler::Scheduler::Check(scheduling));
  KURUMA_ASSIGN_OR_RETURN(auto pool,
                          store::BlockPool::Create(scheduling.total_blocks, block_bytes));
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Loop>(
      Loop::Parts{options, traits, scheduling, std::move(pool), std::move(runner)})));
} catch (const std::bad_alloc&) {
  return ResourceExhausted(kNoMemory);
}

Engine::Engine(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Engine::~Engine() = default;

Status Engine::Check(const Request& request) const { return loop_->Check(request); }
Result<RequestId> Engine::Submit(Request request, Sink sink) {
  return loop_->Submit(std::move(request), std::move(sink));
}
void Engine::Cancel(RequestId id) { loop_->Cancel(id); }
EngineCounts Engine::counts() const { return loop_->counts(); }
void Engine::Stop() { loop_->Stop(); }

}  // namespace kuruma::engine
