#include "reply_reader.h"

#include <algorithm>
#include <cstdlib>

namespace kuruma::load {

ReplyReader::State ReplyReader::Feed(std::string_view bytes,
                                     const std::function<void(std::string_view)>& body) {
  in_.append(bytes);
  if (state_ == State::kHead && !TakeHead()) return state_;
  if (state_ == State::kBody) {
    if (chunked_) {
      TakeChunks(body);
    } else {
      TakePlain(body);
    }
  }
  if (state_ == State::kComplete && !in_.empty()) state_ = State::kBroken;
  return state_;
}

// True: the head was complete.
bool ReplyReader::TakeHead() {
  constexpr size_t kLongest = 64 << 10;
  const size_t end = in_.find("\r\n\r\n");
  if (end == std::string::npos) {
    if (in_.size() > kLongest) state_ = State::kBroken;
    return false;
  }
  const std::string head = in_.substr(0, end + 2);
  in_.erase(0, end + 4);
  const auto has = [&](const char* line) { return head.find(line) != std::string::npos; };
  if (!head.starts_with("HTTP/1.1 ")) {
    state_ = State::kBroken;
    return false;
  }
  head_.status = std::atoi(head.c_str() + 9);
  head_.has_retry_after = has("\r\nRetry-After: ");
  head_.closes = has("\r\nConnection: close\r\n");
  chunked_ = has("\r\nTransfer-Encoding: chunked\r\n");
  constexpr std::string_view kLength = "\r\nContent-Length: ";
  const size_t length = head.find(kLength);
  if (length != std::string::npos) {
    left_ = std::strtoul(head.c_str() + length + kLength.size(), nullptr, 10);
  }
  const bool has_end = chunked_ || length != std::string::npos;
  state_ = has_end ? State::kBody : State::kBroken;
  return has_end;
}

void ReplyReader::TakePlain(const std::function<void(std::string_view)>& body) {
  const size_t size = std::min(left_, in_.size());
  if (size > 0) body(std::string_view(in_).substr(0, size));
  in_.erase(0, size);
  left_ -= size;
  if (left_ == 0) state_ = State::kComplete;
}

void ReplyReader::TakeChunks(const std::function<void(std::string_view)>& body) {
  size_t at = 0;
  while (state_ == State::kBody) {
    const size_t line_end = in_.find("\r\n", at);
    if (line_end == std::string::npos) break;
    const size_t size = std::strtoul(in_.c_str() + at, nullptr, 16);
    const size_t begin = line_end + 2;
    if (in_.size() < begin + size + 2) break;
    if (size > 0) body(std::string_view(in_).substr(begin, size));
    at = begin + size + 2;
    if (size == 0) state_ = State::kComplete;
  }
  in_.erase(0, at);
}

}  // namespace kuruma::load
