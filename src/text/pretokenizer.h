// The pre-tokenizer: cuts text into the pieces that BPE merges within.
//
// Three regular expressions, each cutting every piece that the one before left; what a regex does
// not match stays as a piece of its own:
//   1. \p{N}{1,3}
//   2. [U+4E00-9FA5 U+3040-309F U+30A0-30FF]+
//   3. [ASCII punctuation][A-Za-z]+ | [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
//      | ?[\p{P}\p{S}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
// The order matters: lookaheads of the third see only the piece that the second left.
// Source: `pre_tokenizer` of the V3, V4 and V4.1 tokenizer.json.
#ifndef KURUMA_TEXT_PRETOKENIZER_H_
#define KURUMA_TEXT_PRETOKENIZER_H_

#include <cstddef>
#include <string_view>

#include "text/unicode_classes.h"

namespace kuruma::text {

// The three expressions as the file spells them; a loader compares.
extern const std::string_view kSplitPatterns[3];

// Reads the pieces of one text in order. The text must be valid UTF-8 and outlive the reader.
// Every byte belongs to exactly one piece; total time is linear. One owner at a time.
class PieceReader {
 public:
  explicit PieceReader(std::string_view text);

  // The next piece, not empty; false at the end.
  bool Next(std::string_view* piece);

 private:
  struct Unit;  // one character
  Unit At(size_t pos) const;
  void StartSegment();
  size_t MatchNumber() const;
  size_t MatchThird(size_t pos) const;
  size_t MatchSpace(size_t pos) const;
  size_t SkipClass(size_t pos, CodeClass wanted) const;

  const CodeClassTable& classes_;
  std::string_view text_;
  size_t pos_ = 0;
  // What the first two splits isolate, or a stretch between: the third stays inside.
  size_t segment_end_ = 0;
  bool in_number_ = false;
};

}  // namespace kuruma::text

#endif  // KURUMA_TEXT_PRETOKENIZER_H_
