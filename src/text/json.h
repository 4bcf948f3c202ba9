// JSON values whose members keep their order, and their spelling in prompts.
//
// Prompts hold JSON as Python's json.dumps(ensure_ascii=False) writes it: ", " and ": " between
// items, keys in the order sent, floats as Python's repr. Objects keep the place of a key's first
// appearance and the value of its last one.
#ifndef KURUMA_TEXT_JSON_H_
#define KURUMA_TEXT_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace kuruma::text {

struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::vector<std::pair<std::string, JsonValue>>;
  using Null = std::monostate;

  std::variant<Null, bool, int64_t, uint64_t, double, std::string, Array, Object> data;

  template <typename T>
  const T* If() const {
    return std::get_if<T>(&data);
  }
  bool is_null() const { return If<Null>() != nullptr; }

  // Member `key` of an object; null if there is none or this is no object. Linear.
  const JsonValue* Find(std::string_view key) const;
};

// Values nested deeper are refused, so that no walk over a value can exhaust the stack.
inline constexpr size_t kMaxJsonDepth = 128;

// Parses one JSON text (RFC 8259, nothing after it). Integers beyond 64 bits become floats.
// kInvalidArgument with the byte offset for anything else: also for numbers too large for a float,
// unpaired surrogate escapes, bytes that are not UTF-8. Linear time; any thread.
Result<JsonValue> ParseJson(std::string_view text);

// `value` as prompt text. Any thread.
std::string DumpJson(const JsonValue& value);

// Appends `text` as a quoted JSON string: only quote, backslash and controls below U+0020 escaped.
void AppendJsonString(std::string_view text, std::string* out);

}  // namespace kuruma::text

#endif  // KURUMA_TEXT_JSON_H_
