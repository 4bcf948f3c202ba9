// Anthropic Messages: content blocks, one after the other; thinking, text and tool_use.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "api/json_text.h"
#include "api/writer.h"

namespace kuruma::api {
namespace {

enum class Block { kNone, kThinking, kText, kToolUse };

const char* StopReason(ChoiceEnd::Reason reason) {
  switch (reason) {
    case ChoiceEnd::Reason::kStopString:
      return "stop_sequence";
    case ChoiceEnd::Reason::kToolCalls:
      return "tool_use";
    case ChoiceEnd::Reason::kLength:
      return "max_tokens";
    default:
      return "end_turn";
  }
}

std::string StopSequence(const ChoiceEnd& end) {
  return end.reason == ChoiceEnd::Reason::kStopString ? Quoted(end.stop_string) : "null";
}

// What is read from the cache does not count as input.
std::string MessagesUsage(const Usage& usage) {
  return JsonObject()
      .Number("input_tokens", usage.prompt.prompt_tokens - usage.prompt.cached_tokens)
      .Number("cache_creation_input_tokens", 0)
      .Number("cache_read_input_tokens", usage.prompt.cached_tokens)
      .Number("output_tokens", usage.completion_tokens)
      .Text("service_tier", "standard")
      .Take();
}

// The members of a message before its content.
JsonObject MessageHead(const AnswerOptions& options) {
  JsonObject message;
  message.Text("id", options.id).Text("type", "message").Text("role", "assistant");
  message.Text("model", options.model);
  return message;
}

class MessagesStream : public Writer {
 public:
  explicit MessagesStream(const WriterContext& context)
      : options_(context.options),
        thinks_(context.thinks),
        usage_(context.usage),
        ids_(context.ids),
        output_(context.output) {}

  void Start() override {
    const std::string message = MessageHead(options_)
                                    .Raw("content", "[]")
                                    .Null("stop_reason")
                                    .Null("stop_sequence")
                                    .Raw("usage", MessagesUsage(usage_))
                                    .Take();
    Send("message_start", JsonObject().Text("type", "message_start").Raw("message", message));
    if (thinks_) OpenThinking();
  }

  void Text(const TextDelta& delta) override {
    const Block wanted = delta.is_reasoning ? Block::kThinking : Block::kText;
    if (block_ != wanted) {
      Close();
      if (delta.is_reasoning) {
        OpenThinking();
      } else {
        Open(Block::kText, JsonObject().Text("type", "text").Text("text", "").Take());
      }
    }
    if (delta.is_reasoning) {
      SendDelta("thinking_delta", "thinking", delta.text);
    } else {
      SendDelta("text_delta", "text", delta.text);
    }
  }

  void BeginCall(int, std::string_view name) override {
    Close();
    Open(Block::kToolUse, JsonObject()
                              .Text("type", "tool_use")
                              .Text("id", ids_.Next("toolu_"))
                              .Text("name", name)
                              .Raw("input", "{}")
                              .Take());
  }

  void AddArguments(int, std::string_view json) override {
    SendDelta("input_json_delta", "partial_json", json);
  }

  void EndCall(int) override { Close(); }

  void EndChoice(int, const ChoiceEnd& end) override {
    Close();
    const std::string delta = JsonObject()
                                  .Text("stop_reason", StopReason(end.reason))
                                  .Raw("stop_sequence", StopSequence(end))
                                  .Take();
    Send("message_delta", JsonObject()
                              .Text("type", "message_delta")
                              .Raw("delta", delta)
                              .Raw("usage", MessagesUsage(usage_)));
  }

  void End() override { Send("message_stop", JsonObject().Text("type", "message_stop")); }

  void Fail(const ApiError& error) override {
    output_.push_back(EventFrame("error", ErrorBody(Protocol::kMessages, error)));
  }

 private:
  // The first block is followed by a ping, as the original service sends it.
  void Open(Block block, std::string_view content) {
    block_ = block;
    Send("content_block_start", JsonObject()
                                    .Text("type", "content_block_start")
                                    .Number("index", index_)
                                    .Raw("content_block", content));
    if (index_ == 0) Send("ping", JsonObject().Text("type", "ping"));
  }

