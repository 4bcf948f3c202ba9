#include "api/json_text.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>

namespace kuruma::api {

void AppendEscaped(std::string_view text, std::string* out) {
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\') continue;
    out->append(text, begin, i - begin);
    begin = i + 1;
    if (c == '"' || c == '\\') {
      *out += '\\';
      *out += c;
    } else if (c == '\n') {
      *out += "\\n";
    } else if (c == '\r') {
      *out += "\\r";
    } else if (c == '\t') {
      *out += "\\t";
    } else {
      fmt::format_to(std::back_inserter(*out), "\\u{:04x}", static_cast<unsigned>(c));
    }
  }
  out->append(text, begin, text.size() - begin);
}

std::string Quoted(std::string_view text) {
  std::string quoted;
  quoted.reserve(text.size() + 2);
  quoted += '"';
  AppendEscaped(text, &quoted);
  quoted += '"';
  return quoted;
}

std::string JsonArray(std::string_view items) {
  std::string array;
  array.reserve(items.size() + 2);
  array += '[';
  array += items;
  array += ']';
  return array;
}

void JsonObject::Key(std::string_view key) {
  if (text_.size() > 1) text_ += ',';
  text_ += '"';
  text_ += key;
  text_ += "\":";
}

JsonObject& JsonObject::Text(std::string_view key, std::string_view value) {
  Key(key);
  text_ += '"';
  AppendEscaped(value, &text_);
  text_ += '"';
  return *this;
}

JsonObject& JsonObject::Number(std::string_view key, int64_t value) {
  Key(key);
  text_ += fmt::format_int(value).str();
  return *this;
}

JsonObject& JsonObject::Raw(std::string_view key, std::string_view json) {
  Key(key);
  text_ += json;
  return *this;
}

std::string JsonObject::Take() {
  text_ += '}';
  return std::move(text_);
}

std::string EventFrame(std::string_view event, std::string_view json) {
  std::string frame;
  frame.reserve(event.size() + json.size() + 20);
  frame += "event: ";
  frame += event;
  frame += "\ndata: ";
  frame += json;
  frame += "\n\n";
  return frame;
}

}  // namespace kuruma::api
