#include "text/utf8.h"

#include <simdjson.h>

namespace kuruma::text {
namespace {

enum class Form { kWhole, kBroken, kUnfinished };

struct Sequence {
  Form form;
  size_t length;  // bytes that belong together: a character, or a maximal subpart of one
};

// Classifies what starts at bytes[0]; `bytes` is not empty.
Sequence NextSequence(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Form::kWhole, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Form::kBroken, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range is narrower after these leads: no overlong forms, no surrogates,
  // nothing above U+10FFFF.
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Form::kUnfinished, i};
    if (byte(i) < low || byte(i) > high) return {Form::kBroken, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Form::kWhole, length};
}

}  // namespace

void AppendCodePoint(uint32_t code, std::string* out) {
  const auto continuation = [](uint32_t bits) { return static_cast<char>(0x80 | (bits & 0x3F)); };
  if (code < 0x80) {
    *out += static_cast<char>(code);
  } else if (code < 0x800) {
    *out += static_cast<char>(0xC0 | code >> 6);
    *out += continuation(code);
  } else if (code < 0x10000) {
    *out += static_cast<char>(0xE0 | code >> 12);
    *out += continuation(code >> 6);
    *out += continuation(code);
  } else {
    *out += static_cast<char>(0xF0 | code >> 18);
    *out += continuation(code >> 12);
    *out += continuation(code >> 6);
    *out += continuation(code);
  }
}

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return std::nullopt;
  size_t pos = 0;
  while (pos < text.size()) {
    const Sequence next = NextSequence(text.substr(pos));
    if (next.form != Form::kWhole) return pos;
    pos += next.length;
  }
  return std::nullopt;
}

size_t AppendLossyUtf8(std::string_view bytes, bool final, std::string* out) {
  size_t pos = 0;
  while (pos < bytes.size()) {
    const Sequence next = NextSequence(bytes.substr(pos));
    if (next.form == Form::kWhole) {
      out->append(bytes, pos, next.length);
    } else if (next.form == Form::kUnfinished && !final) {
      return pos;
    } else {
      out->append("\uFFFD");
    }
    pos += next.length;
  }
  return pos;
}

}  // namespace kuruma::text
