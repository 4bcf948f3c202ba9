// Text of drawn tokens on its way to a reader.
#ifndef KURUMA_APPS_TEXT_STREAM_H_
#define KURUMA_APPS_TEXT_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "generation.h"
#include "stop_matcher.h"
#include "text/tokenizer.h"

namespace kuruma {

// Receives text as soon as it is certain. False: nobody reads it.
using TextSink = std::function<bool(std::string_view text)>;

// Decodes tokens and cuts at stop strings. Without a tokenizer ids and spaces are the text. One
// thread.
class TextStream {
 public:
  // `tokenizer` may be null, then `stops` must be empty; no entry of `stops` is.
  TextStream(const text::Tokenizer* tokenizer, std::vector<std::string> stops, TextSink sink);

  // Stop strings are looked for while `may_stop`.
  SinkVerdict Push(int32_t token, bool may_stop);

  // The answer is over: delivers what was held back and returns the whole text.
  std::string Finish();

 private:
  void Deliver(const std::string& released);

  std::unique_ptr<text::StreamDecoder> decoder_;
  StopMatcher matcher_;
  TextSink sink_;
  std::string text_;
  bool first_ = true;
  bool reader_gone_ = false;
};

}  // namespace kuruma

#endif  // KURUMA_APPS_TEXT_STREAM_H_
