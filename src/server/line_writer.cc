#include "server/line_writer.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <iterator>
#include <utility>

namespace kuruma::server {
namespace {

constexpr auto kGather = std::chrono::milliseconds(5);  // one wake-up for all lines of that time
constexpr int kPollMs = 100;
constexpr int kPatience = 10;  // polls in vain, once the writer is to end

}  // namespace

LineWriter::LineWriter(int fd) : fd_(fd) {
  thread_ = std::thread([this] { Main(); });
}

LineWriter::~LineWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  added_.notify_one();
  thread_.join();
}

void LineWriter::Add(std::string_view line) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = waiting_.empty();
    if (waiting_.size() + line.size() >= kMostBytes) {
      ++dropped_;
      return;
    }
    if (dropped_ > 0) {
      fmt::format_to(std::back_inserter(waiting_), "{{\"dropped_lines\":{}}}\n",
                     std::exchange(dropped_, 0));
    }
    waiting_.append(line).push_back('\n');
  }
  if (first) added_.notify_one();
}

int64_t LineWriter::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

void LineWriter::Main() {
  std::string text;
  std::unique_lock lock(mutex_);
  while (true) {
    added_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    added_.wait_for(lock, kGather, [&] { return stopping_; });
    text.swap(waiting_);
    lock.unlock();
    const bool goes_on = WriteAll(text);
    text.clear();
    lock.lock();
    if (!goes_on) return;
  }
}

// False: the writer is to end, and nobody reads. Asks before each write, in pieces that a ready
// pipe takes without waiting (PIPE_BUF): other programs may need the descriptor to block.
bool LineWriter::WriteAll(std::string_view text) {
  int in_vain = 0;
  while (!text.empty()) {
    pollfd what{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (poll(&what, 1, kPollMs) <= 0) {
      const std::lock_guard lock(mutex_);
      if (stopping_ && ++in_vain >= kPatience) return false;
      continue;
    }
    const ssize_t n = write(fd_, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (n < 0 && errno != EINTR && errno != EAGAIN) return true;  // lost: the disk is full, say
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace kuruma::server
