#include "server/answering.h"

#include <algorithm>
#include <string>
#include <utility>

namespace kuruma::server {
namespace {

using engine::Event;

constexpr const char* kJson = "application/json";

double Seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

api::FinishReason ToFinish(scheduler::FinishReason reason) {
  switch (reason) {
    case scheduler::FinishReason::kStop:
      return api::FinishReason::kStop;
    case scheduler::FinishReason::kLength:
      return api::FinishReason::kLength;
    case scheduler::FinishReason::kCancelled:
      return api::FinishReason::kCancelled;
    case scheduler::FinishReason::kDeadline:
      return api::FinishReason::kDeadline;
    case scheduler::FinishReason::kFailed:
      break;
  }
  return api::FinishReason::kFailed;
}

HttpHeaders SeedHeader(const Job& job) {
  if (!job.drawn_seed) return {};
  return {{"X-Kuruma-Seed", std::to_string(*job.drawn_seed)}};
}

std::vector<double> TimeBounds() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
          0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80,   160};
}

std::vector<double> TokenBounds() {
  return {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10'000, 20'000, 50'000, 100'000};
}

}  // namespace

void SendApiError(api::Protocol protocol, const api::ApiError& error, HttpReply* reply) {
  HttpHeaders headers;
  if (error.status == 429) headers.push_back({"Retry-After", "1"});
  reply->Send(error.status, kJson, api::ErrorBody(protocol, error), headers);
}

AnswerMetrics::AnswerMetrics(MetricsRegistry* r)
    : ttft_seconds(r->AddHistogram("kuruma_time_to_first_token_seconds",
                                   "From the first byte of a request to its first token.",
                                   TimeBounds())),
      inter_token_seconds(r->AddHistogram("kuruma_inter_token_latency_seconds",
                                          "Between two tokens of an answer.", TimeBounds())),
      e2e_seconds(r->AddHistogram("kuruma_e2e_request_latency_seconds",
                                  "From the first byte of a request to the end of its answer.",
                                  TimeBounds())),
      prompt_tokens(
          r->AddHistogram("kuruma_request_prompt_tokens", "Tokens of prompts.", TokenBounds())),
      generation_tokens(
          r->AddHistogram("kuruma_request_generation_tokens", "Tokens of answers.", TokenBounds())),
      disconnects(r->AddCounter("kuruma_client_disconnects_total",
                                "Answers that were cut because the client left.")) {}

Answering::Answering(const AnswerContext& context, const Job& job, Clock::time_point received,
                     std::shared_ptr<HttpReply> reply)
    : context_(context),
      received_(received),
      reply_(std::move(reply)),
      end_tokens_(job.end_tokens),
      stream_(job.answer.stream),
      protocol_(job.answer.protocol),
      seed_(SeedHeader(job)),
      open_choices_(job.answer.n),
      last_token_(static_cast<size_t>(job.answer.n)) {}

void Answering::Start(const AnswerContext& context, Job job, Clock::time_point received,
                      std::shared_ptr<HttpReply> reply) {
  auto answering = std::make_shared<Answering>(context, job, received, reply);
  auto builder = api::AnswerBuilder::Create(*context.tokenizer, job.parser, job.answer);
  Status status = builder.status();
  if (builder.ok()) {
    answering->builder_ = std::move(*builder);
    status = answering->Submit(std::move(job));
  }
  if (!status.ok()) {
    SendApiError(answering->protocol_, api::ToApiError(status), reply.get());
  }
}

Status Answering::Submit(Job job) {
  for (const engine::Request& request : job.requests) {
    KURUMA_RETURN_IF_ERROR(context_.engine->Check(request));
    prompt_tokens_ += static_cast<int64_t>(request.prompt.size());
  }
  // The engine may answer before Submit returns; nothing is made of that until all are in.
  std::unique_lock lock(mutex_);
  working_ = true;
  lock.unlock();
  Status status;
  int first_choice = 0;
  for (engine::Request& request : job.requests) {
    request.stops = [self = shared_from_this()](int, int32_t token) {
      const auto& ends = self->end_tokens_;
      return std::find(ends.begin(), ends.end(), token) != ends.end();
    };
    const int n = request.n;
    const auto id = context_.engine->Submit(
        std::move(request), [self = shared_from_this(), first_choice](const Event& event) {
          self->Take(event, first_choice);
        });
    first_choice += n;
    if (!id.ok()) {
      status = id.status();
      break;
    }
    lock.lock();
    ids_.push_back(*id);
    lock.unlock();
  }
  if (!status.ok()) {
    Cancel();
    complete_ = true;
  } else if (stream_) {
    HttpHeaders headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    headers.insert(headers.end(), seed_.begin(), seed_.end());
    reply_->BeginStream({.headers = std::move(headers), .keep_alive_comments = true});
  }
  reply_->OnGone([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->Leave();
  });
  context_.work->Post([self = shared_from_this()] { self->Work(); });
  return status;
}

