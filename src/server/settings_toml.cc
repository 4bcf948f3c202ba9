#include "server/settings_toml.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

namespace kuruma::server {
namespace {

TomlEntry ToEntry(const toml::key& key, const toml::node& node) {
  TomlEntry entry;
  entry.key = key.str();
  entry.line = key.source().begin.line;
  if (const auto* text = node.as_string()) {
    entry.kind = TomlEntry::Kind::kString;
    entry.values = {text->get()};
  } else if (const auto* integer = node.as_integer()) {
    entry.kind = TomlEntry::Kind::kInteger;
    entry.values = {fmt::format("{}", integer->get())};
  } else if (const auto* number = node.as_floating_point()) {
    entry.kind = TomlEntry::Kind::kNumber;
    entry.values = {fmt::format("{}", number->get())};
  } else if (const auto* fact = node.as_boolean()) {
    entry.kind = TomlEntry::Kind::kBool;
    entry.values = {fact->get() ? "true" : "false"};
  } else if (const auto* array = node.as_array()) {
    entry.kind = TomlEntry::Kind::kStrings;
    for (const toml::node& element : *array) {
      if (const auto* item = element.as_string()) {
        entry.values.push_back(item->get());
      } else {
        entry.kind = TomlEntry::Kind::kOther;
      }
    }
  }
  return entry;
}

}  // namespace

Result<std::vector<TomlEntry>> ReadToml(const std::string& text, const std::string& file) {
  std::vector<TomlEntry> entries;
  try {
    const toml::table parsed = toml::parse(text);
    for (const auto& [key, node] : parsed) entries.push_back(ToEntry(key, node));
  } catch (const toml::parse_error& error) {
    return InvalidArgument(
        fmt::format("{}:{}: {}", file, error.source().begin.line, error.description()));
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TomlEntry& a, const TomlEntry& b) { return a.line < b.line; });
  return entries;
}

}  // namespace kuruma::server
