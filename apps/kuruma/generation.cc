#include "generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <memory>

#include "report.h"
#include "stop_matcher.h"

namespace kuruma {
namespace {

volatile std::sig_atomic_t interrupted = 0;

// Turns Ctrl-C into a flag for its lifetime; a second Ctrl-C has the usual effect.
class CatchInterrupt {
 public:
  CatchInterrupt() {
    interrupted = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    sigaction(SIGINT, &action, &previous_);
  }
  ~CatchInterrupt() { sigaction(SIGINT, &previous_, nullptr); }
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;

 private:
  struct sigaction previous_ {};
};

// Text of drawn tokens on its way to the reader.
class TextStream {
 public:
  TextStream(const text::Tokenizer* tokenizer, std::vector<std::string> stops, const TextSink& sink)
      : matcher_(std::move(stops)), sink_(sink) {
    if (tokenizer != nullptr) decoder_ = std::make_unique<text::StreamDecoder>(*tokenizer);
  }

  bool stopped() const { return matcher_.stopped(); }
  bool reader_gone() const { return reader_gone_; }
  std::string& text() { return text_; }

  void Push(int32_t token, bool may_stop) {
    if (decoder_ == nullptr) {
      Deliver(fmt::format("{}{}", first_ ? "" : " ", token));
      first_ = false;
      return;
    }
    const std::string piece = decoder_->Push(token);
    const std::string released = may_stop ? matcher_.Push(piece) : piece;
    text_ += released;
    Deliver(released);
  }

  void Finish() {
    if (decoder_ == nullptr || matcher_.stopped()) return;
    const std::string rest = matcher_.Push(decoder_->Finish()) + matcher_.Finish();
    text_ += rest;
    Deliver(rest);
  }

 private:
  void Deliver(const std::string& released) {
    if (!released.empty() && !reader_gone_) reader_gone_ = !sink_(released);
  }

  std::unique_ptr<text::StreamDecoder> decoder_;
  StopMatcher matcher_;
  const TextSink& sink_;
  std::string text_;
  bool first_ = true;
  bool reader_gone_ = false;
};

Status CheckLength(const LoadedModel& loaded, size_t prompt, int64_t max_tokens) {
  const int64_t context = loaded.model->config().max_positions;
  const auto length = static_cast<int64_t>(prompt);
  if (length >= context) {
    return InvalidArgument(
        fmt::format("the prompt has {} tokens; the context is {}", length, context));
  }
  if (length + max_tokens > context) {
    return InvalidArgument(
        fmt::format("the prompt has {} tokens and max-tokens is {}; the context "
                    "is {}",
                    length, max_tokens, context));
  }
  return Status();
}

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

Result<Generation> Generate(const LoadedModel& loaded, const std::vector<int32_t>& prompt,
                            engine::SamplingParams sampling, const StopRules& rules,
                            const TextSink& sink) {
  model::Model& model = *loaded.model;
  KURUMA_RETURN_IF_ERROR(CheckLength(loaded, prompt.size(), rules.max_tokens));
  if (!rules.texts.empty() && loaded.tokenizer == nullptr) {
    return InvalidArgument("stop strings need a tokenizer.json in the checkpoint directory");
  }
  sampling.end_tokens = rules.tokens;
  if (!rules.ignore_eos) sampling.end_tokens.push_back(model.config().eos_token);
  KURUMA_RETURN_IF_ERROR(engine::CheckSamplingParams(sampling, model.config().vocab));
  engine::Sampler sampler(std::move(sampling));
  const engine::SamplingParams& params = sampler.params();

  const CatchInterrupt catch_interrupt;
  Generation out;
  TextStream stream(loaded.tokenizer.get(), rules.texts, sink);
  model::SequenceState state(model.layout());
  model::ForwardResult result;
  const Stopwatch prefill;
  const auto keep_result = [&](int64_t, const model::ForwardResult& pass) {
    if (!pass.logits.empty()) result = pass;
    return interrupted != 0 ? Internal("interrupted") : Status();
  };
  const Status fed = FeedPrompt(loaded, {prompt, model::LogitRows::kLast}, &state, keep_result);
  out.prefill_ms = prefill.ms();
  if (interrupted != 0) {
    out.finish_reason = "interrupted";
    return out;
  }
  KURUMA_RETURN_IF_ERROR(fed);
  const Stopwatch decode;
  while (out.finish_reason.empty()) {
    KURUMA_ASSIGN_OR_RETURN(engine::SampledToken drawn,
                            sampler.Sample(result.Row(0), {prompt, out.ids}, state.position()));
    const int32_t token = drawn.token;
    out.ids.push_back(token);
    out.sampled.push_back(std::move(drawn));
    const auto count = static_cast<int64_t>(out.ids.size());
    const bool may_stop = count >= params.min_tokens;
    const bool ends = Contains(params.end_tokens, token);
    if (!ends) stream.Push(token, may_stop);
    if (ends || stream.stopped()) {
      out.finish_reason = "stop";
    } else if (interrupted != 0 || stream.reader_gone()) {
      out.finish_reason = "interrupted";
    } else if (count >= rules.max_tokens) {
      out.finish_reason = "length";
    } else {
      const model::SequenceInput input{&state, {&token, 1}, 0, model::LogitRows::kLast};
      KURUMA_RETURN_IF_ERROR(model.Forward({&input, 1}, nullptr, &result));
      ++out.decode_steps;
    }
  }
  out.decode_ms = decode.ms();
  stream.Finish();
  out.text = std::move(stream.text());
  return out;
}

}  // namespace kuruma
