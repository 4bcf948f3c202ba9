// Keeps log-probabilities in step with text: which tokens belong to a piece of text that the parser
// releases later, or not at all. Private to the api module.
#ifndef KURUMA_API_LOGPROB_TRACK_H_
#define KURUMA_API_LOGPROB_TRACK_H_

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer.h"
#include "api/writer.h"
#include "text/tokenizer.h"

namespace kuruma::api {

// One choice. A token is listed with the piece of text in which its own text begins; a token of
// which nothing is shown (markers, newlines that the parser drops, what a stop string cuts off,
// arguments) is not listed. Not thread-safe; the tokenizer must outlive it.
class LogprobTrack {
 public:
  explicit LogprobTrack(const text::Tokenizer& tokenizer)
      : tokenizer_(tokenizer), decoder_(tokenizer) {}

  // A token that the parser takes as text.
  void Push(const TokenPiece& piece, int top_logprobs);

  // No token follows that could complete a character: a marker, or the end.
  void EndText();

  // The tokens whose text begins in `text`, which the parser has released next. Linear in the text
  // and the tokens that are passed.
  std::vector<LogprobEntry> Release(std::string_view text);

  // What was pushed so far is no text that anything will still be released of.
  void Clear() { pending_.clear(); }

 private:
  struct Pending {
    LogprobEntry entry;
    std::string text;  // what the decoder released with it
    size_t shown = 0;  // bytes of it
    bool is_listed = false;
  };

  const text::Tokenizer& tokenizer_;
  text::StreamDecoder decoder_;
  std::deque<Pending> pending_;
};

}  // namespace kuruma::api

#endif  // KURUMA_API_LOGPROB_TRACK_H_
