// The table of the server's options, and the reading and writing of one value.
#ifndef KURUMA_SERVER_SETTINGS_TABLE_H_
#define KURUMA_SERVER_SETTINGS_TABLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "server/settings.h"

namespace kuruma::server {

using StringField = std::string ServerSettings::*;
using ListField = std::vector<std::string> ServerSettings::*;
using IntegerField = int64_t ServerSettings::*;
using NumberField = double ServerSettings::*;
using BoolField = bool ServerSettings::*;

struct Option {
  std::string_view section;
  std::string_view key;  // max_queue
  std::variant<StringField, ListField, IntegerField, NumberField, BoolField> field;
  std::string_view help;
  double low;  // of numbers
  double high;
  std::string_view choices;  // "a|b|c", of strings; empty: any
  std::string_view unit;     // "BYTES" also takes 4KiB, 1.5GiB
  bool secret;

  std::string flag() const;         // --max-queue
  std::string variable() const;     // KURUMA_MAX_QUEUE
  std::string value_name() const;   // N, BYTES, true|false
  std::string Requirement() const;  // what a value must be: "an integer from 1 to 64"
};

// All of them, by section.
std::span<const Option> ServerOptions();

// The option with that TOML key; null if there is none.
const Option* FindOption(std::string_view key);

// The known name most like `key`, for error messages; empty if none is close.
std::string_view NearestKey(std::string_view key);

// Sets an option from text. `values`: one, or for lists all. InvalidArgument
// "WHERE: must be ..., not VALUE".
Status SetOption(const Option& option, const std::vector<std::string>& values,
                 const std::string& where, ServerSettings* settings);

// The value in TOML; secrets as "***".
std::string FormatOption(const Option& option, const ServerSettings& settings);

// "text" as a TOML basic string.
std::string QuoteToml(std::string_view text);

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_SETTINGS_TABLE_H_
