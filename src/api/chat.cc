#include "api/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/chat_parts.h"
#include "api/fields.h"
#include "text/json.h"

namespace kuruma::api {
namespace {

using text::JsonValue;
using text::ResponseFormat;
using text::Role;
using text::ToolChoice;

struct Effort {
  bool is_none = false;
  std::optional<int> number;
};

Result<std::optional<Effort>> ParseEffort(const Fields& fields) {
  const JsonValue* value = fields.Find("reasoning_effort");
  if (value == nullptr) return std::optional<Effort>();
  if (const auto* label = value->If<std::string>()) {
    if (*label == "none") return std::optional<Effort>({true, std::nullopt});
    if (const auto number = text::EffortOfLabel(*label)) {
      return std::optional<Effort>({false, number});
    }
  } else if (const auto number = AsInteger(*value); number && *number >= 1 && *number <= 100) {
    return std::optional<Effort>({false, static_cast<int>(*number)});
  }
  return InvalidArgument(
      fields.Name("reasoning_effort") +
      " must be none, minimal, low, medium, high, xhigh, max, ultra, or an integer in [1, 100]");
}

// `thinking`: {"type": ...}, or true or false as other servers have it.
Result<std::optional<bool>> ParseThinking(const Fields& body) {
  const JsonValue* value = body.Find("thinking");
  if (value == nullptr) return std::optional<bool>();
  if (const auto* flag = value->If<bool>()) return std::optional<bool>(*flag);
  KURUMA_ASSIGN_OR_RETURN(const auto thinking, body.Object("thinking"));
  KURUMA_ASSIGN_OR_RETURN(const auto type, thinking->String("type"));
  if (!type) return InvalidArgument(thinking->Name("type") + " is required");
  if (*type == "enabled" || *type == "adaptive") return std::optional<bool>(true);
  if (*type == "disabled") return std::optional<bool>(false);
  return InvalidArgument(thinking->Name("type") + " must be enabled, adaptive or disabled");
}

// The switches of other servers: `enable_thinking` in the body, or that and `thinking` in
// chat_template_kwargs; a thinking budget of 0 is one too.
Result<std::optional<bool>> ParseSwitches(const Fields& body, const std::optional<Fields>& kwargs) {
  std::optional<bool> thinking;
  for (const Fields* fields : {&body, kwargs ? &*kwargs : nullptr}) {
    if (fields == nullptr) continue;
    KURUMA_ASSIGN_OR_RETURN(const auto flag, fields->Bool("enable_thinking"));
    KURUMA_ASSIGN_OR_RETURN(const auto budget, fields->Integer("thinking_budget", 0, INT64_MAX));
    if (!thinking) thinking = flag;
    if (budget == 0) return std::optional<bool>(false);
  }
  if (thinking || !kwargs) return thinking;
  return kwargs->Bool("thinking");
}

Status ResolveThinking(const Fields& body, bool default_thinking, text::Conversation* out) {
  KURUMA_ASSIGN_OR_RETURN(const auto kwargs, body.Object("chat_template_kwargs"));
  KURUMA_ASSIGN_OR_RETURN(const auto thinking, ParseThinking(body));
  KURUMA_ASSIGN_OR_RETURN(const auto switches, ParseSwitches(body, kwargs));
  KURUMA_ASSIGN_OR_RETURN(auto effort, ParseEffort(body));
  if (!effort && kwargs) {
    KURUMA_ASSIGN_OR_RETURN(effort, ParseEffort(*kwargs));
  }
  if (effort && effort->number) out->effort = *effort->number;
  out->thinking = thinking   ? *thinking
                  : switches ? *switches
                  : effort   ? !effort->is_none
                             : default_thinking;
  return {};
}

Status ParseToolChoice(const Fields& body, ChatRequest* request) {
  const JsonValue* value = body.Find("tool_choice");
  if (value == nullptr) return {};
  if (const auto* name = value->If<std::string>()) {
    if (*name == "none") request->tool_choice = ToolChoice::kNone;
    if (*name == "required") request->tool_choice = ToolChoice::kRequired;
    if (*name == "none" || *name == "auto" || *name == "required") return {};
    return InvalidArgument("'tool_choice' must be none, auto, required or a function");
  }
  KURUMA_ASSIGN_OR_RETURN(const auto choice, body.Object("tool_choice"));
  KURUMA_ASSIGN_OR_RETURN(const auto type, choice->String("type"));
  KURUMA_ASSIGN_OR_RETURN(const auto function, choice->Object("function"));
  if (!type || *type != "function" || !function) {
    return InvalidArgument(
        "'tool_choice' must be {\"type\": \"function\", \"function\": {\"name\": ...}}");
  }
  KURUMA_ASSIGN_OR_RETURN(auto name, function->String("name"));
  if (!name) return InvalidArgument(function->Name("name") + " is required");
  request->tool_choice = ToolChoice::kRequired;
  request->named_tool = *std::move(name);
  const auto& tools = request->conversation.tools;
  if (std::none_of(tools.begin(), tools.end(),
                   [&](const text::Tool& tool) { return tool.name == request->named_tool; })) {
    return InvalidArgument(fmt::format("{}: 'tools' has no function \"{}\"", function->Name("name"),
                                       request->named_tool));
  }
  return {};
}

// How the prompt shows the tools that the client wants used.
void ShowToolChoice(const ChatOptions& options, ChatRequest* request) {
  text::Conversation& conversation = request->conversation;
  // Without tools there is nothing to require.
  if (conversation.tools.empty() && request->tool_choice == ToolChoice::kRequired) {
    request->tool_choice = ToolChoice::kAuto;
  }
  conversation.tool_choice = request->tool_choice;
  conversation.keeps_loop_reasoning = !options.reference_prompts;
  if (options.reference_prompts) {
    if (!request->named_tool.empty()) {
      std::erase_if(conversation.tools,
                    [&](const text::Tool& tool) { return tool.name != request->named_tool; });
    }
  } else if (request->tool_choice == ToolChoice::kRequired && conversation.thinking) {
    conversation.tool_choice = ToolChoice::kAuto;
  }
}

Result<ResponseFormat> ParseResponseFormat(const Fields& body) {
  KURUMA_ASSIGN_OR_RETURN(const auto format, body.Object("response_format"));
  if (!format) return ResponseFormat();
  KURUMA_ASSIGN_OR_RETURN(const auto type, format->String("type"));
  if (!type) return InvalidArgument(format->Name("type") + " is required");
  if (*type == "text") return ResponseFormat();
  if (*type == "json_object") return ResponseFormat{ResponseFormat::Kind::kJsonObject, ""};
  if (*type == "regex") {
    KURUMA_ASSIGN_OR_RETURN(auto regex, format->String("regex"));
    if (!regex) return InvalidArgument(format->Name("regex") + " is required");
    return ResponseFormat{ResponseFormat::Kind::kRegex, *std::move(regex)};
  }
  if (*type != "json_schema") {
    return InvalidArgument(format->Name("type") +
                           " must be text, json_object, json_schema or regex");
  }
  KURUMA_ASSIGN_OR_RETURN(const auto holder, format->Object("json_schema"));
  if (!holder) return InvalidArgument(format->Name("json_schema") + " is required");
  const JsonValue* schema = holder->Find("schema");
  if (schema == nullptr) return InvalidArgument(holder->Name("schema") + " is required");
  if (schema->If<JsonValue::Object>() == nullptr && schema->If<bool>() == nullptr) {
    return InvalidArgument(holder->Name("schema") + " must be a JSON Schema");
  }
  return ResponseFormat{ResponseFormat::Kind::kJsonSchema, text::DumpJson(*schema)};
}

Status ParseStream(const Fields& body, ChatRequest* request) {
  KURUMA_ASSIGN_OR_RETURN(const auto stream, body.Bool("stream"));
  KURUMA_ASSIGN_OR_RETURN(const auto stream_options, body.Object("stream_options"));
  request->stream = stream.value_or(false);
  if (!stream_options) return {};
  if (!request->stream) return InvalidArgument("'stream_options' needs 'stream' to be true");
  KURUMA_ASSIGN_OR_RETURN(const auto include_usage, stream_options->Bool("include_usage"));
  request->include_usage = include_usage.value_or(false);
  return {};
}

// Marks the last message as to be continued when `continue_final_message` says so, and checks what
// a continuation excludes.
Status CheckPrefix(const Fields& body, text::Conversation* conversation) {
  KURUMA_ASSIGN_OR_RETURN(const auto continues, body.Bool("continue_final_message"));
  text::Message* last = conversation->messages.empty() ? nullptr : &conversation->messages.back();
  if (continues.value_or(false)) {
    if (last == nullptr || last->role != Role::kAssistant || !last->tool_calls.empty()) {
      return InvalidArgument(
          "'continue_final_message' needs an assistant message without tool_calls at the end");
    }
    last->prefix = true;
  }
  const ResponseFormat::Kind kind = conversation->response_format.kind;
  if (last != nullptr && last->prefix && kind != ResponseFormat::Kind::kText) {
    return InvalidArgument("'response_format' cannot be combined with a prefix to continue");
  }
  return {};
}

}  // namespace

Result<ChatRequest> ParseChatRequest(std::string_view body_text, const ChatOptions& options) {
  KURUMA_ASSIGN_OR_RETURN(const JsonValue root, text::ParseJson(body_text));
  KURUMA_ASSIGN_OR_RETURN(const Fields body, Fields::Of(root, ""));
  ChatRequest request;
  KURUMA_ASSIGN_OR_RETURN(auto model, body.String("model"));
  request.model = std::move(model).value_or("");
  const JsonValue* messages = body.Find("messages");
  if (messages == nullptr) return InvalidArgument("'messages' is required");
  KURUMA_ASSIGN_OR_RETURN(ChatMessages parsed, ParseMessages(*messages));
  text::Conversation& conversation = request.conversation;
  conversation.messages = std::move(parsed.messages);
  if (const JsonValue* tools = body.Find("tools")) {
    KURUMA_ASSIGN_OR_RETURN(conversation.tools, ParseTools(*tools, "tools"));
  }
  KURUMA_RETURN_IF_ERROR(ParseToolChoice(body, &request));
  KURUMA_RETURN_IF_ERROR(ResolveThinking(body, options.default_thinking, &conversation));
  KURUMA_ASSIGN_OR_RETURN(conversation.response_format, ParseResponseFormat(body));
  KURUMA_RETURN_IF_ERROR(CheckPrefix(body, &conversation));
  ShowToolChoice(options, &request);
  if (options.reject_missing_reasoning && parsed.missing_reasoning >= 0 && conversation.thinking &&
      !conversation.tools.empty() && request.tool_choice != ToolChoice::kNone) {
    return InvalidArgument(
        "The `reasoning_content` in the thinking mode must be passed back to the API.");
  }
  KURUMA_ASSIGN_OR_RETURN(request.sampling, ParseSampling(body));
  KURUMA_ASSIGN_OR_RETURN(const auto parallel, body.Bool("parallel_tool_calls"));
  request.parallel_tool_calls = parallel.value_or(true);
  KURUMA_RETURN_IF_ERROR(ParseStream(body, &request));
  return request;
}

}  // namespace kuruma::api
