// The program's log: one line per message on stderr, for operators. Answers to the user (results,
// errors of a command) are not log messages.
#ifndef KURUMA_BASE_LOG_H_
#define KURUMA_BASE_LOG_H_

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace kuruma {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

// Sets what is written from now on: "debug", "info", "warn" (the default), "error" or "off".
// InvalidArgument names an unknown level. Any thread.
Status SetLogLevel(const std::string& name);

// Whether messages of that level are written: for callers whose message is costly to make.
bool LogEnabled(LogLevel level);

// Writes time, level and message. Control characters are escaped, so a message stays one line
// whatever file or client it quotes. Any thread; lines do not mix.
void Log(LogLevel level, std::string_view message);

template <typename... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  if (LogEnabled(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
}

template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  if (LogEnabled(LogLevel::kInfo)) {
    Log(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
}

template <typename... Args>
void LogWarn(fmt::format_string<Args...> format, Args&&... args) {
  if (LogEnabled(LogLevel::kWarn)) {
    Log(LogLevel::kWarn, fmt::format(format, std::forward<Args>(args)...));
  }
}

// `text` with control characters (below U+0020, U+007F to U+009F) written as \n, \t, \xNN, \u00NN.
std::string EscapeControls(std::string_view text);

}  // namespace kuruma

#endif  // KURUMA_BASE_LOG_H_
