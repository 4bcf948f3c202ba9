// Fuzzes answers, deterministically and bounded, so that it can run in CI:
//   answer_fuzz [ITERATIONS]     (default 3000, a few seconds)
// Feeds random tokens, most of them markup, to answers of every protocol. Whatever comes in:
// * bodies are JSON and UTF-8; events too, on one line, with the lines their protocol has;
// * Responses count their events; every Messages block that begins ends; every chat choice ends
// once;
// * calls of an answer that says it is complete have JSON objects for arguments.
// With KURUMA_LIBFUZZER the same checks are a libFuzzer entry point.
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

#include "api/answer.h"
#include "tests/support/byte_tokenizer.h"
#include "text/parser.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using Json = nlohmann::ordered_json;
using kuruma::api::AnswerBuilder;
using kuruma::api::AnswerOptions;
using kuruma::api::FinishReason;
using kuruma::api::Protocol;
using kuruma::text::ParserOptions;
using kuruma::text::Tokenizer;

[[noreturn]] void Fail(const std::string& what, const std::string& text) {
  std::fprintf(stderr, "answer_fuzz: %s\n  %s\n", what.c_str(), text.c_str());
  std::abort();
}

constexpr int32_t kNumBytes = 256;
const char* const kAdded[] = {"</think>",   "｜DSML｜",  "<think>",
                              "<｜User｜>", "<｜ref｜>", "<｜end▁of▁sentence｜>"};

const Tokenizer& TheTokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = [] {
    Json file = kuruma::testing::ByteTokenizer();
    int id = kNumBytes;
    for (const char* content : kAdded) {
      file["added_tokens"].push_back(kuruma::testing::AddedToken(id++, content));
    }
    auto parsed = kuruma::text::ParseTokenizer(file.dump(), "fuzz.json");
    if (!parsed.ok()) Fail(parsed.status().message(), "");
    return std::move(*parsed);
  }();
  return *tokenizer;
}

// Takes decisions from given bytes; zeros when they are used up.
class Source {
 public:
  explicit Source(std::string_view bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  size_t Below(size_t n) {
    if (bytes_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    return byte % n;
  }

 private:
  std::string_view bytes_;
};

// Pieces from which calls are made.
const std::vector<std::vector<int32_t>>& Pieces() {
  static const std::vector<std::vector<int32_t>> pieces = [] {
    std::vector<std::vector<int32_t>> ids;
    for (const char* text : {"<｜DSML｜ calls>\n",
                             "\n</｜DSML｜ calls>",
                             "<｜DSML｜ invoke name=\"f\">\n",
                             "<｜DSML｜ invoke name=\"patch\">\n",
                             "<｜DSML｜ invoke name=\"ns::g\">\n",
                             "</｜DSML｜ invoke>\n",
                             "<｜DSML｜ parameter name=\"input\" string=\"true\">",
                             "<｜DSML｜ parameter name=\"b\" string=\"false\">",
                             "</｜DSML｜ parameter>\n",
                             "</think>",
                             "<think>",
                             "<｜User｜>",
                             "<｜ref｜>",
                             "\n\n",
                             "STOP",
                             "[1]",
                             "\"\\\t",
                             "é👋🏽",
                             "word ",
                             "<",
                             "</",
                             "｜DSML｜"}) {
      ids.push_back(*TheTokenizer().Encode(text));
    }
    ids.push_back({ids.back()[0], -1, 1 << 30});
    return ids;
  }();
  return pieces;
}

struct Setting {
  ParserOptions parser;
  AnswerOptions answer;
};

Setting MakeSetting(Source* source) {
  Setting setting;
  setting.parser.start = static_cast<ParserOptions::Start>(source->Below(3));
  setting.parser.has_tools = source->Below(4) != 0;
  setting.parser.continues_content = source->Below(4) == 0;
  if (source->Below(2) != 0) setting.parser.stops = {"STOP", "</", "\n\n<"};
  setting.answer.protocol = static_cast<Protocol>(source->Below(4));
  setting.answer.stream = source->Below(2) != 0;
  setting.answer.include_usage = source->Below(2) != 0;
  setting.answer.continuous_usage = source->Below(4) == 0;
  setting.answer.parallel_tool_calls = source->Below(4) != 0;
  setting.answer.reasoning_alias = source->Below(4) == 0;
  setting.answer.logprobs = source->Below(2) != 0;
  setting.answer.top_logprobs = 2;
  setting.answer.custom_tools = {"patch"};
  const bool may_be_many = setting.answer.protocol == Protocol::kChat ||
                           setting.answer.protocol == Protocol::kCompletions;
  if (may_be_many) setting.answer.n = static_cast<int>(source->Below(3)) + 1;
  return setting;
}

Json ParseOne(const std::string& text) {
  if (kuruma::text::FindInvalidUtf8(text)) Fail("not UTF-8", text);
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) Fail("not JSON", text);
  return value;
}

void CheckArguments(const std::string& arguments) {
  if (!Json::parse(arguments, nullptr, false).is_object()) Fail("arguments", arguments);
}

// Checks what the events of one stream say together.
class StreamCheck {
 public:
  explicit StreamCheck(const Setting& setting) : setting_(setting) {}

