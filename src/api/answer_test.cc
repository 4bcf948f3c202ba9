// What answers promise in every protocol. Tests whose name ends in _A1, _B6, ... protect from a
// failure that users of other servers reported; what it was is said above each.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "api/answer_test_util.h"

namespace kuruma::api {
namespace {

using text::GoldenTokenizer;

// ------------------------------------------------------------------------------- calls

// A partially received closing tag was streamed as arguments.
TEST(Answer, NoPieceOfATagIsSent_A1) {
  auto answer = NewAnswer(kTools, kStream);
  answer->Start(kGoldenPrompt);
  answer->PushText(0,
                   "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
                   "<｜DSML｜ parameter name=\"city\" string=\"true\">Paris</｜DSML｜ par");
  EXPECT_EQ(ReadChat(answer.get()).calls, Calls{"f {\"city\": \"Paris\""});
  answer->PushText(0, "ameter>\n</｜DSML｜ invoke>");
  answer->Finish(0, FinishReason::kStop);
  std::string rest;
  for (const SentEvent& event : TakeEvents(answer.get())) {
    if (event.data == "[DONE]" || !event.data["choices"][0]["delta"].contains("tool_calls"))
      continue;
    rest += event.data["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"];
  }
  EXPECT_EQ(rest, "}");
}

// Shell redirection looks like the end of a tag.
TEST(Answer, RedirectionStaysInTheCommand_A2) {
  const std::string text =
      fmt::format("plan</think>{}", Block(Call("bash", Text("command", "ls 2>&1"))));
  for (const ChatAnswer& answer :
       {StreamText(kThinkTools, Bytes(text)), Stream(kThinkTools, Ids(text))}) {
    EXPECT_EQ(answer.calls, Calls{"bash {\"command\": \"ls 2>&1\"}"});
    EXPECT_EQ(answer.reasoning, "plan");
    EXPECT_EQ(answer.finish, "tool_calls");
  }
}

TEST(Answer, AMisspelledOpenerKeepsItsCall_A4) {
  const std::string text =
      fmt::format("<｜DSML｜ toolcalls>\n{}\n</｜DSML｜ toolcalls>", Call("f", ""));
  const ChatAnswer answer = Stream(kTools, Ids(text));
  EXPECT_EQ(answer.calls, Calls{"f {}"});
  EXPECT_EQ(answer.finish, "tool_calls");
}

// Markup repeated from the user's text became a call whose name had line breaks.
TEST(Answer, MarkupInOrdinaryTokensIsContent_A5) {
  const std::string text = "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"record_item {\ncategory";
  const std::vector<int32_t> plain = *GoldenTokenizer()->EncodePlain(text);
  for (const std::vector<int32_t>& ids : {plain, Ids(text)}) {
    const ChatAnswer answer = Stream(kTools, ids);
    EXPECT_EQ(answer.content, text);
    EXPECT_EQ(answer.calls, Calls{});
    EXPECT_EQ(answer.finish, "stop");
  }
}

// Arguments were empty, or empty at times.
TEST(Answer, ArgumentsAreWholeHoweverTheyCome_A7_A8) {
  const std::string text = Block(Call("f", Text("a", "x") + "\n" + Value("n", "3")));
  EXPECT_EQ(Stream(kTools, Ids(text)).calls, Calls{"f {\"a\": \"x\", \"n\": 3}"});
  std::mt19937 random(8);
  for (int i = 0; i < 100; ++i) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t length = random() % 12 + 1;
      pieces.push_back(text.substr(at, length));
      at += length;
    }
    const ChatAnswer answer = StreamText(kTools, pieces);
    EXPECT_EQ(answer.calls, Calls{"f {\"a\": \"x\", \"n\": 3}"});
    EXPECT_EQ(answer.finish, "tool_calls");
  }
}

void ExpectNoNulls(const Json& value, const std::string& name) {
  EXPECT_TRUE(!value.is_null() || name == "finish_reason") << name;
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) ExpectNoNulls(member, key);
  }
  if (value.is_array()) {
    for (const Json& item : value) ExpectNoNulls(item, name);
  }
}

