// Answers a conversation: prompt, tokens, and the answer cut into reasoning, content and calls.
#ifndef KURUMA_APPS_ANSWER_H_
#define KURUMA_APPS_ANSWER_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "base/status.h"
#include "engine/sampler.h"
#include "generation.h"
#include "model/state.h"
#include "model_loader.h"
#include "text/parser.h"
#include "text/prompt.h"

namespace kuruma {

struct AnswerOptions {
  engine::SamplingParams sampling;
  std::optional<int64_t> max_tokens;  // nothing: what the context leaves
  // Sees every token but the last, with the sequence that it was drawn for. May be empty.
  std::function<Status(const model::SequenceState& state, int32_t token)> watch;
};

struct Answer {
  text::ParsedAnswer parsed;
  GenerationInput input;  // what was run
  Generation generation;
};

// False: nobody reads the answer.
using EventSink = std::function<bool(const text::ParserEvent& event)>;

// Keeps the sequence between answers, so that a conversation that goes on is not read again. One
// thread. The model must outlive it and have a tokenizer.
class Answerer {
 public:
  explicit Answerer(const LoadedModel& loaded);

  // Events reach `sink` as they become certain. InvalidArgument: images, text that is not UTF-8, a
  // prompt that fills the context, sampling parameters out of range; Internal: see Generate.
  Result<Answer> Run(const text::Conversation& conversation, const AnswerOptions& options,
                     const EventSink& sink);

 private:
  const LoadedModel& loaded_;
  model::SequenceState state_;
};

}  // namespace kuruma

#endif  // KURUMA_APPS_ANSWER_H_
