// Every recorded request of the reference library, in all three protocols.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "api/budget.h"
#include "api/chat.h"
#include "api/describe.h"
#include "api/error.h"
#include "api/messages.h"
#include "api/protocol.h"
#include "api/responses.h"
#include "text/golden_test_util.h"
#include "text/prompt.h"

namespace kuruma::api {
namespace {

using Json = nlohmann::ordered_json;
using text::RenderPrompt;

// A deliberate difference, the rows that show it, and the test that says what happens instead.
struct Departure {
  const char* test;  // TEST(Departure, ...)
  std::vector<const char*> rows;
};

const std::vector<Departure>& Departures() {
  static const std::vector<Departure> list = {
      {"EffortMayBeANumber", {"req-0035", "req-0038"}},
      {"SwitchesOfOtherServersCount", {"req-0044"}},
      {"ModelsAreTheServersMatter", {"req-0045", "req-0047", "req-0048", "req-0585"}},
      {"DeveloperIsSystem", {"req-0050"}},
      {"NullIsEmpty", {"req-0053", "req-0072", "req-0098"}},
      {"ReasoningMayStandAlone", {"req-0065"}},
      {"NoCallsInAnEmptyArray", {"req-0067"}},
      {"ReasoningHasTwoNames", {"req-0081"}},
      {"ToolResultsMayBeIncomplete",
       {"req-0085", "req-0086", "req-0087", "req-0088", "req-0089", "req-0090",
        "req-0091", "req-0100", "req-0371", "req-0379", "req-0380", "req-0381",
        "req-0382", "req-0383", "req-0384", "req-0388", "req-0504", "req-0505",
        "req-0506", "req-0507", "req-0510", "req-0511", "req-0512", "req-0513"}},
      {"ArgumentsMayBeAnObject", {"req-0094"}},
      {"CallsCanBeRequiredWhileThinking", {"req-0117", "req-0119", "req-0403", "req-0544"}},
      {"SchemasAreCheckedWithTheirGrammar", {"req-0143", "req-0195", "req-0196"}},
      {"StrictSchemasAreShownAsSent",
       {"req-0152", "req-0153", "req-0154", "req-0155", "req-0156", "req-0157", "req-0158",
        "req-0159", "req-0160", "req-0161", "req-0162", "req-0163", "req-0164", "req-0165",
        "req-0166", "req-0168", "req-0170", "req-0171", "req-0186", "req-0187", "req-0188",
        "req-0189", "req-0190", "req-0191", "req-0545"}},
      {"StrictToolsMix", {"req-0172", "req-0173"}},
      {"JsonNeedsNoMention", {"req-0177", "req-0573"}},
      {"APrefixMayFollowTools", {"req-0212", "req-0214"}},
      {"ImageDataIsBase64", {"req-0237"}},
      {"LargeAnswersAreLowered", {"req-0270", "req-0273", "req-0313", "req-0330", "req-0576"}},
      {"SeveralAnswers", {"req-0275"}},
      {"SeedsMayBeNegative", {"req-0281"}},
      {"MaxCompletionTokensWins", {"req-0291"}},
      {"ThinkingBudgetsChooseTheEffort", {"req-0342"}},
      {"RedactedThinkingIsSkipped", {"req-0363"}},
      {"ServerToolsAreLeftOut", {"req-0374", "req-0416", "req-0563"}},
      {"AnyRequiresACall", {"req-0398", "req-0399"}},
      {"CustomToolsAreTheClients", {"req-0418"}},
      {"NoStoredResponses", {"req-0457"}},
      {"NoStoredItems", {"req-0480"}},
      {"CallsKeepTheirOrder", {"req-0498", "req-0499"}},
  };
  return list;
}

bool HasTest(const std::string& name) {
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  for (int i = 0; i < tests.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *tests.GetTestSuite(i);
    if (suite.name() != std::string("Departure")) continue;
    for (int j = 0; j < suite.total_test_count(); ++j) {
      if (suite.GetTestInfo(j)->name() == name) return true;
    }
  }
  return false;
}

ChatOptions OptionsOf(const Json& row) {
  ChatOptions options;
  options.reference_prompts = true;
  options.hosted_sampling = true;
  const Json settings = row.value("options", Json::object());
  options.default_thinking = settings.value("default_thinking_mode", true);
  options.reject_missing_reasoning = settings.value("reject_missing_reasoning", false);
  return options;
}

Result<ResponsesRequest> Parse(const Json& row) {
  const std::string body = row["body"];
  const std::optional<Protocol> protocol = ProtocolOfName(row["protocol"].get<std::string>());
  if (protocol == Protocol::kResponses) return ParseResponsesRequest(body, OptionsOf(row));
  ResponsesRequest request;
  KURUMA_ASSIGN_OR_RETURN(request.chat, protocol == Protocol::kMessages
                                            ? ParseMessagesRequest(body, OptionsOf(row))
                                            : ParseChatRequest(body, OptionsOf(row)));
  return request;
}

// --- Both sides in one spelling: absent members, null and defaults are the same thing ---

std::string TextOf(const Json& object, const char* key) {
  const Json value = object.value(key, Json());
  return value.is_null() ? "" : value.get<std::string>();
}

bool FlagOf(const Json& object, const char* key) {
  const Json value = object.value(key, Json());
  return value.is_boolean() && value.get<bool>();
}

// Key order counts in prompts, which are compared as text; here it does not.
Json Unordered(const Json& value) {
  return Json::parse(nlohmann::json::parse(value.dump()).dump());
}

Json NormalTools(const Json& tools) {
  Json result = Json::array();
  if (tools.is_null()) return result;
  for (const Json& tool : tools) {
    result.push_back({{"name", TextOf(tool, "name")},
                      {"description", TextOf(tool, "description")},
                      {"parameters", Unordered(tool["parameters"])},
                      {"strict", FlagOf(tool, "strict")},
                      {"defer_loading", FlagOf(tool, "defer_loading")}});
  }
  return result;
}

// Arguments are compared as values where they are JSON.
Json NormalCalls(const Json& calls) {
  Json result = Json::array();
  if (calls.is_null()) return result;
  for (const Json& call : calls) {
    const std::string text = call["arguments"];
    const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    result.push_back({{"id", call["id"]},
                      {"name", call["name"]},
                      {"arguments", value.is_discarded() ? Json(text) : Unordered(value)}});
  }
  return result;
}

Json NormalImages(const Json& images) {
  Json result = Json::array();
  if (images.is_null()) return result;
  for (const Json& image : images) {
    std::string url = TextOf(image, image.contains("data_url") ? "data_url" : "url");
    while (url.ends_with('=')) url.pop_back();  // the library completes padding
    const std::string detail = TextOf(image, "detail");
    result.push_back({{"url", url}, {"detail", detail == "high" ? "auto" : detail}});
  }
  return result;
}

Json NormalConversation(const Json& conversation, bool thinking, int effort) {
  Json messages = Json::array();
  for (const Json& message : conversation["messages"]) {
    messages.push_back({{"role", message["role"]},
                        {"content", message["content"]},
                        {"images", NormalImages(message.value("images", Json()))},
                        {"tools", NormalTools(message.value("tools", Json()))},
                        {"tool_call_id", TextOf(message, "tool_call_id")},
                        // The library forgets what will not be rendered.
                        {"reasoning", thinking ? TextOf(message, "reasoning_content") : ""},
                        {"calls", NormalCalls(message.value("tool_calls", Json()))},
                        {"prefix", FlagOf(message, "prefix")}});
  }
  const std::string choice = conversation["tool_choice"];
  return {{"messages", std::move(messages)},
          {"thinking", thinking},
          {"effort", thinking ? effort : 0},
          {"tools", choice == "none" ? Json::array() : NormalTools(conversation["tools"])},
          {"tool_choice", choice},
          {"response_format", conversation["response_format"]},
          {"response_schema", Unordered(conversation.value("response_schema", Json()))},
          {"response_regex", TextOf(conversation, "response_regex")}};
}

Json OurConversation(const text::Conversation& conversation) {
  return NormalConversation(DescribeConversation(conversation), conversation.thinking,
                            conversation.effort);
}

Json TheirConversation(const Json& conversation) {
  const std::string label = TextOf(conversation, "reasoning_effort");
  return NormalConversation(conversation, conversation["thinking_mode"],
                            text::EffortOfLabel(label).value_or(0));
}

// --- Comparing ---

// The library's limits, for rows to be compared with.
BudgetPolicy HostedPolicy(bool thinking, bool most_effort, int64_t window) {
  BudgetPolicy policy;
  policy.context_tokens = window;
  policy.strict = true;
  policy.default_tokens = !thinking ? 8192 : most_effort ? 131072 : 65536;
  return policy;
}

std::string SamplingMismatch(const Json& row, const ResponsesRequest& request) {
  const Json& expected = row["ok"]["inference"];
  const SamplingOptions& sampling = request.chat.sampling;
  const auto number = [&](const char* key) {
    return expected[key].is_null() ? std::optional<int64_t>() : expected[key].get<int64_t>();
  };
  // The library keeps these as 32-bit floats.
  const auto equal = [&](const char* key, double ours) {
    return static_cast<float>(ours) == static_cast<float>(expected[key].get<double>());
  };
  if (!equal("temperature", sampling.temperature)) return "other temperature";
  if (!equal("top_p", sampling.top_p)) return "other top_p";
  if (sampling.max_tokens != number("max_tokens")) return "other max_tokens";
  if (sampling.seed != number("seed")) return "other seed";
  if (sampling.logprobs != expected["logprobs"]) return "other logprobs";
  if (sampling.top_logprobs != number("top_logprobs").value_or(0)) return "other top_logprobs";
  const Json& parsing = row["ok"]["parsing"];
  if (Json(sampling.stop) != parsing["stop_sequences"]) return "other stops";
  const text::Conversation& conversation = request.chat.conversation;
  const bool opens_call = conversation.tool_choice == text::ToolChoice::kRequired;
  if (opens_call != parsing["starts_in_tool_calls"]) return "other start";
  if (request.chat.stream != row["ok"]["stream"]) return "other stream";
  const TokenBudget budget =
      ResolveBudget(row["ok"]["rendered"]["n_ids"], sampling.max_tokens,
                    HostedPolicy(conversation.thinking, conversation.effort == 100, 1048576));
  return budget.max_tokens == row["ok"]["resolved_max_tokens"] ? "" : "other budget";
}

std::string EchoMismatch(const Json& row, const ResponsesRequest& request) {
  if (!row["ok"].contains("echo")) return "";
  const Json& expected = row["ok"]["echo"];
  const ResponsesEcho& echo = request.echo;
  const Json ours = {
      {"instructions", echo.instructions ? Json(*echo.instructions) : Json()},
      {"max_output_tokens", echo.max_output_tokens ? Json(*echo.max_output_tokens) : Json()},
      {"temperature", echo.temperature},
      {"top_p", echo.top_p},
      {"top_logprobs", echo.top_logprobs},
      {"user", echo.user ? Json(*echo.user) : Json()}};
  if (ours != expected) return "other echo: " + ours.dump();
  const Json names = row["ok"].value("namespace_tool_map", Json::object());
  if (names.size() != request.namespaced_tools.size()) return "other namespaces";
  for (const NamespacedTool& tool : request.namespaced_tools) {
    if (names.value(tool.full_name, Json()) != Json::array({tool.name_space, tool.name})) {
      return "other namespaces";
    }
  }
  return "";
}

// Whether the request was answered as the row says; a text saying how not.
std::string Mismatch(const Json& row) {
  const auto request = Parse(row);
  if (row.contains("error")) {
    if (request.ok()) return "accepted";
    return ToApiError(request.status()).status == row["error"]["status"] ? "" : "other status";
  }
  if (!request.ok()) return "refused: " + request.status().message();
  const text::Conversation& conversation = request->chat.conversation;
  const Json ours = OurConversation(conversation);
  const Json theirs = TheirConversation(row["ok"]["conversation"]);
  if (ours != theirs) {
    return "other conversation: " + Json::diff(theirs, ours).dump().substr(0, 600);
  }
  const Json& rendered = row["ok"]["rendered"];
  const text::RenderedPrompt prompt = RenderPrompt(conversation);
  if (prompt.text != rendered["prompt"]) return "other prompt: " + prompt.text;
  std::vector<text::SpecialRange> specials;
  for (const Json& range : rendered["special_ranges"]) specials.push_back({range[0], range[1]});
  if (prompt.specials != specials) return "other special ranges";
  const auto ids = text::EncodePrompt(prompt, *text::GoldenTokenizer());
  if (!ids.ok() || ids->size() != rendered["n_ids"]) return "other number of ids";
  const std::string sampling = SamplingMismatch(row, *request);
  return sampling.empty() ? EchoMismatch(row, *request) : sampling;
}

TEST(RequestGolden, AgreesWithReferenceRows) {
  ASSERT_NE(text::GoldenTokenizer(), nullptr);
  std::map<std::string, std::string> departures;
  for (const Departure& departure : Departures()) {
    EXPECT_TRUE(HasTest(departure.test)) << departure.test;
    for (const char* row : departure.rows) departures[row] = departure.test;
  }
  std::map<std::string, size_t> rows;
  std::set<std::string> differing;
  for (const Json& row : text::ReadGoldenRows("request_cases.jsonl")) {
    const std::string id = row["id"];
    const std::string mismatch = Mismatch(row);
    if (const auto found = departures.find(id); found != departures.end()) {
      EXPECT_NE(mismatch, "") << id << " agrees now; strike it from " << found->second;
      differing.insert(id);
    } else {
      EXPECT_EQ(mismatch, "") << id;
    }
    ++rows[row["protocol"]];
  }
  EXPECT_EQ(differing.size(), departures.size());
  EXPECT_EQ(rows["chat"], 328u);
  EXPECT_EQ(rows["messages"], 122u);
  EXPECT_EQ(rows["responses"], 136u);
}

// Budgets in strict mode, with the library's numbers of tokens when none are requested. A prompt
// that fills the window gets one token there; here it leaves nothing to answer in.
TEST(RequestGolden, BudgetsAgree) {
  size_t full = 0;
  size_t rows = 0;
  for (const Json& row : text::ReadGoldenRows("budget_cases.jsonl")) {
    const int64_t prompt = row["prompt_tokens"];
    const int64_t window = row["window"];
    std::optional<int64_t> requested;
    if (!row["max_tokens"].is_null()) requested = row["max_tokens"].get<int64_t>();
    const TokenBudget budget = ResolveBudget(
        prompt, requested, HostedPolicy(row["thinking"], row["effort"] == "max", window));
    ++rows;
    if (prompt == window && !requested) {
      EXPECT_EQ(row["budget"], 1);
      ASSERT_TRUE(budget.error);
      ++full;
      continue;
    }
    ASSERT_EQ(budget.error.has_value(), row.contains("error")) << row.dump();
    if (!budget.error) {
      EXPECT_EQ(budget.max_tokens, row["budget"]) << row.dump();
      continue;
    }
    const Json expected = Json::parse(row["error"]["body"].get<std::string>());
    EXPECT_EQ(budget.error->status, row["error"]["status"]);
    EXPECT_EQ(budget.error->message, expected["error"]["message"]);
    EXPECT_EQ(budget.error->code, "context_length_exceeded");
  }
  EXPECT_EQ(rows, 216u);
  EXPECT_GT(full, 0u);
}

}  // namespace
}  // namespace kuruma::api