// Null content broke parsers; dozens of null members came with every chunk.
TEST(Answer, ChunksHaveNoNullMembers_A10_A11) {
  const ChatAnswer answer =
      Stream(kThinkTools, Ids("why</think>so\n\n" + Block(Call("f", Text("a", "x")))));
  EXPECT_GT(answer.chunks.size(), 5u);
  ExpectNoNulls(answer.chunks, "");
  EXPECT_EQ(answer.chunks.front()["choices"][0]["delta"].dump(),
            "{\"role\":\"assistant\",\"content\":\"\"}");
  EXPECT_EQ(answer.chunks.back()["choices"][0]["delta"].dump(), "{}");
}

// A client took equal fragments for repetitions.
TEST(Answer, FragmentsHaveOnlyTheirIndex_A13) {
  auto answer = NewAnswer(kTools, kStream);
  answer->Start(kGoldenPrompt);
  const std::string open =
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
      "<｜DSML｜ parameter name=\"k\" string=\"true\">";
  PushAll(answer.get(), Ids(open));
  answer->Take();
  for (int i = 0; i < 4; ++i) {
    PushAll(answer.get(), Ids("a"));
    const std::vector<SentEvent> events = TakeEvents(answer.get());
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].data["choices"][0]["delta"].dump(),
              "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"a\"}}]}");
  }
}

TEST(Answer, ACallInsideTheThoughtEndsIt_A14) {
  const ChatAnswer answer = Stream(kThinkTools, Ids("idea\n\n" + Block(Call("f", ""))));
  EXPECT_EQ(answer.reasoning, "idea");
  EXPECT_EQ(answer.content, "");
  EXPECT_EQ(answer.calls, Calls{"f {}"});
}

// With tools the whole answer came at the end.
TEST(Answer, ToolsDoNotStopTheStream_A16) {
  std::vector<int32_t> ids;
  for (int i = 0; i < 50; ++i) ids.push_back(Ids(" shelf")[0]);
  EXPECT_GE(Stream(kTools, ids).content_deltas, 45);
}

// What was held back as the beginning of a stop string was lost.
TEST(Answer, HeldTextComesAtTheEnd_A19) {
  auto answer = NewAnswer(Parser(ParserOptions::Start::kContent, false, {"assistantX"}), kStream);
  answer->Start(kGoldenPrompt);
  for (const char* piece : {"ple", "as"}) PushAll(answer.get(), Ids(piece));
  answer->Push(0, {.token = 1, .ends_answer = true, .top = {}});
  answer->Finish(0, FinishReason::kStop);
  const ChatAnswer result = ReadChat(answer.get());
  EXPECT_EQ(result.content, "pleas");
  EXPECT_EQ(result.finish, "stop");
}

TEST(Answer, WithoutParallelCallsTheFirstOneEndsTheAnswer) {
  const std::string text =
      "ok\n\n" + Block(Call("f", Text("a", "x")) + "\n" + Call("g", Text("b", "y")));
  for (const Protocol protocol : {Protocol::kChat, Protocol::kMessages, Protocol::kResponses}) {
    for (const bool stream : {false, true}) {
      AnswerOptions options = Options(protocol, stream);
      options.parallel_tool_calls = false;
      auto answer = NewAnswer(kTools, options);
      answer->Start(kGoldenPrompt);
      size_t used = 0;
      const std::vector<int32_t> ids = Ids(text);
      while (used < ids.size() && !answer->done(0)) {
        answer->Push(0, {.token = ids[used++], .top = {}});
      }
      EXPECT_LT(used, ids.size());
      const std::vector<std::string> output = answer->Take();
      EXPECT_FALSE(output.empty());
      // The engine may be late.
      answer->Push(0, {.token = ids[used], .top = {}});
      answer->Finish(0, FinishReason::kLength);
      EXPECT_TRUE(answer->Take().empty());
      std::string all;
      for (const std::string& text_sent : output) all += text_sent;
      EXPECT_NE(all.find("\"f\""), std::string::npos);
      EXPECT_EQ(all.find("\"g\""), std::string::npos);
      const char* finish = protocol == Protocol::kChat       ? "\"finish_reason\":\"tool_calls\""
                           : protocol == Protocol::kMessages ? "\"stop_reason\":\"tool_use\""
                                                             : "\"status\":\"completed\"";
      EXPECT_NE(all.find(finish), std::string::npos) << all;
    }
  }
}

