// What the writers of the protocols promise beyond the text: control tokens, several choices,
// errors, ids, and what only one protocol has.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/answer_test_util.h"

namespace kuruma::api {
namespace {

using text::GoldenTokenizer;

TEST(Answer, GroundingTokensAreTextOtherAddedTokensAreNot) {
  const text::Tokenizer& tokenizer = *GoldenTokenizer();
  std::set<int32_t> shown;
  int added = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.Token(id).added) continue;
    ++added;
    const ChatAnswer answer = Stream(kPlain, {id});
    EXPECT_TRUE(answer.content.empty() || answer.content == tokenizer.Token(id).text) << id;
    if (!answer.content.empty()) shown.insert(id);
  }
  EXPECT_EQ(added, 1283);
  // ｜DSML｜ is text where no tools are declared.
  EXPECT_EQ(shown, (std::set<int32_t>{128825, 129271, 129272, 129273, 129274, 129275, 129276,
                                      129277, 129278}));
  // In arguments nothing is left out: a file about these tokens must come out as it is.
  const std::string value = "a<｜User｜>b</think><think><｜end▁of▁sentence｜>";
  EXPECT_EQ(Stream(kTools, Ids(Block(Call("f", Text("k", value))))).calls,
            Calls{"f {\"k\": \"" + value + "\"}"});
}

TEST(Answer, ChoicesInterleave) {
  for (const bool stream : {false, true}) {
    AnswerOptions options = Options(Protocol::kChat, stream);
    options.n = 3;
    auto answer = NewAnswer(Parser(ParserOptions::Start::kContent, true, {"STOP"}), options);
    answer->Start(kGoldenPrompt);
    const std::vector<std::vector<int32_t>> ids = {Ids("zero"), Ids("one STOP"),
                                                   Ids(Block(Call("f", "")))};
    for (size_t i = 0; i < ids[2].size(); ++i) {
      for (int choice = 0; choice < 3; ++choice) {
        const auto& own = ids[static_cast<size_t>(choice)];
        if (i < own.size()) answer->Push(choice, {.token = own[i], .top = {}});
      }
    }
    answer->Finish(2, FinishReason::kStop);
    answer->Finish(1, FinishReason::kStop);
    EXPECT_FALSE(answer->done(0));
    answer->Finish(0, FinishReason::kLength);
    std::vector<std::string> finish(3);
    std::vector<ChatAnswer> answers(3);
    if (stream) {
      for (const SentEvent& event : TakeEvents(answer.get())) {
        if (event.data == "[DONE]") continue;
        const Json& choice = event.data["choices"][0];
        answers.at(choice["index"]).Add(choice);
      }
      for (size_t i = 0; i < 3; ++i) finish[i] = answers[i].finish;
      EXPECT_EQ(answers[0].content, "zero");
      EXPECT_EQ(answers[1].content, "one ");
      EXPECT_EQ(answers[2].calls, Calls{"f {}"});
    } else {
      const Json body = TakeBody(answer.get());
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(body["choices"][i]["index"], i);
        finish[i] = body["choices"][i]["finish_reason"];
      }
      EXPECT_EQ(body["choices"][1]["message"]["content"], "one ");
    }
    EXPECT_EQ(finish, (std::vector<std::string>{"length", "stop", "tool_calls"}));
  }
}

TEST(Answer, FailuresAreTheProtocolsErrors) {
  for (const Protocol protocol : kProtocols) {
    for (const bool stream : {false, true}) {
      for (const bool started : {false, true}) {
        AnswerOptions options = Options(protocol, stream);
        options.n = protocol == Protocol::kChat ? 2 : 1;
        auto answer = NewAnswer(kPlain, options);
        if (started) {
          answer->Start(kGoldenPrompt);
          PushAll(answer.get(), Ids("a b"));
          answer->Take();
        }
        EXPECT_EQ(answer->status(), 200);
        answer->Finish(0, FinishReason::kFailed, "the model \"broke\"\n");
        EXPECT_EQ(answer->status(), 500);
        EXPECT_TRUE(answer->done(options.n - 1));
        // Nothing follows an error.
        answer->Finish(options.n - 1, FinishReason::kStop);
        const std::vector<std::string> output = answer->Take();
        const bool in_stream = stream && started;
        const Json error = in_stream ? ReadFrame(output.back()).data : Json::parse(output.back());
        const Json details = in_stream && protocol == Protocol::kResponses
                                 ? error["response"]["error"]
                                 : error["error"];
        EXPECT_EQ(details["message"], "the model \"broke\"\n");
        if (protocol == Protocol::kMessages) {
          EXPECT_EQ(error["type"], "error");
          EXPECT_EQ(details["type"], "api_error");
        } else if (in_stream && protocol == Protocol::kResponses) {
          EXPECT_EQ(error["type"], "response.failed");
          EXPECT_EQ(error["response"]["status"], "failed");
          EXPECT_EQ(details["code"], "server_error");
          EXPECT_EQ(error["response"]["output"][0]["status"], "incomplete");
        } else {
          EXPECT_EQ(details["type"], "server_error");
          EXPECT_TRUE(details["param"].is_null());
          EXPECT_EQ(output.size(), 1u);
        }
      }
    }
  }
  auto late = NewAnswer(kPlain, kWhole);
  late->Start(kGoldenPrompt);
  late->Finish(0, FinishReason::kDeadline, "late");
  EXPECT_EQ(late->status(), 504);
  EXPECT_EQ(TakeBody(late.get())["error"]["type"], "timeout_error");
}

