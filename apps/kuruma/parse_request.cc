#include "parse_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "api/chat.h"

namespace kuruma {
namespace {

using Json = nlohmann::ordered_json;
using text::ParserOptions;

// Member `key` of an object, null if there is none.
Json Member(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) ? object[key] : Json();
}

std::string TextMember(const Json& object, const char* key) {
  const Json value = Member(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

bool BoolMember(const Json& object, const char* key, bool otherwise) {
  const Json value = Member(object, key);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

// A string, or the strings of a list.
std::vector<std::string> Texts(const Json& value) {
  std::vector<std::string> texts;
  if (value.is_string()) texts.push_back(value);
  if (!value.is_array()) return texts;
  for (const Json& item : value) {
    if (item.is_string()) texts.push_back(item);
  }
  return texts;
}

bool HasItems(const Json& value) { return value.is_array() && !value.empty(); }

Result<AnswerPlan> PlanChat(const Json& request) {
  KURUMA_ASSIGN_OR_RETURN(const api::ChatRequest chat,
                          api::ParseChatRequest(request.dump(), api::ChatOptions()));
  AnswerPlan plan;
  plan.parser = text::ParserOptionsFor(chat.conversation);
  plan.parser.stops = chat.sampling.stop;
  plan.answer.include_usage = chat.include_usage;
  plan.answer.parallel_tool_calls = chat.parallel_tool_calls;
  plan.answer.logprobs = chat.sampling.logprobs;
  plan.answer.top_logprobs = chat.sampling.top_logprobs;
  return plan;
}

AnswerPlan PlanCompletions(const Json& request) {
  AnswerPlan plan;
  plan.parser.continues_content = true;
  plan.parser.stops = Texts(Member(request, "stop"));
  plan.answer.include_usage = BoolMember(Member(request, "stream_options"), "include_usage", false);
  if (BoolMember(request, "echo", false)) plan.answer.echo = {TextMember(request, "prompt")};
  return plan;
}

AnswerPlan PlanMessages(const Json& request) {
  AnswerPlan plan;
  const Json choice = Member(request, "tool_choice");
  plan.parser.has_tools =
      HasItems(Member(request, "tools")) && TextMember(choice, "type") != "none";
  plan.parser.stops = Texts(Member(request, "stop_sequences"));
  const Json messages = Member(request, "messages");
  if (HasItems(messages) && TextMember(messages.back(), "role") == "assistant") {
    plan.parser.continues_content = true;
  } else if (TextMember(Member(request, "thinking"), "type") != "disabled") {
    plan.parser.start = ParserOptions::Start::kReasoning;
  }
  plan.answer.parallel_tool_calls = !BoolMember(choice, "disable_parallel_tool_use", false);
  return plan;
}

AnswerPlan PlanResponses(const Json& request) {
  AnswerPlan plan;
  const Json tools = Member(request, "tools");
  plan.parser.has_tools = HasItems(tools) && TextMember(request, "tool_choice") != "none";
  if (TextMember(Member(request, "reasoning"), "effort") != "none") {
    plan.parser.start = ParserOptions::Start::kReasoning;
  }
  plan.answer.parallel_tool_calls = BoolMember(request, "parallel_tool_calls", true);
  Json fields = Json::object();
  for (const char* key : {"instructions", "max_output_tokens", "metadata", "parallel_tool_calls",
                          "reasoning", "temperature", "text", "tool_choice", "tools", "top_p"}) {
    if (!Member(request, key).is_null()) fields[key] = request[key];
  }
  plan.answer.response_fields = fields.dump();
  if (!tools.is_array()) return plan;
  for (const Json& tool : tools) {
    if (TextMember(tool, "type") == "custom") {
      plan.answer.custom_tools.push_back(TextMember(tool, "name"));
    }
  }
  return plan;
}

}  // namespace

Result<AnswerPlan> PlanAnswer(const std::string& protocol, const Json& request) {
  AnswerPlan plan;
  if (protocol == "chat") {
    KURUMA_ASSIGN_OR_RETURN(plan, PlanChat(request));
    plan.answer.protocol = api::Protocol::kChat;
    plan.answer.id = std::string("chatcmpl-parse");
  } else if (protocol == "completions") {
    plan = PlanCompletions(request);
    plan.answer.protocol = api::Protocol::kCompletions;
    plan.answer.id = std::string("cmpl-parse");
  } else if (protocol == "messages") {
    plan = PlanMessages(request);
    plan.answer.protocol = api::Protocol::kMessages;
    plan.answer.id = std::string("msg_parse");
  } else if (protocol == "responses") {
    plan = PlanResponses(request);
    plan.answer.protocol = api::Protocol::kResponses;
    plan.answer.id = std::string("resp_parse");
  } else {
    return InvalidArgument(fmt::format(
        "'protocol' must be chat, completions, messages or responses, not \"{}\"", protocol));
  }
  plan.answer.model = TextMember(request, "model");
  return plan;
}

}  // namespace kuruma
