#include "text/json.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace kuruma::text {
namespace {

// Builds a JsonValue from parser events. The parser calls no method after one returned false.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonValue root;
  std::string error;

 private:
  bool null() override { return Put({}); }
  bool boolean(bool value) override { return Put({value}); }
  bool number_integer(int64_t value) override { return Put({value}); }
  bool number_unsigned(uint64_t value) override { return Put({value}); }
  bool number_float(double value, const std::string&) override { return Put({value}); }
  bool string(std::string& value) override { return Put({std::move(value)}); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(size_t) override { return Open({JsonValue::Object()}); }
  bool key(std::string& value) override {
    Level& level = levels_.back();
    auto& members = std::get<JsonValue::Object>(level.value.data);
    const auto [place, is_new] = level.places.emplace(value, members.size());
    if (is_new) members.emplace_back(std::move(value), JsonValue());
    level.member = place->second;
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open({JsonValue::Array()}); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    error = fmt::format("not valid JSON at byte {}", position > 0 ? position - 1 : 0);
    return false;
  }

  struct Level {
    JsonValue value;
    std::unordered_map<std::string, size_t> places;  // of an object's keys
    size_t member = 0;                               // that the next value belongs to
  };

  bool Put(JsonValue value) {
    if (levels_.empty()) {
      root = std::move(value);
      return true;
    }
    Level& level = levels_.back();
    if (auto* array = std::get_if<JsonValue::Array>(&level.value.data)) {
      array->push_back(std::move(value));
    } else {
      std::get<JsonValue::Object>(level.value.data)[level.member].second = std::move(value);
    }
    return true;
  }

  bool Open(JsonValue value) {
    if (levels_.size() == kMaxJsonDepth) {
      error = fmt::format("JSON is nested deeper than {} levels", kMaxJsonDepth);
      return false;
    }
    levels_.push_back({std::move(value), {}, 0});
    return true;
  }

  bool Close() {
    JsonValue value = std::move(levels_.back().value);
    levels_.pop_back();
    return Put(std::move(value));
  }

  std::vector<Level> levels_;
};

// Python's repr of a finite float: the shortest digits that read back as the same number, with an
// exponent below 1e-4 and from 1e16 on.
std::string PythonRepr(double value) {
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t mark = text.find('e');
  int exponent = 0;
  const bool has_minus = text[mark + 1] == '-';
  std::from_chars(text.data() + mark + 2, text.data() + text.size(), exponent);
  if (has_minus) exponent = -exponent;
  const bool negative = text[0] == '-';
  std::string digits;
  for (const char c : text.substr(negative ? 1 : 0, mark - (negative ? 1 : 0))) {
    if (c != '.') digits += c;
  }
  const std::string_view sign = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}{}{}{}e{}{:02}", sign, digits[0], digits.size() > 1 ? "." : "",
                       digits.substr(1), has_minus ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) {
    return fmt::format("{}0.{:0>{}}{}", sign, "", -exponent - 1, digits);
  }
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) digits.append(whole + 1 - digits.size(), '0');
  return fmt::format("{}{}.{}", sign, digits.substr(0, whole), digits.substr(whole));
}

struct Dumper {
  std::string* out;

  void operator()(JsonValue::Null) const { *out += "null"; }
  void operator()(bool value) const { *out += value ? "true" : "false"; }
  void operator()(int64_t value) const { *out += std::to_string(value); }
  void operator()(uint64_t value) const { *out += std::to_string(value); }
  void operator()(double value) const { *out += PythonRepr(value); }
  void operator()(const std::string& value) const { AppendJsonString(value, out); }
  void operator()(const JsonValue::Array& items) const {
    *out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) *out += ", ";
      std::visit(*this, items[i].data);
    }
    *out += ']';
  }
  void operator()(const JsonValue::Object& members) const {
    *out += '{';
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) *out += ", ";
      AppendJsonString(members[i].first, out);
      *out += ": ";
      std::visit(*this, members[i].second.data);
    }
    *out += '}';
  }
};

}  // namespace

const JsonValue* JsonValue::Find(std::string_view key) const {
  const auto* members = If<Object>();
  if (members == nullptr) return nullptr;
  for (const auto& [name, value] : *members) {
    if (name == key) return &value;
  }
  return nullptr;
}

Result<JsonValue> ParseJson(std::string_view text) {
  Builder builder;
  nlohmann::json_sax<nlohmann::json>& events = builder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &events)) {
    return InvalidArgument(builder.error);
  }
  return std::move(builder.root);
}

std::string DumpJson(const JsonValue& value) {
  std::string out;
  std::visit(Dumper{&out}, value.data);
  return out;
}

void AppendJsonString(std::string_view text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      case '\b':
        *out += "\\b";
        break;
      case '\f':
        *out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          *out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          *out += c;
        }
    }
  }
  *out += '"';
}

}  // namespace kuruma::text
