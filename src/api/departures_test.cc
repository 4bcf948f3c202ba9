// Where requests are deliberately read differently from DeepSeek's reference library: one test
// each. request_golden_test.cc lists the recorded requests that they concern.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "api/budget.h"
#include "api/request_test_util.h"

namespace kuruma::api {
namespace {

using text::Role;
using text::ToolChoice;

const char* const kChatTools = R"("tools":[{"type":"function","function":{"name":"alpha"}},)"
                               R"({"type":"function","function":{"name":"beta"}}])";
const char* const kMessagesTools =
    R"("tools":[{"name":"alpha","input_schema":{"type":"object"}},)"
    R"({"type":"custom","name":"beta","input_schema":{"type":"object"}}])";
const char* const kResponsesTools =
    R"("tools":[{"type":"function","name":"alpha"},{"type":"function","name":"beta"}])";

std::string Join(const std::string& a, const std::string& b) { return a + "," + b; }

TEST(Departure, EffortMayBeANumber) {
  EXPECT_EQ(MustParse<Chat>(Hi(R"("reasoning_effort":37)")).conversation.effort, 37);
  EXPECT_EQ(MustParse<Messages>(Hi(R"("output_config":{"effort":37})")).conversation.effort, 37);
  EXPECT_EQ(MustParse<Responses>(Input(R"("reasoning":{"effort":37})")).conversation.effort, 37);
  EXPECT_TRUE(Has(ErrorOf<Chat>(Hi(R"("reasoning_effort":101)")), "'reasoning_effort'"));
}

TEST(Departure, SwitchesOfOtherServersCount) {
  for (const char* off : {R"("enable_thinking":false)", R"("thinking":false)",
                          R"("chat_template_kwargs":{"thinking":false})"}) {
    EXPECT_FALSE(MustParse<Chat>(Hi(off)).conversation.thinking) << off;
  }
}

TEST(Departure, ModelsAreTheServersMatter) {
  EXPECT_EQ(MustParse<Chat>(Hi()).model, "");
  EXPECT_EQ(MustParse<Messages>(Hi(R"("model":"claude-x")")).model, "claude-x");
  EXPECT_EQ(MustParse<Responses>(Input(R"("model":"any")")).model, "any");
}

TEST(Departure, DeveloperIsSystem) {
  const ChatRequest request =
      MustParse<Chat>(R"({"messages":[{"role":"developer","content":"rule"}]})");
  EXPECT_EQ(request.conversation.messages[0].role, Role::kSystem);
}

TEST(Departure, NullIsEmpty) {
  const ChatRequest request = MustParse<Chat>(R"({"messages":[{"role":"user","content":null}]})");
  EXPECT_EQ(request.conversation.messages[0].content, "");
  EXPECT_TRUE(Has(ErrorOf<Chat>(R"({"messages":[{"role":"user"}]})"), "'messages[0].content'"));
}

TEST(Departure, ReasoningMayStandAlone) {
  const ChatRequest request = MustParse<Chat>(
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","reasoning_content":"t"}]})");
  EXPECT_EQ(request.conversation.messages[1].content, "");
  EXPECT_EQ(request.conversation.messages[1].reasoning, "t");
}

TEST(Departure, NoCallsInAnEmptyArray) {
  const ChatRequest request = MustParse<Chat>(
      R"({"messages":[{"role":"user","content":"a"},
          {"role":"assistant","content":"b","tool_calls":[]}]})");
  EXPECT_TRUE(request.conversation.messages[1].tool_calls.empty());
}

TEST(Departure, ReasoningHasTwoNames) {
  const ChatRequest request = MustParse<Chat>(
      R"({"messages":[{"role":"user","content":"a"},
          {"role":"assistant","content":"b","reasoning":"t"}]})");
  EXPECT_EQ(request.conversation.messages[1].reasoning, "t");
}

