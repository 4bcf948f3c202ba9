// JSON and server-sent events written straight into strings: answers are too many to build a tree
// for each. Private to the api module.
#ifndef KURUMA_API_JSON_TEXT_H_
#define KURUMA_API_JSON_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace kuruma::api {

// Appends `text` (UTF-8) as it stands inside a JSON string, without the quotes. Never holds a line
// break, so it fits on one line of an event.
void AppendEscaped(std::string_view text, std::string* out);

// `text` as a JSON string.
std::string Quoted(std::string_view text);

// `items`, JSON values separated by commas, as an array.
std::string JsonArray(std::string_view items);

// Writes one object, members in the order of the calls. Keys must need no escapes.
class JsonObject {
 public:
  JsonObject& Text(std::string_view key, std::string_view value);
  JsonObject& Number(std::string_view key, int64_t value);
  // `json` is a JSON value.
  JsonObject& Raw(std::string_view key, std::string_view json);
  JsonObject& Null(std::string_view key) { return Raw(key, "null"); }
  // The whole object; once.
  std::string Take();

 private:
  void Key(std::string_view key);

  std::string text_ = "{";
};

// A server-sent event named `event` with `json` as its data.
std::string EventFrame(std::string_view event, std::string_view json);

}  // namespace kuruma::api

#endif  // KURUMA_API_JSON_TEXT_H_
