#include "api/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "api/fields.h"
#include "api/request_parts.h"
#include "text/json.h"

namespace kuruma::api {
namespace {

using text::JsonValue;
using text::ResponseFormat;
using text::Role;
using text::ToolChoice;

// Grammars of other servers that would silently not count.
constexpr std::array<std::string_view, 5> kUnknownConstraints = {"guided_choice", "guided_grammar",
                                                                 "regex", "ebnf", "structural_tag"};
constexpr std::array<std::string_view, 3> kUnknownOutputs = {"choice", "grammar", "structural_tag"};

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
  KURUMA_ASSIGN_OR_RETURN(const ThinkingField thinking, ReadThinking(body));
  KURUMA_ASSIGN_OR_RETURN(const auto switches, ParseSwitches(body, kwargs));
  KURUMA_ASSIGN_OR_RETURN(auto effort, ReadEffort(body, "reasoning_effort"));
  if (!effort && kwargs) {
    KURUMA_ASSIGN_OR_RETURN(effort, ReadEffort(*kwargs, "reasoning_effort"));
  }
  SetThinking(thinking.on ? thinking.on : switches, effort, default_thinking, out);
  return {};
}

Status ParseToolChoice(const Fields& body, ChatRequest* request) {
  const JsonValue* value = body.Find("tool_choice");
  if (value == nullptr) return {};
  KURUMA_ASSIGN_OR_RETURN(const bool is_word, ReadToolChoiceWord(*value, "a function", request));
  if (is_word) return {};
  KURUMA_ASSIGN_OR_RETURN(const auto choice, body.Object("tool_choice"));
  KURUMA_ASSIGN_OR_RETURN(const Fields function, FunctionOf(*choice));
  KURUMA_ASSIGN_OR_RETURN(std::string name, RequiredString(function, "name"));
  return RequireTool(std::move(name), function.Name("name"), request);
}

Result<ResponseFormat> ParseResponseFormat(const Fields& body) {
  KURUMA_ASSIGN_OR_RETURN(const auto format, body.Object("response_format"));
  if (!format) return ResponseFormat();
  KURUMA_ASSIGN_OR_RETURN(const std::string type, RequiredString(*format, "type"));
  if (type == "text") return ResponseFormat();
  if (type == "json_object") return ResponseFormat{ResponseFormat::Kind::kJsonObject, ""};
  if (type == "regex") {
    KURUMA_ASSIGN_OR_RETURN(std::string regex, RequiredString(*format, "regex"));
    return ResponseFormat{ResponseFormat::Kind::kRegex, std::move(regex)};
  }
  if (type != "json_schema") {
    return InvalidArgument(format->Name("type") +
                           " must be text, json_object, json_schema or regex");
  }
  KURUMA_ASSIGN_OR_RETURN(const Fields holder, RequiredObject(*format, "json_schema"));
  return ReadSchemaFormat(holder, "schema");
}

// The grammars that other servers take beside response_format, where one of them means the same.
Status ParseConstraint(const Fields& body, ResponseFormat* format) {
  KURUMA_ASSIGN_OR_RETURN(const auto outputs, body.Object("structured_outputs"));
  KURUMA_RETURN_IF_ERROR(RefuseConstraints(body, kUnknownConstraints));
  if (outputs) {
    KURUMA_RETURN_IF_ERROR(RefuseConstraints(*outputs, kUnknownOutputs));
  }
  const std::pair<const Fields*, std::array<const char*, 3>> places[] = {
      {&body, {"guided_json", "guided_regex", "guided_json_object"}},
      {outputs ? &*outputs : nullptr, {"json", "regex", "json_object"}}};
  for (const auto& [owner, keys] : places) {
    if (owner == nullptr) continue;
    const JsonValue* schema = owner->Find(keys[0]);
    KURUMA_ASSIGN_OR_RETURN(auto regex, owner->String(keys[1]));
    KURUMA_ASSIGN_OR_RETURN(const auto any_object, owner->Bool(keys[2]));
    const int count = (schema != nullptr) + regex.has_value() + any_object.value_or(false);
    if (count == 0) continue;
    if (count > 1 || format->kind != ResponseFormat::Kind::kText) {
      return InvalidArgument(owner->Name(keys[0]) + " and other formats exclude each other");
    }
    if (schema != nullptr) {
      KURUMA_ASSIGN_OR_RETURN(*format, ReadSchemaFormat(*owner, keys[0]));
    } else if (regex) {
      *format = {ResponseFormat::Kind::kRegex, *std::move(regex)};
    } else {
      *format = {ResponseFormat::Kind::kJsonObject, ""};
    }
  }
  return {};
}

// Marks the last message as to be continued when `continue_final_message` says so, and checks what
// a continuation excludes.
Status ParseEnding(const Fields& body, text::Conversation* conversation) {
  KURUMA_ASSIGN_OR_RETURN(const auto continues, body.Bool("continue_final_message"));
  KURUMA_ASSIGN_OR_RETURN(const auto adds_header, body.Bool("add_generation_prompt"));
  conversation->adds_answer_header = adds_header.value_or(true);
  if (continues.value_or(false) && adds_header.value_or(false)) {
    return InvalidArgument(
        "'continue_final_message' and 'add_generation_prompt' exclude each other");
  }
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

// Everything about the answer but its format.
Status ParseAnswerOptions(const Fields& body, ChatRequest* request) {
  SamplingOptions& sampling = request->sampling;
  KURUMA_RETURN_IF_ERROR(ReadSampling(body, &sampling));
  KURUMA_RETURN_IF_ERROR(ReadStop(body, "stop", &sampling));
  KURUMA_RETURN_IF_ERROR(ReadLogprobs(body, &sampling));
  KURUMA_RETURN_IF_ERROR(ReadMaxTokens(body, "max_tokens", &sampling));
  KURUMA_RETURN_IF_ERROR(ReadMaxTokens(body, "max_completion_tokens", &sampling));
  KURUMA_RETURN_IF_ERROR(CheckMinTokens(sampling));
  KURUMA_ASSIGN_OR_RETURN(sampling.n, ReadCount(body));
  KURUMA_ASSIGN_OR_RETURN(const auto parallel, body.Bool("parallel_tool_calls"));
  request->parallel_tool_calls = parallel.value_or(true);
  KURUMA_ASSIGN_OR_RETURN(const StreamOptions stream, ReadStream(body));
  KURUMA_ASSIGN_OR_RETURN(Routing routing, ReadRouting(body));
  SetDelivery(stream, std::move(routing), request);
  return {};
}

}  // namespace

void SetDelivery(const StreamOptions& stream, Routing routing, ChatRequest* request) {
  request->stream = stream.stream;
  request->include_usage = stream.include_usage;
  request->continuous_usage_stats = stream.continuous_usage_stats;
  request->user = std::move(routing.user);
  request->cache_salt = std::move(routing.cache_salt);
  request->priority = routing.priority;
}

Result<ChatRequest> ParseChatRequest(std::string_view body_text, const ChatOptions& options) {
  KURUMA_ASSIGN_OR_RETURN(const JsonValue root, text::ParseJson(body_text));
  KURUMA_ASSIGN_OR_RETURN(const Fields body, Fields::Of(root, ""));
  ChatRequest request;
  request.sampling = options.sampling;
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
  KURUMA_RETURN_IF_ERROR(ParseConstraint(body, &conversation.response_format));
  KURUMA_RETURN_IF_ERROR(ParseEnding(body, &conversation));
  KURUMA_RETURN_IF_ERROR(ParseAnswerOptions(body, &request));
  KURUMA_RETURN_IF_ERROR(
      ApplyOptions(options, parsed.lacks_reasoning, "reasoning_content", &request));
  return request;
}

Status ApplyOptions(const ChatOptions& options, bool lacks_reasoning,
                    std::string_view reasoning_name, ChatRequest* request) {
  ShowToolChoice(options, request);
  const text::Conversation& conversation = request->conversation;
  if (options.reject_missing_reasoning && lacks_reasoning && conversation.thinking &&
      !conversation.tools.empty() && request->tool_choice != ToolChoice::kNone) {
    return InvalidArgument(fmt::format(
        "The `{}` in the thinking mode must be passed back to the API.", reasoning_name));
  }
  if (options.hosted_sampling) {
    SamplingOptions& sampling = request->sampling;
    if (conversation.thinking) sampling.temperature = 1.0;
    sampling.top_p = conversation.thinking ? std::max(0.95, sampling.top_p) : 1.0;
    sampling.presence_penalty = 0.0;
    sampling.frequency_penalty = 0.0;
    sampling.repetition_penalty = 1.0;
  }
  return {};
}

Result<ResponseFormat> ReadSchemaFormat(const Fields& holder, std::string_view key) {
  const JsonValue* schema = holder.Find(key);
  if (schema == nullptr) return InvalidArgument(holder.Name(key) + " is required");
  if (schema->If<JsonValue::Object>() == nullptr && schema->If<bool>() == nullptr) {
    return InvalidArgument(holder.Name(key) + " must be a JSON Schema");
  }
  return ResponseFormat{ResponseFormat::Kind::kJsonSchema, text::DumpJson(*schema)};
}

Status RefuseConstraints(const Fields& body, std::span<const std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (body.Find(key) != nullptr) return InvalidArgument(body.Name(key) + " is not supported");
  }
  return {};
}

Status CheckEnforceable(const ChatRequest& request) {
  if (request.conversation.response_format.kind != ResponseFormat::Kind::kText) {
    return InvalidArgument("response formats other than text are not supported by this server yet");
  }
  if (request.tool_choice == ToolChoice::kRequired) {
    return InvalidArgument(
        "'tool_choice' other than auto or none is not supported by this server yet");
  }
  return {};
}

Status CheckNoImages(const ChatRequest& request) {
  for (const text::Message& message : request.conversation.messages) {
    if (!message.images.empty()) {
      return InvalidArgument("images are not supported by this server yet");
    }
  }
  return {};
}

}  // namespace kuruma::api
