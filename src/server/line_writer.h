// Lines on their way to a file or pipe that may be slow: the access log.
#ifndef KURUMA_SERVER_LINE_WRITER_H_
#define KURUMA_SERVER_LINE_WRITER_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace kuruma::server {

// Writes with a thread of its own, many lines at once when many come.
class LineWriter {
 public:
  // `fd` stays open for as long as the writer lives, and is not its own.
  explicit LineWriter(int fd);
  // Writes what was added, but gives up after a second in which nobody reads.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Any thread; never waits. Lines are written within some milliseconds, together with those that
  // come meanwhile. Lines beyond kMostBytes not yet written are dropped;
  // {"dropped_lines":N} is written in their place.
  void Add(std::string_view line);

  static constexpr size_t kMostBytes = 4 << 20;

  // Since the last line that was taken.
  int64_t dropped() const;

 private:
  void Main();
  bool WriteAll(std::string_view text);

  const int fd_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable added_;
  std::string waiting_;
  int64_t dropped_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_LINE_WRITER_H_