TEST(Departure, ToolResultsMayBeIncomplete) {
  const std::string call =
      R"({"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f"}}]})";
  const std::string user = R"({"role":"user","content":"a"})";
  for (const std::string& results :
       {std::string(R"({"role":"user","content":"never mind"})"),
        std::string(R"({"role":"tool","tool_call_id":"zz","content":"x"})"),
        std::string(R"({"role":"tool","content":"x"},{"role":"tool","content":"y"})")}) {
    MustParse<Chat>(R"({"messages":[)" + user + "," + call + "," + results + "]}");
  }
  // But a result needs some call before it.
  ErrorOf<Chat>(R"({"messages":[{"role":"tool","tool_call_id":"c","content":"x"}]})");

  const std::string use =
      R"({"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]})";
  for (
      const std::string& blocks :
      {std::string(R"({"type":"text","text":"first"},{"type":"tool_result","tool_use_id":"t"})"),
       std::string(R"({"type":"tool_result","tool_use_id":"zz","content":"x"})"),
       std::string(
           R"({"type":"tool_result","tool_use_id":"t"},{"type":"tool_result","tool_use_id":"t"})")}) {
    MustParse<Messages>(R"({"messages":[)" + user + "," + use + R"(,{"role":"user","content":[)" +
                        blocks + "]}]}");
  }
  ErrorOf<Messages>(
      R"({"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}]})");

  const std::string item = R"({"type":"function_call","call_id":"c","name":"f","arguments":"{}"})";
  const std::string output = R"({"type":"function_call_output","call_id":"c","output":"x"})";
  MustParse<Responses>(R"({"input":[)" + item + "]}");
  MustParse<Responses>(R"({"input":[)" + item + "," + item + "," + output + "," + output + "]}");
  ErrorOf<Responses>(R"({"input":[)" + output + "]}");
}

TEST(Departure, ArgumentsMayBeAnObject) {
  const ChatRequest request = MustParse<Chat>(
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":
          [{"id":"c","type":"function","function":{"name":"f","arguments":{"a":1}}}]}]})");
  EXPECT_EQ(request.conversation.messages[1].tool_calls[0].arguments, R"({"a": 1})");
}

TEST(Departure, CallsCanBeRequiredWhileThinking) {
  const std::vector<ChatRequest> requests = {
      MustParse<Chat>(Hi(Join(kChatTools, R"("tool_choice":"required")"))),
      MustParse<Chat>(
          Hi(Join(kChatTools, R"("tool_choice":{"type":"function","function":{"name":"beta"}})"))),
      MustParse<Messages>(
          Hi(Join(kMessagesTools, R"("tool_choice":{"type":"tool","name":"beta"})"))),
      MustParse<Responses>(Input(Join(kResponsesTools, R"("tool_choice":"required")"))),
      MustParse<Responses>(
          Input(Join(kResponsesTools, R"("tool_choice":{"type":"function","name":"beta"})")))};
  for (const ChatRequest& request : requests) {
    EXPECT_EQ(request.tool_choice, ToolChoice::kRequired);
    const std::string prompt = text::RenderPrompt(request.conversation).text;
    EXPECT_TRUE(prompt.ends_with("<think>"));
    EXPECT_TRUE(Has(prompt, "\"alpha\""));  // the list stays whole, and cacheable
  }
  EXPECT_EQ(requests[2].named_tool, "beta");
  EXPECT_EQ(requests[4].named_tool, "beta");
}

TEST(Departure, SchemasAreCheckedWithTheirGrammar) {
  MustParse<Chat>(Hi(R"("response_format":{"type":"json_schema","json_schema":
      {"name":"n","schema":{"type":"nonsense"}}})"));
}

TEST(Departure, StrictSchemasAreShownAsSent) {
  const std::string schema =
      R"({"type": "object", "properties": {"a": {"enum": [1]}}, "$defs": {"x": {}}})";
  const std::string prompt = PromptOf<Chat>(
      Hi(R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":)" +
         schema + "}}]"));
  EXPECT_TRUE(Has(prompt, schema));
  EXPECT_TRUE(Has(
      PromptOf<Responses>(Input(
          R"("tools":[{"type":"function","name":"f","strict":true,"parameters":)" + schema + "}]")),
      schema));
}

TEST(Departure, StrictToolsMix) {
  const ChatRequest request = MustParse<Chat>(Hi(
      R"("tools":[{"type":"function","function":{"name":"f","strict":true}},
         {"type":"function","function":{"name":"g"}}],"response_format":{"type":"json_object"})"));
  EXPECT_TRUE(request.conversation.tools[0].strict);
  EXPECT_FALSE(request.conversation.tools[1].strict);
}

