// Reading a TOML file into keys and texts with their lines.
#ifndef KURUMA_SERVER_SETTINGS_TOML_H_
#define KURUMA_SERVER_SETTINGS_TOML_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace kuruma::server {

struct TomlEntry {
  enum class Kind { kString, kInteger, kNumber, kBool, kStrings, kOther };
  std::string key;
  Kind kind = Kind::kOther;         // kStrings: an array of strings; kOther: a table, a date, ...
  std::vector<std::string> values;  // the text of the value, or of each element
  uint32_t line = 0;
};

// The keys of the top level in the order of the file. InvalidArgument "FILE:LINE: ..." for what is
// no TOML. `file` names it in errors.
Result<std::vector<TomlEntry>> ReadToml(const std::string& text, const std::string& file);

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_SETTINGS_TOML_H_
