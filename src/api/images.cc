#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "api/request_parts.h"

namespace kuruma::api {
namespace {

constexpr size_t kMaxLinkBytes = 8192;

bool StartsWithIgnoringCase(std::string_view text, std::string_view prefix) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return text.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), text.begin(),
                    [&](char a, char b) { return lower(a) == lower(b); });
}

}  // namespace

Status CheckImageUrl(std::string_view url, const std::string& name) {
  if (StartsWithIgnoringCase(url, "http://") || StartsWithIgnoringCase(url, "https://")) {
    if (url.size() <= kMaxLinkBytes) return {};
    return InvalidArgument(
        fmt::format("{} is {} bytes long; links may have {}", name, url.size(), kMaxLinkBytes));
  }
  if (StartsWithIgnoringCase(url, "data:")) return CheckDataUrl(url, name);
  return InvalidArgument(name + " must be an http(s) link or a base64 data URL");
}

Status CheckDataUrl(std::string_view url, const std::string& name) {
  constexpr std::string_view kMark = "base64,";
  const size_t mark = url.find(kMark);
  if (!StartsWithIgnoringCase(url, "data:") || mark == std::string_view::npos) {
    return InvalidArgument(name + " must be a base64 data URL");
  }
  constexpr std::array<std::string_view, 4> kTypes = {"image/png", "image/jpeg", "image/gif",
                                                      "image/webp"};
  const std::string_view type = url.substr(5);
  if (std::none_of(kTypes.begin(), kTypes.end(),
                   [&](std::string_view known) { return StartsWithIgnoringCase(type, known); })) {
    return InvalidArgument(name + " must be a PNG, JPEG, GIF or WebP image");
  }
  const std::string_view data = url.substr(mark + kMark.size());
  const bool is_base64 = std::all_of(data.begin(), data.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/' || c == '=';
  });
  if (!is_base64) return InvalidArgument(name + " holds invalid base64 data");
  return {};
}

Result<std::string> ReadDetail(const Fields& image) {
  KURUMA_ASSIGN_OR_RETURN(auto detail, image.String("detail"));
  std::string level = std::move(detail).value_or("auto");
  if (level == "auto" || level == "low" || level == "high" || level == "original") return level;
  return InvalidArgument(image.Name("detail") + " must be auto, low, high or original");
}

}  // namespace kuruma::api
