#include "api/fields.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

namespace kuruma::api {

using text::JsonValue;

std::optional<int64_t> AsInteger(const JsonValue& value) {
  if (const auto* number = value.If<int64_t>()) return *number;
  const auto* number = value.If<uint64_t>();
  if (number == nullptr || *number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return static_cast<int64_t>(*number);
}

std::optional<double> AsNumber(const JsonValue& value) {
  if (const auto* number = value.If<double>()) return *number;
  if (const auto* number = value.If<int64_t>()) return static_cast<double>(*number);
  if (const auto* number = value.If<uint64_t>()) return static_cast<double>(*number);
  return std::nullopt;
}

Result<Fields> Fields::Of(const JsonValue& value, std::string path) {
  if (value.If<JsonValue::Object>() == nullptr) {
    return InvalidArgument(path.empty() ? "the body must be a JSON object"
                                        : fmt::format("'{}' must be an object", path));
  }
  return Fields(value, std::move(path));
}

const JsonValue* Fields::Find(std::string_view key) const {
  const JsonValue* member = value_->Find(key);
  return member == nullptr || member->is_null() ? nullptr : member;
}

std::string Fields::Name(std::string_view key) const {
  return path_.empty() ? fmt::format("'{}'", key) : fmt::format("'{}.{}'", path_, key);
}

Result<std::optional<std::string>> Fields::String(std::string_view key) const {
  const JsonValue* member = Find(key);
  if (member == nullptr) return std::optional<std::string>();
  const auto* text = member->If<std::string>();
  if (text == nullptr) return InvalidArgument(Name(key) + " must be a string");
  return std::optional<std::string>(*text);
}

Result<std::optional<bool>> Fields::Bool(std::string_view key) const {
  const JsonValue* member = Find(key);
  if (member == nullptr) return std::optional<bool>();
  const auto* flag = member->If<bool>();
  if (flag == nullptr) return InvalidArgument(Name(key) + " must be true or false");
  return std::optional<bool>(*flag);
}

Result<std::optional<int64_t>> Fields::Integer(std::string_view key, int64_t low,
                                               int64_t high) const {
  const JsonValue* member = Find(key);
  if (member == nullptr) return std::optional<int64_t>();
  const std::optional<int64_t> number = AsInteger(*member);
  if (!number || *number < low || *number > high) {
    return InvalidArgument(fmt::format("{} must be an integer in [{}, {}]", Name(key), low, high));
  }
  return number;
}

Result<std::optional<double>> Fields::Number(std::string_view key, double low, double high) const {
  const JsonValue* member = Find(key);
  if (member == nullptr) return std::optional<double>();
  const std::optional<double> number = AsNumber(*member);
  if (!number || *number < low || *number > high) {
    return InvalidArgument(fmt::format("{} must be a number in [{}, {}]", Name(key), low, high));
  }
  return number;
}

Result<std::optional<Fields>> Fields::Object(std::string_view key) const {
  const JsonValue* member = Find(key);
  if (member == nullptr) return std::optional<Fields>();
  KURUMA_ASSIGN_OR_RETURN(Fields fields, Of(*member, PathOf(*this, key)));
  return std::optional<Fields>(std::move(fields));
}

Result<std::string> RequiredString(const Fields& fields, std::string_view key) {
  KURUMA_ASSIGN_OR_RETURN(auto text, fields.String(key));
  if (!text) return InvalidArgument(fields.Name(key) + " is required");
  return *std::move(text);
}

Result<Fields> RequiredObject(const Fields& fields, std::string_view key) {
  KURUMA_ASSIGN_OR_RETURN(auto object, fields.Object(key));
  if (!object) return InvalidArgument(fields.Name(key) + " is required");
  return *std::move(object);
}

Result<const JsonValue::Array*> ArrayAt(const Fields& fields, std::string_view key) {
  const JsonValue* member = fields.Find(key);
  if (member == nullptr) return static_cast<const JsonValue::Array*>(nullptr);
  const auto* array = member->If<JsonValue::Array>();
  if (array == nullptr) return InvalidArgument(fields.Name(key) + " must be an array");
  return array;
}

std::string PathOf(const Fields& fields, std::string_view key) {
  const std::string name = fields.Name(key);
  return name.substr(1, name.size() - 2);
}

}  // namespace kuruma::api
