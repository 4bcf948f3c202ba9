// Fuzzes the output parser, deterministically and bounded, so that it can run in CI:
//   parser_fuzz [ITERATIONS]     (default 20000, about two seconds)
// Feeds answers put together from markup, damaged markup and any bytes. Whatever comes in:
// * cutting it elsewhere changes nothing, and neither does spelling tokens out;
// * events are in order, whole UTF-8, and complete calls hold JSON objects under proper names;
// * without markers the text comes out as it went in, up to leading newlines and stop strings.
// With KURUMA_LIBFUZZER the same checks are a libFuzzer entry point.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/byte_tokenizer.h"
#include "text/json.h"
#include "text/parser.h"
#include "text/tokenizer.h"

namespace {

using Json = nlohmann::ordered_json;
using kuruma::text::OutputParser;
using kuruma::text::ParsedAnswer;
using kuruma::text::ParserEvent;
using kuruma::text::ParserOptions;
using kuruma::text::StreamDecoder;
using kuruma::text::Tokenizer;
using Events = std::vector<ParserEvent>;
using Kind = ParserEvent::Kind;

[[noreturn]] void Fail(const std::string& what, const std::string& input) {
  std::string quoted;
  kuruma::text::AppendJsonString(input, &quoted);
  std::fprintf(stderr, "parser_fuzz: %s\n  %s\n", what.c_str(), quoted.c_str());
  std::abort();
}

constexpr int32_t kNumBytes = 256;
constexpr int32_t kEndThink = 256;
constexpr int32_t kDsml = 257;

// One token for each byte (its id is no byte value), then </think> and ｜DSML｜.
std::unique_ptr<Tokenizer> SmallTokenizer() {
  Json file = kuruma::testing::ByteTokenizer();
  file["added_tokens"] = Json::array({kuruma::testing::AddedToken(kEndThink, "</think>"),
                                      kuruma::testing::AddedToken(kDsml, "｜DSML｜")});
  const std::string json = file.dump();
  auto tokenizer = kuruma::text::ParseTokenizer(json, "fuzz.json");
  if (!tokenizer.ok()) Fail(tokenizer.status().message(), json);
  return std::move(*tokenizer);
}

const Tokenizer& TheTokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = SmallTokenizer();
  return *tokenizer;
}

// Ids of the 256 bytes by value.
const std::vector<int32_t>& ByteIds() {
  static const std::vector<int32_t> ids = [] {
    std::vector<int32_t> by_value(kNumBytes);
    for (int32_t id = 0; id < kNumBytes; ++id) {
      by_value[static_cast<uint8_t>(TheTokenizer().TokenBytes(id)[0])] = id;
    }
    return by_value;
  }();
  return ids;
}

// Neighbouring pieces of one text joined.
void Join(Events more, Events* events) {
  for (ParserEvent& event : more) {
    const bool joins = !events->empty() && event.kind != Kind::kCallBegin &&
                       event.kind != Kind::kCallEnd && events->back().kind == event.kind &&
                       events->back().call == event.call;
    if (kuruma::text::FindInvalidUtf8(event.text)) Fail("an event is not UTF-8", event.text);
    if (joins) {
      events->back().text += event.text;
    } else {
      events->push_back(std::move(event));
    }
  }
}

std::unique_ptr<OutputParser> NewParser(const ParserOptions& options) {
  auto parser = OutputParser::Create(TheTokenizer(), options);
  if (!parser.ok()) Fail(parser.status().message(), "");
  return std::move(*parser);
}

Events ParseChunks(const ParserOptions& options, std::string_view text, std::mt19937* random,
                   size_t longest) {
  const auto parser = NewParser(options);
  Events events;
  while (!text.empty()) {
    const size_t length = std::min(text.size(), (*random)() % longest + 1);
    Join(parser->PushText(text.substr(0, length)), &events);
    text.remove_prefix(length);
  }
  Join(parser->Finish(), &events);
  if (parser->stopped() && !parser->PushText("x").empty()) Fail("events after a stop", "");
  return events;
}

Events ParseTokens(const ParserOptions& options, const std::vector<int32_t>& ids) {
  const auto parser = NewParser(options);
  Events events;
  for (const int32_t id : ids) Join(parser->Push(id), &events);
  Join(parser->Finish(), &events);
  return events;
}

