// OpenAI Responses: output items, one after the other; reasoning, message, function_call and
// custom_tool_call. The events of a stream carry consecutive sequence numbers, and the last one the
// whole response, which is also what a client gets that does not stream.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/json_text.h"
#include "api/writer.h"
#include "text/json.h"

namespace kuruma::api {
namespace {

using text::JsonValue;

// Members that the writer itself sets; they are not taken from the request.
constexpr std::string_view kOwnMembers[] = {"id",     "object", "created_at",
                                            "status", "error",  "incomplete_details",
                                            "model",  "output", "usage"};
// Members that clients expect in every response, for requests that leave them out.
constexpr std::pair<std::string_view, std::string_view> kDefaults[] = {
    {"instructions", "null"}, {"max_output_tokens", "null"},
    {"metadata", "{}"},       {"parallel_tool_calls", "true"},
    {"reasoning", "null"},    {"temperature", "null"},
    {"text", "null"},         {"tool_choice", "\"auto\""},
    {"tools", "[]"},          {"top_p", "null"},
    {"truncation", "null"},   {"previous_response_id", "null"},
};

// The members of a response that repeat the request, each with a comma before it.
Result<std::string> ResponseFields(std::string_view json) {
  const auto value = text::ParseJson(json);
  const auto* members = value.ok() ? value->If<JsonValue::Object>() : nullptr;
  if (members == nullptr) return InvalidArgument("response_fields must be a JSON object");
  std::string fields;
  for (const auto& [key, member] : *members) {
    if (std::find(std::begin(kOwnMembers), std::end(kOwnMembers), key) != std::end(kOwnMembers)) {
      continue;
    }
    fields += fmt::format(",{}:{}", Quoted(key), text::DumpJson(member));
  }
  for (const auto& [key, json_default] : kDefaults) {
    if (value->Find(key) == nullptr) fields += fmt::format(",\"{}\":{}", key, json_default);
  }
  return fields;
}

struct Item {
  enum class Type { kReasoning, kMessage, kFunctionCall, kCustomCall };
  Type type = Type::kMessage;
  std::string id;
  std::string call_id;
  std::string name;          // of a call, without its namespace
  std::string name_space;    // "" if none
  std::string text;          // reasoning, content or arguments
  std::string input;         // kCustomCall: the text that has been sent
  bool in_input = false;     // kCustomCall: in the string of the parameter `input`
  std::string logprobs;      // kMessage: entries
  bool is_complete = false;  // a call whose arguments are whole
  std::string_view phase = "final_answer";
};

// The part that a message or reasoning item consists of; `is_empty`: as it begins.
std::string PartJson(const Item& item, bool is_empty) {
  const std::string_view text = is_empty ? std::string_view() : item.text;
  if (item.type == Item::Type::kReasoning) {
    return JsonObject().Text("type", "reasoning_text").Text("text", text).Take();
  }
  return JsonObject()
      .Text("type", "output_text")
      .Raw("annotations", "[]")
      .Raw("logprobs", JsonArray(is_empty ? std::string_view() : item.logprobs))
      .Text("text", text)
      .Take();
}

// `is_empty`: the item as it begins.
std::string ItemJson(const Item& item, std::string_view status, bool is_empty) {
  const std::string content = is_empty ? "[]" : JsonArray(PartJson(item, false));
  const std::string_view text = is_empty ? std::string_view() : item.text;
  JsonObject json;
  switch (item.type) {
    case Item::Type::kReasoning:
      // Nothing is hidden, so there is nothing to encrypt; clients that hand back only items with
      // this member hand back the whole item.
      json.Text("type", "reasoning").Text("id", item.id).Text("status", status);
      json.Raw("content", content).Raw("summary", "[]").Text("encrypted_content", item.id);
      break;
    case Item::Type::kMessage:
      json.Text("type", "message").Text("id", item.id).Text("status", status);
      json.Text("role", "assistant").Text("phase", item.phase).Raw("content", content);
      break;
    case Item::Type::kFunctionCall:
      json.Text("type", "function_call").Text("id", item.id).Text("status", status);
      json.Text("call_id", item.call_id).Text("name", item.name);
      if (!item.name_space.empty()) json.Text("namespace", item.name_space);
      json.Text("arguments", text);
      break;
    case Item::Type::kCustomCall:
      json.Text("type", "custom_tool_call").Text("id", item.id).Text("status", status);
      json.Text("call_id", item.call_id).Text("name", item.name);
      json.Text("input", is_empty ? std::string_view() : item.input);
      break;
  }
  return json.Take();
}

// The text of `json`, a piece of a JSON string between two escapes, up to a quote that ends the
// string; then `*is_over` is set.
std::string Unescape(std::string_view json, bool* is_over) {
  size_t end = 0;
  while (end < json.size() && json[end] != '"') end += json[end] == '\\' ? 2 : 1;
  *is_over = end < json.size();
  const auto value = text::ParseJson(fmt::format("\"{}\"", json.substr(0, end)));
  const auto* text = value.ok() ? value->If<std::string>() : nullptr;
  return text == nullptr ? "" : *text;
}

// What a custom tool gets: the parameter `input`, or all arguments if there is no such text.
std::string InputOf(const std::string& arguments) {
  const auto value = text::ParseJson(arguments);
  const JsonValue* input = value.ok() ? value->Find("input") : nullptr;
  const auto* text = input == nullptr ? nullptr : input->If<std::string>();
  return text == nullptr ? arguments : *text;
}

class ResponsesWriter : public Writer {
 public:
  ResponsesWriter(const WriterContext& context, std::string fields)
      : options_(context.options),
        usage_(context.usage),
        ids_(context.ids),
        output_(context.output),
        fields_(std::move(fields)) {}