  void Frame(const std::string& frame) {
    if (is_over_) Fail("an event after the end", frame);
    std::string_view rest = frame;
    const bool is_named = setting_.answer.protocol == Protocol::kMessages ||
                          setting_.answer.protocol == Protocol::kResponses;
    std::string name;
    if (is_named) {
      const size_t end = rest.find('\n');
      if (!rest.starts_with("event: ")) Fail("no event line", frame);
      name = rest.substr(7, end - 7);
      rest.remove_prefix(end + 1);
    }
    if (!rest.starts_with("data: ") || !rest.ends_with("\n\n")) Fail("no data line", frame);
    rest = rest.substr(6, rest.size() - 8);
    if (rest == "[DONE]") {
      is_over_ = true;
      return;
    }
    if (rest.find('\n') != std::string::npos) Fail("more than one line", frame);
    const Json data = ParseOne(std::string(rest));
    if (is_named && data["type"] != name) Fail("another event than it says", frame);
    if (data.contains("error")) is_over_ = true;
    if (setting_.answer.protocol == Protocol::kResponses) Response(name, data);
    if (setting_.answer.protocol == Protocol::kMessages) Message(name, data);
    if (!is_named && !data.contains("error")) Choices(data);
  }

  void End(bool failed) {
    if (!is_over_) Fail("the stream does not end", "");
    if (!failed && open_blocks_ != 0) Fail("a block is open", "");
    const bool has_choices = setting_.answer.protocol == Protocol::kChat ||
                             setting_.answer.protocol == Protocol::kCompletions;
    if (has_choices && !failed && finished_ != setting_.answer.n) Fail("a choice is open", "");
  }

 private:
  void Response(const std::string& name, const Json& data) {
    if (data["sequence_number"] != next_++) Fail("sequence_number", data.dump());
    if (name.ends_with(".added") && data.contains("item")) ++open_blocks_;
    if (name.ends_with(".done") && data.contains("item")) --open_blocks_;
    is_over_ =
        name == "response.completed" || name == "response.incomplete" || name == "response.failed";
    if (name != "response.completed") return;
    for (const Json& item : data["response"]["output"]) {
      if (item["type"] == "function_call") CheckArguments(item["arguments"]);
    }
  }

  void Message(const std::string& name, const Json& data) {
    if (name == "content_block_start" && (++open_blocks_ != 1 || data["index"] != next_++)) {
      Fail("blocks overlap", data.dump());
    }
    if (name == "content_block_stop") --open_blocks_;
    if (name == "message_stop") is_over_ = true;
  }

  void Choices(const Json& data) {
    for (const Json& choice : data["choices"]) {
      if (!choice["finish_reason"].is_null()) ++finished_;
    }
  }

  const Setting& setting_;
  bool is_over_ = false;
  int64_t next_ = 0;
  int open_blocks_ = 0;
  int finished_ = 0;
};

void CheckBody(const Setting& setting, const std::string& text) {
  const Json body = ParseOne(text);
  if (setting.answer.protocol != Protocol::kChat || body.contains("error")) return;
  for (const Json& choice : body["choices"]) {
    if (choice["finish_reason"] != "tool_calls") continue;
    for (const Json& call : choice["message"]["tool_calls"]) {
      CheckArguments(call["function"]["arguments"]);
    }
  }
}

// Returns whether the answer had a call.
bool Check(std::string_view input) {
  Source source(input);
  const Setting setting = MakeSetting(&source);
  auto created = AnswerBuilder::Create(TheTokenizer(), setting.parser, setting.answer);
  if (!created.ok()) Fail(created.status().message(), "");
  AnswerBuilder& answer = **created;
  answer.Start({.prompt_tokens = 9, .cached_tokens = 3});
  const std::vector<kuruma::api::TopToken> top = {{65, -1}, {-5, -2}, {200, -3}};
  while (!source.empty()) {
    const int choice = static_cast<int>(source.Below(static_cast<size_t>(setting.answer.n)));
    const size_t kind = source.Below(8);
    if (kind == 0) {
      answer.Push(choice, {.token = static_cast<int32_t>(source.Below(256)), .top = top});
      continue;
    }
    for (const int32_t id : Pieces()[source.Below(Pieces().size())]) {
      answer.Push(choice, {.token = id, .logprob = -0.5, .top = top});
    }
  }
  const bool fails = input.size() % 16 == 15;
  const FinishReason reason = fails                   ? FinishReason::kFailed
                              : input.size() % 2 == 0 ? FinishReason::kLength
                                                      : FinishReason::kStop;
  for (int choice = 0; choice < setting.answer.n; ++choice) answer.Finish(choice, reason, "broke");
  const std::vector<std::string> output = answer.Take();
  if (setting.answer.stream) {
    StreamCheck check(setting);
    for (const std::string& frame : output) check.Frame(frame);
    check.End(answer.status() != 200);
  } else {
    if (output.size() != 1) Fail("not one body", std::to_string(output.size()));
    CheckBody(setting, output[0]);
  }
  for (const std::string& text : output) {
    if (text.find("\"call_") != std::string::npos || text.find("toolu_") != std::string::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace

#ifdef KURUMA_LIBFUZZER

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Check({reinterpret_cast<const char*>(data), size});
  return 0;
}

#else

int main(int argc, char** argv) {
  const int iterations = argc > 1 ? std::atoi(argv[1]) : 3000;
  int with_calls = 0;
  for (int i = 0; i < iterations; ++i) {
    std::mt19937 random(static_cast<uint32_t>(i));
    std::string input(random() % 150 + 16, '\0');
    for (char& c : input) c = static_cast<char>(random());
    with_calls += Check(input) ? 1 : 0;
  }
  std::printf("answer_fuzz: %d answers, %d with calls\n", iterations, with_calls);
  // Answers without calls would test little.
  return iterations >= 1000 && with_calls == 0 ? 1 : 0;
}

#endif
