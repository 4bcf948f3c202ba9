// UTF-8: validation, and decoding of bytes that may be broken or unfinished.
// Source: Unicode 16.0, section 3.9 (well-formed sequences, U+FFFD for maximal subparts).
#ifndef KURUMA_TEXT_UTF8_H_
#define KURUMA_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kuruma::text {

struct CodePoint {
  uint32_t value;
  uint32_t length;  // bytes
};

// The code point at text[pos]; `text` must be valid UTF-8 and pos at the start of a character.
inline CodePoint CodePointAt(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[pos + i]); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3Fu), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu), 3};
  return {
      (lead & 0x07) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu),
      4};
}

// Appends `code` (a scalar value) as UTF-8.
void AppendCodePoint(uint32_t code, std::string* out);

// Byte offset of the first character that is not well-formed; nothing if all of `text` is.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

// Appends `bytes` to `out` with U+FFFD for each maximal broken sequence. Unless `final`, an
// unfinished character at the end is not appended. Returns how many bytes were consumed.
size_t AppendLossyUtf8(std::string_view bytes, bool final, std::string* out);

}  // namespace kuruma::text

#endif  // KURUMA_TEXT_UTF8_H_
