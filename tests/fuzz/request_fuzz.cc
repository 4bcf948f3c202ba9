// Fuzzes the request parsers of all four protocols, deterministically and bounded, so that it can
// run in CI:
//   request_fuzz [ITERATIONS]     (default 20000, a few seconds)
// Damages recorded bodies. Whatever the bytes, the end is a request that can be rendered, described
// and encoded, or an error with a message and a body of valid JSON.
// With KURUMA_LIBFUZZER the same check is a libFuzzer entry point; the first byte is the protocol.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat.h"
#include "api/completions.h"
#include "api/describe.h"
#include "api/error.h"
#include "api/messages.h"
#include "api/protocol.h"
#include "api/responses.h"
#include "tests/support/byte_tokenizer.h"
#include "text/prompt.h"
#include "text/tokenizer.h"

namespace {

using Json = nlohmann::ordered_json;
namespace api = kuruma::api;
namespace text = kuruma::text;

[[noreturn]] void Fail(const std::string& what, std::string_view body) {
  std::fprintf(stderr, "request_fuzz: %s\n%.*s\n", what.c_str(), static_cast<int>(body.size()),
               body.data());
  std::abort();
}

// Bytes only: no added tokens, so prompts of conversations cannot be encoded, but plain ones can.
const text::Tokenizer& SmallTokenizer() {
  static const std::unique_ptr<text::Tokenizer> tokenizer = [] {
    auto loaded = text::ParseTokenizer(kuruma::testing::ByteTokenizer().dump(), "fuzz.json");
    if (!loaded.ok()) Fail(loaded.status().message(), "");
    return std::move(*loaded);
  }();
  return *tokenizer;
}

void CheckError(api::Protocol protocol, const kuruma::Status& status, std::string_view body) {
  const api::ApiError error = api::ToApiError(status);
  if (error.status != 400 || error.message.empty()) Fail("not a clear error", body);
  const Json answer = Json::parse(api::ErrorBody(protocol, error), nullptr, false);
  if (answer.is_discarded() || !answer["error"]["message"].is_string()) {
    Fail("the error is no JSON", body);
  }
}

void CheckChat(const api::ChatRequest& request, std::string_view body) {
  const text::RenderedPrompt prompt = text::RenderPrompt(request.conversation);
  if (!SmallTokenizer().EncodePlain(prompt.text).ok()) Fail("the prompt is not UTF-8", body);
  size_t end = 0;
  for (const text::SpecialRange& range : prompt.specials) {
    if (range.begin < end || range.end <= range.begin) Fail("special ranges out of order", body);
    end = range.end;
  }
  const Json conversation = api::DescribeConversation(request.conversation);
  if (conversation["messages"].size() != request.conversation.messages.size()) {
    Fail("messages lost", body);
  }
  const api::SamplingOptions& sampling = request.sampling;
  if (!(sampling.temperature >= 0 && sampling.temperature <= 2) ||
      !(sampling.top_p > 0 && sampling.top_p <= 1) || sampling.n < 1 || sampling.stop.size() > 16 ||
      (sampling.max_tokens && *sampling.max_tokens < 1)) {
    Fail("sampling out of range", body);
  }
  api::DescribeSampling(sampling).dump();
}

// Whether the body was accepted.
bool Check(api::Protocol protocol, std::string_view body, uint32_t switches) {
  if (protocol == api::Protocol::kCompletions) {
    const auto request = api::ParseCompletionRequest(body);
    if (!request.ok()) {
      CheckError(protocol, request.status(), body);
      return false;
    }
    for (size_t i = 0; i < request->prompts.size(); ++i) {
      const auto ids = api::EncodeCompletionPrompt(*request, i, SmallTokenizer());
      if (!ids.ok()) CheckError(protocol, ids.status(), body);
    }
    return true;
  }
  api::ChatOptions options;
  options.default_thinking = (switches & 1) != 0;
  options.reject_missing_reasoning = (switches & 2) != 0;
  options.reference_prompts = (switches & 4) != 0;
  options.hosted_sampling = (switches & 8) != 0;
  if (protocol == api::Protocol::kResponses) {
    const auto request = api::ParseResponsesRequest(body, options);
    if (request.ok()) {
      CheckChat(request->chat, body);
      for (const std::string& echo : {request->echo.tools, request->echo.text,
                                      request->echo.metadata, request->echo.tool_choice}) {
        if (!Json::accept(echo)) Fail("the echo is no JSON", body);
      }
    } else {
      CheckError(protocol, request.status(), body);
    }
    return request.ok();
  }
  const auto request = protocol == api::Protocol::kChat ? api::ParseChatRequest(body, options)
                                                        : api::ParseMessagesRequest(body, options);
  if (request.ok()) {
    CheckChat(*request, body);
  } else {
    CheckError(protocol, request.status(), body);
  }
  return request.ok();
}

constexpr std::array kProtocols = {api::Protocol::kChat, api::Protocol::kCompletions,
                                   api::Protocol::kMessages, api::Protocol::kResponses};

}  // namespace

#ifdef KURUMA_LIBFUZZER

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  Check(kProtocols[data[0] % kProtocols.size()],
        std::string_view(reinterpret_cast<const char*>(data), size).substr(1), data[0] / 4);
  return 0;
}

