// Runs answers through AnswerBuilder and reads what it sends, as a client would.
#ifndef KURUMA_API_ANSWER_TEST_UTIL_H_
#define KURUMA_API_ANSWER_TEST_UTIL_H_

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

}  // namespace kuruma::api

#endif  // KURUMA_API_ANSWER_TEST_UTIL_H_
