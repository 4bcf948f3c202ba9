// Chat Completions: chunks of a stream, and whole answers.
#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <vector>

#include "api/json_text.h"
#include "api/writer.h"

namespace kuruma::api {
namespace {

const char* FinishName(ChoiceEnd::Reason reason) {
  switch (reason) {
    case ChoiceEnd::Reason::kToolCalls:
      return "tool_calls";
    case ChoiceEnd::Reason::kLength:
      return "length";
    default:
      return "stop";
  }
}

// One chunk per piece. What is the same in every chunk is written once; a chunk of text is put
// together from strings. Members that do not change are left out, not sent as null.
class ChatStream : public Writer {
 public:
  explicit ChatStream(const WriterContext& context)
      : options_(context.options),
        usage_(context.usage),
        ids_(context.ids),
        output_(context.output),
        calls_(static_cast<size_t>(context.options.n), -1) {
    head_ = "data: {\"id\":" + Quoted(options_.id) +
            ",\"object\":\"chat.completion.chunk\",\"created\":" +
            fmt::format_int(options_.created).str() + ",\"model\":" + Quoted(options_.model) +
            ",\"choices\":[";
  }

  void Start() override {
    for (int choice = 0; choice < options_.n; ++choice) {
      Send(choice, R"("role":"assistant","content":"")", "", "null");
    }
  }

  void Text(const TextDelta& delta) override {
    std::string& text = scratch_;
    text = delta.is_reasoning ? R"("reasoning_content":")" : R"("content":")";
    AppendEscaped(delta.text, &text);
    text += '"';
    if (delta.is_reasoning && options_.reasoning_alias) {
      text += R"(,"reasoning":")";
      AppendEscaped(delta.text, &text);
      text += '"';
    }
    logprobs_.clear();
    if (!delta.entries.empty()) {
      logprobs_ = delta.is_reasoning ? R"(,"logprobs":{"reasoning_content":[)"
                                     : R"(,"logprobs":{"content":[)";
      AppendEntries(delta.entries, &logprobs_);
      logprobs_ += "]}";
    }
    Send(delta.choice, text, logprobs_, "null");
  }

  void BeginCall(int choice, std::string_view name) override {
    const int call = ++calls_[static_cast<size_t>(choice)];
    const std::string function = JsonObject().Text("name", name).Text("arguments", "").Take();
    SendCall(choice, JsonObject()
                         .Number("index", call)
                         .Text("id", ids_.Next("call_"))
                         .Text("type", "function")
                         .Raw("function", function)
                         .Take());
  }

  void AddArguments(int choice, std::string_view json) override {
    const int call = calls_[static_cast<size_t>(choice)];
    std::string item = "{\"index\":";
    item += fmt::format_int(call).str();
    item += ",\"function\":{\"arguments\":\"";
    AppendEscaped(json, &item);
    item += "\"}}";
    SendCall(choice, item);
  }

  void EndCall(int) override {}

  void EndChoice(int choice, const ChoiceEnd& end) override {
    Send(choice, "", "", Quoted(FinishName(end.reason)));
  }

  void End() override {
    if (options_.include_usage) {
      output_.push_back(head_ + "],\"usage\":" + UsageJson(usage_) + "}\n\n");
    }
    output_.emplace_back("data: [DONE]\n\n");
  }

  void Fail(const ApiError& error) override {
    output_.push_back("data: " + ErrorBody(Protocol::kChat, error) + "\n\n");
  }

 private:
  void SendCall(int choice, std::string_view call) {
    Send(choice, fmt::format("\"tool_calls\":[{}]", call), "", "null");
  }

  void Send(int choice, std::string_view delta, std::string_view logprobs,
            std::string_view finish) {
    std::string chunk;
    chunk.reserve(head_.size() + delta.size() + logprobs.size() + 96);
    chunk += head_;
    chunk += "{\"index\":";
    chunk += fmt::format_int(choice).str();
    chunk += ",\"delta\":{";
    chunk += delta;
    chunk += '}';
    chunk += logprobs;
    chunk += ",\"finish_reason\":";
    chunk += finish;
    chunk += "}]";
    if (options_.continuous_usage) {
      chunk += ",\"usage\":";
      chunk += UsageJson(usage_);
    } else if (options_.include_usage) {
      chunk += ",\"usage\":null";
    }
    chunk += "}\n\n";
    output_.push_back(std::move(chunk));
  }

