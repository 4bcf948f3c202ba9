// Runs answers through AnswerBuilder and reads what it sends, as a client would.
#ifndef KURUMA_API_ANSWER_TEST_UTIL_H_
#define KURUMA_API_ANSWER_TEST_UTIL_H_

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/answer.h"
#include "text/golden_test_util.h"
#include "text/utf8.h"

namespace kuruma::api {

using Json = nlohmann::ordered_json;

// The tokens the golden runs end with and usage they begin with.
inline constexpr PromptUsage kGoldenPrompt = {.prompt_tokens = 20, .cached_tokens = 8};

inline std::unique_ptr<AnswerBuilder> NewAnswer(const text::ParserOptions& parser,
                                                const AnswerOptions& options) {
  auto builder = AnswerBuilder::Create(*text::GoldenTokenizer(), parser, options);
  EXPECT_TRUE(builder.ok()) << builder.status().message();
  return std::move(*builder);
}

inline std::vector<int32_t> Ids(std::string_view text) {
  return *text::GoldenTokenizer()->Encode(text);
}

inline void PushAll(AnswerBuilder* answer, const std::vector<int32_t>& ids, int choice = 0) {
  for (const int32_t id : ids) answer->Push(choice, {.token = id, .top = {}});
}

// One event of a stream.
struct SentEvent {
  std::string name;  // of its `event:` line; "" if it has none
  Json data;         // a string for [DONE]
};

// Reads one frame and checks its form: its lines, JSON, UTF-8.
inline SentEvent ReadFrame(const std::string& frame) {
  SentEvent event;
  EXPECT_FALSE(text::FindInvalidUtf8(frame)) << frame;
  EXPECT_TRUE(frame.ends_with("\n\n")) << frame;
  std::string_view rest = frame;
  if (rest.starts_with("event: ")) {
    const size_t end = rest.find('\n');
    event.name = rest.substr(7, end - 7);
    rest.remove_prefix(end + 1);
  }
  EXPECT_TRUE(rest.starts_with("data: ")) << frame;
  rest.remove_prefix(6);
  EXPECT_EQ(rest.find('\n'), rest.size() - 2) << frame;
  rest.remove_suffix(2);
  if (rest == "[DONE]") {
    event.data = "[DONE]";
    return event;
  }
  event.data = Json::parse(rest, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(event.data.is_discarded()) << frame;
  if (!event.name.empty()) {
    EXPECT_EQ(event.data["type"], event.name);
  }
  return event;
}

inline std::vector<SentEvent> TakeEvents(AnswerBuilder* answer) {
  std::vector<SentEvent> events;
  for (const std::string& frame : answer->Take()) events.push_back(ReadFrame(frame));
  return events;
}

inline Json TakeBody(AnswerBuilder* answer) {
  const std::vector<std::string> output = answer->Take();
  EXPECT_EQ(output.size(), 1u);
  if (output.size() != 1) return Json();
  EXPECT_FALSE(text::FindInvalidUtf8(output[0])) << output[0];
  return Json::parse(output[0]);
}

using text::ParserOptions;

inline constexpr Protocol kProtocols[] = {Protocol::kChat, Protocol::kCompletions,
                                          Protocol::kMessages, Protocol::kResponses};

inline ParserOptions Parser(ParserOptions::Start start, bool has_tools,
                            std::vector<std::string> stops = {}) {
  ParserOptions options;
  options.start = start;
  options.has_tools = has_tools;
  options.stops = std::move(stops);
  return options;
}
inline const ParserOptions kPlain = Parser(ParserOptions::Start::kContent, false);
inline const ParserOptions kTools = Parser(ParserOptions::Start::kContent, true);
inline const ParserOptions kThink = Parser(ParserOptions::Start::kReasoning, false);
inline const ParserOptions kThinkTools = Parser(ParserOptions::Start::kReasoning, true);

inline AnswerOptions Options(Protocol protocol, bool stream) {
  AnswerOptions options;
  options.protocol = protocol;
  options.id = std::string("ID");
  options.model = std::string("m");
  options.created = 1700000000;
  options.stream = stream;
  return options;
}
inline const AnswerOptions kStream = Options(Protocol::kChat, true);
inline const AnswerOptions kWhole = Options(Protocol::kChat, false);

inline AnswerOptions WithLogprobs(Protocol protocol, bool stream) {
  AnswerOptions options = Options(protocol, stream);
  options.logprobs = true;
  options.top_logprobs = 20;
  return options;
}

// A call as the model writes it, its parameters, and the block around calls.
inline std::string Call(const std::string& name, const std::string& parameters) {
  return fmt::format("<｜DSML｜ invoke name=\"{}\">\n{}\n</｜DSML｜ invoke>", name, parameters);
}
inline std::string Text(const std::string& key, const std::string& value) {
  return fmt::format("<｜DSML｜ parameter name=\"{}\" string=\"true\">{}</｜DSML｜ parameter>", key,
                     value);
}
inline std::string Value(const std::string& key, const std::string& value) {
  return fmt::format("<｜DSML｜ parameter name=\"{}\" string=\"false\">{}</｜DSML｜ parameter>",
                     key, value);
}
inline std::string Block(const std::string& calls) {
  return fmt::format("<｜DSML｜ calls>\n{}\n</｜DSML｜ calls>", calls);
}

// What a chat client has after a stream.
struct ChatAnswer {
  std::string reasoning;
  std::string content;
  std::vector<std::string> calls;  // name and arguments
  std::string finish;
  int content_deltas = 0;
  Json chunks = Json::array();

  void Add(const Json& choice) {
    const Json& delta = choice["delta"];
    reasoning += delta.value("reasoning_content", "");
    content += delta.value("content", "");
    content_deltas += delta.value("content", "").empty() ? 0 : 1;
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      const size_t index = call["index"];
      if (call.contains("id")) {
        EXPECT_EQ(index, calls.size());
        calls.push_back(call["function"]["name"].get<std::string>() + " ");
      }
      calls.at(index) += call["function"]["arguments"];
    }
    if (choice["finish_reason"].is_string()) finish = choice["finish_reason"];
  }
};

inline ChatAnswer ReadChat(AnswerBuilder* answer) {
  ChatAnswer result;
  for (const SentEvent& event : TakeEvents(answer)) {
    if (event.data == "[DONE]") continue;
    result.chunks.push_back(event.data);
    for (const Json& choice : event.data["choices"]) result.Add(choice);
  }
  return result;
}

// The answer to tokens, as a chat client gets it.
inline ChatAnswer Stream(const ParserOptions& parser, const std::vector<int32_t>& ids,
                         const AnswerOptions& options = kStream) {
  auto answer = NewAnswer(parser, options);
  answer->Start(kGoldenPrompt);
  PushAll(answer.get(), ids);
  answer->Finish(0, FinishReason::kStop);
  return ReadChat(answer.get());
}
inline ChatAnswer StreamText(const ParserOptions& parser, const std::vector<std::string>& pieces) {
  auto answer = NewAnswer(parser, kStream);
  answer->Start(kGoldenPrompt);
  for (const std::string& piece : pieces) answer->PushText(0, piece);
  answer->Finish(0, FinishReason::kStop);
  return ReadChat(answer.get());
}

inline Json Whole(const ParserOptions& parser, const std::vector<int32_t>& ids,
                  const AnswerOptions& options, FinishReason reason = FinishReason::kStop) {
  auto answer = NewAnswer(parser, options);
  answer->Start(kGoldenPrompt);
  PushAll(answer.get(), ids);
  answer->Finish(0, reason);
  return TakeBody(answer.get());
}

inline std::vector<SentEvent> Events(const ParserOptions& parser, const std::vector<int32_t>& ids,
                                     const AnswerOptions& options) {
  auto answer = NewAnswer(parser, options);
  answer->Start(kGoldenPrompt);
  PushAll(answer.get(), ids);
  answer->Finish(0, FinishReason::kStop);
  return TakeEvents(answer.get());
}

inline std::vector<std::string> Bytes(std::string_view text) {
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  return bytes;
}

using Calls = std::vector<std::string>;

}  // namespace kuruma::api

#endif  // KURUMA_API_ANSWER_TEST_UTIL_H_
