#include "size_option.h"

#include <fmt/format.h>

#include <array>

#include "base/byte_size.h"

namespace kuruma {
namespace {

// The largest unit that divides, so that the default reads as it would be typed.
std::string Spell(int64_t bytes) {
  constexpr std::array<const char*, 7> kUnits{"", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  while (bytes % 1024 == 0 && bytes > 0 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

}  // namespace

CLI::Option* AddSizeOption(CLI::App* command, const std::string& name, int64_t* bytes,
                           const std::string& help) {
  const int64_t least = *bytes == 0 ? 1 : 0;
  const auto set = [name, bytes, least](const std::string& text) {
    const Result<int64_t> size = ParseByteSize(text);
    if (!size.ok()) throw CLI::ValidationError(name, size.status().message());
    if (*size < least) {
      throw CLI::ValidationError(name, fmt::format("must be at least {}; got {}", least, text));
    }
    *bytes = *size;
  };
  return command->add_option_function<std::string>(name, set, help)
      ->default_str(*bytes == 0 ? "auto" : Spell(*bytes))
      ->type_name("SIZE");
}

}  // namespace kuruma
