#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace kuruma {
namespace {

struct LevelName {
  LogLevel level;
  const char* name;
  spdlog::level::level_enum spdlog_level;
};
constexpr LevelName kLevels[] = {{LogLevel::kDebug, "debug", spdlog::level::debug},
                                 {LogLevel::kInfo, "info", spdlog::level::info},
                                 {LogLevel::kWarn, "warn", spdlog::level::warn},
                                 {LogLevel::kError, "error", spdlog::level::err},
                                 {LogLevel::kOff, "off", spdlog::level::off}};

spdlog::logger& Logger() {
  // Never destroyed: threads may still log while the program ends.
  static spdlog::logger* const logger = [] {
    auto* made = new spdlog::logger("kuruma", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *logger;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  return kLevels[static_cast<size_t>(level)].spdlog_level;
}

}  // namespace

Status SetLogLevel(const std::string& name) {
  for (const LevelName& entry : kLevels) {
    if (name == entry.name) {
      Logger().set_level(entry.spdlog_level);
      return Status();
    }
  }
  return InvalidArgument("log level \"" + name + "\" is unknown (debug, info, warn, error, off)");
}

bool LogEnabled(LogLevel level) { return Logger().should_log(ToSpdlog(level)); }

void Log(LogLevel level, std::string_view message) {
  Logger().log(ToSpdlog(level), "{}", EscapeControls(message));
}

std::string EscapeControls(std::string_view text) {
  std::string escaped;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (c == '\n') {
      escaped += "\\n";
    } else if (c == '\t') {
      escaped += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      escaped += fmt::format("\\x{:02x}", byte);
    } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {  // U+0080 to U+009F in UTF-8
      escaped += fmt::format("\\u00{:02x}", next);
      ++i;
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace kuruma
