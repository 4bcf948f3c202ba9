#include "api/messages.h"

#include <array>
#include <utility>

#include "api/message_blocks.h"
#include "api/request_parts.h"

namespace kuruma::api {
namespace {

using text::JsonValue;
using text::Role;
using text::ToolChoice;

// How much thought a budget in tokens asks for, in effort numbers of text::EffortOfLabel.
constexpr int64_t kLowBudget = 4096;
constexpr int64_t kHighBudget = 16384;

// Tools that run on Anthropic's servers. There is no such server here, so they are left out.
bool IsServerTool(std::string_view type) {
  constexpr std::array<std::string_view, 5> kPrefixes = {
      "web_search_", "web_fetch_", "code_execution_", "tool_search_tool_", "mcp_toolset"};
  for (const std::string_view prefix : kPrefixes) {
    if (type.starts_with(prefix)) return true;
  }
  return false;
}

struct DeclaredTools {
  ToolList list;
  std::unordered_set<std::string> left_out;  // names of server tools
};

Status ParseTool(const JsonValue& value, std::string path, DeclaredTools* out) {
  KURUMA_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(value, std::move(path)));
  KURUMA_ASSIGN_OR_RETURN(const auto type, fields.String("type"));
  if (type && IsServerTool(*type)) {
    KURUMA_ASSIGN_OR_RETURN(auto name, fields.String("name"));
    out->left_out.insert(std::move(name).value_or(""));
    return {};
  }
  if (type && *type != "custom") {
    return InvalidArgument(fields.Name("type") + ": only tools of type custom are supported");
  }
  KURUMA_ASSIGN_OR_RETURN(text::Tool tool, ReadTool(fields, "input_schema"));
  if (fields.Find("input_schema") == nullptr) {
    return InvalidArgument(fields.Name("input_schema") + " is required");
  }
  return out->list.Add(std::move(tool), fields.Name("name"));
}

Result<DeclaredTools> ParseTools(const Fields& body) {
  DeclaredTools tools;
  KURUMA_ASSIGN_OR_RETURN(const auto* list, ArrayAt(body, "tools"));
  if (list == nullptr) return tools;
  for (size_t i = 0; i < list->size(); ++i) {
    KURUMA_RETURN_IF_ERROR(ParseTool((*list)[i], "tools[" + std::to_string(i) + "]", &tools));
  }
  bool all_deferred = !tools.list.tools().empty();
  for (const text::Tool& tool : tools.list.tools()) all_deferred &= tool.defer_loading;
  if (all_deferred) {
    return InvalidArgument("'tools' must hold one tool without 'defer_loading'");
  }
  return tools;
}

Status ParseToolChoice(const Fields& body, const DeclaredTools& tools, ChatRequest* request) {
  KURUMA_ASSIGN_OR_RETURN(const auto choice, body.Object("tool_choice"));
  if (!choice) return {};
  KURUMA_ASSIGN_OR_RETURN(const std::string type, RequiredString(*choice, "type"));
  KURUMA_ASSIGN_OR_RETURN(const auto single, choice->Bool("disable_parallel_tool_use"));
  request->parallel_tool_calls = !single.value_or(false);
  if (type == "auto") return {};
  if (type == "none") {
    request->tool_choice = ToolChoice::kNone;
    return {};
  }
  if (type == "any") {
    request->tool_choice = ToolChoice::kRequired;
    return {};
  }
  if (type != "tool") {
    return InvalidArgument(choice->Name("type") + " must be auto, any, tool or none");
  }
  KURUMA_ASSIGN_OR_RETURN(std::string name, RequiredString(*choice, "name"));
  if (tools.left_out.contains(name)) return {};
  return RequireTool(std::move(name), choice->Name("name"), request);
}

Status ResolveThinking(const Fields& body, bool default_thinking, text::Conversation* out) {
  KURUMA_ASSIGN_OR_RETURN(const ThinkingField thinking, ReadThinking(body));
  KURUMA_ASSIGN_OR_RETURN(const auto config, body.Object("output_config"));
  std::optional<Effort> effort;
  if (config) {
    KURUMA_ASSIGN_OR_RETURN(effort, ReadEffort(*config, "effort"));
  }
  if (!effort && thinking.budget_tokens) {
    const int64_t budget = *thinking.budget_tokens;
    const char* label = budget <= kLowBudget ? "low" : budget <= kHighBudget ? "high" : "max";
    effort = Effort{false, text::EffortOfLabel(label)};
  }
  SetThinking(thinking.on, effort, default_thinking, out);
  return {};
}

// The format of the answer, at `output_config`.
Status ParseFormat(const Fields& body, text::Conversation* conversation) {
  KURUMA_ASSIGN_OR_RETURN(const auto config, body.Object("output_config"));
  if (!config) return {};
  KURUMA_ASSIGN_OR_RETURN(const auto format, config->Object("format"));
  if (!format) return {};
  KURUMA_ASSIGN_OR_RETURN(const std::string type, RequiredString(*format, "type"));
  if (type != "json_schema") return InvalidArgument(format->Name("type") + " must be json_schema");
  KURUMA_ASSIGN_OR_RETURN(conversation->response_format, ReadSchemaFormat(*format, "schema"));
  return {};
}

Status ParseAnswerOptions(const Fields& body, ChatRequest* request) {
  SamplingOptions& sampling = request->sampling;
  KURUMA_RETURN_IF_ERROR(ReadSampling(body, &sampling));
  KURUMA_RETURN_IF_ERROR(ReadStop(body, "stop_sequences", &sampling));
  KURUMA_RETURN_IF_ERROR(ReadMaxTokens(body, "max_tokens", &sampling));
  KURUMA_RETURN_IF_ERROR(CheckMinTokens(sampling));
  KURUMA_ASSIGN_OR_RETURN(const auto stream, body.Bool("stream"));
  KURUMA_ASSIGN_OR_RETURN(Routing routing, ReadRouting(body));
  KURUMA_ASSIGN_OR_RETURN(const auto metadata, body.Object("metadata"));
  if (metadata) {
    // Not checked: agents put a JSON text there.
    KURUMA_ASSIGN_OR_RETURN(auto user, metadata->String("user_id"));
    if (user) routing.user = *std::move(user);
  }
  StreamOptions delivery;
  delivery.stream = stream.value_or(false);
  SetDelivery(delivery, std::move(routing), request);
  return {};
}

}  // namespace