TEST(Departure, JsonNeedsNoMention) {
  MustParse<Chat>(Hi(R"("response_format":{"type":"json_object"})"));
  MustParse<Responses>(Input(R"("text":{"format":{"type":"json_object"}})"));
}

TEST(Departure, APrefixMayFollowTools) {
  const std::string prompt = PromptOf<Chat>(
      R"({"messages":[{"role":"user","content":"a"},
          {"role":"assistant","content":"So","prefix":true}],)" +
      std::string(kChatTools) + "}");
  EXPECT_TRUE(prompt.ends_with("<think></think>So"));
  // Not behind open calls: there is nothing to continue.
  ErrorOf<Chat>(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","prefix":true,
      "tool_calls":[{"id":"c","type":"function","function":{"name":"f"}}]}]})");
}

TEST(Departure, ImageDataIsBase64) {
  EXPECT_TRUE(Has(ErrorOf<Chat>(R"({"messages":[{"role":"user","content":[{"type":"image_url",
      "image_url":{"url":"data:image/png;base64,%00"}}]}]})"),
                  "base64"));
}

TEST(Departure, LargeAnswersAreLowered) {
  const BudgetPolicy policy{.context_tokens = 100, .strict = false, .default_tokens = {}};
  for (const auto& request : {MustParse<Chat>(Hi(R"("max_tokens":4294967296)")),
                              MustParse<Messages>(Hi(R"("max_tokens":4294967296)")),
                              MustParse<Responses>(Input(R"("max_output_tokens":4294967296)"))}) {
    EXPECT_EQ(request.sampling.max_tokens, 4294967296);
    EXPECT_EQ(ResolveBudget(90, request.sampling.max_tokens, policy).max_tokens, 10);
  }
}

TEST(Departure, SeveralAnswers) { EXPECT_EQ(MustParse<Chat>(Hi(R"("n":2)")).sampling.n, 2); }

TEST(Departure, SeedsMayBeNegative) {
  EXPECT_EQ(MustParse<Chat>(Hi(R"("seed":-1)")).sampling.seed, -1);
}

TEST(Departure, MaxCompletionTokensWins) {
  const std::string both = R"("max_tokens":9,"max_completion_tokens":5)";
  EXPECT_EQ(MustParse<Chat>(Hi(both)).sampling.max_tokens, 5);
}

TEST(Departure, ThinkingBudgetsChooseTheEffort) {
  const std::pair<int, int> cases[] = {
      {1024, 50}, {4096, 50}, {4097, 75}, {16384, 75}, {16385, 100}};
  for (const auto& [budget, effort] : cases) {
    const ChatRequest request = MustParse<Messages>(
        Hi(R"("thinking":{"type":"enabled","budget_tokens":)" + std::to_string(budget) + "}"));
    EXPECT_TRUE(request.conversation.thinking);
    EXPECT_EQ(request.conversation.effort, effort) << budget;
  }
  EXPECT_EQ(MustParse<Messages>(Hi(R"("thinking":{"type":"enabled","budget_tokens":1024},
                                      "output_config":{"effort":"max"})"))
                .conversation.effort,
            100);
}

TEST(Departure, RedactedThinkingIsSkipped) {
  const ChatRequest request = MustParse<Messages>(
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[
          {"type":"redacted_thinking","data":"x"},{"type":"text","text":"b"}]},
          {"role":"user","content":"c"}]})");
  EXPECT_EQ(request.conversation.messages[1].content, "b");
  EXPECT_EQ(request.conversation.messages[1].reasoning, "");
}

TEST(Departure, ServerToolsAreLeftOut) {
  const ChatRequest request = MustParse<Messages>(
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[
          {"type":"server_tool_use","id":"s","name":"web_search","input":{}},
          {"type":"web_search_tool_result","tool_use_id":"s","content":[]},
          {"type":"text","text":"b"}]},{"role":"user","content":"c"}],
          "tools":[{"type":"web_search_20250305","name":"web_search"}],
          "tool_choice":{"type":"tool","name":"web_search"}})");
  EXPECT_EQ(request.conversation.messages[1].content, "b");
  EXPECT_TRUE(request.conversation.tools.empty());
  EXPECT_EQ(request.tool_choice, ToolChoice::kAuto);
  // Client tools without a schema are another matter: leaving them out would be a lie.
  EXPECT_TRUE(Has(ErrorOf<Messages>(Hi(R"("tools":[{"type":"bash_20250124","name":"bash"}])")),
                  "'tools[0].type'"));
  EXPECT_TRUE(
      MustParse<Responses>(Input(R"("tools":[{"type":"web_search"}])")).conversation.tools.empty());
}

