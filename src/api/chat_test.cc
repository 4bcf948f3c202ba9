#include "api/chat.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "api/error.h"
#include "text/prompt.h"

namespace kuruma::api {
namespace {

using Json = nlohmann::ordered_json;
using text::RenderPrompt;

ChatRequest MustParse(const Json& body, const ChatOptions& options = {}) {
  auto request = ParseChatRequest(body.dump(), options);
  EXPECT_TRUE(request.ok()) << request.status().message();
  return request.ok() ? *std::move(request) : ChatRequest();
}

std::string PromptOf(const Json& body, const ChatOptions& options = {}) {
  return RenderPrompt(MustParse(body, options).conversation).text;
}

std::string ErrorOf(const Json& body) {
  const auto request = ParseChatRequest(body.dump(), {});
  EXPECT_FALSE(request.ok()) << body.dump();
  if (request.ok()) return "";
  EXPECT_EQ(ToApiError(request.status()).status, 400);
  return request.status().message();
}

Json Body(Json extra = Json::object()) {
  extra["messages"] = Json::array({{{"role", "user"}, {"content", "hi"}}});
  return extra;
}

Json WithTools(Json extra = Json::object()) {
  extra = Body(std::move(extra));
  for (const char* name : {"alpha", "beta"}) {
    extra["tools"].push_back({{"type", "function"}, {"function", {{"name", name}}}});
  }
  return extra;
}

TEST(Chat, ThinkingIsResolvedInOrder) {
  const std::tuple<Json, bool, int> cases[] = {
      {{}, true, 75},
      {{{"thinking", {{"type", "disabled"}}}, {"enable_thinking", true}}, false, 75},
      {{{"thinking", {{"type", "enabled"}}}, {"reasoning_effort", "none"}}, true, 75},
      {{{"thinking", false}}, false, 75},
      {{{"enable_thinking", false}, {"reasoning_effort", "max"}}, false, 100},
      {{{"chat_template_kwargs", {{"thinking", false}}}}, false, 75},
      {{{"chat_template_kwargs", {{"enable_thinking", false}}}}, false, 75},
      {{{"chat_template_kwargs", {{"reasoning_effort", "low"}}}}, true, 50},
      {{{"reasoning_effort", "none"}}, false, 75},
      {{{"reasoning_effort", 37}}, true, 37},
      {{{"thinking_budget", 0}}, false, 75},
      {{{"thinking_budget", 100}}, true, 75},
  };
  for (const auto& [extra, thinking, effort] : cases) {
    const ChatRequest request = MustParse(Body(extra.is_null() ? Json::object() : extra));
    EXPECT_EQ(request.conversation.thinking, thinking) << extra.dump();
    EXPECT_EQ(request.conversation.effort, effort) << extra.dump();
  }
  ChatOptions off;
  off.default_thinking = false;
  EXPECT_FALSE(MustParse(Body(), off).conversation.thinking);
  EXPECT_TRUE(MustParse(Body({{"reasoning_effort", "low"}}), off).conversation.thinking);
  for (const Json& effort : {Json(true), Json(0), Json(101), Json("37"), Json("huge"), Json(1.5)}) {
    EXPECT_NE(ErrorOf(Body({{"reasoning_effort", effort}})).find("reasoning_effort"),
              std::string::npos);
  }
}

TEST(Chat, RequiredToolsLeaveTheThoughtFree) {
  const Json named = {{"type", "function"}, {"function", {{"name", "beta"}}}};
  const Json off = {{"type", "disabled"}};
  for (const Json& choice : {Json("required"), named}) {
    const ChatRequest request = MustParse(WithTools({{"tool_choice", choice}}));
    EXPECT_EQ(request.tool_choice, text::ToolChoice::kRequired);
    EXPECT_EQ(request.named_tool, choice.is_string() ? "" : "beta");
    const std::string thinking = RenderPrompt(request.conversation).text;
    EXPECT_TRUE(thinking.ends_with("<think>"));
    EXPECT_NE(thinking.find("\"alpha\""), std::string::npos);  // the list stays cacheable
    const std::string plain = PromptOf(WithTools({{"tool_choice", choice}, {"thinking", off}}));
    EXPECT_TRUE(plain.ends_with("</think>\n\n<｜DSML｜ calls>\n"));
    EXPECT_NE(plain.find("\"alpha\""), std::string::npos);
  }
}

TEST(Chat, RequiredWithoutToolsIsIgnored) {
  EXPECT_EQ(MustParse(Body({{"tool_choice", "required"}})).tool_choice, text::ToolChoice::kAuto);
}

TEST(Chat, ToolLoopsKeepTheirThoughts) {
  const Json body = Json::parse(R"({"messages": [
      {"role": "user", "content": "weather?"},
      {"role": "assistant", "reasoning": "ask the tool", "tool_calls": [
          {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1.0}}}]},
      {"role": "tool", "tool_call_id": "c", "content": null}]})");
  const std::string prompt = PromptOf(body);
  EXPECT_NE(prompt.find("<think>ask the tool</think>"), std::string::npos);
  EXPECT_NE(prompt.find("string=\"false\">1.0<"), std::string::npos);
  ChatOptions reference;
  reference.reference_prompts = true;
  EXPECT_EQ(PromptOf(body, reference).find("ask the tool"), std::string::npos);
}

