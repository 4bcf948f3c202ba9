#include "text/pretokenizer.h"

#include <algorithm>

#include "text/utf8.h"

namespace kuruma::text {
namespace {

bool IsAsciiLetter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

bool IsAsciiPunctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

// Which of the first two splits takes a character: 0 neither, 1 numbers, 2 the block.
int SplitOf(CodeClass c) {
  if (c == CodeClass::kNumber) return 1;
  return c >= CodeClass::kBlockOther ? 2 : 0;
}

// The class as the third split sees it.
CodeClass Plain(CodeClass c) {
  switch (c) {
    case CodeClass::kBlockOther:
      return CodeClass::kOther;
    case CodeClass::kBlockLetter:
      return CodeClass::kLetter;
    case CodeClass::kBlockPunctuation:
      return CodeClass::kPunctuation;
    default:
      return c;
  }
}

}  // namespace

const std::string_view kSplitPatterns[3] = {
    R"(\p{N}{1,3})",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

struct PieceReader::Unit {
  CodeClass code_class;
  size_t end;
};

PieceReader::PieceReader(std::string_view text) : classes_(CodeClassTable::Get()), text_(text) {}

PieceReader::Unit PieceReader::At(size_t pos) const {
  const CodePoint code = CodePointAt(text_, pos);
  return {classes_.Of(code.value), pos + code.length};
}

bool PieceReader::Next(std::string_view* piece) {
  if (pos_ == text_.size()) return false;
  if (pos_ == segment_end_) StartSegment();
  size_t end = pos_;
  if (in_number_) {
    end = MatchNumber();
  } else if (end = MatchThird(pos_); end == pos_) {
    // Nothing matches here: the piece reaches to the next place where something does.
    do {
      end = At(end).end;
    } while (end < segment_end_ && MatchThird(end) == end);
  }
  *piece = text_.substr(pos_, end - pos_);
  pos_ = end;
  return true;
}

void PieceReader::StartSegment() {
  Unit unit = At(pos_);
  const int split = SplitOf(unit.code_class);
  in_number_ = split == 1;
  segment_end_ = unit.end;
  while (segment_end_ < text_.size()) {
    unit = At(segment_end_);
    if (SplitOf(unit.code_class) != split) break;
    segment_end_ = unit.end;
  }
}

size_t PieceReader::MatchNumber() const {
  size_t end = pos_;
  for (int digits = 0; digits < 3 && end < segment_end_; ++digits) end = At(end).end;
  return end;
}

// First position in [pos, segment_end_) whose class is another one.
size_t PieceReader::SkipClass(size_t pos, CodeClass wanted) const {
  while (pos < segment_end_) {
    const Unit unit = At(pos);
    if (Plain(unit.code_class) != wanted) break;
    pos = unit.end;
  }
  return pos;
}

// End of the third expression's match at `pos`; `pos` itself if there is none.
size_t PieceReader::MatchThird(size_t pos) const {
  const char first = text_[pos];
  const Unit unit = At(pos);
  const CodeClass code_class = Plain(unit.code_class);
  if (code_class == CodeClass::kLetter) return SkipClass(unit.end, CodeClass::kLetter);
  if (code_class == CodeClass::kPunctuation) {
    size_t end = unit.end;
    if (IsAsciiPunctuation(first) && end < segment_end_ && IsAsciiLetter(text_[end])) {
      while (end < segment_end_ && IsAsciiLetter(text_[end])) ++end;
      return end;
    }
    return SkipClass(SkipClass(end, CodeClass::kPunctuation), CodeClass::kNewline);
  }
  if (code_class != CodeClass::kNewline && unit.end < segment_end_) {
    const CodeClass next = Plain(At(unit.end).code_class);
    if (next == CodeClass::kLetter) return SkipClass(unit.end, CodeClass::kLetter);
    if (first == ' ' && next == CodeClass::kPunctuation) {
      return SkipClass(SkipClass(unit.end, CodeClass::kPunctuation), CodeClass::kNewline);
    }
  }
  return code_class == CodeClass::kOther ? pos : MatchSpace(pos);
}

// The white-space alternatives. `pos` is at white space that no other alternative takes.
size_t PieceReader::MatchSpace(size_t pos) const {
  size_t end = pos;
  size_t last = pos;           // start of the run's last character
  size_t after_newline = pos;  // after the run's last CR or LF
  while (end < segment_end_) {
    const Unit unit = At(end);
    const bool is_newline = unit.code_class == CodeClass::kNewline;
    if (!is_newline && unit.code_class != CodeClass::kSpace) break;
    last = end;
    end = unit.end;
    if (is_newline) after_newline = end;
  }
  if (after_newline != pos) return after_newline;
  // Before something visible the last space is left over, for the word that follows.
  return end < segment_end_ && last != pos ? last : end;
}

}  // namespace kuruma::text
