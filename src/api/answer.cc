#include "api/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "api/logprob_track.h"
#include "api/writer.h"
#include "base/check.h"

namespace kuruma::api {
namespace {

using text::ParserEvent;
using text::Tokenizer;

// Added tokens that are shown as text in every protocol: the model's way to point at parts of a
// picture.
constexpr std::array<std::string_view, 8> kGrounding = {
    "<｜ref｜>",   "<｜/ref｜>",   "<｜box｜>",     "<｜/box｜>",
    "<｜point｜>", "<｜/point｜>", "<｜polygon｜>", "<｜/polygon｜>"};
constexpr std::string_view kThink = "<think>";
constexpr std::string_view kEndThink = "</think>";
constexpr std::string_view kDsml = "｜DSML｜";

ApiError ErrorOf(FinishReason reason, std::string_view message) {
  switch (reason) {
    case FinishReason::kDeadline:
      return {.status = 504,
              .message = std::string(message),
              .type = "timeout_error",
              .anthropic_type = "timeout_error"};
    case FinishReason::kCancelled:
      return {.status = 503,
              .message = std::string(message),
              .type = "cancelled",
              .anthropic_type = "api_error"};
    default:
      return {.status = 500,
              .message = std::string(message),
              .type = "server_error",
              .anthropic_type = "api_error"};
  }
}

Result<std::unique_ptr<Writer>> MakeWriter(const WriterContext& context) {
  switch (context.options.protocol) {
    case Protocol::kCompletions:
      return MakeCompletionsWriter(context);
    case Protocol::kMessages:
      return MakeMessagesWriter(context);
    case Protocol::kResponses:
      return MakeResponsesWriter(context);
    case Protocol::kChat:
      break;
  }
  return MakeChatWriter(context);
}

// One answer of the request.
struct Choice {
  std::unique_ptr<text::OutputParser> parser;
  std::unique_ptr<LogprobTrack> track;  // if log-probabilities are wanted
  bool is_over = false;
  bool in_reasoning = false;
  int64_t reasoning_tokens = 0;
  int64_t reasoning_before_block = -1;  // at a tag that may begin calls; -1: none
  bool after_angle = false;             // the last token of reasoning was "<"
  int calls = 0;
  int complete_calls = 0;
  bool in_arguments = false;
};

}  // namespace

class AnswerBuilder::Impl {
 public:
  Impl(const Tokenizer& tokenizer, const AnswerOptions& options)
      : tokenizer_(tokenizer), options_(options), ids_(options.id_seed) {}

  Status Init(const text::ParserOptions& parser) {
    const size_t n = static_cast<size_t>(std::max(options_.n, 0));
    if (n == 0) return InvalidArgument("n must be at least 1");
    if (!options_.echo.empty() && options_.echo.size() != n) {
      return InvalidArgument(
          fmt::format("{} echo texts for {} answers", options_.echo.size(), options_.n));
    }
    const bool thinks = parser.start == text::ParserOptions::Start::kReasoning;
    KURUMA_ASSIGN_OR_RETURN(writer_, MakeWriter({options_, thinks, usage_, ids_, output_}));
    choices_.resize(n);
    for (Choice& choice : choices_) {
      KURUMA_ASSIGN_OR_RETURN(choice.parser, text::OutputParser::Create(tokenizer_, parser));
      choice.in_reasoning = thinks;
      if (options_.logprobs) choice.track = std::make_unique<LogprobTrack>(tokenizer_);
    }
    end_think_ = tokenizer_.AddedTokenId(kEndThink).value_or(-1);
    dsml_ = tokenizer_.AddedTokenId(kDsml).value_or(-1);
    if (options_.protocol == Protocol::kCompletions) {
      KURUMA_ASSIGN_OR_RETURN(spelled_end_think_, tokenizer_.EncodePlain(kEndThink));
    }
    return Status();
  }

  void Start(const PromptUsage& prompt) {
    KURUMA_CHECK(!has_started_);
    has_started_ = true;
    usage_.prompt = prompt;
    writer_->Start();
  }

