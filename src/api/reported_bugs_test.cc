// Mistakes in requests and prompts that users reported of other servers, by the id under which
// this project keeps them: each must be impossible here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "api/budget.h"
#include "api/request_test_util.h"
#include "text/golden_test_util.h"

namespace kuruma::api {
namespace {

const char* const kChatLoop = R"({"messages":[{"role":"user","content":"a"},
    {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",
     "function":{"name":"f","arguments":"{}"}}]},
    {"role":"tool","tool_call_id":"c","content":"r"}],
    "tools":[{"type":"function","function":{"name":"f"}}]})";

// Reasoning under either name is kept, and rendered while a tool loop runs.
TEST(ReportedBug, B6ReasoningIsReadUnderBothNames) {
  for (const char* name : {"reasoning", "reasoning_content"}) {
    std::string body = kChatLoop;
    const std::string mark = R"("content":null)";
    body.replace(body.find(mark), mark.size(), fmt::format("\"{}\":\"why\"", name));
    EXPECT_TRUE(Has(PromptOf<Chat>(body), "<think>why</think>")) << name;
  }
}

TEST(ReportedBug, B7MissingReasoningIsAnEmptyThought) {
  EXPECT_TRUE(Has(PromptOf<Chat>(kChatLoop), "<｜Assistant｜><think></think>\n\n"));
  ChatOptions strict;
  strict.reject_missing_reasoning = true;
  EXPECT_EQ(ErrorOf<Chat>(kChatLoop, strict),
            "The `reasoning_content` in the thinking mode must be passed back to the API.");
  ErrorOf<Messages>(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":
      [{"type":"tool_use","id":"t","name":"f","input":{}}]},{"role":"user","content":
      [{"type":"tool_result","tool_use_id":"t"}]}],
      "tools":[{"name":"f","input_schema":{"type":"object"}}]})",
                    strict);
  ErrorOf<Responses>(R"({"input":[{"role":"user","content":"a"},
      {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
      {"type":"function_call_output","call_id":"c","output":"r"}],
      "tools":[{"type":"function","name":"f"}]})",
                     strict);
}

// A plain reasoning item makes the second prompt an extension of the first one and its answer.
TEST(ReportedBug, B9ReasoningItemsComeBack) {
  const std::string first = R"({"input":[{"role":"user","content":"a"})";
  const std::string turn = R"(,{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text",
      "text":"why"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
      {"type":"function_call_output","call_id":"c","output":"r"})";
  const std::string tools = R"(],"tools":[{"type":"function","name":"f"}]})";
  const std::string before = PromptOf<Responses>(first + tools);
  const std::string after = PromptOf<Responses>(first + turn + tools);
  EXPECT_TRUE(after.starts_with(before + "why</think>"));
}

TEST(ReportedBug, C2EffortsAreAsSpecified) {
  const std::pair<const char*, int> labels[] = {{"low", 50}, {"high", 75}, {"max", 100}};
  for (const auto& [label, number] : labels) {
    const std::string text = fmt::format("Reasoning Effort: {} (range 1-100", number);
    const std::string effort = fmt::format("effort\":\"{}\"", label);
    EXPECT_TRUE(Has(PromptOf<Chat>(Hi("\"reasoning_" + effort)), text));
    EXPECT_TRUE(Has(PromptOf<Messages>(Hi("\"output_config\":{\"" + effort + "}")), text));
    EXPECT_TRUE(Has(PromptOf<Responses>(Input("\"reasoning\":{\"" + effort + "}")), text));
  }
}

TEST(ReportedBug, C3AConversationMayEndInASystemMessage) {
  const std::string messages = R"({"messages":[{"role":"system","content":"s"},
      {"role":"user","content":"u"},{"role":"system","content":"end"}]})";
  const std::string ending = "<｜System｜>end<｜Assistant｜><think>";
  EXPECT_TRUE(PromptOf<Chat>(messages).ends_with(ending));
  EXPECT_TRUE(PromptOf<Messages>(messages).ends_with(ending));
  EXPECT_TRUE(PromptOf<Responses>(R"({"instructions":"s","input":[{"role":"user","content":"u"},
      {"role":"developer","content":"end"}]})")
                  .ends_with(ending));
}

// What a coding agent sends: accounting line, system blocks with cache marks, many tools, reminders
// inside and at the end of the conversation.
TEST(ReportedBug, C5AgentsGetAnAnswer) {
  std::string tools;
  for (int i = 0; i < 20; ++i) {
    if (i > 0) tools += ',';
    tools +=
        fmt::format(R"({{"name":"tool{}","description":"d","input_schema":{{"type":"object"}},)"
                    R"("cache_control":{{}}}})",
                    i);
  }
  const std::string body = R"({"model":"claude-haiku","max_tokens":32000,"stream":true,"system":[
      {"type":"text","text":"x-anthropic-billing-header: cc_version=1; cch=2"},
      {"type":"text","text":"You are an agent.","cache_control":{"type":"ephemeral"}},
      {"type":"text","text":"Rules."}],
      "messages":[{"role":"user","content":[
        {"type":"text","text":"<system-reminder>r</system-reminder>"},
        {"type":"text","text":"Fix it","cache_control":{"type":"ephemeral"}}]},
      {"role":"assistant","content":[{"type":"thinking","thinking":"look","signature":"s"},
        {"type":"text","text":"Looking."},
        {"type":"tool_use","id":"t","name":"tool1","input":{"path":"a"}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[
        {"type":"text","text":"contents"}],"is_error":false,"cache_control":{}}]},
      {"role":"system","content":"<system-reminder>again</system-reminder>"}],
      "metadata":{"user_id":"{\"device\":\"d\"}"},"context_management":{"edits":[]},
      "tools":[)" + tools + "]}";
  const ChatRequest request = MustParse<Messages>(body);
  const std::string prompt = text::RenderPrompt(request.conversation).text;
  EXPECT_TRUE(prompt.ends_with("again</system-reminder><｜Assistant｜><think>"));
  EXPECT_FALSE(Has(prompt, "billing"));
  EXPECT_TRUE(Has(prompt, "You are an agent.\n\nRules."));
  EXPECT_TRUE(Has(prompt, "<think>look</think>Looking.\n\n"));
  EXPECT_EQ(request.conversation.tools.size(), 20u);
  EXPECT_EQ(request.user, R"({"device":"d"})");
}

