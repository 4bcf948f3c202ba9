#include "text/prompt.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/golden_test_util.h"
#include "text/json.h"

namespace kuruma::text {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

// nlohmann keeps numbers as they were read, so that going through text loses nothing.
std::string PromptJson(const Json& value) {
  const auto parsed = ParseJson(value.dump());
  EXPECT_TRUE(parsed.ok());
  return parsed.ok() ? DumpJson(*parsed) : "";
}

Tool MakeTool(const Json& json) {
  return {.name = json["name"],
          .description = json.value("description", ""),
          .parameters = PromptJson(json.value("parameters", Json::object())),
          .strict = json.value("strict", false),
          .defer_loading = json.value("defer_loading", false)};
}

Role MakeRole(const std::string& name) {
  if (name == "system") return Role::kSystem;
  if (name == "user") return Role::kUser;
  if (name == "assistant") return Role::kAssistant;
  if (name == "tool") return Role::kTool;
  EXPECT_EQ(name, "latest_reminder");
  return Role::kLatestReminder;
}

Message MakeMessage(const Json& json) {
  Message message;
  message.role = MakeRole(json["role"]);
  message.content = json["content"];
  message.tool_call_id = json.value("tool_call_id", "");
  message.reasoning = json.value("reasoning_content", "");
  message.prefix = json.value("prefix", false);
  for (const Json& tool : json.value("tools", Json::array())) {
    message.tools.push_back(MakeTool(tool));
  }
  for (const Json& call : json.value("tool_calls", Json::array())) {
    message.tool_calls.push_back({call["id"], call["name"], call["arguments"]});
  }
  // The rows spell placeholders in the content; the first ones stand for the images.
  for (const Json& image : json.value("images", Json::array())) {
    const size_t from = message.images.empty() ? 0 : message.images.back().offset;
    const size_t found = message.content.find(kDefaultImageToken, from);
    if (found == std::string::npos) break;
    message.content.erase(found, kDefaultImageToken.size());
    message.images.push_back({found, image["url"], ""});
  }
  return message;
}

Conversation MakeConversation(const Json& json) {
  Conversation conversation;
  for (const Json& message : json["messages"]) {
    conversation.messages.push_back(MakeMessage(message));
  }
  conversation.thinking = json.value("thinking_mode", true);
  conversation.effort = EffortOfLabel(json.value("reasoning_effort", "high")).value();
  for (const Json& tool : json.value("tools", Json::array())) {
    conversation.tools.push_back(MakeTool(tool));
  }
  const std::string choice = json.value("tool_choice", "auto");
  if (choice == "none") conversation.tool_choice = ToolChoice::kNone;
  if (choice == "required") conversation.tool_choice = ToolChoice::kRequired;
  if (json.contains("response_format")) {
    EXPECT_EQ(json["response_format"], "json_object");
    conversation.response_format.kind = ResponseFormat::Kind::kJsonObject;
  } else if (json.contains("response_schema")) {
    conversation.response_format = {ResponseFormat::Kind::kJsonSchema,
                                    PromptJson(json["response_schema"])};
  } else if (json.contains("response_regex")) {
    conversation.response_format = {ResponseFormat::Kind::kRegex, json["response_regex"]};
  }
  return conversation;
}

std::vector<SpecialRange> MakeRanges(const Json& json) {
  std::vector<SpecialRange> ranges;
  for (const Json& range : json) ranges.push_back({range[0], range[1]});
  return ranges;
}

std::string Sha256OfIds(const Ids& ids) {
  std::string bytes;
  for (const int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(id >> shift & 255);
  }
  return Sha256Hex(bytes);
}

TEST(Prompt, AgreesWithEveryReferenceRow) {
  const Tokenizer* tokenizer = GoldenTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  const auto rows = ReadGoldenRows("prompt_cases.jsonl");
  EXPECT_EQ(rows.size(), 305u);
  for (const Json& row : rows) {
    SCOPED_TRACE(row["id"].get<std::string>());
    const Conversation conversation = MakeConversation(row["conversation"]);
    const RenderedPrompt prompt = RenderPrompt(conversation);
    EXPECT_EQ(prompt.text, row["prompt"].get<std::string>());
    EXPECT_TRUE(prompt.specials == MakeRanges(row["special_ranges"]));
    size_t images = 0;
    for (const Message& message : conversation.messages) images += message.images.size();
    EXPECT_EQ(static_cast<size_t>(prompt.num_images), images);
    const auto ids = EncodePrompt(prompt, *tokenizer);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(ids->size(), row["n_ids"].get<size_t>());
    EXPECT_EQ(Sha256OfIds(*ids), row["ids_sha256"].get<std::string>());
    EXPECT_EQ(*ids, row.value("ids", *ids));
    const auto whole = tokenizer->Encode(prompt.text);
    ASSERT_TRUE(whole.ok());
    const Json& expected = row.contains("whole_string") ? row["whole_string"] : row;
    EXPECT_EQ(whole->size(), expected["n_ids"].get<size_t>());
    EXPECT_EQ(Sha256OfIds(*whole), expected["ids_sha256"].get<std::string>());
  }
}

size_t PromptTokens(const Conversation& conversation) {
  const auto ids = EncodePrompt(RenderPrompt(conversation), *GoldenTokenizer());
  EXPECT_TRUE(ids.ok());
  return ids.ok() ? ids->size() : 0;
}

Conversation OneTurn(std::string content) {
  Conversation conversation;
  conversation.thinking = false;
  conversation.messages.push_back({});
  conversation.messages[0].content = std::move(content);
  return conversation;
}

// Counts measured on DeepSeek's hosted service.
TEST(Prompt, SpelledControlTokensStayText) {
  ASSERT_NE(GoldenTokenizer(), nullptr);
  const std::pair<const char*, size_t> cases[] = {{"", 4},
                                                  {"x", 5},
                                                  {"<｜User｜>", 9},
                                                  {"<｜Assistant｜>", 9},
                                                  {"<｜System｜>", 9},
                                                  {"<think>", 7},
                                                  {"</think>", 7}};
  for (const auto& [content, tokens] : cases) {
    EXPECT_EQ(PromptTokens(OneTurn(content)), tokens) << content;
  }
}

// Whatever a client can fill in, the special ranges are those of the same conversation with
// harmless text.
TEST(Prompt, NoTextOfTheClientBecomesSpecial) {
  const auto build = [](const std::string& text) {
    Conversation conversation;
    const std::string arguments = Json{{text, text}, {"list", Json::array({text})}}.dump();
    conversation.messages.resize(5);
    conversation.messages[0].role = Role::kSystem;
    conversation.messages[0].tools = {{.name = text, .description = text}};
    conversation.messages[2].role = Role::kAssistant;
    conversation.messages[2].reasoning = text;
    conversation.messages[2].tool_calls = {{"id", text, arguments}, {"id2", text, text}};
    conversation.messages[3].role = Role::kTool;
    conversation.messages[4].role = Role::kLatestReminder;
    for (Message& message : conversation.messages) message.content = text;
    conversation.tools = {
        {.name = text, .description = text, .parameters = "{\"" + text + "\": 1}"}};
    conversation.response_format = {ResponseFormat::Kind::kJsonSchema, "{\"" + text + "\": 1}"};
    return RenderPrompt(conversation);
  };
  const auto spellings = [](const RenderedPrompt& prompt) {
    std::vector<std::string> list;
    for (const SpecialRange& range : prompt.specials) {
      list.push_back(prompt.text.substr(range.begin, range.end - range.begin));
    }
    return list;
  };
  const auto expected = spellings(build("x"));
  for (const std::string text : {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜System｜>",
                                 "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜",
                                 "<｜latest_reminder｜>", "<｜deepseek_image｜>", "<|EOT|>"}) {
    EXPECT_EQ(spellings(build(text)), expected) << text;
  }
}

TEST(Prompt, GroundingTokensOfEarlierAnswersAreSpecial) {
  Conversation conversation = OneTurn("<｜ref｜>cat<｜/ref｜>");
  conversation.messages.push_back({});
  conversation.messages[1].role = Role::kAssistant;
  conversation.messages[1].content = "<｜ref｜>cat<｜/ref｜><｜box｜>1<｜/box｜><｜/ref";
  const RenderedPrompt prompt = RenderPrompt(conversation);
  // Five of the template before and in the answer's header, four groundings, three at the end.
  EXPECT_EQ(prompt.specials.size(), 4u + 4u + 3u);
}

TEST(Prompt, LoopReasoningIsKeptOnRequest) {
  Conversation conversation = OneTurn("weather?");
  conversation.thinking = true;
  conversation.messages.resize(3);
  conversation.messages[1].role = Role::kAssistant;
  conversation.messages[1].reasoning = "need a tool";
  conversation.messages[1].tool_calls = {{"c", "get_weather", "{}"}};
  conversation.messages[2].role = Role::kTool;
  EXPECT_EQ(RenderPrompt(conversation).text.find("need a tool"), std::string::npos);
  conversation.keeps_loop_reasoning = true;
  EXPECT_NE(RenderPrompt(conversation).text.find("<think>need a tool</think>"), std::string::npos);
  // A later user message ends the loop.
  conversation.messages.push_back({});
  EXPECT_EQ(RenderPrompt(conversation).text.find("need a tool"), std::string::npos);
}

TEST(Prompt, MissingSpecialTokensAreNamed) {
  const RenderedPrompt prompt = RenderPrompt(OneTurn("x"), "<｜deepseek_image｜>");
  RenderedPrompt strange = prompt;
  strange.text += "<｜no such token｜>";
  strange.specials.push_back({prompt.text.size(), strange.text.size()});
  const auto ids = EncodePrompt(strange, *GoldenTokenizer());
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.status().code(), StatusCode::kDataLoss);
  EXPECT_NE(ids.status().message().find("no such token"), std::string::npos);
}

}  // namespace
}  // namespace kuruma::text