TEST(Answer, ACutCallIsNoWholeAnswer) {
  const std::string text =
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
      "<｜DSML｜ parameter name=\"k\" string=\"true\">rm -r /tmp";
  const Json chat = Whole(kTools, Ids(text), kWhole)["choices"][0];
  EXPECT_EQ(chat["finish_reason"], "length");
  EXPECT_EQ(chat["message"]["tool_calls"][0]["function"]["arguments"], "{\"k\": \"rm -r /tmp");
  const Json message = Whole(kTools, Ids(text), Options(Protocol::kMessages, false));
  EXPECT_EQ(message["stop_reason"], "max_tokens");
  EXPECT_EQ(message["content"][0]["input"], Json::object());
  const Json response = Whole(kTools, Ids(text), Options(Protocol::kResponses, false));
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(response["output"][0]["status"], "incomplete");
}

TEST(Answer, ANewTextAfterACallIsANewBlock) {
  const std::string text = "a\n\n" + Block(Call("f", "") + "\n<｜DSML｜ invoke name=\"no name\">");
  const Json message = Whole(kTools, Ids(text), Options(Protocol::kMessages, false));
  std::string types;
  for (const Json& block : message["content"]) types += block["type"].get<std::string>() + " ";
  EXPECT_EQ(types, "text tool_use text ");
  std::string items;
  const Json response = Whole(kTools, Ids(text), Options(Protocol::kResponses, false));
  for (const Json& item : response["output"]) items += item["type"].get<std::string>() + " ";
  EXPECT_EQ(items, "message function_call message ");
}

// --------------------------------------------------------------------------- reasoning

TEST(Answer, ThoughtsAreReasoningWithoutToolsToo_B1) {
  const ChatAnswer answer = Stream(kThink, Ids("why</think>so"));
  EXPECT_EQ(answer.reasoning, "why");
  EXPECT_EQ(answer.content, "so");
}

// JSON, or the choice a grammar asked for, landed in the reasoning.
TEST(Answer, WhatFollowsTheThoughtIsContent_B3_B4) {
  for (const char* content : {"{\"a\": [1, null]}", "positive"}) {
    const ChatAnswer answer = Stream(kThink, Ids(std::string("free text {</think>") + content));
    EXPECT_EQ(answer.reasoning, "free text {");
    EXPECT_EQ(answer.content, content);
  }
}

// The member was renamed, and clients lost the reasoning.
TEST(Answer, ReasoningHasItsUsualNameAndAnAliasOnDemand_B6) {
  for (const bool alias : {false, true}) {
    AnswerOptions options = kStream;
    options.reasoning_alias = alias;
    const Json delta = Stream(kThink, Ids("why"), options).chunks[1]["choices"][0]["delta"];
    EXPECT_EQ(delta["reasoning_content"], "why");
    EXPECT_EQ(delta.value("reasoning", ""), alias ? "why" : "");
    options.stream = false;
    const Json message = Whole(kThink, Ids("why</think>so"), options)["choices"][0]["message"];
    EXPECT_EQ(message["reasoning_content"], "why");
    EXPECT_EQ(message.value("reasoning", ""), alias ? "why" : "");
  }
}