TEST(Chat, ConversationsMayEndInAnyMessage) {
  Json body = Body();
  body["messages"].push_back({{"role", "developer"}, {"content", "French, please"}});
  EXPECT_TRUE(PromptOf(body).ends_with("<｜System｜>French, please<｜Assistant｜><think>"));
  body["messages"].push_back({{"role", "assistant"}, {"content", "Bon"}});
  body["continue_final_message"] = true;
  EXPECT_TRUE(PromptOf(body).ends_with("<think></think>Bon"));
}

TEST(Chat, EmptySystemMessagesAreDropped) {
  const Json body = Json::parse(R"({"thinking": {"type": "disabled"}, "messages": [
      {"role": "system", "content": ""}, {"role": "user", "content": "hi"}]})");
  EXPECT_EQ(PromptOf(body), "<｜begin▁of▁sentence｜><｜User｜>hi<｜Assistant｜></think>");
}

TEST(Chat, OptionsAreRead) {
  const ChatRequest request = MustParse(Body({{"model", "m"},
                                              {"temperature", 0},
                                              {"top_p", 0.5},
                                              {"presence_penalty", -1.5},
                                              {"frequency_penalty", 2},
                                              {"seed", -7},
                                              {"max_tokens", 5},
                                              {"max_completion_tokens", 6},
                                              {"n", 3},
                                              {"stop", "END"},
                                              {"logprobs", true},
                                              {"top_logprobs", 4},
                                              {"logit_bias", {{"17", -100}}},
                                              {"parallel_tool_calls", false},
                                              {"stream", true},
                                              {"stream_options", {{"include_usage", true}}},
                                              {"unknown", {1, 2}}}));
  const SamplingOptions& sampling = request.sampling;
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(sampling.temperature, 0.0);
  EXPECT_EQ(sampling.top_p, 0.5);
  EXPECT_EQ(sampling.presence_penalty, -1.5);
  EXPECT_EQ(sampling.frequency_penalty, 2.0);
  EXPECT_EQ(sampling.seed, -7);
  EXPECT_EQ(sampling.max_tokens, 6);
  EXPECT_EQ(sampling.n, 3);
  EXPECT_EQ(sampling.stop, std::vector<std::string>{"END"});
  EXPECT_TRUE(sampling.logprobs);
  EXPECT_EQ(sampling.top_logprobs, 4);
  EXPECT_EQ(sampling.logit_bias, (std::vector<std::pair<int32_t, double>>{{17, -100.0}}));
  EXPECT_FALSE(request.parallel_tool_calls);
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
}

TEST(Chat, ErrorsNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"messages": [{"role": "robot", "content": "x"}]})", "'messages[0].role'"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})",
       "'messages[0].content[0].text'"},
      {R"({"messages": [{"role": "user", "content": "x"}], "temperature": 3})", "'temperature'"},
      {R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function",
          "function": {"name": "a b"}}]})",
       "'tools[0].function.name'"},
      {R"({"messages": [{"role": "user", "content": "x"}], "stop": ["a", 1]})", "'stop[1]'"},
      {R"({"messages": [{"role": "user", "content": "x"}], "logit_bias": {"x": 1}})",
       "'logit_bias'"},
      {R"({"messages": {}})", "'messages' must be an array"},
      {R"([])", "the body must be a JSON object"},
  };
  for (const auto& [body, field] : cases) {
    const std::string message = ErrorOf(Json::parse(body));
    EXPECT_NE(message.find(field), std::string::npos) << message;
  }
}

// Bodies cut anywhere, or with any byte changed, are answered: never a crash, never a silent error.
TEST(Chat, DamagedBodiesAreAnswered) {
  const std::string body =
      WithTools({{"stop", {"a", "b"}}, {"thinking", {{"type", "enabled"}}}}).dump();
  for (size_t i = 0; i < body.size(); ++i) {
    EXPECT_FALSE(ParseChatRequest(body.substr(0, i), {}).ok());
    for (const char c : {'\0', '"', '{', ']', '9', '\xFF', 'n'}) {
      std::string damaged = body;
      damaged[i] = c;
      const auto request = ParseChatRequest(damaged, {});
      if (request.ok()) {
        RenderPrompt(request->conversation);
      } else {
        EXPECT_NE(request.status().message(), "");
      }
    }
  }
}

}  // namespace
}  // namespace kuruma::api
