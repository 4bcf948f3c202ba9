// Byte-level BPE tokenizer of DeepSeek-V4.1, read from the checkpoint's tokenizer.json.
//
// A text is cut at added tokens (leftmost-longest, anywhere), what lies between is cut by the
// three-step pre-tokenizer (text/pretokenizer.h), and each piece is merged by rank (text/bpe.h).
// Decoding concatenates the bytes of tokens and reads them as UTF-8. Nothing is added at either
// end: the begin-of-sentence token is part of the prompt text.
// Source: Hugging Face tokenizer.json format, BPE with a ByteLevel decoder.
#ifndef KURUMA_TEXT_TOKENIZER_H_
#define KURUMA_TEXT_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kuruma::text {

// What one id stands for. Views live as long as the tokenizer.
struct TokenInfo {
  std::string_view
      text;  // as the file spells it: in the byte alphabet, or an added token's content
  std::string_view bytes;  // what it decodes to; may be a part of a UTF-8 character
  bool added = false;      // listed in added_tokens: matched as a whole before pre-tokenization
  bool special = false;    // the file's flag: left out by skip_special decoding
};

// Immutable after loading: every method may be called from any number of threads.
class Tokenizer {
 public:
  // Reads tokenizer.json at `path`. kNotFound: no such file; kDataLoss: the file is not a
  // byte-level BPE tokenizer of the V3/V4/V4.1 family, with file, field and reason. `truncation`
  // and `padding` settings of the file are ignored: they are no business of an inference server.
  static Result<std::unique_ptr<Tokenizer>> Load(const std::string& path);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Ids of `text`, added tokens recognised wherever they are spelled. Time is O(n log n) whatever
  // the text. kInvalidArgument, naming the byte offset, if `text` is not UTF-8.
  Result<std::vector<int32_t>> Encode(std::string_view text) const;

  // As Encode, but spellings of added tokens are ordinary characters: how text that comes from
  // users is encoded, so that it can never become a control token.
  Result<std::vector<int32_t>> EncodePlain(std::string_view text) const;

  // Text of `ids`: always valid UTF-8, with U+FFFD for each maximal broken byte sequence.
  // `skip_special` leaves out tokens flagged special. kInvalidArgument for an id out of range.
  Result<std::string> Decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // `id` in [0, vocab_size()); anything else is a broken promise (KURUMA_CHECK).
  TokenInfo Token(int32_t id) const;

  // Shorthand for Token(id).bytes.
  std::string_view TokenBytes(int32_t id) const;

  // Id of the added token spelled `content`, e.g. "<｜User｜>"; nothing if there is none.
  std::optional<int32_t> AddedTokenId(std::string_view content) const;

  // Number of ids, added tokens included; ids have no holes.
  int32_t vocab_size() const;

 private:
  friend Result<std::unique_ptr<Tokenizer>> ParseTokenizer(std::string_view json,
                                                           const std::string& name);
  struct Tables;
  explicit Tokenizer(std::unique_ptr<Tables> tables);

  std::unique_ptr<Tables> tables_;
};

// Builds a tokenizer from the text of a tokenizer.json; `name` stands for the file in errors.
Result<std::unique_ptr<Tokenizer>> ParseTokenizer(std::string_view json, const std::string& name);

// Turns a growing sequence of ids into text, releasing bytes as soon as they form whole characters.
// The pieces, concatenated, equal Tokenizer::Decode of all ids. One owner at a time; the tokenizer
// must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // Text released by `id`, possibly empty; valid UTF-8. An id without a token releases nothing.
  std::string Push(int32_t id);

  // What is left at the end of generation: U+FFFD for an unfinished character, or nothing.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;  // bytes of an unfinished character
};

}  // namespace kuruma::text

#endif  // KURUMA_TEXT_TOKENIZER_H_
