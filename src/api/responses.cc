#include "api/responses.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/request_parts.h"
#include "api/response_items.h"

namespace kuruma::api {
namespace {

using text::JsonValue;
using text::ResponseFormat;

Status ParseTools(const Fields& body, ResponseTools* tools) {
  KURUMA_ASSIGN_OR_RETURN(const auto* list, ArrayAt(body, "tools"));
  if (list == nullptr) return {};
  for (size_t i = 0; i < list->size(); ++i) {
    KURUMA_RETURN_IF_ERROR(
        AddResponseTool((*list)[i], fmt::format("tools[{}]", i), /*deferred=*/false, tools));
  }
  return {};
}

Status ParseToolChoice(const Fields& body, ChatRequest* request) {
  const JsonValue* value = body.Find("tool_choice");
  if (value == nullptr) return {};
  KURUMA_ASSIGN_OR_RETURN(const bool is_word, ReadToolChoiceWord(*value, "a tool", request));
  if (is_word) return {};
  KURUMA_ASSIGN_OR_RETURN(const auto choice, body.Object("tool_choice"));
  KURUMA_ASSIGN_OR_RETURN(const std::string type, RequiredString(*choice, "type"));
  const std::string_view kind = type;
  if (kind.starts_with("web_search")) return {};  // a tool that was left out
  if (kind != "function" && kind != "custom") {
    return InvalidArgument(choice->Name("type") + " must be function or custom");
  }
  KURUMA_ASSIGN_OR_RETURN(std::string name, RequiredString(*choice, "name"));
  KURUMA_ASSIGN_OR_RETURN(const auto name_space, choice->String("namespace"));
  if (name_space) name = FullName(*name_space, name);
  return RequireTool(std::move(name), choice->Name("name"), request);
}

Status ParseFormat(const Fields& body, text::Conversation* conversation) {
  KURUMA_ASSIGN_OR_RETURN(const auto text, body.Object("text"));
  if (!text) return {};
  KURUMA_ASSIGN_OR_RETURN(const auto format, text->Object("format"));
  if (!format) return {};
  KURUMA_ASSIGN_OR_RETURN(const std::string type, RequiredString(*format, "type"));
  if (type == "text") return {};
  if (type == "json_object") {
    conversation->response_format.kind = ResponseFormat::Kind::kJsonObject;
    return {};
  }
  if (type != "json_schema") {
    return InvalidArgument(format->Name("type") + " must be text, json_object or json_schema");
  }
  KURUMA_RETURN_IF_ERROR(RequiredString(*format, "name").status());
  KURUMA_ASSIGN_OR_RETURN(conversation->response_format, ReadSchemaFormat(*format, "schema"));
  return {};
}

Status ParseThinking(const Fields& body, bool default_thinking, text::Conversation* out) {
  KURUMA_ASSIGN_OR_RETURN(const auto reasoning, body.Object("reasoning"));
  std::optional<Effort> effort;
  if (reasoning) {
    KURUMA_ASSIGN_OR_RETURN(effort, ReadEffort(*reasoning, "effort"));
  }
  SetThinking(std::nullopt, effort, default_thinking, out);
  return {};
}

// Whether `include` asks for log-probabilities.
Result<bool> IncludesLogprobs(const Fields& body) {
  KURUMA_ASSIGN_OR_RETURN(const auto* include, ArrayAt(body, "include"));
  bool found = false;
  for (size_t i = 0; include != nullptr && i < include->size(); ++i) {
    const auto* name = (*include)[i].If<std::string>();
    if (name == nullptr) return InvalidArgument(fmt::format("'include[{}]' must be a string", i));
    found = found || *name == "message.output_text.logprobs";
  }
  return found;
}

// What only a server with a memory can do.
Status CheckStateless(const Fields& body) {
  for (const char* key : {"previous_response_id", "conversation"}) {
    if (body.Find(key) != nullptr) {
      return InvalidArgument(body.Name(key) +
                             ": this server keeps no responses; send the whole history in 'input'");
    }
  }
  return {};
}

Status ParseAnswerOptions(const Fields& body, ChatRequest* request) {
  SamplingOptions& sampling = request->sampling;
  KURUMA_RETURN_IF_ERROR(ReadSampling(body, &sampling));
  KURUMA_RETURN_IF_ERROR(ReadMaxTokens(body, "max_output_tokens", &sampling));
  KURUMA_RETURN_IF_ERROR(CheckMinTokens(sampling));
  KURUMA_ASSIGN_OR_RETURN(const auto top_logprobs, body.Integer("top_logprobs", 0, 20));
  KURUMA_ASSIGN_OR_RETURN(sampling.logprobs, IncludesLogprobs(body));
  sampling.logprobs = sampling.logprobs || top_logprobs.has_value();
  sampling.top_logprobs = static_cast<int>(top_logprobs.value_or(0));
  KURUMA_ASSIGN_OR_RETURN(const auto parallel, body.Bool("parallel_tool_calls"));
  request->parallel_tool_calls = parallel.value_or(true);
  KURUMA_ASSIGN_OR_RETURN(const auto stream, body.Bool("stream"));
  KURUMA_ASSIGN_OR_RETURN(Routing routing, ReadRouting(body));
  StreamOptions delivery;
  delivery.stream = stream.value_or(false);
  SetDelivery(delivery, std::move(routing), request);
  return {};
}

// Fills the echo with what was sent; after the options of the answer.
Status ReadEcho(const Fields& body, const ChatRequest& chat, ResponsesEcho* echo) {
  KURUMA_ASSIGN_OR_RETURN(echo->instructions, body.String("instructions"));
  KURUMA_ASSIGN_OR_RETURN(echo->user, body.String("user"));
  KURUMA_RETURN_IF_ERROR(body.Object("metadata").status());
  echo->max_output_tokens = chat.sampling.max_tokens;
  echo->temperature = chat.sampling.temperature;
  echo->top_p = chat.sampling.top_p;
  echo->top_logprobs = chat.sampling.top_logprobs;
  echo->parallel_tool_calls = chat.parallel_tool_calls;
  const std::pair<const char*, std::string*> members[] = {
      {"tools", &echo->tools},       {"tool_choice", &echo->tool_choice},
      {"text", &echo->text},         {"reasoning", &echo->reasoning},
      {"metadata", &echo->metadata}, {"truncation", &echo->truncation}};
  for (const auto& [key, spelling] : members) {
    if (const JsonValue* member = body.Find(key)) *spelling = text::DumpJson(*member);
  }
  return {};
}

}  // namespace

Result<ResponsesRequest> ParseResponsesRequest(std::string_view body_text,
                                               const ChatOptions& options) {
  KURUMA_ASSIGN_OR_RETURN(const JsonValue root, text::ParseJson(body_text));
  KURUMA_ASSIGN_OR_RETURN(const Fields body, Fields::Of(root, ""));
  ResponsesRequest request;
  ChatRequest& chat = request.chat;
  chat.sampling = options.sampling;
  text::Conversation& conversation = chat.conversation;
  KURUMA_ASSIGN_OR_RETURN(auto model, body.String("model"));
  chat.model = std::move(model).value_or("");
  KURUMA_RETURN_IF_ERROR(CheckStateless(body));
  ResponseTools tools;
  KURUMA_RETURN_IF_ERROR(ParseTools(body, &tools));
  ItemReader reader(&tools);
  KURUMA_RETURN_IF_ERROR(reader.Read(body));
  const bool lacks_reasoning = reader.lacks_reasoning();
  conversation.messages = reader.Take();
  conversation.tools = tools.list.Take();
  request.namespaced_tools = std::move(tools.namespaced);
  request.custom_tools = std::move(tools.custom);
  KURUMA_RETURN_IF_ERROR(ParseToolChoice(body, &chat));
  KURUMA_RETURN_IF_ERROR(ParseThinking(body, options.default_thinking, &conversation));
  KURUMA_RETURN_IF_ERROR(ParseFormat(body, &conversation));
  KURUMA_RETURN_IF_ERROR(ParseAnswerOptions(body, &chat));
  KURUMA_RETURN_IF_ERROR(ReadEcho(body, chat, &request.echo));
  KURUMA_RETURN_IF_ERROR(ApplyOptions(options, lacks_reasoning, "reasoning_text", &chat));
  return request;
}

}  // namespace kuruma::api