void CheckEvents(const Events& events, const std::string& input) {
  int next = 0;
  bool is_open = false;  // call next - 1 may still get arguments
  for (const ParserEvent& event : events) {
    if (event.kind == Kind::kReasoning || event.kind == Kind::kContent) {
      if (event.text.empty() || event.call != -1) Fail("an empty text", input);
      is_open = false;
    } else if (event.kind == Kind::kCallBegin) {
      if (event.call != next++) Fail("calls are not counted", input);
      const auto is_bad = [](char c) {
        return !(('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') ||
                 c == '_' || c == '-' || c == ':');
      };
      if (event.text.empty() || event.text.size() > 128 ||
          std::any_of(event.text.begin(), event.text.end(), is_bad)) {
        Fail("a bad name", input);
      }
      is_open = true;
    } else {
      if (!is_open || event.call != next - 1) Fail("arguments of a call that is over", input);
      is_open = event.kind == Kind::kCallDelta;
    }
  }
  ParsedAnswer answer;
  answer.Add(events);
  for (const auto& call : answer.calls) {
    const auto value = kuruma::text::ParseJson(call.arguments);
    const bool is_object = value.ok() && value->If<kuruma::text::JsonValue::Object>() != nullptr;
    if (call.complete && !is_object) Fail("arguments are no object: " + call.arguments, input);
    if (!call.complete && !call.arguments.starts_with("{")) Fail("bad beginning", input);
  }
}

// `text` came in without markers.
void CheckNothingLost(const ParserOptions& options, const Events& events, const std::string& text) {
  ParsedAnswer answer;
  answer.Add(events);
  std::string expected;
  kuruma::text::AppendLossyUtf8(text, /*final=*/true, &expected);
  if (!options.continues_content) {
    expected.erase(0, std::min(expected.find_first_not_of('\n'), expected.size()));
  }
  if (options.start != ParserOptions::Start::kReasoning) {
    size_t end = std::string::npos;
    for (const std::string& stop : options.stops) {
      const size_t found = expected.find(stop);
      if (found != std::string::npos) end = std::min(end, found + stop.size());
    }
    size_t begin = end;
    for (const std::string& stop : options.stops) {
      if (end == std::string::npos || !expected.substr(0, end).ends_with(stop)) continue;
      begin = std::min(begin, end - stop.size());
    }
    if (begin != std::string::npos) expected.resize(begin);
  }
  const bool is_reasoning = options.start == ParserOptions::Start::kReasoning;
  if ((is_reasoning ? answer.reasoning : answer.content) != expected ||
      !(is_reasoning ? answer.content : answer.reasoning).empty() || !answer.calls.empty()) {
    Fail("text is lost", text);
  }
}

// `events` hold no call and no stop string ended them: all but newlines and </think> came out.
void CheckAllIsText(const Events& events, const std::string& text, const std::string& input) {
  std::string shown;
  for (const ParserEvent& event : events) shown += event.text;
  std::string expected;
  kuruma::text::AppendLossyUtf8(text, /*final=*/true, &expected);
  const std::string_view mark = "</think>";
  for (size_t at = 0; (at = expected.find(mark, at)) != std::string::npos;) {
    expected.erase(at, mark.size());
  }
  std::erase(shown, '\n');
  std::erase(expected, '\n');
  if (shown != expected) Fail("text is lost", input);
}

// An answer: text in which '\x01' stands for the token </think> and '\x02' for ｜DSML｜.
struct Answer {
  std::vector<int32_t> ids;
  std::string text;
  std::vector<size_t> marks;  // where in `text` a mark token begins
};

Answer Expand(std::string_view input) {
  Answer answer;
  for (const char c : input) {
    const int32_t id = c == '\x01'   ? kEndThink
                       : c == '\x02' ? kDsml
                                     : ByteIds()[static_cast<uint8_t>(c)];
    if (id >= kNumBytes) answer.marks.push_back(answer.text.size());
    answer.ids.push_back(id);
    answer.text += TheTokenizer().TokenBytes(id);
  }
  return answer;
}

// Where `text`, read from the left, spells a mark.
std::vector<size_t> SpelledMarks(std::string_view text) {
  std::vector<size_t> places;
  for (size_t i = 0; i < text.size(); ++i) {
    for (const std::string_view mark : {"</think>", "｜DSML｜"}) {
      if (!text.substr(i).starts_with(mark)) continue;
      places.push_back(i);
      i += mark.size() - 1;
      break;
    }
  }
  return places;
}

