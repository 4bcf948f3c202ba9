#include "text/engram_map.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/check.h"
#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace kuruma::text {
namespace {

// `text` (valid UTF-8, any bytes) mapped by utf8proc.
std::string Mapped(const std::string& text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()), &mapped, static_cast<utf8proc_option_t>(options));
  KURUMA_CHECK(length >= 0);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  return {reinterpret_cast<const char*>(mapped), static_cast<size_t>(length)};
}

bool IsMark(utf8proc_category_t category) {
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

std::string WithoutMarksLowerCase(std::string_view text) {
  std::string result;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint code = CodePointAt(text, pos);
    pos += code.length;
    const auto value = static_cast<utf8proc_int32_t>(code.value);
    if (IsMark(utf8proc_category(value))) continue;
    AppendCodePoint(static_cast<uint32_t>(utf8proc_tolower(value)), &result);
  }
  return result;
}

std::string SpacesCollapsed(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool is_space = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!is_space) {
      result += c;
    } else if (result.empty() || result.back() != ' ') {
      result += ' ';
    }
  }
  return result;
}

std::string_view Stripped(std::string_view text) {
  const CodeClassTable& classes = CodeClassTable::Get();
  size_t begin = text.size();
  size_t end = 0;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint code = CodePointAt(text, pos);
    const CodeClass code_class = classes.Of(code.value);
    if (code_class != CodeClass::kSpace && code_class != CodeClass::kNewline) {
      if (begin == text.size()) begin = pos;
      end = pos + code.length;
    }
    pos += code.length;
  }
  return end == 0 ? std::string_view() : text.substr(begin, end - begin);
}

std::string Key(const Tokenizer& tokenizer, int32_t id) {
  const TokenInfo token = tokenizer.Token(id);
  std::string text;
  AppendLossyUtf8(token.bytes, /*final=*/true, &text);
  if (text.find("\uFFFD") != std::string::npos) return std::string(token.text);
  const std::string composed = Mapped(text, UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_COMPOSE);
  const std::string decomposed = Mapped(composed, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  const std::string collapsed = SpacesCollapsed(WithoutMarksLowerCase(decomposed));
  if (collapsed == " ") return collapsed;
  const std::string_view stripped = Stripped(collapsed);
  return stripped.empty() ? text : std::string(stripped);
}

}  // namespace

TokenClasses ComputeTokenClasses(const Tokenizer& tokenizer) {
  TokenClasses classes;
  classes.class_of.reserve(static_cast<size_t>(tokenizer.vocab_size()));
  std::unordered_map<std::string, int32_t> class_of_key;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto [entry, is_new] = class_of_key.emplace(Key(tokenizer, id), classes.num_classes);
    if (is_new) ++classes.num_classes;
    classes.class_of.push_back(entry->second);
  }
  return classes;
}

}  // namespace kuruma::text
