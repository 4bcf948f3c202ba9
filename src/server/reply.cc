#include "server/reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/http_text.h"

namespace kuruma::server {
namespace {

constexpr const char* kJson = "application/json";

std::string ErrorBodyOf(const ReplyContext& context, int status, std::string_view message) {
  return (*context.error_body)(status, context.path, message);
}

}  // namespace

ReplyState::ReplyState(ReplyContext of, std::function<void(bool cut)> wake)
    : context(std::move(of)), wake_(std::move(wake)), keep_alive_(context.keep_alive) {}

HttpHeaders ReplyState::WithContext(const HttpHeaders& headers) const {
  HttpHeaders all = context.headers;
  all.emplace_back("X-Request-Id", context.id);
  all.insert(all.end(), headers.begin(), headers.end());
  return all;
}

void ReplyState::Send(int status, std::string_view content_type, std::string_view body,
                      const HttpHeaders& headers) {
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kOpen) return;
  status_ = status;
  keep_alive_ = keep_alive_ && !*context.draining;
  const ReplyFrame frame{
      .length = body.size(), .keep_alive = keep_alive_, .says_keep_alive = context.http10};
  pending_ = ReplyHead(status, content_type, frame, WithContext(headers));
  if (!context.head && !HasNoBody(status)) pending_.append(body);
  Complete(std::move(lock));
}

bool ReplyState::BeginStream(const StreamStart& start) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kOpen) return false;
  phase_ = Phase::kStreaming;
  status_ = start.status;
  chunked_ = !context.http10;
  comments_ = start.keep_alive_comments && !context.head;
  keep_alive_ = keep_alive_ && chunked_ && !*context.draining;
  const ReplyFrame frame{
      .body = chunked_ ? ReplyFrame::Body::kChunked : ReplyFrame::Body::kUntilClose,
      .keep_alive = keep_alive_};
  pending_ = ReplyHead(start.status, start.content_type, frame, WithContext(start.headers));
  Wake();
  return true;
}

void ReplyState::AppendPiece(std::string_view piece) {
  if (!chunked_) {
    pending_.append(piece);
    return;
  }
  fmt::format_to(std::back_inserter(pending_), "{:x}\r\n", piece.size());
  pending_.append(piece).append("\r\n");
}

bool ReplyState::Write(std::string_view piece) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kStreaming) return false;
  if (piece.empty() || context.head || HasNoBody(status_)) return true;
  const size_t waiting = pending_.size() + unsent_;
  if (waiting > 0 && waiting + piece.size() > context.max_buffer_bytes) {
    phase_ = Phase::kCut;
    wake_(/*cut=*/true);
    return false;
  }
  AppendPiece(piece);
  Wake();
  return true;
}

void ReplyState::EndStream() {
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kStreaming) return;
  if (chunked_ && !context.head && !HasNoBody(status_)) pending_.append("0\r\n\r\n");
  Complete(std::move(lock));
}

void ReplyState::OnGone(std::function<void()> gone) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kComplete) return;
    if (phase_ != Phase::kGone) {
      gone_.swap(gone);
      return;  // the earlier one is destroyed without the lock
    }
  }
  gone();
}

void ReplyState::Abandon() {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kStreaming) {
      phase_ = Phase::kCut;
      wake_(/*cut=*/true);
    }
  }
  Send(500, kJson, ErrorBodyOf(context, 500, "the request was given up without an answer"), {});
}

ReplyState::Taken ReplyState::Take(size_t sent) {
  const std::lock_guard lock(mutex_);
  unsent_ -= std::min(sent, unsent_);
  Taken taken;
  taken.bytes.swap(pending_);
  unsent_ += taken.bytes.size();
  taken.complete = phase_ == Phase::kComplete;
  taken.keep_alive = keep_alive_;
  taken.comments = comments_ && phase_ == Phase::kStreaming;
  taken.status = status_;
  will_take_ = !taken.bytes.empty();
  return taken;
}

void ReplyState::MarkGone() {
  std::function<void()> gone;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kComplete) phase_ = Phase::kGone;
    gone.swap(gone_);
    wake_ = nullptr;
  }
  if (gone) gone();
}

void ReplyState::Wake() {
  if (will_take_) return;
  will_take_ = true;
  wake_(/*cut=*/false);
}

// Releases the callback, which may hold the reply itself, outside the lock.
void ReplyState::Complete(std::unique_lock<std::mutex> lock) {
  phase_ = Phase::kComplete;
  Wake();
  std::function<void()> released;
  released.swap(gone_);
  lock.unlock();
}

HttpReply::HttpReply(std::shared_ptr<ReplyState> state) : state_(std::move(state)) {}
HttpReply::~HttpReply() { state_->Abandon(); }

void HttpReply::Send(int status, std::string_view content_type, std::string_view body,
                     const HttpHeaders& headers) {
  state_->Send(status, content_type, body, headers);
}
void HttpReply::SendError(int status, std::string_view message, const HttpHeaders& headers) {
  Send(status, kJson, ErrorBodyOf(state_->context, status, message), headers);
}
bool HttpReply::BeginStream(const StreamStart& start) { return state_->BeginStream(start); }
bool HttpReply::Write(std::string_view piece) { return state_->Write(piece); }
void HttpReply::EndStream() { state_->EndStream(); }
void HttpReply::OnGone(std::function<void()> gone) { state_->OnGone(std::move(gone)); }

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (SameName(key, name)) return value;
  }
  return {};
}

}  // namespace kuruma::server
