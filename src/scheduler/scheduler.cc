#include "scheduler/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/philox.h"

namespace kuruma::scheduler {

using kv::kBlockTokens;

namespace {

constexpr int64_t kStarvationRows = 32;  // what a starving prompt gets at least
constexpr int64_t kReturnMargin = 1;     // blocks beyond its own that a preempted sequence awaits

int64_t BlocksFor(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

}  // namespace

struct Scheduler::Sequence {
  SequenceSpec spec;
  uint64_t arrival = 0;
  std::vector<int32_t> tokens;     // prompt and answer
  std::vector<kv::BlockKey> keys;  // of its full blocks, as far as they were needed
  kv::Lease lease;
  bool running = false;
  SlotId slot = {};
  bool begins = false;                     // its next step takes the slot over
  int64_t stored = 0;                      // begins: tokens found in the cache
  std::optional<kv::SnapshotId> snapshot;  // begins: windows at `planned`
  int64_t checkpoints[2] = {};             // ends of parts of the prompt whose windows are saved
  std::optional<BlockId> saved_answer;     // behind which windows were saved while decoding
  int64_t prompt_end = 0;                  // while running: what has to be read before it decodes
  int64_t planned = 0;                     // positions whose rows are planned, out or done
  int64_t computed = 0;                    // positions whose rows are committed
  int out = 0;                             // plans that are out and hold a step of it
  int draws_out = 0;                       // of those that draw
  bool leaves = false;                     // preempted; its last step is still out
  bool ended = false;                      // told; its last step is still out
  int64_t awaits_blocks = 0;               // before it may begin again
  bool has_read = false;                   // its prompt was computed once
  int64_t last_plan = 0;                   // that held a step of it
  int64_t left_plan = 0;                   // in which it had to step aside

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t answer() const { return length() - static_cast<int64_t>(spec.prompt.size()); }
  bool active() const { return running && !leaves && !ended; }
  // Where the part of the prompt ends that is read next.
  int64_t part_end() const {
    for (const int64_t checkpoint : checkpoints) {
      if (planned < checkpoint) return checkpoint;
    }
    return prompt_end;
  }
  bool reads() const { return active() && planned < prompt_end; }
  bool decodes() const {
    return active() && planned >= prompt_end && answer() + draws_out < spec.max_tokens;
  }
};

Scheduler::Scheduler(const SchedulerOptions& options, kv::BlockCache* cache)
    : options_(options), cache_(cache) {
  for (int64_t i = options.max_sequences; i > 0; --i) {
    free_slots_.push_back(static_cast<SlotId>(i - 1));
  }
}

Scheduler::~Scheduler() = default;

Status Scheduler::Check(const SchedulerOptions& o) {
  const auto refuse = [](const char* name, const auto& value, const std::string& range) {
    return InvalidArgument(fmt::format("{} must be {}, got {}", name, range, value));
  };
  if (o.max_sequences < 1 || o.max_sequences > (1 << 20)) {
    return refuse("max_sequences", o.max_sequences, "in 1..1048576");
  }
  if (o.max_step_tokens < o.max_sequences) {
    return refuse("max_step_tokens", o.max_step_tokens,
                  fmt::format("at least max_sequences ({})", o.max_sequences));
  }
  if (o.max_queue < 0) return refuse("max_queue", o.max_queue, "at least 0");
  if (o.context < 2) return refuse("context", o.context, "at least 2");
  if (o.total_blocks < 1) return refuse("total_blocks", o.total_blocks, "at least 1");
  if (o.watermark_blocks < 0 || o.watermark_blocks > o.total_blocks) {
    return refuse("watermark_blocks", o.watermark_blocks, fmt::format("in 0..{}", o.total_blocks));
  }
  if (o.starvation_plans < 1) return refuse("starvation_plans", o.starvation_plans, "at least 1");
  if (!(o.target_tpot_ms >= 0)) return refuse("target_tpot_ms", o.target_tpot_ms, "at least 0");
  if (o.snapshot_bytes < 0 || (o.snapshot_bytes > 0 && !o.prefix_cache)) {
    return refuse("snapshot_bytes", o.snapshot_bytes, "0, or more with a prefix cache");
  }
  return Status();
}

Status CheckFits(const SchedulerOptions& options, int64_t prompt_tokens, int64_t max_tokens) {
  // Compared without adding, so that no huge number wraps around.
  if (prompt_tokens > options.context || max_tokens > options.context - prompt_tokens) {
    return InvalidArgument(
        fmt::format("the prompt has {} tokens and max_tokens is {}; the context is {}",
                    prompt_tokens, max_tokens, options.context));
  }
  const int64_t blocks = BlocksFor(prompt_tokens + max_tokens);
  if (blocks > options.total_blocks) {
    return InvalidArgument(fmt::format(
        "prompt and answer need {} tokens of cache; there are {} (a larger --kv-memory has more)",
        blocks * kBlockTokens, options.total_blocks * kBlockTokens));
  }
  return Status();
}

Status Scheduler::Admit(SequenceSpec spec) {
  KURUMA_CHECK(!spec.prompt.empty() && spec.max_tokens >= 1);
  KURUMA_RETURN_IF_ERROR(
      CheckFits(options_, static_cast<int64_t>(spec.prompt.size()), spec.max_tokens));
  if (static_cast<int64_t>(waiting_.size()) >= options_.max_queue) {
    return ResourceExhausted(fmt::format("the queue is full: {} sequences wait", waiting_.size()));
  }
  auto s = std::make_unique<Sequence>();
  s->tokens = spec.prompt;
  s->spec = std::move(spec);
  s->arrival = ++arrivals_;
  if (s->spec.deadline) next_deadline_ = std::min(next_deadline_, *s->spec.deadline);
  const auto place = std::upper_bound(waiting_.begin(), waiting_.end(), s.get(), Before);
  waiting_.insert(place, s.get());
  const bool is_new = sequences_.emplace(static_cast<uint64_t>(s->spec.id), std::move(s)).second;
  KURUMA_CHECK(is_new);
  return Status();
}

void Scheduler::Cancel(SequenceId id) {
  const auto found = sequences_.find(static_cast<uint64_t>(id));
  if (found == sequences_.end() || found->second->ended) return;
  Sequence* s = found->second.get();
  if (std::find(cancelled_.begin(), cancelled_.end(), s) == cancelled_.end()) {
    cancelled_.push_back(s);
  }
}

bool Scheduler::Before(const Sequence* a, const Sequence* b) {
  if (a->spec.priority != b->spec.priority) return a->spec.priority > b->spec.priority;
  return a->arrival < b->arrival;
}

void Scheduler::MakePlan(double now, Plan* plan, std::vector<Finished>* finished) {
  KURUMA_CHECK(outs_ < out_.size());
  plan->number = ++plans_;
  plan->steps.clear();
  plan->preempted.clear();
  EndThoseDue(now, finished);
  if (options_.chaos_seed != 0 && running_.size() > 1 && Chaos(1) % 8 == 0) {
    Sequence* s = running_[1 + Chaos(2) % (running_.size() - 1)];
    if (s->active()) Preempt(s, plan);
  }
  FindReading();
  if (reading_.empty() && waiting_.empty()) last_prompt_plan_ = plans_;
  const bool starving = plans_ - last_prompt_plan_ >= options_.starvation_plans;
  const int64_t kept = starving ? std::min(kStarvationRows, options_.max_step_tokens / 2) : 0;
  PlanDecodes(options_.max_step_tokens - kept, plan);
  FindReading();  // some may have stepped aside
  PlanPrompts(PromptBudget(*plan, starving), true, plan);
  if (plan->steps.empty() && outs_ == 0) Unstick(plan);
  plan->predicted_ms = 0;
  if (plan->steps.empty()) return;
  Out& out = out_[(oldest_out_ + outs_++) % out_.size()];
  out.steps = plan->steps;
  out.load = {};
  for (const SequenceStep& step : plan->steps) {
    out.load.rows += step.rows;
    out.load.row_contexts += step.rows * step.first + step.rows * (step.rows - 1) / 2;
  }
  plan->predicted_ms = times_.Predict(out.load);
}

void Scheduler::EndThoseDue(double now, std::vector<Finished>* finished) {
  for (Sequence* s : std::exchange(cancelled_, {})) {
    End(s, FinishReason::kCancelled, finished);
    Settle(s);
  }
  if (now < next_deadline_) return;
  next_deadline_ = std::numeric_limits<double>::infinity();
  Order late;
  for (const Order* order : {&running_, &waiting_}) {
    for (Sequence* s : *order) {
      if (!s->spec.deadline || s->ended) continue;
      if (*s->spec.deadline <= now) {
        late.push_back(s);
      } else {
        next_deadline_ = std::min(next_deadline_, *s->spec.deadline);
      }
    }
  }
  for (Sequence* s : late) {
    End(s, FinishReason::kDeadline, finished);
    Settle(s);
  }
}

// When not all fit, those that waited longest go first.
void Scheduler::PlanDecodes(int64_t most, Plan* plan) {
  decoding_.clear();
  for (Sequence* s : running_) {
    if (s->decodes()) decoding_.push_back(s);
  }
  if (static_cast<int64_t>(decoding_.size()) > most) {
    std::sort(decoding_.begin(), decoding_.end(), [](const Sequence* a, const Sequence* b) {
      return a->last_plan != b->last_plan ? a->last_plan < b->last_plan : Before(a, b);
    });
  }
  for (Sequence* s : decoding_) {
    if (static_cast<int64_t>(plan->steps.size()) == most) break;
    // An earlier one may have made this one step aside.
    if (s->decodes() && ReservesFor(s, s->planned + 1, plan)) AddStep(s, 1, plan);
  }
}

void Scheduler::FindReading() {
  reading_.clear();
  for (Sequence* s : running_) {
    if (s->reads()) reading_.push_back(s);
  }
}

int64_t Scheduler::PromptBudget(const Plan& plan, bool starving) const {
  int64_t rest = options_.max_step_tokens - plan.rows();
  if (options_.chaos_seed != 0 && rest > 1) rest = 1 + Chaos(0) % rest;
  const bool has_prompts = !reading_.empty() || !waiting_.empty();
  if (options_.target_tpot_ms == 0 || plan.steps.empty() || !has_prompts) return rest;
  StepLoad load;
  for (const SequenceStep& step : plan.steps) {
    load.rows += step.rows;
    load.row_contexts += step.first;
  }
  const bool waiting_first =
      reading_.empty() || (!waiting_.empty() && Before(waiting_.front(), reading_.front()));
  const int64_t first = waiting_first ? 0 : reading_.front()->planned;
  const int64_t fitting = times_.RowsWithin(options_.target_tpot_ms, load, first, rest);
  return starving ? std::max(fitting, std::min(rest, kStarvationRows)) : fitting;
}

// In the order of all of them. Waiting ones begin in order: a short one behind must not keep a long
// one waiting for ever. But those that run already go on, or the blocks they hold would never be
// free.
void Scheduler::PlanPrompts(int64_t budget, bool may_begin, Plan* plan) {
  auto reading = reading_.begin();
  size_t waiting = 0;  // an index: Begin takes sequences out
  while (budget > 0) {
    Sequence* s = reading != reading_.end() ? *reading : nullptr;
    if (may_begin && waiting < waiting_.size() && (s == nullptr || Before(waiting_[waiting], s))) {
      s = waiting_[waiting];
      if (!IsReady(s)) {
        ++waiting;
        continue;
      }
      may_begin = Begin(s, budget);
      if (!may_begin) continue;
    } else if (s != nullptr) {
      ++reading;
    } else {
      return;
    }
    const int64_t rows = std::min(budget, s->part_end() - s->planned);
    if (!cache_->Reserve(s->planned + rows, &s->lease)) return;
    AddStep(s, rows, plan);
    budget -= rows;
    last_prompt_plan_ = plans_;
  }
}

// Whether a waiting sequence may begin as far as others are concerned.
bool Scheduler::IsReady(const Sequence* s) const {
  if (s->left_plan == plans_) return false;  // made room in this very plan
  if (!s->spec.after) return true;
  const auto leader = sequences_.find(static_cast<uint64_t>(*s->spec.after));
  return leader == sequences_.end() || leader->second->has_read;
}

// Takes a waiting sequence in, if there are a slot and blocks for its next rows.
bool Scheduler::Begin(Sequence* s, int64_t budget) {
  if (free_slots_.empty()) return false;
  const kv::BlockCacheCounts blocks = cache_->counts();
  if (blocks.free + blocks.evictable < std::min(s->awaits_blocks, options_.total_blocks)) {
    if (!running_.empty()) return false;
  }
  const auto full = static_cast<size_t>(s->length() / kBlockTokens);
  if (options_.prefix_cache) kv::ExtendChain(s->spec.root, s->tokens, full, &s->keys);
  const int64_t left = running_.empty() ? 0 : options_.watermark_blocks;
  kv::Lease lease = cache_->Match(s->keys, s->length(), {.rows = budget, .left = left});
  if (lease.blocks().empty()) return false;
  const int64_t cached = lease.published_tokens();
  s->prompt_end = s->length();
  ChooseStart(s, lease);
  s->lease = std::move(lease);
  s->computed = s->planned;
  s->running = s->begins = true;
  s->slot = free_slots_.back();
  free_slots_.pop_back();
  counts_.cached_tokens += cached;
  counts_.snapshot_hits += s->snapshot ? 1 : 0;
  std::erase(waiting_, s);
  running_.insert(std::upper_bound(running_.begin(), running_.end(), s, Before), s);
  return true;
}

// Where `s` goes on with the blocks of `lease`, and the parts its prompt is read in. Windows are
// complete at the end of a part. They are saved where they will be wanted again: at the end of what
// was found, since others will find as much, and at the last block boundary of the prompt.
void Scheduler::ChooseStart(Sequence* s, const kv::Lease& lease) {
  const bool saves = options_.snapshot_bytes > 0;
  s->stored = s->planned = lease.published_tokens();
  s->snapshot.reset();
  s->checkpoints[0] = s->checkpoints[1] = 0;
  if (s->stored > 0 && options_.replay_from) {
    s->planned = options_.replay_from(s->stored, saves ? s->stored : s->prompt_end);
  }
  if (!saves) return;
  for (int64_t at = s->stored; at > s->planned && !s->snapshot; at -= kBlockTokens) {
    const BlockId block = lease.blocks()[static_cast<size_t>(at / kBlockTokens - 1)];
    s->snapshot = cache_->snapshots().Find(block);
    if (s->snapshot) s->planned = at;
  }
  if (s->planned < s->stored) s->checkpoints[0] = s->stored;
  s->checkpoints[1] = (s->prompt_end - 1) / kBlockTokens * kBlockTokens;
}

// Blocks for `tokens` tokens of a decoding sequence, at the expense of others if need be. False:
// not in this step.
bool Scheduler::ReservesFor(Sequence* s, int64_t tokens, Plan* plan) {
  while (!cache_->Reserve(tokens, &s->lease)) {
    Sequence* victim = Victim(s);
    if (victim == nullptr) return false;
    const bool is_out = victim->out > 0;
    Preempt(victim, plan);
    if (victim == s || is_out) return false;  // blocks come with the commit
  }
  return true;
}

// Who has to step aside: of the lowest priority the one that loses the least work, the latest of
// those. Never the first of all, so that somebody always gets on; nobody while one that was chosen
// before still holds its blocks.
Scheduler::Sequence* Scheduler::Victim(const Sequence* wanting) const {
  Sequence* victim = nullptr;
  const auto lost = [](const Sequence* s) { return s->planned - s->lease.published_tokens(); };
  for (Sequence* s : running_) {
    if (s->leaves || s->ended) return nullptr;
    if (s == running_.front() || s->spec.priority > wanting->spec.priority) continue;
    const bool better = victim == nullptr || s->spec.priority < victim->spec.priority ||
                        (s->spec.priority == victim->spec.priority && lost(s) <= lost(victim));
    if (better) victim = s;
  }
  return victim;
}

void Scheduler::AddStep(Sequence* s, int64_t rows, Plan* plan) {
  SequenceStep step{.sequence = s->spec.id, .slot = s->slot, .first = s->planned, .rows = rows};
  const bool reads = s->planned < s->prompt_end;
  if (reads) step.prompt_end = s->part_end();
  if (s->planned < s->stored) counts_.replayed_rows += std::min(rows, s->stored - s->planned);
  s->planned += rows;
  step.draws = s->planned >= s->prompt_end;
  const bool complete = !reads || s->planned == step.prompt_end;
  step.saves = options_.snapshot_bytes > 0 && complete && s->planned % kBlockTokens == 0;
  step.begins = std::exchange(s->begins, false);
  if (step.begins) {
    step.stored = s->stored;
    step.snapshot = s->snapshot;
  }
  ++s->out;
  s->draws_out += step.draws ? 1 : 0;
  s->last_plan = plans_;
  plan->steps.push_back(step);
}

// A random word for this plan.
uint32_t Scheduler::Chaos(uint32_t what) const {
  const auto plan = static_cast<uint64_t>(plans_);
  return Philox4x32({what, static_cast<uint32_t>(plan), static_cast<uint32_t>(plan >> 32), 0},
                    {static_cast<uint32_t>(options_.chaos_seed),
                     static_cast<uint32_t>(options_.chaos_seed >> 32)})[0];
}

// Nothing runs and nothing could be planned: prompts hold each other's blocks. The last one gives
// its own up.
void Scheduler::Unstick(Plan* plan) {
  while (plan->steps.empty() && running_.size() > 1) {
    Preempt(running_.back(), plan);
    PlanDecodes(options_.max_step_tokens, plan);
    FindReading();
    PlanPrompts(options_.max_step_tokens - plan->rows(), false, plan);
  }
}

void Scheduler::Preempt(Sequence* s, Plan* plan) {
  // A step of it in this very plan is taken back.
  const auto mine = [&](const SequenceStep& step) { return step.sequence == s->spec.id; };
  const auto found = std::find_if(plan->steps.begin(), plan->steps.end(), mine);
  if (found != plan->steps.end()) {
    --s->out;
    s->draws_out -= found->draws ? 1 : 0;
    s->planned -= found->rows;
    plan->steps.erase(found);
  }
  plan->preempted.push_back(s->spec.id);
  s->left_plan = plans_;
  ++counts_.preemptions;
  if (s->out > 0) {
    s->leaves = true;
  } else {
    Requeue(s);
  }
}

void Scheduler::Requeue(Sequence* s) {
  LeaveSlot(s);
  s->leaves = false;
  s->awaits_blocks = BlocksFor(s->length() + 1) + kReturnMargin;
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), s, Before), s);
}