  void Start() override {
    const std::string response = ResponseJson("in_progress", "null");
    for (const char* event : {"response.created", "response.in_progress"}) {
      Send(event, JsonObject().Text("type", event).Raw("response", response));
    }
  }

  void Text(const TextDelta& delta) override {
    const Item::Type type = delta.is_reasoning ? Item::Type::kReasoning : Item::Type::kMessage;
    if (!item_ || item_->type != type) {
      Item item;
      item.type = type;
      item.id = ids_.Next(delta.is_reasoning ? "rs_" : "msg_");
      Open(std::move(item));
    }
    item_->text += delta.text;
    std::string entries;
    if (!delta.is_reasoning) {
      AppendEntries(delta.entries, &entries);
      if (!entries.empty() && !item_->logprobs.empty()) item_->logprobs += ',';
      item_->logprobs += entries;
    }
    if (!options_.stream) return;
    if (delta.is_reasoning) {
      SendDelta("response.reasoning_text.delta", delta.text, ",\"content_index\":0");
    } else {
      SendDelta("response.output_text.delta", delta.text,
                ",\"content_index\":0,\"logprobs\":[" + entries + "]");
    }
  }

  void BeginCall(int, std::string_view name) override {
    const auto& custom = options_.custom_tools;
    const bool is_custom = std::find(custom.begin(), custom.end(), name) != custom.end();
    Item item;
    item.type = is_custom ? Item::Type::kCustomCall : Item::Type::kFunctionCall;
    item.id = ids_.Next(is_custom ? "ctc_" : "fc_");
    item.call_id = ids_.Next("call_");
    const size_t separator = is_custom ? std::string_view::npos : name.rfind("::");
    if (separator != std::string_view::npos && separator + 2 < name.size()) {
      item.name_space = name.substr(0, separator);
      name.remove_prefix(separator + 2);
    }
    item.name = name;
    if (item_ && item_->type == Item::Type::kMessage) item_->phase = "commentary";
    Open(std::move(item));
  }

  void AddArguments(int, std::string_view json) override {
    const bool is_first = item_->text.empty();
    item_->text += json;
    if (item_->type == Item::Type::kCustomCall) {
      AddInput(json, is_first);
    } else if (options_.stream) {
      SendDelta("response.function_call_arguments.delta", json, "");
    }
  }

  void EndCall(int) override {
    item_->is_complete = true;
    if (item_->type == Item::Type::kCustomCall) {
      const std::string input = InputOf(item_->text);
      if (input.starts_with(item_->input)) SendInput(input.substr(item_->input.size()));
    }
    SendArgumentsDone();
  }

  void EndChoice(int, const ChoiceEnd& end) override {
    is_cut_ = end.reason == ChoiceEnd::Reason::kLength;
    Close(is_cut_ ? "incomplete" : "completed");
  }

  void End() override {
    const char* status = is_cut_ ? "incomplete" : "completed";
    const std::string response = ResponseJson(status, "null");
    if (!options_.stream) {
      output_.push_back(response);
      return;
    }
    const std::string event = std::string("response.") + status;
    Send(event, JsonObject().Text("type", event).Raw("response", response));
  }

  void Fail(const ApiError& error) override {
    if (!options_.stream) {
      output_.push_back(ErrorBody(Protocol::kResponses, error));
      return;
    }
    Close("incomplete");
    const std::string details =
        JsonObject().Text("code", error.type).Text("message", error.message).Take();
    Send("response.failed", JsonObject()
                                .Text("type", "response.failed")
                                .Raw("response", ResponseJson("failed", details)));
  }

 private:
  bool IsCall() const {
    return item_->type == Item::Type::kFunctionCall || item_->type == Item::Type::kCustomCall;
  }

  void Open(Item item) {
    Close("completed");
    item_ = std::move(item);
    if (!options_.stream) return;
    Send("response.output_item.added", JsonObject()
                                           .Text("type", "response.output_item.added")
                                           .Raw("item", ItemJson(*item_, "in_progress", true))
                                           .Number("output_index", index_));
    if (!IsCall()) SendPart("response.content_part.added", /*is_empty=*/true);
  }

