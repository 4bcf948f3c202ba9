#include "size_option.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>

#include "inputs.h"

namespace kuruma {
namespace {

constexpr std::string_view kLetters = "kmgtpe";

// 1024 to the power that the unit stands for; 0: there is no such unit.
int64_t Factor(std::string_view unit) {
  std::string lower;
  for (const char c : unit) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower.empty() || lower == "b") return 1;
  const size_t power = kLetters.find(lower[0]);
  const std::string_view rest = std::string_view(lower).substr(1);
  if (power == std::string_view::npos ||
      !(rest.empty() || rest == "b" || rest == "i" || rest == "ib"))
    return 0;
  return int64_t{1} << (10 * (power + 1));
}

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

Result<int64_t> ParseSize(std::string_view text, int64_t least) {
  const std::string_view stripped = Strip(text);
  const auto refuse = [&] {
    return InvalidArgument(
        fmt::format("expected bytes, as in 1073741824, 512MiB or 1GiB, in {}..{}; got \"{}\"",
                    least, std::numeric_limits<int64_t>::max(), text));
  };
  int64_t number = 0;
  const char* end = stripped.data() + stripped.size();
  const auto [rest, error] = std::from_chars(stripped.data(), end, number);
  if (error != std::errc() || number < least) return refuse();
  const int64_t factor = Factor(Strip({rest, static_cast<size_t>(end - rest)}));
  if (factor == 0 || number > std::numeric_limits<int64_t>::max() / factor) return refuse();
  return number * factor;
}

CLI::Option* AddSizeOption(CLI::App* command, const std::string& name, int64_t* bytes,
                           const std::string& help) {
  const int64_t least = *bytes == 0 ? 1 : 0;
  const auto set = [name, bytes, least](const std::string& text) {
    const Result<int64_t> size = ParseSize(text, least);
    if (!size.ok()) throw CLI::ValidationError(name, size.status().message());
    *bytes = *size;
  };
  return command->add_option_function<std::string>(name, set, help)
      ->default_str(*bytes == 0 ? "auto" : Spell(*bytes))
      ->type_name("SIZE");
}

}  // namespace kuruma