void Scheduler::LeaveSlot(Sequence* s) {
  std::erase(running_, s);
  s->lease.Release();
  s->running = s->begins = false;
  s->planned = s->computed = 0;
  s->saved_answer.reset();
  free_slots_.push_back(s->slot);
}

void Scheduler::Commit(std::span<const StepResult> results, double ms, Committed* committed) {
  committed->tokens.clear();
  committed->finished.clear();
  committed->exchanges.clear();
  committed->saved.clear();
  const Out& out = out_[oldest_out_];
  KURUMA_CHECK(outs_ > 0 && out.steps.size() == results.size());
  oldest_out_ = (oldest_out_ + 1) % out_.size();
  --outs_;
  times_.Observe(out.load, ms);
  for (size_t i = 0; i < results.size(); ++i) {
    const SequenceStep& step = out.steps[i];
    Sequence* s = sequences_.at(static_cast<uint64_t>(step.sequence)).get();
    --s->out;
    s->draws_out -= step.draws ? 1 : 0;
    if (!s->ended) Accept(step, results[i], s, committed);
    Settle(s);
  }
}

void Scheduler::Accept(const SequenceStep& step, const StepResult& result, Sequence* s,
                       Committed* committed) {
  if (result.failed) return End(s, FinishReason::kFailed, &committed->finished);
  s->computed += step.rows;
  if (s->computed >= static_cast<int64_t>(s->spec.prompt.size())) s->has_read = true;
  if (step.draws) {
    s->tokens.push_back(result.token);
    committed->tokens.push_back({s->spec.id, result.token});
  }
  Publish(s, committed);
  if (step.saves) Save(step, s, committed);
  if (!step.draws) return;
  if (result.stops) {
    End(s, FinishReason::kStop, &committed->finished);
  } else if (s->answer() >= s->spec.max_tokens) {
    End(s, FinishReason::kLength, &committed->finished);
  }
}