  void OpenThinking() {
    Open(Block::kThinking,
         JsonObject().Text("type", "thinking").Text("thinking", "").Text("signature", "").Take());
  }

  void Close() {
    if (block_ == Block::kNone) return;
    // Clients hand the signature back; any value will do, as nothing is hidden from them.
    if (block_ == Block::kThinking) SendDelta("signature_delta", "signature", options_.id);
    Send("content_block_stop",
         JsonObject().Text("type", "content_block_stop").Number("index", index_));
    block_ = Block::kNone;
    ++index_;
  }

  void SendDelta(std::string_view type, std::string_view member, std::string_view text) {
    std::string frame;
    frame.reserve(text.size() + 192);
    frame += "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":";
    frame += fmt::format_int(index_).str();
    frame += ",\"delta\":{\"type\":\"";
    frame += type;
    frame += "\",\"";
    frame += member;
    frame += "\":\"";
    AppendEscaped(text, &frame);
    frame += "\"}}\n\n";
    output_.push_back(std::move(frame));
  }

  void Send(std::string_view event, JsonObject& data) {
    output_.push_back(EventFrame(event, data.Take()));
  }

  const AnswerOptions& options_;
  bool thinks_;
  const Usage& usage_;
  IdSource& ids_;
  std::vector<std::string>& output_;
  Block block_ = Block::kNone;
  int index_ = 0;  // of the open block, or the next one
};

class MessagesWhole : public Writer {
 public:
  explicit MessagesWhole(const WriterContext& context)
      : options_(context.options),
        usage_(context.usage),
        ids_(context.ids),
        output_(context.output),
        block_(context.thinks ? Block::kThinking : Block::kNone) {}

  void Start() override {}

  void Text(const TextDelta& delta) override {
    const Block wanted = delta.is_reasoning ? Block::kThinking : Block::kText;
    if (block_ != wanted) Close();
    block_ = wanted;
    text_ += delta.text;
  }

  void BeginCall(int, std::string_view name) override {
    Close();
    block_ = Block::kToolUse;
    name_ = name;
    id_ = ids_.Next("toolu_");
  }

  void AddArguments(int, std::string_view json) override { text_ += json; }

  void EndCall(int) override {
    is_complete_ = true;
    Close();
  }

  void EndChoice(int, const ChoiceEnd& end) override {
    Close();
    end_ = end;
  }

  void End() override {
    output_.push_back(MessageHead(options_)
                          .Raw("content", JsonArray(content_))
                          .Text("stop_reason", StopReason(end_.reason))
                          .Raw("stop_sequence", StopSequence(end_))
                          .Raw("usage", MessagesUsage(usage_))
                          .Take());
  }

  void Fail(const ApiError& error) override {
    output_.push_back(ErrorBody(Protocol::kMessages, error));
  }

 private:
  void Close() {
    if (block_ == Block::kNone) return;
    if (!content_.empty()) content_ += ',';
    JsonObject block;
    if (block_ == Block::kThinking) {
      block.Text("type", "thinking").Text("thinking", text_).Text("signature", options_.id);
    } else if (block_ == Block::kText) {
      block.Text("type", "text").Text("text", text_);
    } else {
      // Arguments that were cut are no JSON, and this API has no place for their text.
      block.Text("type", "tool_use").Text("id", id_).Text("name", name_);
      block.Raw("input", is_complete_ ? text_ : "{}");
    }
    content_ += block.Take();
    text_.clear();
    block_ = Block::kNone;
    is_complete_ = false;
  }

  const AnswerOptions& options_;
  const Usage& usage_;
  IdSource& ids_;
  std::vector<std::string>& output_;
  Block block_;  // being collected
  std::string text_;
  std::string id_;  // of the call
  std::string name_;
  bool is_complete_ = false;
  std::string content_;  // blocks before, as JSON
  ChoiceEnd end_;
};

}  // namespace

std::unique_ptr<Writer> MakeMessagesWriter(const WriterContext& context) {
  if (context.options.stream) return std::make_unique<MessagesStream>(context);
  return std::make_unique<MessagesWhole>(context);
}

}  // namespace kuruma::api