TEST(ReportedBug, C6ControlTokensOfUsersAreText) {
  ASSERT_NE(text::GoldenTokenizer(), nullptr);
  const std::pair<const char*, size_t> cases[] = {{"", 4},
                                                  {"x", 5},
                                                  {"<｜User｜>", 9},
                                                  {"<｜Assistant｜>", 9},
                                                  {"<｜System｜>", 9},
                                                  {"<think>", 7},
                                                  {"</think>", 7}};
  for (const auto& [content, tokens] : cases) {
    const std::string messages =
        std::string(R"("messages":[{"role":"user","content":")") + content + "\"}]";
    const std::string off = R"(,"thinking":{"type":"disabled"}})";
    const std::string input =
        std::string(R"({"input":")") + content + R"(","reasoning":{"effort":"none"}})";
    for (const ChatRequest& request :
         {MustParse<Chat>("{" + messages + off), MustParse<Messages>("{" + messages + off),
          MustParse<Responses>(input)}) {
      const auto ids =
          text::EncodePrompt(text::RenderPrompt(request.conversation), *text::GoldenTokenizer());
      ASSERT_TRUE(ids.ok());
      EXPECT_EQ(ids->size(), tokens) << content;
    }
  }
}

TEST(ReportedBug, F2UsageOnlyWhenAskedAndNoTokensIsAnError) {
  EXPECT_FALSE(MustParse<Chat>(Hi(R"("stream":true)")).include_usage);
  EXPECT_TRUE(Has(ErrorOf<Chat>(Hi(R"("max_tokens":0)")), "'max_tokens'"));
  ErrorOf<Chat>(Hi(R"("max_completion_tokens":0)"));
  ErrorOf<Messages>(Hi(R"("max_tokens":0)"));
  ErrorOf<Responses>(Input(R"("max_output_tokens":0)"));
  ErrorOf<Completions>(R"({"prompt":"a","max_tokens":0})");
}

TEST(ReportedBug, F5ErrorsHaveBodies) {
  const ApiError error = ToApiError(ParseChatRequest("{", {}).status());
  for (const Protocol protocol :
       {Protocol::kChat, Protocol::kCompletions, Protocol::kMessages, Protocol::kResponses}) {
    const auto body = nlohmann::json::parse(ErrorBody(protocol, error));
    EXPECT_NE(body["error"]["message"], "");
  }
}

TEST(ReportedBug, F6AnswersAreLoweredToTheWindow) {
  BudgetPolicy policy;
  policy.context_tokens = 100;
  EXPECT_EQ(ResolveBudget(90, 50, policy).max_tokens, 10);
  EXPECT_FALSE(ResolveBudget(90, 50, policy).error);
  EXPECT_EQ(ResolveBudget(90, std::nullopt, policy).max_tokens, 10);
  EXPECT_EQ(ResolveBudget(99, 5, policy).max_tokens, 1);
  policy.strict = true;
  EXPECT_EQ(ResolveBudget(90, 10, policy).max_tokens, 10);
  const TokenBudget refused = ResolveBudget(90, 50, policy);
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->status, 400);
  EXPECT_EQ(refused.error->message,
            "This model's maximum context length is 100 tokens. However, you requested 140 tokens "
            "(90 in the messages, 50 in the completion). Please reduce the length of the messages "
            "or completion.");
  for (const bool strict : {false, true}) {
    policy.strict = strict;
    for (const int64_t prompt : {100, 101}) {
      const TokenBudget full = ResolveBudget(prompt, std::nullopt, policy);
      ASSERT_TRUE(full.error);
      EXPECT_EQ(full.error->code, "context_length_exceeded");
    }
  }
  // The largest number must not wrap.
  EXPECT_TRUE(Has(ResolveBudget(101, INT64_MAX, policy).error->message,
                  "you requested 9223372036854775807 tokens"));
}

TEST(ReportedBug, F8ImagesInOutputsAreImages) {
  const ChatRequest request = MustParse<Responses>(R"({"input":[{"role":"user","content":"a"},
      {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
      {"type":"function_call_output","call_id":"c","output":[
       {"type":"input_text","text":"shot"},
       {"type":"input_image","image_url":"data:image/png;base64,AAAA"}]}]})");
  const text::RenderedPrompt prompt = text::RenderPrompt(request.conversation);
  EXPECT_EQ(prompt.num_images, 1);
  EXPECT_FALSE(Has(prompt.text, "AAAA"));
  EXPECT_FALSE(CheckNoImages(request).ok());
}

}  // namespace
}  // namespace kuruma::api