void Scheduler::Publish(Sequence* s, Committed* committed) {
  if (!options_.prefix_cache) return;
  const auto full = static_cast<size_t>(s->computed / kBlockTokens);
  if (static_cast<int64_t>(full) * kBlockTokens <= s->lease.published_tokens()) return;
  kv::ExtendChain(s->spec.root, s->tokens, full, &s->keys);
  replacements_.clear();
  cache_->Publish(std::span(s->keys).first(full), &s->lease, &replacements_);
  for (const kv::Replacement& r : replacements_) {
    committed->exchanges.push_back({s->spec.id, r.index, r.block});
  }
}

// Of an answer that grows only the latest windows are kept.
void Scheduler::Save(const SequenceStep& step, Sequence* s, Committed* committed) {
  const int64_t position = step.first + step.rows;
  KURUMA_CHECK(position <= s->lease.published_tokens());
  const BlockId block = s->lease.blocks()[static_cast<size_t>(position / kBlockTokens - 1)];
  const auto id = cache_->snapshots().Add(block, options_.snapshot_bytes);
  if (!id) return;
  committed->saved.push_back({s->spec.id, *id});
  if (step.prompt_end > 0) return;
  if (s->saved_answer) cache_->snapshots().Drop(*s->saved_answer);
  s->saved_answer = block;
}

