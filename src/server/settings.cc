#include "server/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "server/deepinfer_switches.h"
#include "server/keys.h"
#include "server/settings_table.h"
#include "server/settings_toml.h"

namespace kuruma::server {
namespace {

constexpr std::string_view kPrefix = "KURUMA_";
// Not options: the configuration file's name, and what the test programs of Kuruma set.
constexpr std::string_view kOtherVariables[] = {"KURUMA_CONFIG", "KURUMA_BINARY",
                                                "KURUMA_BINARY_DIR", "KURUMA_SOURCE_DIR"};

std::string DidYouMean(std::string_view key, std::string (*name)(const Option&)) {
  const std::string_view nearest = NearestKey(key);
  return nearest.empty() ? "" : fmt::format(" (did you mean {}?)", name(*FindOption(nearest)));
}

// Whether a TOML value of that kind can be one of the option's; its range is judged later.
bool Fits(const Option& option, TomlEntry::Kind kind) {
  using Kind = TomlEntry::Kind;
  if (std::holds_alternative<StringField>(option.field)) return kind == Kind::kString;
  if (std::holds_alternative<ListField>(option.field)) return kind == Kind::kStrings;
  if (std::holds_alternative<BoolField>(option.field)) return kind == Kind::kBool;
  if (kind == Kind::kString) return option.unit == "BYTES";
  return kind == Kind::kInteger ||
         (kind == Kind::kNumber && std::holds_alternative<NumberField>(option.field));
}

Status ApplyFile(const std::string& file, LoadedSettings* loaded) {
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) return NotFound(fmt::format("configuration file {}: {}", file, std::strerror(errno)));
  KURUMA_ASSIGN_OR_RETURN(const std::vector<TomlEntry> entries, ReadToml(text, file));
  for (const TomlEntry& entry : entries) {
    const std::string place = fmt::format("{}:{}", file, entry.line);
    const Option* option = FindOption(entry.key);
    if (option == nullptr) {
      return InvalidArgument(
          fmt::format("{}: unknown key {}{}", place, entry.key,
                      DidYouMean(entry.key, [](const Option& o) { return std::string(o.key); })));
    }
    const std::string where = fmt::format("{}: {}", place, entry.key);
    if (!Fits(*option, entry.kind)) {
      return InvalidArgument(fmt::format("{}: must be {}", where, option->Requirement()));
    }
    KURUMA_RETURN_IF_ERROR(SetOption(*option, entry.values, where, &loaded->settings));
    loaded->sources[entry.key] = place;
  }
  return Status();
}

Status ApplyDeepinfer(const SettingsInput& input, LoadedSettings* loaded) {
  KURUMA_ASSIGN_OR_RETURN(DeepinferSwitches switches, ReadDeepinferSwitches(input.environment));
  for (const DeepinferSwitches::Choice& choice : switches.choices) {
    KURUMA_RETURN_IF_ERROR(SetOption(*FindOption(choice.key), {choice.value},
                                     "environment variable " + choice.variable, &loaded->settings));
    loaded->sources[choice.key] = choice.variable;
  }
  loaded->warnings = std::move(switches.warnings);
  return Status();
}

// Lists are separated by commas in a variable.
std::vector<std::string> ValuesOf(const Option& option, const std::string& text) {
  if (!std::holds_alternative<ListField>(option.field)) return {text};
  std::vector<std::string> values;
  for (size_t begin = 0; begin < text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    values.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return values;
}

Status ApplyVariables(const SettingsInput& input, LoadedSettings* loaded) {
  for (const auto& [variable, text] : input.environment) {
    if (!variable.starts_with(kPrefix)) continue;
    if (std::find(std::begin(kOtherVariables), std::end(kOtherVariables), variable) !=
        std::end(kOtherVariables)) {
      continue;
    }
    std::string key = variable.substr(kPrefix.size());
    for (char& c : key) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const Option* option = FindOption(key);
    if (option == nullptr || option->variable() != variable) {
      return InvalidArgument(
          fmt::format("unknown environment variable {}{}", variable,
                      DidYouMean(key, [](const Option& o) { return o.variable(); })));
    }
    KURUMA_RETURN_IF_ERROR(SetOption(*option, ValuesOf(*option, text),
                                     "environment variable " + variable, &loaded->settings));
    loaded->sources[key] = variable;
  }
  return Status();
}

Status ApplyFlags(const SettingsInput& input, LoadedSettings* loaded) {
  std::map<std::string, std::vector<std::string>> values;  // by key
  for (const auto& [name, value] : input.flags) {
    std::string key = name;
    std::replace(key.begin(), key.end(), '-', '_');
    const Option* option = FindOption(key);
    if (option == nullptr) return InvalidArgument(fmt::format("unknown flag --{}", name));
    // Given twice, the last one counts; lists grow.
    if (!std::holds_alternative<ListField>(option->field)) values[key].clear();
    values[key].push_back(value);
  }
  for (const auto& [key, texts] : values) {
    const Option& option = *FindOption(key);
    KURUMA_RETURN_IF_ERROR(SetOption(option, texts, option.flag(), &loaded->settings));
    loaded->sources[key] = "flag " + option.flag();
  }
  return Status();
}

// What no single option can say.
Status CheckTogether(const ServerSettings& s) {
  if (s.tls_cert.empty() != s.tls_key.empty()) {
    return InvalidArgument("tls_cert and tls_key go together: one of them is missing");
  }
  if (!s.tls_cert.empty() && !s.unix_socket.empty()) {
    return InvalidArgument("tls_cert does not go with unix_socket");
  }
  if (s.max_step_tokens < s.max_sequences) {
    return InvalidArgument(fmt::format("max_step_tokens ({}) must be at least max_sequences ({})",
                                       s.max_step_tokens, s.max_sequences));
  }
  const auto keys = ApiKeys::Create(s.api_key);
  if (!keys.ok()) return keys.status();
  return CheckExposure(s.host, !s.unix_socket.empty(), !s.api_key.empty());
}

}  // namespace

Result<LoadedSettings> LoadSettings(const SettingsInput& input) {
  LoadedSettings loaded;
  std::string file = input.config_file;
  const auto variable = input.environment.find("KURUMA_CONFIG");
  if (file.empty() && variable != input.environment.end()) file = variable->second;
  if (!file.empty()) KURUMA_RETURN_IF_ERROR(ApplyFile(file, &loaded));
  KURUMA_RETURN_IF_ERROR(ApplyDeepinfer(input, &loaded));
  KURUMA_RETURN_IF_ERROR(ApplyVariables(input, &loaded));
  KURUMA_RETURN_IF_ERROR(ApplyFlags(input, &loaded));
  KURUMA_RETURN_IF_ERROR(CheckTogether(loaded.settings));
  return loaded;
}

std::string PrintSettings(const LoadedSettings& loaded) {
  std::string text;
  std::string_view section;
  for (const Option& option : ServerOptions()) {
    if (option.section != section) {
      section = option.section;
      text += fmt::format("{}# {}\n", text.empty() ? "" : "\n", section);
    }
    const auto source = loaded.sources.find(option.key);
    text += fmt::format("{} = {}  # {}\n", option.key, FormatOption(option, loaded.settings),
                        source == loaded.sources.end() ? "default" : source->second);
  }
  return text;
}

std::string DescribeSettings() {
  std::string text =
      "# Options of `kuruma serve`\n\n"
      "Each option is a flag, a key of the TOML file named by `--config` (or `KURUMA_CONFIG`), and "
      "an\n"
      "environment variable: `--max-queue 9`, `max_queue = 9`, `KURUMA_MAX_QUEUE=9`. Flags win "
      "over\n"
      "variables, variables over the file. `--print-config` shows the effective values and where "
      "each\n"
      "comes from. Flags of lists are repeated; in a variable commas separate the values.\n";
  const ServerSettings defaults;
  std::string_view section;
  for (const Option& option : ServerOptions()) {
    if (option.section != section) {
      section = option.section;
      text += fmt::format(
          "\n## {}\n\n| option | default | must be | meaning |\n|---|---|---|---|\n", section);
    }
    text += fmt::format("| `{}` | `{}` | {} | {} |\n", option.key, FormatOption(option, defaults),
                        option.Requirement(), option.help);
  }
  text +=
      "\n## Variables of DeepInfer\n\n"
      "Read between the file and the `KURUMA_*` variables; others are reported at start.\n\n```\n";
  return text + DescribeDeepinferSwitches() + "```\n";
}

std::string DescribeVariables() {
  std::string text = "KURUMA_CONFIG\n    the configuration file, if --config is not given\n";
  for (const Option& option : ServerOptions()) {
    text += fmt::format("{}={}\n    {}\n", option.variable(), option.value_name(), option.help);
  }
  return text + DescribeDeepinferSwitches();
}

HttpOptions ToHttpOptions(const ServerSettings& settings) {
  const auto time = [](double seconds) {
    return HttpOptions::Time(static_cast<int64_t>(std::llround(seconds * 1000)));
  };
  HttpOptions options;
  options.host = settings.host;
  options.port = static_cast<int>(settings.port);
  options.unix_path = settings.unix_socket;
  options.tls_cert_file = settings.tls_cert;
  options.tls_key_file = settings.tls_key;
  options.threads = static_cast<int>(settings.http_threads);
  options.max_connections = static_cast<size_t>(settings.max_connections);
  options.max_header_bytes = static_cast<size_t>(settings.max_header_bytes);
  options.max_body_bytes = static_cast<size_t>(settings.max_body_bytes);
  options.max_buffer_bytes = static_cast<size_t>(settings.max_buffer_bytes);
  options.min_body_rate = static_cast<size_t>(settings.min_body_rate);
  options.header_timeout = time(settings.header_timeout);
  options.body_timeout = time(settings.body_timeout);
  options.idle_timeout = time(settings.idle_timeout);
  options.write_timeout = time(settings.write_timeout);
  options.sse_keep_alive = time(settings.sse_keep_alive);
  options.cors_origins = settings.cors_origin;
  return options;
}

}  // namespace kuruma::server
