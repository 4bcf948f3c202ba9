// Typed access to the members of a request's JSON objects, with errors that name the field.
#ifndef KURUMA_API_FIELDS_H_
#define KURUMA_API_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/json.h"

namespace kuruma::api {

// One JSON object of a request. A member that is null counts as absent, as clients write both.
// The value must outlive the view. Errors are kInvalidArgument, e.g. "'messages[0].role' must be
// a string". Any thread.
class Fields {
 public:
  // kInvalidArgument if `value` is no object. `path` names it in errors; empty for the body.
  static Result<Fields> Of(const text::JsonValue& value, std::string path);

  // Member `key`, or null if absent.
  const text::JsonValue* Find(std::string_view key) const;

  // Name of a member for errors, e.g. "'tools[0].function.name'".
  std::string Name(std::string_view key) const;

  // The member, checked: nothing if absent, an error if of another type.
  Result<std::optional<std::string>> String(std::string_view key) const;
  Result<std::optional<bool>> Bool(std::string_view key) const;
  Result<std::optional<int64_t>> Integer(std::string_view key, int64_t low, int64_t high) const;
  Result<std::optional<double>> Number(std::string_view key, double low, double high) const;

  // The object at member `key`; nothing if absent.
  Result<std::optional<Fields>> Object(std::string_view key) const;

 private:
  Fields(const text::JsonValue& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const text::JsonValue* value_;
  std::string path_;
};

// The member, checked: an error if absent or of another type.
Result<std::string> RequiredString(const Fields& fields, std::string_view key);
Result<Fields> RequiredObject(const Fields& fields, std::string_view key);

// The array at member `key`; null if absent.
Result<const text::JsonValue::Array*> ArrayAt(const Fields& fields, std::string_view key);

// Path of a member, to be extended: as Fields::Name, without quotes.
std::string PathOf(const Fields& fields, std::string_view key);

// The value as an integer or a number; nothing if it is none (a float is no integer).
std::optional<int64_t> AsInteger(const text::JsonValue& value);
std::optional<double> AsNumber(const text::JsonValue& value);

}  // namespace kuruma::api

#endif  // KURUMA_API_FIELDS_H_