// Tells the end. The sequence itself goes in Settle, when its last step is done.
void Scheduler::End(Sequence* s, FinishReason reason, std::vector<Finished>* finished) {
  s->ended = true;
  finished->push_back({s->spec.id, reason});
  std::erase(cancelled_, s);
}

// A sequence without steps that are out leaves if it has ended or was preempted.
void Scheduler::Settle(Sequence* s) {
  if (s->out > 0) return;
  if (s->ended) {
    if (s->running) {
      LeaveSlot(s);
    } else {
      std::erase(waiting_, s);
    }
    sequences_.erase(static_cast<uint64_t>(s->spec.id));
  } else if (s->leaves) {
    Requeue(s);
  }
}

Scheduler::Holding Scheduler::Of(SequenceId id) const {
  const Sequence& s = *sequences_.at(static_cast<uint64_t>(id));
  return {s.lease.blocks(), s.tokens};
}

SchedulerCounts Scheduler::counts() const {
  SchedulerCounts counts = counts_;
  counts.waiting = static_cast<int64_t>(waiting_.size());
  counts.running = static_cast<int64_t>(running_.size());
  return counts;
}

Status Scheduler::CheckInvariants() const {
  std::set<SlotId> slots(free_slots_.begin(), free_slots_.end());
  std::vector<const kv::Lease*> leases;
  for (const Sequence* s : running_) {
    leases.push_back(&s->lease);
    if (!slots.insert(s->slot).second) return Internal("a slot is in two places");
    if (s->lease.capacity_tokens() < s->planned) return Internal("rows without blocks");
    if (s->computed > s->planned) return Internal("more rows done than planned");
  }
  if (static_cast<int64_t>(slots.size()) != options_.max_sequences)
    return Internal("slots are lost");
  if (running_.size() + waiting_.size() != sequences_.size()) return Internal("a sequence is lost");
  for (const Order* order : {&running_, &waiting_}) {
    if (!std::is_sorted(order->begin(), order->end(), Before)) return Internal("out of order");
  }
  for (const Sequence* s : waiting_) {
    if (!s->lease.blocks().empty() || s->out > 0)
      return Internal("a waiting sequence holds blocks");
  }
  return cache_->CheckInvariants(leases);
}

}  // namespace kuruma::scheduler
