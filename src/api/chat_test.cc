#include "api/chat.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "api/error.h"
#include "text/golden_test_util.h"
#include "text/prompt.h"

namespace kuruma::api {
namespace {

using Json = nlohmann::ordered_json;
using text::RenderPrompt;

// Rows where Kuruma deliberately answers differently, by reason.
std::map<std::string, std::string> Differences() {
  const std::pair<const char*, std::vector<const char*>> reasons[] = {
      {"reasoning effort: integers 1..100 are accepted, a map is not a label",
       {"req-0035", "req-0038"}},
      {"enable_thinking and chat_template_kwargs are honoured", {"req-0044"}},
      {"which models exist is the server's matter, and one may be left out",
       {"req-0045", "req-0047", "req-0048"}},
      {"developer is a system message", {"req-0050"}},
      {"null content is empty content", {"req-0053", "req-0072", "req-0098"}},
      {"an assistant message may hold reasoning alone", {"req-0065"}},
      {"an empty tool_calls array means no calls", {"req-0067"}},
      {"tool results may be missing, repeated or unknown, and need no id",
       {"req-0085", "req-0086", "req-0087", "req-0088", "req-0089", "req-0090", "req-0091",
        "req-0100"}},
      {"arguments may be an object", {"req-0094"}},
      {"required and named tools work while thinking", {"req-0117", "req-0119"}},
      {"the inside of a schema is checked where its grammar is compiled",
       {"req-0143", "req-0195", "req-0196"}},
      {"strict schemas are shown as sent, and checked where the grammar is compiled",
       {"req-0152", "req-0153", "req-0154", "req-0155", "req-0156", "req-0157",
        "req-0158", "req-0159", "req-0160", "req-0161", "req-0162", "req-0163",
        "req-0164", "req-0165", "req-0166", "req-0168", "req-0170", "req-0171",
        "req-0186", "req-0187", "req-0188", "req-0189", "req-0190", "req-0191"}},
      {"strict tools may be mixed with others and with a response format",
       {"req-0172", "req-0173"}},
      {"json_object does not demand the word in a message", {"req-0177"}},
      {"a prefix may be continued when tools are declared or were called",
       {"req-0212", "req-0214"}},
      {"data after \"base64,\" must be base64", {"req-0237"}},
      {"large max_tokens are lowered to what fits", {"req-0270", "req-0273", "req-0313"}},
      {"several answers may be asked for", {"req-0275"}},
      {"any 64-bit seed is accepted", {"req-0281"}},
  };
  std::map<std::string, std::string> rows;
  for (const auto& [reason, ids] : reasons) {
    for (const char* id : ids) rows[id] = reason;
  }
  return rows;
}

ChatOptions OptionsOf(const Json& row) {
  ChatOptions options;
  options.reference_prompts = true;
  const Json settings = row.value("options", Json::object());
  options.default_thinking = settings.value("default_thinking_mode", true);
  options.reject_missing_reasoning = settings.value("reject_missing_reasoning", false);
  return options;
}

// Whether the request was answered as the row says; a text saying how not.
std::string Mismatch(const Json& row) {
  const auto request = ParseChatRequest(row["body"].get<std::string>(), OptionsOf(row));
  if (row.contains("error")) {
    if (request.ok()) return "accepted";
    return ToApiError(request.status()).status == row["error"]["status"] ? "" : "other status";
  }
  if (!request.ok()) return "refused: " + request.status().message();
  const Json& rendered = row["ok"]["rendered"];
  const text::RenderedPrompt prompt = RenderPrompt(request->conversation);
  if (prompt.text != rendered["prompt"]) return "other prompt: " + prompt.text;
  std::vector<text::SpecialRange> specials;
  for (const Json& range : rendered["special_ranges"]) specials.push_back({range[0], range[1]});
  if (prompt.specials != specials) return "other special ranges";
  const auto ids = text::EncodePrompt(prompt, *text::GoldenTokenizer());
  if (!ids.ok() || ids->size() != rendered["n_ids"]) return "other number of ids";
  return "";
}

TEST(Chat, AgreesWithReferenceRows) {
  ASSERT_NE(text::GoldenTokenizer(), nullptr);
  const auto differences = Differences();
  size_t agreeing = 0;
  size_t differing = 0;
  for (const Json& row : text::ReadGoldenRows("request_cases.jsonl")) {
    if (row["protocol"] != "chat") continue;
    const std::string id = row["id"];
    const std::string mismatch = Mismatch(row);
    if (const auto found = differences.find(id); found != differences.end()) {
      EXPECT_NE(mismatch, "") << id << " agrees now; strike it from the list: " << found->second;
      ++differing;
    } else {
      EXPECT_EQ(mismatch, "") << id;
      ++agreeing;
    }
  }
  EXPECT_EQ(differing, differences.size());
  EXPECT_EQ(agreeing + differing, 328u);
}

// --- What the reference rows do not cover ---------------------------------------------------

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