Result<ChatRequest> ParseMessagesRequest(std::string_view body_text, const ChatOptions& options) {
  KURUMA_ASSIGN_OR_RETURN(const JsonValue root, text::ParseJson(body_text));
  KURUMA_ASSIGN_OR_RETURN(const Fields body, Fields::Of(root, ""));
  ChatRequest request;
  request.sampling = options.sampling;
  KURUMA_ASSIGN_OR_RETURN(auto model, body.String("model"));
  request.model = std::move(model).value_or("");
  text::Conversation& conversation = request.conversation;
  KURUMA_ASSIGN_OR_RETURN(DeclaredTools tools, ParseTools(body));
  BlockReader reader(tools.list);
  KURUMA_RETURN_IF_ERROR(reader.ReadSystem(body));
  KURUMA_RETURN_IF_ERROR(reader.ReadMessages(body));
  const bool lacks_reasoning = reader.lacks_reasoning();
  conversation.messages = reader.Take();
  conversation.tools = tools.list.Take();
  text::Message& last = conversation.messages.back();
  last.prefix =
      last.role == Role::kAssistant && last.tool_calls.empty() && !options.reference_prompts;
  KURUMA_RETURN_IF_ERROR(ParseToolChoice(body, tools, &request));
  KURUMA_RETURN_IF_ERROR(ResolveThinking(body, options.default_thinking, &conversation));
  KURUMA_RETURN_IF_ERROR(ParseFormat(body, &conversation));
  KURUMA_RETURN_IF_ERROR(ParseAnswerOptions(body, &request));
  KURUMA_RETURN_IF_ERROR(
      ApplyOptions(options, lacks_reasoning && !last.prefix, "content[].thinking", &request));
  return request;
}

}  // namespace kuruma::api