TEST(Departure, AnyRequiresACall) {
  const ChatRequest request =
      MustParse<Messages>(Hi(Join(kMessagesTools, R"("tool_choice":{"type":"any"})")));
  EXPECT_EQ(request.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(request.named_tool, "");
}

TEST(Departure, CustomToolsAreTheClients) {
  EXPECT_EQ(MustParse<Messages>(Hi(kMessagesTools)).conversation.tools[1].name, "beta");
}

TEST(Departure, NoStoredResponses) {
  EXPECT_TRUE(
      Has(ErrorOf<Responses>(Input(R"("previous_response_id":"resp_1")")), "whole history"));
  ErrorOf<Responses>(Input(R"("conversation":"conv_1")"));
  MustParse<Responses>(Input(R"("previous_response_id":null)"));
}

TEST(Departure, NoStoredItems) {
  EXPECT_TRUE(Has(ErrorOf<Responses>(R"({"input":[{"type":"item_reference","id":"x"}]})"),
                  "'input[0].type'"));
}

TEST(Departure, CallsKeepTheirOrder) {
  const ChatRequest request = MustParse<Responses>(R"({"input":[{"role":"user","content":"a"},
      {"type":"function_call","call_id":"b","name":"f","arguments":"{}"},
      {"type":"function_call","call_id":"a","name":"g","arguments":"{}"},
      {"type":"function_call_output","call_id":"b","output":"rb"},
      {"type":"function_call_output","call_id":"a","output":"ra"}]})");
  const auto& messages = request.conversation.messages;
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[1].tool_calls[0].id, "b");
  EXPECT_EQ(messages[1].tool_calls[1].id, "a");
  EXPECT_EQ(messages[2].content, "rb");
}

// --- Departures that no recorded row shows, since rows are read with the reference options -----

TEST(Departure, SamplingIsHonoured) {
  const std::string sent =
      R"("temperature":0,"top_p":0.5,"presence_penalty":1,"frequency_penalty":1)";
  for (const ChatRequest& request : {MustParse<Chat>(Hi(sent)), MustParse<Messages>(Hi(sent)),
                                     MustParse<Responses>(Input(sent))}) {
    EXPECT_EQ(request.sampling.temperature, 0.0);
    EXPECT_EQ(request.sampling.top_p, 0.5);
    EXPECT_EQ(request.sampling.presence_penalty, 1.0);
  }
  ChatOptions hosted;
  hosted.hosted_sampling = true;
  const ChatRequest request = MustParse<Chat>(Hi(sent), hosted);
  EXPECT_EQ(request.sampling.temperature, 1.0);
  EXPECT_EQ(request.sampling.top_p, 0.95);
  EXPECT_EQ(request.sampling.presence_penalty, 0.0);
}

TEST(Departure, AMessagesPrefillIsContinued) {
  const std::string body = R"({"thinking":{"type":"disabled"},"messages":[
      {"role":"user","content":"a"},{"role":"assistant","content":"\n{\"x\":"}]})";
  // Leading newlines stay too.
  EXPECT_TRUE(PromptOf<Messages>(body).ends_with("<｜Assistant｜></think>\n{\"x\":"));
  ChatOptions reference;
  reference.reference_prompts = true;
  EXPECT_TRUE(PromptOf<Messages>(body, reference).ends_with("<｜Assistant｜></think>"));
  // A turn that ends in calls is closed: its results come next.
  EXPECT_TRUE(PromptOf<Messages>(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant",
      "content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}]})")
                  .ends_with("<｜Assistant｜><think>"));
}

TEST(Departure, ToolLoopsKeepTheirThoughts) {
  const std::string body = R"({"messages":[{"role":"user","content":"a"},{"role":"assistant",
      "content":[{"type":"thinking","thinking":"ask"},
      {"type":"tool_use","id":"t","name":"f","input":{}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"}]}]})";
  EXPECT_TRUE(Has(PromptOf<Messages>(body), "<think>ask</think>"));
}

}  // namespace
}  // namespace kuruma::api