void Answering::Take(const Event& event, int first_choice) {
  const std::lock_guard lock(mutex_);
  mailbox_.push_back({event, first_choice, Clock::now()});
  if (std::exchange(working_, true)) return;
  context_.work->Post([self = shared_from_this()] { self->Work(); });
}

void Answering::Work() {
  std::vector<Entry> entries;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      entries.clear();
      entries.swap(mailbox_);
      if (entries.empty()) {
        working_ = false;
        return;
      }
    }
    if (complete_) continue;
    for (const Entry& entry : entries) Handle(entry);
    Deliver();
  }
}

void Answering::Handle(const Entry& entry) {
  const int choice = entry.first_choice + entry.event.sample;
  if (!started_) {
    started_ = true;
    builder_->Start({.prompt_tokens = prompt_tokens_, .cached_tokens = entry.event.cached_tokens});
    context_.metrics->prompt_tokens.Observe(static_cast<double>(prompt_tokens_));
  }
  if (builder_->done(choice)) return;
  if (entry.event.kind == Event::Kind::kFinished) return HandleEnd(entry, choice);
  Clock::time_point& last = last_token_[static_cast<size_t>(choice)];
  if (last == Clock::time_point()) {
    context_.metrics->ttft_seconds.Observe(Seconds(entry.time - received_));
  } else {
    context_.metrics->inter_token_seconds.Observe(Seconds(entry.time - last));
  }
  last = entry.time;
  ++tokens_;
  const engine::SampledToken& token = entry.event.token;
  std::vector<api::TopToken> top;
  for (const engine::TokenLogprob& t : token.top) top.push_back({t.token, t.logprob});
  const bool ends =
      std::find(end_tokens_.begin(), end_tokens_.end(), token.token) != end_tokens_.end();
  builder_->Push(choice,
                 {.token = token.token, .ends_answer = ends, .logprob = token.logprob, .top = top});
  if (builder_->done(choice)) --open_choices_;
}

void Answering::HandleEnd(const Entry& entry, int choice) {
  builder_->Finish(choice, ToFinish(entry.event.reason), entry.event.error.message());
  --open_choices_;
  const bool fails = entry.event.reason != scheduler::FinishReason::kStop &&
                     entry.event.reason != scheduler::FinishReason::kLength;
  if (fails) open_choices_ = 0;  // the whole answer ends with the error
}

// What became certain goes out; after the last choice the rest.
void Answering::Deliver() {
  complete_ = open_choices_ == 0;
  const std::vector<std::string> pieces = builder_->Take();
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  bool is_read = true;
  if (stream_) {
    if (!text.empty()) is_read = reply_->Write(text);
    if (complete_) reply_->EndStream();
  } else if (complete_) {
    reply_->Send(builder_->status(), kJson, text, seed_);
  }
  if (complete_) {
    context_.metrics->e2e_seconds.Observe(Seconds(Clock::now() - received_));
    context_.metrics->generation_tokens.Observe(static_cast<double>(tokens_));
  }
  if (!is_read) Leave();
  if (complete_) Cancel();  // choices that ended by themselves still run
}

// May be noticed by a write, by the connection, or by both.
void Answering::Leave() {
  if (!gone_.exchange(true)) context_.metrics->disconnects.Add();
  Cancel();
}

void Answering::Cancel() {
  std::vector<RequestId> ids;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(cancelled_, true)) return;
    ids = ids_;
  }
  for (const RequestId id : ids) context_.engine->Cancel(id);
}

}  // namespace kuruma::server
