// Classes of code points as the pre-tokenizer distinguishes them.
// Source: general categories and White_Space of Unicode 16.0.
#ifndef KURUMA_TEXT_UNICODE_CLASSES_H_
#define KURUMA_TEXT_UNICODE_CLASSES_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace kuruma::text {

// The first six are the classes of the third split; the block classes are the same inside the kana
// and ideograph ranges (U+3040-30FF, U+4E00-9FA5) that the second split isolates.
enum class CodeClass : uint8_t {
  kOther,
  kLetter,       // \p{L} or \p{M}
  kPunctuation,  // \p{P} or \p{S}
  kSpace,        // \s without CR and LF
  kNewline,      // CR, LF
  kNumber,       // \p{N}
  kBlockOther,
  kBlockLetter,
  kBlockPunctuation,
};

struct CodeRange {
  uint32_t first;
  uint32_t last;
  CodeClass code_class;
};

// All classified ranges, increasing; code points outside are kOther.
extern const std::span<const CodeRange> kCodeRanges;

// The ranges as a two-level table: one load for ASCII, two for the rest. Immutable; any thread.
class CodeClassTable {
 public:
  // The one instance, built on first use (about 1 ms).
  static const CodeClassTable& Get();

  CodeClass Of(uint32_t code) const { return blocks_[index_[code >> 8]][code & 255]; }

 private:
  CodeClassTable();

  using Block = std::array<CodeClass, 256>;
  std::array<uint16_t, 0x1100> index_ = {};  // by code >> 8
  std::vector<Block> blocks_;
};

}  // namespace kuruma::text

#endif  // KURUMA_TEXT_UNICODE_CLASSES_H_