  // Ends the open item. A call that was cut is incomplete whatever follows it.
  void Close(std::string_view status) {
    if (!item_) return;
    if (IsCall() && !item_->is_complete) {
      status = "incomplete";
      SendArgumentsDone();
    }
    if (options_.stream && !IsCall()) {
      const bool is_reasoning = item_->type == Item::Type::kReasoning;
      const char* event =
          is_reasoning ? "response.reasoning_text.done" : "response.output_text.done";
      JsonObject done;
      done.Text("type", event).Number("content_index", 0).Text("item_id", item_->id);
      if (!is_reasoning) done.Raw("logprobs", JsonArray(item_->logprobs));
      Send(event, done.Number("output_index", index_).Text("text", item_->text));
      SendPart("response.content_part.done", /*is_empty=*/false);
    }
    const std::string json = ItemJson(*item_, status, /*is_empty=*/false);
    if (options_.stream) {
      Send("response.output_item.done", JsonObject()
                                            .Text("type", "response.output_item.done")
                                            .Raw("item", json)
                                            .Number("output_index", index_));
    }
    if (!items_.empty()) items_ += ',';
    items_ += json;
    item_.reset();
    ++index_;
  }

  void SendPart(std::string_view event, bool is_empty) {
    Send(event, JsonObject()
                    .Text("type", event)
                    .Number("content_index", 0)
                    .Text("item_id", item_->id)
                    .Number("output_index", index_)
                    .Raw("part", PartJson(*item_, is_empty)));
  }

  // The text of a custom tool is sent while it comes if it is the first parameter, and otherwise
  // when the arguments are whole. The parser begins arguments in one piece and splits no escape.
  void AddInput(std::string_view json, bool is_first) {
    constexpr std::string_view kOpening = "{\"input\": \"";
    if (is_first && json.starts_with(kOpening)) {
      item_->in_input = true;
      json.remove_prefix(kOpening.size());
    }
    if (!item_->in_input) return;
    bool is_over = false;
    SendInput(Unescape(json, &is_over));
    if (is_over) item_->in_input = false;
  }

  void SendInput(const std::string& text) {
    if (text.empty()) return;
    item_->input += text;
    if (options_.stream) SendDelta("response.custom_tool_call_input.delta", text, "");
  }

  void SendArgumentsDone() {
    if (!options_.stream) return;
    const bool is_custom = item_->type == Item::Type::kCustomCall;
    const char* event = is_custom ? "response.custom_tool_call_input.done"
                                  : "response.function_call_arguments.done";
    JsonObject done;
    done.Text("type", event);
    if (is_custom) {
      done.Text("input", item_->input);
    } else {
      done.Text("arguments", item_->text).Text("name", item_->name);
    }
    Send(event, done.Text("item_id", item_->id).Number("output_index", index_));
  }

  // `members`: further members, each with a comma before it.
  void SendDelta(std::string_view event, std::string_view text, std::string_view members) {
    std::string frame;
    frame.reserve(text.size() + members.size() + 256);
    frame += "event: ";
    frame += event;
    frame += "\ndata: {\"type\":\"";
    frame += event;
    frame += "\",\"delta\":\"";
    AppendEscaped(text, &frame);
    frame += "\",\"item_id\":\"";
    frame += item_->id;
    frame += "\",\"output_index\":";
    frame += fmt::format_int(index_).str();
    frame += members;
    frame += ",\"sequence_number\":";
    frame += fmt::format_int(sequence_number_++).str();
    frame += "}\n\n";
    output_.push_back(std::move(frame));
  }

  void Send(std::string_view event, JsonObject& data) {
    if (!options_.stream) return;
    data.Number("sequence_number", sequence_number_++);
    output_.push_back(EventFrame(event, data.Take()));
  }

  // `error`: JSON.
  std::string ResponseJson(std::string_view status, std::string_view error) const {
    const bool is_over = status != "in_progress";
    const std::string usage = fmt::format(
        R"({{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{}}},"output_tokens":{},)"
        R"("output_tokens_details":{{"reasoning_tokens":{}}},"total_tokens":{}}})",
        usage_.prompt.prompt_tokens, usage_.prompt.cached_tokens, usage_.completion_tokens,
        usage_.reasoning_tokens, usage_.prompt.prompt_tokens + usage_.completion_tokens);
    JsonObject response;
    response.Text("id", options_.id).Text("object", "response");
    response.Number("created_at", options_.created).Text("status", status);
    response.Raw("error", error);
    response.Raw("incomplete_details",
                 status == "incomplete" ? R"({"reason":"max_output_tokens"})" : "null");
    response.Text("model", options_.model).Raw("output", JsonArray(items_));
    response.Raw("usage", is_over ? usage : "null");
    std::string json = response.Take();
    json.insert(json.size() - 1, fields_);
    return json;
  }

  const AnswerOptions& options_;
  const Usage& usage_;
  IdSource& ids_;
  std::vector<std::string>& output_;
  std::string fields_;
  int64_t sequence_number_ = 0;
  int index_ = 0;             // of the open item, or the next one
  std::optional<Item> item_;  // being written
  std::string items_;         // those before it, as JSON
  bool is_cut_ = false;
};

}  // namespace

Result<std::unique_ptr<Writer>> MakeResponsesWriter(const WriterContext& context) {
  KURUMA_ASSIGN_OR_RETURN(std::string fields, ResponseFields(context.options.response_fields));
  return std::unique_ptr<Writer>(std::make_unique<ResponsesWriter>(context, std::move(fields)));
}

}  // namespace kuruma::api
