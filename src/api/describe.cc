#include "api/describe.h"

#include <string>
#include <utility>
#include <vector>

namespace kuruma::api {
namespace {

using Json = nlohmann::ordered_json;
using text::ResponseFormat;
using text::Role;
using text::ToolChoice;

const char* NameOf(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
    case Role::kTool:
      return "tool";
    case Role::kLatestReminder:
      return "latest_reminder";
  }
  return "";
}

const char* NameOf(ToolChoice choice) {
  switch (choice) {
    case ToolChoice::kAuto:
      return "auto";
    case ToolChoice::kNone:
      return "none";
    case ToolChoice::kRequired:
      return "required";
  }
  return "";
}

const char* NameOf(ResponseFormat::Kind kind) {
  switch (kind) {
    case ResponseFormat::Kind::kText:
      return "text";
    case ResponseFormat::Kind::kJsonObject:
      return "json_object";
    case ResponseFormat::Kind::kJsonSchema:
      return "json_schema";
    case ResponseFormat::Kind::kRegex:
      return "regex";
  }
  return "";
}

Json DescribeTools(const std::vector<text::Tool>& tools) {
  Json list = Json::array();
  for (const text::Tool& tool : tools) {
    Json entry = {{"name", tool.name},
                  {"description", tool.description},
                  {"parameters", Json::parse(tool.parameters)}};
    if (tool.strict) entry["strict"] = true;
    if (tool.defer_loading) entry["defer_loading"] = true;
    list.push_back(std::move(entry));
  }
  return list;
}

Json DescribeMessage(const text::Message& message) {
  std::string content;
  Json images = Json::array();
  size_t written = 0;
  for (const text::ImageRef& image : message.images) {
    content.append(message.content, written, image.offset - written);
    content += text::kDefaultImageToken;
    written = image.offset;
    images.push_back({{"url", image.url}, {"detail", image.detail}});
  }
  content.append(message.content, written);
  Json entry = {{"role", NameOf(message.role)}, {"content", std::move(content)}};
  if (!images.empty()) entry["images"] = std::move(images);
  if (!message.tools.empty()) entry["tools"] = DescribeTools(message.tools);
  if (!message.tool_call_id.empty()) entry["tool_call_id"] = message.tool_call_id;
  if (!message.reasoning.empty()) entry["reasoning_content"] = message.reasoning;
  for (const text::ToolCall& call : message.tool_calls) {
    entry["tool_calls"].push_back(
        {{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  }
  if (message.prefix) entry["prefix"] = true;
  return entry;
}

}  // namespace

Json DescribeConversation(const text::Conversation& conversation) {
  Json messages = Json::array();
  for (const text::Message& message : conversation.messages) {
    messages.push_back(DescribeMessage(message));
  }
  const ResponseFormat& format = conversation.response_format;
  Json out = {{"messages", std::move(messages)},
              {"thinking", conversation.thinking},
              {"effort", conversation.effort},
              {"tools", DescribeTools(conversation.tools)},
              {"tool_choice", NameOf(conversation.tool_choice)},
              {"response_format", NameOf(format.kind)}};
  if (format.kind == ResponseFormat::Kind::kJsonSchema) {
    out["response_schema"] = Json::parse(format.schema);
  }
  if (format.kind == ResponseFormat::Kind::kRegex) out["response_regex"] = format.schema;
  return out;
}

Json DescribeSampling(const SamplingOptions& sampling) {
  Json bias = Json::object();
  for (const auto& [id, amount] : sampling.logit_bias) bias[std::to_string(id)] = amount;
  return {{"temperature", sampling.temperature},
          {"top_p", sampling.top_p},
          {"top_k", sampling.top_k},
          {"min_p", sampling.min_p},
          {"presence_penalty", sampling.presence_penalty},
          {"frequency_penalty", sampling.frequency_penalty},
          {"repetition_penalty", sampling.repetition_penalty},
          {"seed", sampling.seed ? Json(*sampling.seed) : Json()},
          {"max_tokens", sampling.max_tokens ? Json(*sampling.max_tokens) : Json()},
          {"min_tokens", sampling.min_tokens},
          {"n", sampling.n},
          {"stop", sampling.stop},
          {"stop_token_ids", sampling.stop_token_ids},
          {"include_stop", sampling.include_stop},
          {"ignore_eos", sampling.ignore_eos},
          {"logprobs", sampling.logprobs},
          {"top_logprobs", sampling.top_logprobs},
          {"logit_bias", std::move(bias)}};
}

std::string EchoText(const ResponsesEcho& echo) {
  const auto json = [](const std::string& text) {
    return nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  };
  nlohmann::ordered_json out{
      {"instructions", nullptr},           {"max_output_tokens", nullptr},
      {"temperature", echo.temperature},   {"top_p", echo.top_p},
      {"top_logprobs", echo.top_logprobs}, {"parallel_tool_calls", echo.parallel_tool_calls},
      {"tools", json(echo.tools)},         {"tool_choice", json(echo.tool_choice)},
      {"text", json(echo.text)},           {"reasoning", json(echo.reasoning)},
      {"metadata", json(echo.metadata)},   {"truncation", json(echo.truncation)}};
  if (echo.instructions) out["instructions"] = *echo.instructions;
  if (echo.max_output_tokens) out["max_output_tokens"] = *echo.max_output_tokens;
  if (echo.user) out["user"] = *echo.user;
  return out.dump();
}

}  // namespace kuruma::api
