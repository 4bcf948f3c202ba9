#include "answer.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

namespace kuruma {

Answerer::Answerer(const LoadedModel& loaded) : loaded_(loaded), state_(loaded.model->layout()) {}

Result<Answer> Answerer::Run(const text::Conversation& conversation, const AnswerOptions& options,
                             const EventSink& sink) {
  const text::RenderedPrompt prompt = text::RenderPrompt(conversation);
  if (prompt.num_images > 0) return InvalidArgument("images cannot be read here");
  Answer answer;
  GenerationInput& input = answer.input;
  KURUMA_ASSIGN_OR_RETURN(input.prompt, text::EncodePrompt(prompt, *loaded_.tokenizer));
  input.sampling = options.sampling;
  const int64_t context = loaded_.model->config().max_positions;
  const int64_t room = context - static_cast<int64_t>(input.prompt.size());
  if (room < 1) {
    return InvalidArgument(fmt::format("the conversation has {} tokens; the context is {}",
                                       input.prompt.size(), context));
  }
  input.max_tokens = options.max_tokens.value_or(room);

  KURUMA_ASSIGN_OR_RETURN(
      const std::unique_ptr<text::OutputParser> parser,
      text::OutputParser::Create(*loaded_.tokenizer, text::ParserOptionsFor(conversation)));
  bool reader_gone = false;
  const auto deliver = [&](const std::vector<text::ParserEvent>& events) {
    answer.parsed.Add(events);
    for (const text::ParserEvent& event : events) reader_gone = reader_gone || !sink(event);
    return reader_gone ? SinkVerdict::kReaderGone : SinkVerdict::kGoOn;
  };
  Status watched;
  const auto on_token = [&](int32_t token, bool) {
    if (options.watch && watched.ok()) watched = options.watch(state_, token);
    return deliver(parser->Push(token));
  };
  KURUMA_ASSIGN_OR_RETURN(answer.generation, Generate(loaded_, input, &state_, on_token));
  KURUMA_RETURN_IF_ERROR(watched);
  deliver(parser->Finish());
  return answer;
}

}  // namespace kuruma