// Reasoning could not be handed back.
TEST(Answer, ResponsesHaveReasoningAsPlainText_B9) {
  const Json item =
      Whole(kThink, Ids("why</think>so"), Options(Protocol::kResponses, false))["output"][0];
  EXPECT_EQ(item["type"], "reasoning");
  EXPECT_EQ(item["content"].dump(), "[{\"type\":\"reasoning_text\",\"text\":\"why\"}]");
  EXPECT_EQ(item["summary"], Json::array());
  EXPECT_EQ(item["status"], "completed");
}

// Holding back for a stop string cut the marker.
TEST(Answer, StopStringsDoNotTouchTheMarker_B10) {
  const auto parser = Parser(ParserOptions::Start::kReasoning, false, {"b,c", "</thin"});
  const ChatAnswer answer = Stream(parser, Ids("a b,c</think>a b,c d"));
  EXPECT_EQ(answer.reasoning, "a b,c");
  EXPECT_EQ(answer.content, "a ");
  EXPECT_EQ(answer.finish, "stop");
}

// ----------------------------------------------------------------- text, stops, logprobs

TEST(Answer, NothingOfAStopStringIsSent_D1_D3_D4) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"DEFGHIJ", {"DEF", "G", "HI", "J"}}, {"\nUser:", {"\nUser", ":"}}};
  for (const auto& [stop, pieces] : cases) {
    for (const auto start : {ParserOptions::Start::kContent, ParserOptions::Start::kReasoning}) {
      auto answer = NewAnswer(Parser(start, true, {stop}), kStream);
      answer->Start(kGoldenPrompt);
      if (start == ParserOptions::Start::kReasoning) PushAll(answer.get(), Ids("t</think>"));
      PushAll(answer.get(), Ids("x"));
      for (const char* piece : pieces) {
        EXPECT_FALSE(answer->done(0));
        PushAll(answer.get(), Ids(piece));
      }
      EXPECT_TRUE(answer->done(0));
      answer->Finish(0, FinishReason::kCancelled);
      const ChatAnswer result = ReadChat(answer.get());
      EXPECT_EQ(result.content, "x");
      EXPECT_EQ(result.finish, "stop");
    }
  }
}

TEST(Answer, MessagesNameTheStopString) {
  const auto parser = Parser(ParserOptions::Start::kContent, false, {"ab", "aab", "zz"});
  const Json message = Whole(parser, Ids("x aab"), Options(Protocol::kMessages, false));
  EXPECT_EQ(message["stop_reason"], "stop_sequence");
  EXPECT_EQ(message["stop_sequence"], "aab");
}

// Tokens were shown in the byte alphabet.
TEST(Answer, LogprobTokensAreTextAndBytes_D6) {
  auto answer = NewAnswer(kPlain, WithLogprobs(Protocol::kChat, false));
  answer->Start(kGoldenPrompt);
  answer->Push(0, {.token = Ids("是")[0], .logprob = -0.5, .top = {}});
  answer->Finish(0, FinishReason::kStop);
  const Json entry = TakeBody(answer.get())["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(entry["token"], "是");
  EXPECT_EQ(entry["bytes"], Json::parse("[230,152,175]"));
  EXPECT_EQ(entry["logprob"], -0.5);
}

// Minus infinity is no JSON.
TEST(Answer, LogprobsAreNumbers_D7) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<TopToken> top;
  for (int32_t id = 100; id < 120; ++id) top.push_back({id, -kInfinity});
  top.push_back({99, -1});  // one more than asked for
  top.push_back({-1, -1});
  top.push_back({1 << 30, -1});
  for (const Protocol protocol : {Protocol::kChat, Protocol::kCompletions, Protocol::kResponses}) {
    for (const bool stream : {false, true}) {
      auto answer = NewAnswer(kPlain, WithLogprobs(protocol, stream));
      answer->Start(kGoldenPrompt);
      answer->Push(0, {.token = Ids("a")[0], .logprob = -kInfinity, .top = top});
      answer->Push(0, {.token = Ids("b")[0], .logprob = std::nan(""), .top = top});
      answer->Finish(0, FinishReason::kStop);
      std::string all;
      for (const std::string& text : answer->Take()) {
        all += text;
        EXPECT_TRUE(stream || Json::accept(text));
        if (stream) ReadFrame(text);
      }
      EXPECT_NE(all.find("-9999.0"), std::string::npos);
      EXPECT_EQ(all.find("inf"), std::string::npos);
      EXPECT_EQ(all.find("nan"), std::string::npos);
    }
  }
}