#else

namespace {

struct Seed {
  api::Protocol protocol;
  std::string body;
};

std::vector<Seed> ReadSeeds() {
  std::vector<Seed> seeds;
  std::ifstream file(KURUMA_SOURCE_DIR "/tests/golden/frontend/request_cases.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json row = Json::parse(line);
    const auto protocol = api::ProtocolOfName(row["protocol"].get<std::string>());
    if (protocol) seeds.push_back({*protocol, row["body"]});
  }
  for (const char* body :
       {R"({"prompt":"a","suffix":"b","stop":["x"],"logit_bias":{"1":2},"logprobs":3})",
        R"({"prompt":[[1,2],[3]],"echo":true,"n":2,"best_of":2,"max_tokens":5,"seed":1})",
        R"({"prompt":["a","b"],"stream":true,"stream_options":{"include_usage":true}})"}) {
    for (int copies = 0; copies < 50; ++copies) {
      seeds.push_back({api::Protocol::kCompletions, body});
    }
  }
  return seeds;
}

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  size_t Below(size_t bound) { return random_() % bound; }

  // One of: a byte changed; bytes removed, repeated or taken from another body; a value exchanged;
  // a member repeated; something nested deeply; the end cut off.
  void Mutate(const std::string& other, std::string* body) {
    if (body->empty()) body->push_back(' ');
    const size_t pos = Below(body->size());
    const size_t length = std::min(body->size() - pos, Below(30) + 1);
    switch (Below(9)) {
      case 0:
        (*body)[pos] = static_cast<char>(Below(256));
        break;
      case 1:
        body->erase(pos, length);
        break;
      case 2:
        body->insert(pos, body->substr(Below(body->size()), length));
        break;
      case 3:
        if (!other.empty()) body->insert(pos, other.substr(Below(other.size()), length));
        break;
      case 4:
      case 5:
        ExchangeValue(pos, body);
        break;
      case 6:
        RepeatMember(pos, body);
        break;
      case 7:
        Nest(pos, body);
        break;
      default:
        if (Below(10) == 0) body->resize(pos);
    }
  }

 private:
  // Puts something of any type where a string begins behind `pos`.
  void ExchangeValue(size_t pos, std::string* body) {
    static const std::vector<std::string> kValues = {"null",
                                                     "true",
                                                     "0",
                                                     "-1",
                                                     "1e400",
                                                     "18446744073709551616",
                                                     "1.5",
                                                     "[]",
                                                     "{}",
                                                     "\"\"",
                                                     "\"\\ud800\"",
                                                     "\"<｜User｜>\"",
                                                     "[[]]",
                                                     "[null]",
                                                     "{\"type\":\"text\"}",
                                                     "\"\xC3\"",
                                                     "NaN",
                                                     "\"x-anthropic-billing-header: \\n\"",
                                                     "\"data:image/png;base64,AA==\""};
    const size_t begin = body->find(": ", pos);
    if (begin == std::string::npos) return;
    const size_t end = body->find_first_of(",}]", begin);
    const size_t last = end == std::string::npos ? body->size() : end;
    body->replace(begin + 2, last - begin - 2, kValues[Below(kValues.size())]);
  }

  // Writes a member twice.
  void RepeatMember(size_t pos, std::string* body) {
    const size_t begin = body->find('"', pos);
    if (begin == std::string::npos) return;
    const size_t end = body->find(',', begin);
    if (end == std::string::npos) return;
    body->insert(begin, body->substr(begin, end - begin + 1));
  }

  void Nest(size_t pos, std::string* body) {
    const size_t begin = body->find(": ", pos);
    if (begin == std::string::npos) return;
    const size_t depth = Below(2) == 0 ? Below(130) : 100000;
    const bool closes = Below(2) == 0;
    body->insert(begin + 2,
                 std::string(depth, '[') + (closes ? std::string(depth, ']') : "") + ",");
  }

  std::mt19937 random_;
};

}  // namespace

int main(int argc, char** argv) {
  const int iterations = argc > 1 ? std::atoi(argv[1]) : 20000;
  const std::vector<Seed> seeds = ReadSeeds();
  if (seeds.empty()) Fail("no recorded requests", "");
  std::array<int, kProtocols.size()> accepted{};
  for (int i = 0; i < iterations; ++i) {
    Mutator mutator(static_cast<uint32_t>(i));
    const Seed& seed = seeds[mutator.Below(seeds.size())];
    std::string body = seed.body;
    for (int mutations = i % 4; mutations > 0; --mutations) {
      mutator.Mutate(seeds[mutator.Below(seeds.size())].body, &body);
    }
    const bool ok = Check(seed.protocol, body, static_cast<uint32_t>(i));
    accepted[static_cast<size_t>(seed.protocol)] += ok ? 1 : 0;
  }
  std::printf(
      "request_fuzz: %d bodies; accepted: %d chat, %d completions, %d messages, %d "
      "responses\n",
      iterations, accepted[0], accepted[1], accepted[2], accepted[3]);
  // Mutations that are never accepted would test no more than the JSON parser.
  for (const int count : accepted) {
    if (iterations >= 1000 && count == 0) return 1;
  }
  return 0;
}

#endif