TEST(Answer, BadOptionsAreRefused) {
  const auto refuses = [](const AnswerOptions& options, const ParserOptions& parser) {
    const auto answer = AnswerBuilder::Create(*GoldenTokenizer(), parser, options);
    return !answer.ok() && answer.status().code() == StatusCode::kInvalidArgument;
  };
  AnswerOptions options = kWhole;
  options.n = 0;
  EXPECT_TRUE(refuses(options, kPlain));
  options = Options(Protocol::kCompletions, true);
  options.echo = {"a", "b"};
  EXPECT_TRUE(refuses(options, kPlain));
  options = Options(Protocol::kResponses, true);
  for (const char* fields : {"", "[]", "{\"a\":}"}) {
    options.response_fields = fields;
    EXPECT_TRUE(refuses(options, kPlain));
  }
  EXPECT_TRUE(refuses(kWhole, Parser(ParserOptions::Start::kContent, false, {""})));
}

TEST(Answer, IdsComeFromTheSeed) {
  const std::vector<int32_t> ids = Ids(Block(Call("f", "") + "\n" + Call("g", "")));
  const auto call_ids = [&](Protocol protocol, uint64_t seed) {
    AnswerOptions options = Options(protocol, false);
    options.id_seed = seed;
    const Json body = Whole(kTools, ids, options);
    std::vector<std::string> found;
    if (protocol == Protocol::kChat) {
      for (const Json& call : body["choices"][0]["message"]["tool_calls"])
        found.push_back(call["id"]);
    }
    for (const Json& block : body.value("content", Json::array())) found.push_back(block["id"]);
    for (const Json& item : body.value("output", Json::array())) found.push_back(item["call_id"]);
    return found;
  };
  std::set<std::string> all;
  for (const Protocol protocol : {Protocol::kChat, Protocol::kMessages, Protocol::kResponses}) {
    const std::string prefix = protocol == Protocol::kMessages ? "toolu_" : "call_";
    for (const uint64_t seed : {uint64_t{1}, uint64_t{2}, uint64_t{1} << 40}) {
      const std::vector<std::string> found = call_ids(protocol, seed);
      ASSERT_EQ(found.size(), 2u);
      EXPECT_EQ(found, call_ids(protocol, seed));
      for (const std::string& id : found) {
        EXPECT_TRUE(id.starts_with(prefix)) << id;
        EXPECT_EQ(id.size(), prefix.size() + 24);
        all.insert(std::to_string(static_cast<int>(protocol)) + id);
      }
    }
  }
  EXPECT_EQ(all.size(), 3u * 3u * 2u);
}

TEST(Answer, ChunkingDoesNotMatter) {
  const std::string text = "思考 why\n\n</think>\n\nso 👋🏽 STO\n\n" +
                           Block(Call("f", Text("a", "x<y</b>\n\"é\"") + "\n" + Value("n", "[1]")));
  const auto parser = Parser(ParserOptions::Start::kReasoning, true, {"STOP"});
  std::mt19937 random(1);
  for (const Protocol protocol : {Protocol::kChat, Protocol::kMessages, Protocol::kResponses}) {
    const AnswerOptions options = Options(protocol, false);
    Json expected = Whole(parser, Ids(text), options);
    expected.erase("usage");
    for (int i = 0; i < 60; ++i) {
      auto answer = NewAnswer(parser, options);
      answer->Start(kGoldenPrompt);
      for (size_t at = 0; at < text.size();) {
        const size_t length = random() % 30 + 1;
        answer->PushText(0, std::string_view(text).substr(at, length));
        at += length;
      }
      answer->Finish(0, FinishReason::kStop);
      Json body = TakeBody(answer.get());
      body.erase("usage");
      EXPECT_EQ(body, expected);
    }
  }
}

// ----------------------------------------------------------------- single protocols

TEST(Completions, TextsAndMarkersAreKept) {
  ParserOptions parser = kPlain;
  parser.continues_content = true;
  parser.stops = {"END", "k>X"};
  const AnswerOptions options = Options(Protocol::kCompletions, false);
  const Json body = Whole(parser, Ids("\n<think>a</think>b<｜User｜>END c"), options);
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["text"], "\n<think>a</think>b");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  // A stop string may reach across a marker: here it is text.
  EXPECT_EQ(Whole(parser, Ids("a</think>X b"), options)["choices"][0]["text"], "a</thin");
}

