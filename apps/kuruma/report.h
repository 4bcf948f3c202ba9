// How the program speaks: error lines, exit codes, results on stdout, progress on a terminal.
#ifndef KURUMA_APPS_REPORT_H_
#define KURUMA_APPS_REPORT_H_

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace kuruma {

inline constexpr int kExitOk = 0;
inline constexpr int kExitOurFault = 1;  // internal error, out of memory
inline constexpr int kExitBadInput = 2;  // flags, files, lines; or nobody reads our output
inline constexpr int kExitInterrupted = 130;

// Prints "kuruma COMMAND: message" as one line on stderr, control characters escaped, and returns
// the exit code that `status` (not ok) calls for.
int Fail(std::string_view command, const Status& status);

// Writes to stdout and flushes. False when that failed: silent if the reader went away, with a line
// on stderr otherwise (disk full). The caller ends with kExitBadInput.
bool WriteOut(std::string_view text);

// One line of JSON, without the line feed; bytes that are not UTF-8 become U+FFFD.
std::string Dump(const nlohmann::ordered_json& value);

// "1.25 GiB", "890 B".
std::string FormatBytes(int64_t bytes);

// Milliseconds since construction.
class Stopwatch {
 public:
  double ms() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// A line on stderr that shows how far a long task is; nothing at all unless stderr is a terminal
// and the task has run for a moment. The line is erased at the end. One thread.
class Progress {
 public:
  // `total` units of work, shown as a percentage; 0: unknown, the label alone is shown.
  Progress(std::string label, int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(int64_t done);

 private:
  void Draw(int64_t done);

  std::string label_;
  int64_t total_;
  bool terminal_;
  bool drawn_ = false;
  double next_draw_ms_ = 300;
  Stopwatch watch_;
};

}  // namespace kuruma

#endif  // KURUMA_APPS_REPORT_H_
