#include "server/settings_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/byte_size.h"
#include "text/json.h"

namespace kuruma::server {
namespace {

using S = ServerSettings;

constexpr double kMaxBytes = 1e15;
constexpr double kWeek = 7 * 86400;
constexpr std::string_view kKey = "KEY";  // unit of secrets

struct Range {
  double low;
  double high;
  std::string_view unit = {};
};

Option Text(std::string_view section, std::string_view key, StringField field,
            std::string_view unit, std::string_view help) {
  return {section, key, field, help, 0, 0, {}, unit, false};
}
Option Choice(std::string_view section, std::string_view key, StringField field,
              std::string_view choices, std::string_view help) {
  return {section, key, field, help, 0, 0, choices, {}, false};
}
Option List(std::string_view section, std::string_view key, ListField field, std::string_view unit,
            std::string_view help) {
  return {section, key, field, help, 0, 0, {}, unit, unit == kKey};
}
Option Number(std::string_view section, std::string_view key,
              std::variant<IntegerField, NumberField> field, Range range, std::string_view help) {
  Option option{section, key, {}, help, range.low, range.high, {}, range.unit, false};
  std::visit([&](auto member) { option.field = member; }, field);
  return option;
}
Option Fact(std::string_view section, std::string_view key, BoolField field,
            std::string_view help) {
  return {section, key, field, help, 0, 0, {}, {}, false};
}

std::vector<Option> ModelOptions() {
  constexpr std::string_view k = "Model";
  return {
      Text(k, "model", &S::model, "DIR", "checkpoint directory; empty: the bundled model"),
      Text(k, "scripted", &S::scripted, "FILE",
           "answer from this script instead of a model: JSON Lines of match, text, delay_ms"),
      Text(k, "served_model_name", &S::served_model_name, "NAME",
           "the model's name in answers and lists; empty: the directory's name"),
      List(k, "model_alias", &S::model_alias, "NAME", "other names that requests may use"),
  };
}

std::vector<Option> ListenOptions() {
  constexpr std::string_view k = "Listening";
  return {
      Text(k, "host", &S::host, "HOST",
           "address or name to listen on; other than this machine's own (127.0.0.1) only with API "
           "keys"),
      Number(k, "port", &S::port, {0, 65535}, "TCP port; 0: chosen by the system"),
      Text(k, "unix_socket", &S::unix_socket, "PATH",
           "listen on this socket instead of host and port"),
      Text(k, "tls_cert", &S::tls_cert, "FILE", "PEM file with the certificate chain: HTTPS"),
      Text(k, "tls_key", &S::tls_key, "FILE", "PEM file with the key of tls_cert"),
      List(k, "api_key", &S::api_key, kKey, "a key that clients must bring; several may be given"),
      List(k, "cors_origin", &S::cors_origin, "ORIGIN",
           "an origin whose pages may call the server; \"*\": any"),
  };
}

std::vector<Option> LimitOptions() {
  constexpr std::string_view k = "Limits";
  constexpr Range kTime{0.001, kWeek, "SECONDS"}, kTimeOrZero{0, kWeek, "SECONDS"};
  constexpr Range kSize{1024, kMaxBytes, "BYTES"};
  return {
      Number(k, "http_threads", &S::http_threads, {1, 256}, "network threads"),
      Number(k, "max_connections", &S::max_connections, {1, 1e6},
             "open connections; more are answered 503"),
      Number(k, "max_header_bytes", &S::max_header_bytes, {1024, 1 << 24, "BYTES"},
             "request line and headers"),
      Number(k, "max_body_bytes", &S::max_body_bytes, kSize, "body of a request"),
      Number(k, "max_buffer_bytes", &S::max_buffer_bytes, kSize,
             "of a stream, not yet taken by the client; one that is further behind is dropped"),
      Number(k, "min_body_rate", &S::min_body_rate, {0, 1e9},
             "bytes per second that a body must come with, once it took body_timeout"),
      Number(k, "header_timeout", &S::header_timeout, kTime, "for the headers of a request"),
      Number(k, "body_timeout", &S::body_timeout, kTime, "between two pieces of a body"),
      Number(k, "idle_timeout", &S::idle_timeout, kTime, "between two requests of a connection"),
      Number(k, "write_timeout", &S::write_timeout, kTime,
             "a client that takes nothing for so long is dropped"),
      Number(k, "sse_keep_alive", &S::sse_keep_alive, kTimeOrZero,
             "pause of a stream before a comment is sent; 0: never"),
      Number(k, "drain_timeout", &S::drain_timeout, kTimeOrZero,
             "for running requests when the server is ended"),
  };
}

std::vector<Option> EngineOptions() {
  constexpr std::string_view k = "Engine";
  return {
      Number(k, "max_queue", &S::max_queue, {1, 1e6}, "waiting sequences; more are answered 429"),
      Number(k, "max_sequences", &S::max_sequences, {1, 65536}, "sequences that run at once"),
      Number(k, "max_step_tokens", &S::max_step_tokens, {1, 1e6},
             "rows of a step; at least max_sequences"),
      Number(k, "kv_memory", &S::kv_memory, {0, kMaxBytes, "BYTES"},
             "memory of the block cache; 0: half of what is free, at most what can be of use"),
      Number(k, "snapshot_memory", &S::snapshot_memory, {0, kMaxBytes, "BYTES"},
             "memory of saved windows, which spare replay after a cache hit; 0: none"),
      Number(k, "target_tpot_ms", &S::target_tpot_ms, {0, 1e6},
             "longest step in ms while sequences decode; 0: no bound"),
      Fact(k, "sync", &S::sync,
           "plan a step only when the one before is done; never changes a result"),
      Fact(k, "prefix_cache", &S::prefix_cache, "keep and find equal beginnings of prompts"),
      Choice(k, "replay", &S::replay, "exact|bounded",
             "window rows computed again after a cache hit: all that matter, or one window "
             "(approximate)"),
      Choice(k, "prefill", &S::prefill, "full|exact|compact",
             "decoder rows a prompt computes: all, those that matter (same result), the last ones "
             "(approximate)"),
      Number(k, "keep_tokens", &S::keep_tokens, {0, 1e12},
             "with prefill \"compact\": last tokens kept; 0: the released default"),
      Number(k, "threads", &S::threads, {0, 1024}, "compute threads; 0: all processors"),
      Choice(k, "numerics", &S::numerics, "release|exact|vendor",
             "rounding points: of the released engine, none, of the single-file reference"),
      Choice(k, "kernels", &S::kernels, "cpu|cpu-avx2|cpu-portable|reference",
             "implementation; cpu: the fastest here"),
  };
}

std::vector<Option> AnswerOptions() {
  constexpr std::string_view k = "Answers and logs";
  return {
      Fact(k, "thinking", &S::thinking, "think before answering when a request does not say"),
      Choice(k, "reasoning_field", &S::reasoning_field, "reasoning_content|both",
             "name of the reasoning in chat answers; both: `reasoning` as well"),
      Fact(k, "access_log", &S::access_log, "one JSON line per request, without bodies"),
      Fact(k, "log_prompts", &S::log_prompts, "write prompts and answers to the log"),
      Choice(k, "log_level", &S::log_level, "debug|info|warn|error|off", "what is logged"),
  };
}

const std::vector<Option>& Options() {
  static const std::vector<Option> options = [] {
    std::vector<Option> all;
    for (const auto& part :
         {ModelOptions(), ListenOptions(), LimitOptions(), EngineOptions(), AnswerOptions()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return options;
}

// The pieces of "a|b|c".
std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (;;) {
    const size_t end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

std::optional<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return {};
  return value;
}

std::optional<double> ParseBytes(std::string_view text) {
  const Result<int64_t> bytes = ParseByteSize(text);
  if (!bytes.ok()) return {};
  return static_cast<double>(*bytes);
}

std::optional<bool> ParseBool(std::string_view text) {
  for (const std::string_view yes : {"true", "1", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"false", "0", "no", "off"}) {
    if (text == no) return false;
  }
  return {};
}

// False: not a value of this option.
bool Assign(const Option& option, const std::vector<std::string>& values, S* settings) {
  if (const auto* list = std::get_if<ListField>(&option.field)) {
    settings->*(*list) = values;
    return std::none_of(values.begin(), values.end(), [&](const std::string& value) {
      return value.empty() || (option.secret && value == "***");
    });
  }
  if (values.size() != 1) return false;
  const std::string& text = values[0];
  if (const auto* field = std::get_if<StringField>(&option.field)) {
    settings->*(*field) = text;
    const auto choices = Split(option.choices, '|');
    return option.choices.empty() ||
           std::find(choices.begin(), choices.end(), text) != choices.end();
  }
  if (const auto* field = std::get_if<BoolField>(&option.field)) {
    const auto value = ParseBool(text);
    if (value) settings->*(*field) = *value;
    return value.has_value();
  }
  const auto value = option.unit == "BYTES" ? ParseBytes(text) : ParseNumber(text);
  if (!value || !(*value >= option.low && *value <= option.high)) return false;
  if (const auto* field = std::get_if<NumberField>(&option.field)) {
    settings->*(*field) = *value;
    return true;
  }
  settings->*std::get<IntegerField>(option.field) = static_cast<int64_t>(*value);
  return *value == std::trunc(*value);
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row.back();
}

std::string Replace(std::string_view key, char to) {
  std::string text(key);
  std::replace(text.begin(), text.end(), '_', to);
  return text;
}

}  // namespace

std::string Option::flag() const { return "--" + Replace(key, '-'); }

std::string Option::variable() const {
  std::string name = "KURUMA_";
  for (const char c : key) name.push_back(c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c);
  return name;
}

std::string Option::value_name() const {
  if (!unit.empty()) return std::string(unit);
  if (!choices.empty()) return std::string(choices);
  return std::holds_alternative<BoolField>(field) ? "true|false" : "N";
}

std::string Option::Requirement() const {
  if (std::holds_alternative<BoolField>(field)) return "true or false";
  if (std::holds_alternative<ListField>(field)) {
    return secret ? "keys, not empty (\"***\" stands for a hidden one)"
                  : "a list of strings, none of them empty";
  }
  if (std::holds_alternative<StringField>(field)) {
    if (choices.empty()) return "a string";
    std::string list = "one of";
    for (const std::string_view choice : Split(choices, '|')) {
      list.append(list.size() > 6 ? ", " : " ").append(choice);
    }
    return list;
  }
  const bool integer = std::holds_alternative<IntegerField>(field);
  return fmt::format("{} from {:.12g} to {:.16g}{}", integer ? "an integer" : "a number", low, high,
                     unit == "BYTES" ? " (bytes; suffixes such as KiB, G, GB work)" : "");
}

std::span<const Option> ServerOptions() { return Options(); }

const Option* FindOption(std::string_view key) {
  for (const Option& option : Options()) {
    if (option.key == key) return &option;
  }
  return nullptr;
}

std::string_view NearestKey(std::string_view key) {
  std::string_view nearest;
  size_t least = 4;  // more changes than this are no slip
  if (key.size() > 40) return nearest;
  for (const Option& option : Options()) {
    const size_t distance = EditDistance(key, option.key);
    if (distance < least && distance < option.key.size() / 2 + 1) {
      least = distance;
      nearest = option.key;
    }
  }
  return nearest;
}

Status SetOption(const Option& option, const std::vector<std::string>& values,
                 const std::string& where, ServerSettings* settings) {
  if (Assign(option, values, settings)) return Status();
  std::string given;
  if (!option.secret) {
    for (const std::string& value : values) {
      given += (given.empty() ? ", not " : ", ") + QuoteToml(value);
    }
  }
  return InvalidArgument(fmt::format("{}: must be {}{}", where, option.Requirement(), given));
}

std::string QuoteToml(std::string_view text) {
  std::string quoted;
  text::AppendJsonString(text, &quoted);  // TOML's basic strings have JSON's escapes
  return quoted;
}

std::string FormatOption(const Option& option, const ServerSettings& settings) {
  if (const auto* field = std::get_if<StringField>(&option.field)) {
    return QuoteToml(settings.*(*field));
  }
  if (const auto* field = std::get_if<BoolField>(&option.field)) {
    return settings.*(*field) ? "true" : "false";
  }
  if (const auto* field = std::get_if<IntegerField>(&option.field)) {
    return fmt::format("{}", settings.*(*field));
  }
  if (const auto* field = std::get_if<NumberField>(&option.field)) {
    return fmt::format("{}", settings.*(*field));
  }
  std::string list = "[";
  for (const std::string& value : settings.*std::get<ListField>(option.field)) {
    if (list.size() > 1) list.append(", ");
    list.append(QuoteToml(option.secret ? "***" : value));
  }
  return list + "]";
}

}  // namespace kuruma::server