// An emoji of four tokens came as four replacement characters.
TEST(Answer, CharactersAreWhole_D9) {
  const std::vector<int32_t> ids = Ids("👋🏽");
  ASSERT_EQ(ids.size(), 4u);
  for (const Protocol protocol : kProtocols) {
    std::string text;
    for (const SentEvent& event : Events(kPlain, ids, Options(protocol, true))) {
      const std::string data = event.data.dump();
      EXPECT_EQ(data.find("\uFFFD"), std::string::npos);
      if (data.find("👋🏽") != std::string::npos || data.find("👋") != std::string::npos)
        text += data;
    }
    EXPECT_FALSE(text.empty());
  }
  EXPECT_EQ(Stream(kPlain, ids).content, "👋🏽");
  // An unfinished character at the end.
  EXPECT_EQ(Stream(kPlain, {ids[0]}).content, "\uFFFD");
}

// An entry for each token of which something is shown, in its list.
TEST(Answer, LogprobEntriesFollowTheText) {
  struct Case {
    ParserOptions parser;
    std::string text;
    const char* reasoning;
    const char* content;
  };
  const Case cases[] = {
      {kThink, "\n\nwhy\n\n</think>\n\nso it\nis", "why", "so| it|\n|is"},
      {kThinkTools, "why\n\n" + Block(Call("f", Text("a", "x"))), "why", ""},
      {kTools, "a\n\n<｜DSML｜ b", "", "a|\n\n|<|｜DSML｜| b"},
      {Parser(ParserOptions::Start::kContent, false, {"STOP"}), "a bSTOP c", "", "a| b"},
      {kPlain, "x</think><｜User｜>y<｜ref｜>", "", "x|y|<｜ref｜>"},
      {kTools, Block(Call("f", "") + "\n<｜DSML｜ invoke name=\"no name\">") + "z", "",
       "<|｜DSML｜| invoke| name|=\"|no| name|\">\n|</|｜DSML｜| calls|>|z"},
  };
  for (const Case& row : cases) {
    auto answer = NewAnswer(row.parser, WithLogprobs(Protocol::kChat, false));
    answer->Start(kGoldenPrompt);
    PushAll(answer.get(), Ids(row.text));
    answer->Finish(0, FinishReason::kStop);
    const Json logprobs = TakeBody(answer.get())["choices"][0]["logprobs"];
    for (const char* list : {"reasoning_content", "content"}) {
      std::string tokens;
      for (const Json& entry : logprobs.value(list, Json::array())) {
        if (!tokens.empty()) tokens += '|';
        tokens += entry["token"].get<std::string>();
      }
      EXPECT_EQ(tokens, list == std::string("content") ? row.content : row.reasoning) << row.text;
    }
  }
}

// --------------------------------------------------------------------------- usage, ends

TEST(Answer, NoUsageChunkUnlessAskedFor_F2) {
  for (const Protocol protocol : {Protocol::kChat, Protocol::kCompletions}) {
    for (const SentEvent& event : Events(kPlain, Ids("a b"), Options(protocol, true))) {
      if (event.data == "[DONE]") continue;
      EXPECT_FALSE(event.data.contains("usage"));
      EXPECT_EQ(event.data["choices"].size(), 1u);
    }
  }
}

