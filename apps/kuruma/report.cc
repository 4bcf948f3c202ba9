#include "report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/log.h"

namespace kuruma {

int Fail(std::string_view command, const Status& status) {
  const bool ours =
      status.code() == StatusCode::kInternal || status.code() == StatusCode::kResourceExhausted;
  const std::string line =
      fmt::format("kuruma {}: {}\n", command, EscapeControls(status.message()));
  std::fwrite(line.data(), 1, line.size(), stderr);
  return ours ? kExitOurFault : kExitBadInput;
}

bool WriteOut(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return true;
  }
  if (errno != EPIPE) {
    const std::string line = fmt::format("kuruma: standard output: {}\n", std::strerror(errno));
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
  return false;
}

std::string Dump(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Progress::Progress(std::string label, int64_t total)
    : label_(EscapeControls(label)), total_(total), terminal_(isatty(STDERR_FILENO) == 1) {
  if (terminal_ && total_ == 0) Draw(0);
}

Progress::~Progress() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

void Progress::Update(int64_t done) {
  if (!terminal_ || watch_.ms() < next_draw_ms_) return;
  next_draw_ms_ = watch_.ms() + 100;
  Draw(done);
}

void Progress::Draw(int64_t done) {
  constexpr int64_t kWidth = 24;
  drawn_ = true;
  std::string line = "\r" + label_;
  if (total_ > 0) {
    const int64_t filled = std::clamp<int64_t>(done * kWidth / total_, 0, kWidth);
    line += fmt::format(" [{}{}] {}/{}", std::string(filled, '#'),
                        std::string(kWidth - filled, '.'), done, total_);
  }
  line += "\x1b[K";
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

std::string FormatBytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::fabs(value) >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

}  // namespace kuruma
