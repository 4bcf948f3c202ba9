#include "text_stream.h"

#include <fmt/format.h>

#include <utility>

namespace kuruma {

TextStream::TextStream(const text::Tokenizer* tokenizer, std::vector<std::string> stops,
                       TextSink sink)
    : matcher_(std::move(stops)), sink_(std::move(sink)) {
  if (tokenizer != nullptr) decoder_ = std::make_unique<text::StreamDecoder>(*tokenizer);
}

SinkVerdict TextStream::Push(int32_t token, bool may_stop) {
  if (decoder_ == nullptr) {
    Deliver(fmt::format("{}{}", first_ ? "" : " ", token));
    first_ = false;
  } else {
    const std::string piece = decoder_->Push(token);
    const std::string released = may_stop ? matcher_.Push(piece) : piece;
    text_ += released;
    Deliver(released);
  }
  if (matcher_.stopped()) return SinkVerdict::kStop;
  return reader_gone_ ? SinkVerdict::kReaderGone : SinkVerdict::kGoOn;
}

std::string TextStream::Finish() {
  if (decoder_ != nullptr && !matcher_.stopped()) {
    const std::string rest = matcher_.Push(decoder_->Finish()) + matcher_.Finish();
    text_ += rest;
    Deliver(rest);
  }
  return std::move(text_);
}

void TextStream::Deliver(const std::string& released) {
  if (!released.empty() && !reader_gone_) reader_gone_ = !sink_(released);
}

}  // namespace kuruma
