#include "base/byte_size.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string>

namespace kuruma {
namespace {

std::string_view Strip(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// Bytes of a unit; 0: there is no such unit.
long double Factor(std::string_view unit) {
  constexpr std::string_view kLetters = "kmgtpe";
  std::string lower;
  for (const char c : unit) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower.empty() || lower == "b") return 1;
  const size_t power = kLetters.find(lower[0]);
  const std::string_view rest = std::string_view(lower).substr(1);
  if (power == std::string_view::npos || !(rest.empty() || rest == "b" || rest == "ib")) return 0;
  return std::pow(rest == "b" ? 1000.0L : 1024.0L, static_cast<int>(power) + 1);
}

}  // namespace

Result<int64_t> ParseByteSize(std::string_view text) {
  constexpr long double kEnd = 9223372036854775808.0L;
  const std::string_view stripped = Strip(text);
  const char* end = stripped.data() + stripped.size();
  long double number = 0;  // its mantissa holds every int64
  const auto [rest, error] =
      std::from_chars(stripped.data(), end, number, std::chars_format::fixed);
  const long double factor = Factor(Strip({rest, static_cast<size_t>(end - rest)}));
  const bool begins = !stripped.empty() && stripped[0] >= '0' && stripped[0] <= '9';
  const long double bytes = std::trunc(number * factor);
  if (error != std::errc() || !begins || factor == 0 || !(bytes < kEnd)) {
    return InvalidArgument(
        fmt::format("not a size, as 1073741824, 512MiB or 2GB are: \"{}\"", text));
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace kuruma
