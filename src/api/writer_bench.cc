// How much answers cost: events per second of streams, and short whole answers per second.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "api/answer.h"
#include "tests/support/byte_tokenizer.h"

namespace kuruma::api {
namespace {

// One token for each byte, then the markers.
const text::Tokenizer& SmallTokenizer() {
  static const std::unique_ptr<text::Tokenizer> tokenizer = [] {
    auto file = testing::ByteTokenizer();
    file["added_tokens"] = {testing::AddedToken(256, "</think>"),
                            testing::AddedToken(257, "｜DSML｜")};
    auto parsed = text::ParseTokenizer(file.dump(), "bench");
    if (!parsed.ok()) std::abort();
    return std::move(*parsed);
  }();
  return *tokenizer;
}

std::unique_ptr<AnswerBuilder> NewAnswer(const AnswerOptions& options) {
  text::ParserOptions parser;
  parser.has_tools = true;
  parser.stops = {"STOP"};
  auto answer = AnswerBuilder::Create(SmallTokenizer(), parser, options);
  if (!answer.ok()) std::abort();
  (*answer)->Start({.prompt_tokens = 100, .cached_tokens = 0});
  return std::move(*answer);
}

AnswerOptions Options(int64_t protocol, bool stream) {
  AnswerOptions options;
  options.protocol = static_cast<Protocol>(protocol);
  options.id = std::string("chatcmpl-0123456789abcdef01234567");
  options.model = std::string("deepseek-v4.1-flash");
  options.created = 1700000000;
  options.stream = stream;
  return options;
}

// items_per_second: tokens, each of which is an event. Argument 0: protocol; 1: alternatives of
// each token, -1 without log-probabilities.
void BM_StreamTokens(benchmark::State& state) {
  AnswerOptions options = Options(state.range(0), /*stream=*/true);
  options.logprobs = state.range(1) >= 0;
  options.top_logprobs = static_cast<int>(state.range(1));
  const auto answer = NewAnswer(options);
  std::vector<TopToken> top;
  for (int32_t i = 0; i < state.range(1); ++i) top.push_back({65 + i, -0.5 * i});
  int32_t token = 0;
  size_t bytes = 0;
  for (auto _ : state) {
    answer->Push(0, {.token = 65 + token, .logprob = -0.25, .top = top});
    token = (token + 1) % 26;
    for (const std::string& frame : answer->Take()) bytes += frame.size();
  }
  if (bytes == 0) std::abort();
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_StreamTokens)->ArgsProduct({{0, 1, 2, 3}, {-1}})->Args({0, 0})->Args({0, 5});

// items_per_second: whole answers of 32 tokens.
void BM_ShortAnswer(benchmark::State& state) {
  const AnswerOptions options = Options(state.range(0), /*stream=*/false);
  for (auto _ : state) {
    const auto answer = NewAnswer(options);
    for (int32_t i = 0; i < 32; ++i) answer->Push(0, {.token = 65 + i % 26, .top = {}});
    answer->Finish(0, FinishReason::kStop);
    benchmark::DoNotOptimize(answer->Take());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_ShortAnswer)->DenseRange(0, 3);

}  // namespace
}  // namespace kuruma::api