  void Push(int index, const TokenPiece& piece) {
    Choice& choice = At(index);
    if (choice.is_over) return;
    ++usage_.completion_tokens;
    const int32_t token = piece.token;
    if (piece.ends_answer || token < 0 || token >= tokenizer_.vocab_size()) return;
    CountReasoning(&choice, token);
    if (IsHidden(token) && !choice.in_arguments) return;
    const bool is_end_think = token == end_think_;
    if (is_end_think && !spelled_end_think_.empty()) {
      if (choice.track) choice.track->Push(piece, options_.top_logprobs);
      for (const int32_t id : spelled_end_think_) {
        if (!choice.is_over) Deliver(index, choice.parser->Push(id));
      }
      return;
    }
    if (choice.track) {
      if (is_end_think) {
        choice.track->EndText();
      } else {
        choice.track->Push(piece, options_.top_logprobs);
      }
    }
    Deliver(index, choice.parser->Push(token));
  }

  void PushText(int index, std::string_view text) {
    Choice& choice = At(index);
    if (choice.is_over) return;
    ++usage_.completion_tokens;
    if (choice.in_reasoning) {
      ++choice.reasoning_tokens;
      ++usage_.reasoning_tokens;
    }
    Deliver(index, choice.parser->PushText(text));
  }

  void Finish(int index, FinishReason reason, std::string_view message) {
    Choice& choice = At(index);
    if (choice.is_over) return;
    if (reason != FinishReason::kStop && reason != FinishReason::kLength) {
      Fail(ErrorOf(reason, message));
      return;
    }
    KURUMA_CHECK(has_started_);
    if (choice.track) choice.track->EndText();
    Deliver(index, choice.parser->Finish());
    if (choice.is_over) return;
    End(index,
        reason == FinishReason::kLength ? ChoiceEnd::Reason::kLength : ChoiceEnd::Reason::kStop);
  }

  bool done(int index) const { return choices_[static_cast<size_t>(index)].is_over; }
  int status() const { return status_; }
  std::vector<std::string> Take() { return std::exchange(output_, {}); }

 private:
  Choice& At(int index) {
    KURUMA_CHECK(index >= 0 && index < static_cast<int>(choices_.size()));
    return choices_[static_cast<size_t>(index)];
  }

  // Added tokens are control tokens, whatever the file's `special` flag says.
  bool IsHidden(int32_t token) const {
    const text::TokenInfo info = tokenizer_.Token(token);
    if (!info.added || token == end_think_ || token == dsml_) return false;
    if (info.text == kThink && options_.protocol == Protocol::kCompletions) return false;
    return std::find(kGrounding.begin(), kGrounding.end(), info.text) == kGrounding.end();
  }

  void CountReasoning(Choice* choice, int32_t token) {
    if (!choice->in_reasoning) return;
    if (token == end_think_) {
      EndReasoning(choice, choice->reasoning_tokens);
      return;
    }
    if (token == dsml_ && choice->reasoning_before_block < 0) {
      choice->reasoning_before_block = choice->reasoning_tokens - (choice->after_angle ? 1 : 0);
    }
    choice->after_angle = tokenizer_.TokenBytes(token) == "<";
    ++choice->reasoning_tokens;
    ++usage_.reasoning_tokens;
  }

  void EndReasoning(Choice* choice, int64_t tokens) {
    choice->in_reasoning = false;
    usage_.reasoning_tokens -= choice->reasoning_tokens - tokens;
    choice->reasoning_tokens = tokens;
  }

  // Hands events on until one of them ends the choice.
  void Deliver(int index, const std::vector<ParserEvent>& events) {
    Choice& choice = At(index);
    for (const ParserEvent& event : events) {
      Deliver(index, event);
      if (choice.is_over) return;
    }
    if (choice.parser->stopped()) End(index, ChoiceEnd::Reason::kStopString);
  }