// A usage object without one of its numbers was refused.
TEST(Answer, UsageHasAllNumbers_F3) {
  for (const Protocol protocol : {Protocol::kChat, Protocol::kCompletions}) {
    for (const bool continuous : {false, true}) {
      AnswerOptions options = Options(protocol, true);
      options.include_usage = true;
      options.continuous_usage = continuous;
      int numbers = 0;
      int64_t last = 0;
      const std::vector<SentEvent> events = Events(kPlain, Ids("a b c"), options);
      for (const SentEvent& event : events) {
        if (event.data == "[DONE]") continue;
        const Json& usage = event.data.at("usage");
        if (usage.is_null()) continue;
        ++numbers;
        EXPECT_EQ(usage["prompt_tokens"], 20);
        EXPECT_GE(usage["completion_tokens"], last);
        last = usage["completion_tokens"];
        EXPECT_EQ(usage["total_tokens"], 20 + last);
        EXPECT_EQ(usage["prompt_cache_hit_tokens"], 8);
        EXPECT_EQ(usage["prompt_cache_miss_tokens"], 12);
        EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 8);
        EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], 0);
      }
      EXPECT_EQ(last, 3);
      EXPECT_EQ(numbers, continuous ? static_cast<int>(events.size()) - 1 : 1);
      EXPECT_EQ(events[events.size() - 2].data["choices"], Json::array());
    }
  }
}

TEST(Answer, TokensAreCounted) {
  auto answer = NewAnswer(kThinkTools, kWhole);
  answer->Start(kGoldenPrompt);
  const std::vector<int32_t> thought = Ids("\n\nwhy not");
  PushAll(answer.get(), thought);
  PushAll(answer.get(), Ids("</think>so<｜User｜>"));
  answer->Push(0, {.token = 1, .ends_answer = true, .top = {}});
  answer->Finish(0, FinishReason::kStop);
  const Json usage = TakeBody(answer.get())["usage"];
  // </think>, one word, a control token, the end of sentence
  EXPECT_EQ(usage["completion_tokens"], thought.size() + 4);
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], thought.size());
  // A call ends the thought as </think> does; a mark in the thought does not.
  const std::vector<int32_t> marked = Ids("why ｜DSML｜ not");
  std::vector<int32_t> ids = marked;
  for (const int32_t id : Ids(Block(Call("f", "")))) ids.push_back(id);
  const Json counted = Whole(kThinkTools, ids, kWhole)["usage"];
  EXPECT_EQ(counted["completion_tokens"], ids.size());
  EXPECT_EQ(counted["completion_tokens_details"]["reasoning_tokens"], marked.size());
}

// The stream was empty when the model ended at once.
TEST(Answer, AnEmptyAnswerIsAnAnswer_F11) {
  for (const ParserOptions& parser : {kPlain, kTools, kThink, kThinkTools}) {
    for (const Protocol protocol : kProtocols) {
      for (const bool stream : {false, true}) {
        AnswerOptions options = Options(protocol, stream);
        options.include_usage = true;
        auto answer = NewAnswer(parser, options);
        answer->Start(kGoldenPrompt);
        answer->Push(0, {.token = 1, .ends_answer = true, .top = {}});
        answer->Finish(0, FinishReason::kStop);
        const std::vector<std::string> output = answer->Take();
        std::string all;
        for (const std::string& text : output) {
          all += text;
          if (stream) ReadFrame(text);
        }
        const char* end = protocol == Protocol::kMessages    ? "\"stop_reason\":\"end_turn\""
                          : protocol == Protocol::kResponses ? "\"status\":\"completed\""
                                                             : "\"finish_reason\":\"stop\"";
        EXPECT_NE(all.find(end), std::string::npos) << all;
        const char* count = protocol == Protocol::kMessages || protocol == Protocol::kResponses
                                ? "\"output_tokens\":1"
                                : "\"completion_tokens\":1";
        EXPECT_NE(all.find(count), std::string::npos) << all;
      }
    }
  }
}

}  // namespace
}  // namespace kuruma::api
