// The byte alphabet: one printable code point for each byte, the spelling of byte-level tokens.
// Bytes 33-126, 161-172 and 174-255 stand for themselves, the others in increasing order for
// U+0100, U+0101, ... Source: the ByteLevel scheme of GPT-2's tokenizer.
#ifndef KURUMA_TEXT_BYTE_ALPHABET_H_
#define KURUMA_TEXT_BYTE_ALPHABET_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/utf8.h"

namespace kuruma::text {

inline constexpr uint32_t kAlphabetEnd = 0x144;  // all letters of the alphabet are below

// The byte of each letter below kAlphabetEnd; -1 for code points that are none.
inline constexpr std::array<int16_t, kAlphabetEnd> kByteOfLetter = [] {
  std::array<int16_t, kAlphabetEnd> bytes{};
  bytes.fill(-1);
  uint32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    bytes[itself ? static_cast<uint32_t>(byte) : next++] = static_cast<int16_t>(byte);
  }
  return bytes;
}();

// Bytes that `spelling` (valid UTF-8) stands for; nothing if it holds a code point that is no
// letter of the alphabet.
inline std::optional<std::string> BytesOfSpelling(std::string_view spelling) {
  std::string bytes;
  for (size_t pos = 0; pos < spelling.size();) {
    const CodePoint code = CodePointAt(spelling, pos);
    if (code.value >= kAlphabetEnd || kByteOfLetter[code.value] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteOfLetter[code.value]);
    pos += code.length;
  }
  return bytes;
}

}  // namespace kuruma::text

#endif  // KURUMA_TEXT_BYTE_ALPHABET_H_