  void Deliver(int index, const ParserEvent& event) {
    Choice& choice = At(index);
    const bool is_reasoning = event.kind == ParserEvent::Kind::kReasoning;
    if (is_reasoning) {
      choice.reasoning_before_block = -1;
    } else if (choice.in_reasoning) {
      const int64_t before = choice.reasoning_before_block;
      EndReasoning(&choice, before < 0 ? choice.reasoning_tokens : before);
    }
    if (event.call >= 0 && choice.track) choice.track->Clear();
    switch (event.kind) {
      case ParserEvent::Kind::kReasoning:
      case ParserEvent::Kind::kContent: {
        choice.in_arguments = false;
        const auto entries =
            choice.track ? choice.track->Release(event.text) : std::vector<LogprobEntry>();
        writer_->Text({index, is_reasoning, event.text, entries});
        break;
      }
      case ParserEvent::Kind::kCallBegin:
        choice.in_arguments = true;
        ++choice.calls;
        writer_->BeginCall(index, event.text);
        break;
      case ParserEvent::Kind::kCallDelta:
        writer_->AddArguments(index, event.text);
        break;
      case ParserEvent::Kind::kCallEnd:
        choice.in_arguments = false;
        ++choice.complete_calls;
        writer_->EndCall(index);
        if (!options_.parallel_tool_calls) End(index, ChoiceEnd::Reason::kStop);
        break;
    }
  }

  // `reason`: what ended the text; calls may make another one of it.
  void End(int index, ChoiceEnd::Reason reason) {
    Choice& choice = At(index);
    choice.is_over = true;
    ChoiceEnd end;
    if (choice.calls > choice.complete_calls) {
      end.reason = ChoiceEnd::Reason::kLength;  // a call was cut, which is never a whole answer
    } else if (reason != ChoiceEnd::Reason::kLength && choice.calls > 0) {
      end.reason = ChoiceEnd::Reason::kToolCalls;
    } else {
      end.reason = reason;
    }
    if (end.reason == ChoiceEnd::Reason::kStopString)
      end.stop_string = choice.parser->stop_string();
    writer_->EndChoice(index, end);
    const auto is_over = [](const Choice& other) { return other.is_over; };
    if (std::all_of(choices_.begin(), choices_.end(), is_over)) writer_->End();
  }

  void Fail(const ApiError& error) {
    status_ = error.status;
    for (Choice& choice : choices_) choice.is_over = true;
    if (has_started_) {
      writer_->Fail(error);
    } else {
      output_.push_back(ErrorBody(options_.protocol, error));
    }
  }

  const Tokenizer& tokenizer_;
  const AnswerOptions options_;
  IdSource ids_;
  Usage usage_;
  std::vector<std::string> output_;
  std::unique_ptr<Writer> writer_;
  std::vector<Choice> choices_;
  bool has_started_ = false;
  int status_ = 200;
  int32_t end_think_ = -1;
  int32_t dsml_ = -1;
  std::vector<int32_t> spelled_end_think_;  // Completions: in ordinary tokens
};

Result<std::unique_ptr<AnswerBuilder>> AnswerBuilder::Create(const Tokenizer& tokenizer,
                                                             const text::ParserOptions& parser,
                                                             const AnswerOptions& options) {
  auto impl = std::make_unique<Impl>(tokenizer, options);
  KURUMA_RETURN_IF_ERROR(impl->Init(parser));
  return std::unique_ptr<AnswerBuilder>(new AnswerBuilder(std::move(impl)));
}

AnswerBuilder::AnswerBuilder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AnswerBuilder::~AnswerBuilder() = default;

void AnswerBuilder::Start(const PromptUsage& prompt) { impl_->Start(prompt); }
void AnswerBuilder::Push(int choice, const TokenPiece& piece) { impl_->Push(choice, piece); }
void AnswerBuilder::PushText(int choice, std::string_view text) { impl_->PushText(choice, text); }
void AnswerBuilder::Finish(int choice, FinishReason reason, std::string_view message) {
  impl_->Finish(choice, reason, message);
}
bool AnswerBuilder::done(int choice) const { return impl_->done(choice); }
int AnswerBuilder::status() const { return impl_->status(); }
std::vector<std::string> AnswerBuilder::Take() { return impl_->Take(); }

}  // namespace kuruma::api