void Check(const ParserOptions& options, const std::string& input, uint32_t seed) {
  std::mt19937 random(seed);
  const Answer answer = Expand(input);
  const Events by_tokens = ParseTokens(options, answer.ids);
  const Events by_text = ParseChunks(options, answer.text, &random, answer.text.size() + 1);
  for (const size_t longest : {size_t{1}, size_t{7}, size_t{40}}) {
    if (ParseChunks(options, answer.text, &random, longest) != by_text) {
      Fail("chunking matters", input);
    }
  }
  CheckEvents(by_tokens, input);
  CheckEvents(by_text, input);
  const std::vector<size_t> spelled = SpelledMarks(answer.text);
  if (options.stops.empty() && spelled == answer.marks && by_tokens != by_text) {
    Fail("tokens and their spelling differ", input);
  }
  const auto is_call = [](const ParserEvent& event) { return event.call >= 0; };
  if (options.stops.empty() && std::none_of(by_text.begin(), by_text.end(), is_call)) {
    CheckAllIsText(by_text, answer.text, input);
  }
  if (options.start == ParserOptions::Start::kCalls) return;
  if (answer.marks.empty()) CheckNothingLost(options, by_tokens, answer.text);
  if (spelled.empty()) CheckNothingLost(options, by_text, answer.text);
}

ParserOptions MakeOptions(uint32_t bits) {
  ParserOptions options;
  options.start = static_cast<ParserOptions::Start>(bits % 3);
  bits /= 3;
  options.has_tools = (bits & 3) != 0;
  options.continues_content = (bits & 4) != 0;
  if ((bits & 8) != 0) options.stops = {"STOP", "\n\n<", "</", "aab", "ab"};
  return options;
}

}  // namespace

#ifdef KURUMA_LIBFUZZER

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  Check(MakeOptions(data[0]), std::string(reinterpret_cast<const char*>(data) + 1, size - 1),
        data[0]);
  return 0;
}

#else

namespace {

// Pieces from which calls are made, whole and damaged.
std::string MakeInput(std::mt19937* random) {
  static const std::vector<std::string> kPieces = {
      "<\x02 calls>\n",
      "\n</\x02 calls>",
      "<\x02 invoke name=\"f\">\n",
      "<\x02 invoke name=\"desk::g-1\">",
      "</\x02 invoke>\n",
      "<\x02 parameter name=\"a\" string=\"true\">",
      "<\x02 parameter name=\"b\" string=\"false\">",
      "<\x02 parameter name=\"c d\"e\" string=\"true\">",
      "<\x02 parameter name=\"k\">",
      "</\x02 parameter>\n",
      "</\x02 parameter>\n</\x02 invoke>\n",
      "\x01",
      "\x02",
      "<\x02",
      "</\x02",
      "</think>",
      "｜DSML｜",
      "<",
      "</",
      "\n\n",
      "\n",
      "STOP",
      "aab",
      "[1, {\"x\": null}]",
      "\"q\\",
      "👋🏽是",
      "\xE4\xBD",
      "\xFF\xFE",
      "name=\"",
      "\"",
      ">",
      " ",
  };
  // A whole call first, so that most of an answer makes sense before it is damaged.
  std::string input;
  const size_t count = (*random)() % 20;
  if ((*random)() % 2 == 0) {
    input =
        "ok\n\n<\x02 calls>\n<\x02 invoke name=\"f\">\n<\x02 parameter name=\"a\" string=\"true\">";
  }
  for (size_t i = 0; i < count; ++i) input += kPieces[(*random)() % kPieces.size()];
  const size_t changes = (*random)() % 3;
  for (size_t i = 0; i < changes && !input.empty(); ++i) {
    const size_t pos = (*random)() % input.size();
    if ((*random)() % 2 == 0) {
      input[pos] = static_cast<char>((*random)() % 256);
    } else {
      input.erase(pos, (*random)() % 8);
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  const int iterations = argc > 1 ? std::atoi(argv[1]) : 20000;
  int complete = 0;
  int cut = 0;
  for (int i = 0; i < iterations; ++i) {
    std::mt19937 random(static_cast<uint32_t>(i));
    const ParserOptions options = MakeOptions(static_cast<uint32_t>(random()));
    const std::string input = MakeInput(&random);
    Check(options, input, static_cast<uint32_t>(i));
    ParsedAnswer answer;
    answer.Add(ParseTokens(options, Expand(input).ids));
    for (const auto& call : answer.calls) ++(call.complete ? complete : cut);
  }
  std::printf("parser_fuzz: %d answers, %d complete calls, %d cut\n", iterations, complete, cut);
  // Answers without calls would test little.
  return iterations >= 1000 && (complete == 0 || cut == 0) ? 1 : 0;
}

#endif