  const AnswerOptions& options_;
  const Usage& usage_;
  IdSource& ids_;
  std::vector<std::string>& output_;
  std::string head_;
  std::vector<int> calls_;  // number of the newest call of each choice
  std::string scratch_;
  std::string logprobs_;
};

class ChatWhole : public Writer {
 public:
  explicit ChatWhole(const WriterContext& context)
      : options_(context.options),
        thinks_(context.thinks),
        usage_(context.usage),
        ids_(context.ids),
        output_(context.output),
        choices_(static_cast<size_t>(context.options.n)) {}

  void Start() override {}

  void Text(const TextDelta& delta) override {
    Choice& choice = At(delta.choice);
    (delta.is_reasoning ? choice.reasoning : choice.content) += delta.text;
    std::string& logprobs = delta.is_reasoning ? choice.reasoning_logprobs : choice.logprobs;
    if (!delta.entries.empty() && !logprobs.empty()) logprobs += ',';
    AppendEntries(delta.entries, &logprobs);
  }

  void BeginCall(int choice, std::string_view name) override {
    At(choice).calls.push_back({ids_.Next("call_"), std::string(name), ""});
  }

  void AddArguments(int choice, std::string_view json) override {
    At(choice).calls.back().arguments += json;
  }

  void EndCall(int) override {}

  void EndChoice(int choice, const ChoiceEnd& end) override {
    At(choice).finish = FinishName(end.reason);
  }

  void End() override {
    std::string choices = "[";
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (i > 0) choices += ',';
      choices += JsonObject()
                     .Number("index", static_cast<int64_t>(i))
                     .Raw("message", MessageJson(choices_[i]))
                     .Raw("logprobs", LogprobsJson(choices_[i]))
                     .Text("finish_reason", choices_[i].finish)
                     .Take();
    }
    choices += ']';
    output_.push_back(JsonObject()
                          .Text("id", options_.id)
                          .Text("object", "chat.completion")
                          .Number("created", options_.created)
                          .Text("model", options_.model)
                          .Raw("choices", choices)
                          .Raw("usage", UsageJson(usage_))
                          .Take());
  }

  void Fail(const ApiError& error) override {
    output_.push_back(ErrorBody(Protocol::kChat, error));
  }

 private:
  struct Call {
    std::string id;
    std::string name;
    std::string arguments;
  };
  struct Choice {
    std::string reasoning;
    std::string content;
    std::vector<Call> calls;
    std::string logprobs;
    std::string reasoning_logprobs;
    std::string finish;
  };

  Choice& At(int choice) { return choices_[static_cast<size_t>(choice)]; }

  std::string MessageJson(const Choice& choice) const {
    JsonObject message;
    message.Text("role", "assistant").Text("content", choice.content);
    if (thinks_ || !choice.reasoning.empty()) {
      message.Text("reasoning_content", choice.reasoning);
      if (options_.reasoning_alias) message.Text("reasoning", choice.reasoning);
    }
    if (!choice.calls.empty()) {
      std::string calls = "[";
      for (const Call& call : choice.calls) {
        if (calls.size() > 1) calls += ',';
        calls +=
            JsonObject()
                .Text("id", call.id)
                .Text("type", "function")
                .Raw("function",
                     JsonObject().Text("name", call.name).Text("arguments", call.arguments).Take())
                .Take();
      }
      message.Raw("tool_calls", calls + "]");
    }
    return message.Take();
  }

  std::string LogprobsJson(const Choice& choice) const {
    if (!options_.logprobs) return "null";
    JsonObject logprobs;
    logprobs.Raw("content", JsonArray(choice.logprobs));
    if (thinks_) logprobs.Raw("reasoning_content", JsonArray(choice.reasoning_logprobs));
    return logprobs.Take();
  }

  const AnswerOptions& options_;
  bool thinks_;
  const Usage& usage_;
  IdSource& ids_;
  std::vector<std::string>& output_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<Writer> MakeChatWriter(const WriterContext& context) {
  if (context.options.stream) return std::make_unique<ChatStream>(context);
  return std::make_unique<ChatWhole>(context);
}

}  // namespace kuruma::api