TEST(Completions, EchoComesFirst) {
  for (const bool stream : {false, true}) {
    AnswerOptions options = WithLogprobs(Protocol::kCompletions, stream);
    options.n = 2;
    options.echo = {"né ", ""};
    auto answer = NewAnswer(kPlain, options);
    answer->Start(kGoldenPrompt);
    const std::vector<TopToken> top = {{Ids("a")[0], -0.25}, {Ids("b")[0], -1.5}};
    for (const char* word : {"a", "是", " c"}) {
      answer->Push(0, {.token = Ids(word)[0], .logprob = -0.25, .top = top});
    }
    answer->Finish(0, FinishReason::kLength);
    answer->Finish(1, FinishReason::kStop);
    std::string text;
    Json offsets = Json::array();
    Json tokens = Json::array();
    std::string finish;
    for (const std::string& part : answer->Take()) {
      const Json data = stream ? ReadFrame(part).data : Json::parse(part);
      if (data == "[DONE]" || data["choices"][0]["index"] != 0) continue;
      const Json& choice = data["choices"][0];
      text += choice["text"];
      if (choice["finish_reason"].is_string()) finish = choice["finish_reason"];
      if (choice["logprobs"].is_null()) continue;
      for (const Json& offset : choice["logprobs"]["text_offset"]) offsets.push_back(offset);
      for (const Json& token : choice["logprobs"]["tokens"]) tokens.push_back(token);
      EXPECT_EQ(choice["logprobs"]["top_logprobs"][0].dump(), "{\"a\":-0.25,\"b\":-1.5}");
      EXPECT_EQ(choice["logprobs"]["token_logprobs"][0], -0.25);
    }
    EXPECT_EQ(text, "né a是 c");
    EXPECT_EQ(tokens.dump(), "[\"a\",\"是\",\" c\"]");
    EXPECT_EQ(offsets.dump(), "[3,4,5]");
    EXPECT_EQ(finish, "length");
  }
}

TEST(Messages, EventsComeInOrder) {
  std::string names;
  const std::string text = "why</think>so\n\n" + Block(Call("f", ""));
  for (const SentEvent& event :
       Events(kThinkTools, Ids(text), Options(Protocol::kMessages, true))) {
    names += event.name + " ";
  }
  EXPECT_EQ(names,
            "message_start content_block_start ping content_block_delta content_block_delta "
            "content_block_stop content_block_start content_block_delta content_block_stop "
            "content_block_start content_block_delta content_block_stop message_delta "
            "message_stop ");
}

TEST(Responses, RepeatTheRequest) {
  AnswerOptions options = Options(Protocol::kResponses, true);
  options.response_fields =
      "{\n\"tools\": [{\"type\": \"function\", \"name\": \"f\"}],\n\"temperature\": 0.5, "
      "\"model\": \"other\", \"status\": \"x\", \"instructions\": \"Be\\nbrief\"}";
  const std::vector<SentEvent> events = Events(kPlain, Ids("a"), options);
  EXPECT_EQ(events.front().name, "response.created");
  EXPECT_EQ(events.back().name, "response.completed");
  for (const SentEvent& event : {events.front(), events.back()}) {
    const Json& response = event.data["response"];
    EXPECT_EQ(response["object"], "response");
    EXPECT_EQ(response["model"], "m");
    EXPECT_EQ(response["created_at"], 1700000000);
    EXPECT_EQ(response["tools"][0]["name"], "f");
    EXPECT_EQ(response["temperature"], 0.5);
    EXPECT_EQ(response["instructions"], "Be\nbrief");
    // What the SDKs expect although the request does not say it.
    EXPECT_EQ(response["parallel_tool_calls"], true);
    EXPECT_EQ(response["tool_choice"], "auto");
    EXPECT_EQ(response["metadata"], Json::object());
    EXPECT_TRUE(response["error"].is_null());
  }
  EXPECT_TRUE(events.front().data["response"]["usage"].is_null());
  EXPECT_EQ(events.back().data["response"]["usage"]["total_tokens"], 21);
}

TEST(Responses, CustomToolsGetText) {
  AnswerOptions options = Options(Protocol::kResponses, true);
  options.custom_tools = {"patch"};
  const std::string input = "*** Begin\n+\"x\\y\"\té👋🏽";
  const std::pair<std::string, std::string> cases[] = {
      {Text("input", input), input},
      {Text("input", input) + "\n" + Text("more", "x\"y"), input},
      {Text("other", "x") + "\n" + Text("input", input), input},
      {Value("input", "[1]"), "{\"input\": [1]}"},
      {"", "{}"},
  };
  for (const auto& [parameters, expected] : cases) {
    std::string deltas;
    int count = 0;
    std::vector<SentEvent> events = Events(kTools, Ids(Block(Call("patch", parameters))), options);
    for (const SentEvent& event : events) {
      if (event.name == "response.custom_tool_call_input.delta") {
        deltas += event.data["delta"];
        ++count;
      }
      if (event.name == "response.custom_tool_call_input.done") {
        EXPECT_EQ(event.data["input"], expected);
      }
    }
    EXPECT_EQ(deltas, expected);
    const bool is_first = parameters.starts_with(Text("input", input));
    EXPECT_EQ(count > 1, is_first) << parameters;
    const Json& item = events.back().data["response"]["output"][0];
    EXPECT_EQ(item["type"], "custom_tool_call");
    EXPECT_EQ(item["input"], expected);
  }
}

}  // namespace
}  // namespace kuruma::api
