// Throughput of the tokenizer, one thread: bytes of text per second.
//   tokenizer_bench --benchmark_min_time=1
// Every run decodes what it encoded once and stops if that is not the text.
#include <benchmark/benchmark.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "text/engram_map.h"
#include "text/tokenizer.h"

namespace kuruma::text {
namespace {

constexpr size_t kBytes = size_t{1} << 20;

const char kTokenizerPath[] = KURUMA_SOURCE_DIR "/build/data/tokenizer.json";

const Tokenizer* Loaded() {
  static const auto tokenizer = Tokenizer::Load(kTokenizerPath);
  return tokenizer.ok() ? tokenizer->get() : nullptr;
}

// A megabyte of `parts` in random order.
std::string Shuffled(const std::vector<std::string>& parts, const std::string& separator) {
  std::mt19937 random(7);
  std::string text;
  while (text.size() < kBytes) text += parts[random() % parts.size()] + separator;
  return text;
}

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string English() {
  return Shuffled(
      Words(
          "The kitchen light was still on when Maria came home, and on the table lay a letter that "
          "nobody had opened. She read it twice, slowly, as if the second reading could change "
          "what "
          "the first had told her; then she put it back, switched off the light and went upstairs. "
          "In the morning the committee would meet again to discuss the reconstruction of the "
          "bridge, which (according to 3 independent engineers) had become unsafe in 1987. \"It's "
          "not impossible,\" they'd said, \"but it's expensive.\" Nevertheless the municipality's "
          "representatives didn't hesitate: responsibilities were distributed, contracts signed."),
      " ");
}

std::string Chinese() {
  return Shuffled(
      {"昨天晚上", "图书馆",       "的",       "灯",       "还亮着，", "我们", "一起",   "讨论了",
       "新的",     "项目计划。",   "他说",     "这个问题", "并不",     "难，", "但是",   "需要",
       "更多时间", "和",           "耐心。",   "请",       "把",       "那本", "红色的", "笔记本",
       "放在",     "第二个书架上", "，谢谢！", "人工智能", "正在",     "改变", "世界",   "？"},
      "");
}

std::string Code() {
  std::string text;
  std::ifstream file(KURUMA_SOURCE_DIR "/src/text/tokenizer_json.cc");
  const std::string source((std::istreambuf_iterator<char>(file)), {});
  while (!source.empty() && text.size() < kBytes) text += source;
  return text;
}

std::string Mixed() {
  std::vector<std::string> parts;
  std::ifstream file(KURUMA_SOURCE_DIR "/tests/golden/frontend/tokenizer_cases.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.contains("text") && row["group"] != "long") parts.push_back(row["text"]);
  }
  return parts.empty() ? "" : Shuffled(parts, "\n");
}

void Encode(benchmark::State& state, const std::string& text) {
  const Tokenizer* tokenizer = Loaded();
  if (tokenizer == nullptr || text.empty()) return state.SkipWithError("run `make data` first");
  const auto ids = tokenizer->Encode(text);
  const auto decoded = ids.ok() ? tokenizer->Decode(*ids) : Result<std::string>(ids.status());
  if (!decoded.ok() || *decoded != text) return state.SkipWithError("wrong result");
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->Encode(text));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
  state.counters["bytes/token"] =
      static_cast<double>(text.size()) / static_cast<double>(ids->size());
}

void Decode(benchmark::State& state) {
  const Tokenizer* tokenizer = Loaded();
  if (tokenizer == nullptr) return state.SkipWithError("run `make data` first");
  const std::string text = English();
  const auto ids = tokenizer->Encode(text);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->Decode(*ids));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

void Load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::Load(kTokenizerPath));
}

void EngramClasses(benchmark::State& state) {
  const Tokenizer* tokenizer = Loaded();
  if (tokenizer == nullptr) return state.SkipWithError("run `make data` first");
  for (auto _ : state) benchmark::DoNotOptimize(ComputeTokenClasses(*tokenizer));
}

BENCHMARK_CAPTURE(Encode, english, English());
BENCHMARK_CAPTURE(Encode, code, Code());
BENCHMARK_CAPTURE(Encode, chinese, Chinese());
BENCHMARK_CAPTURE(Encode, mixed, Mixed());
BENCHMARK_CAPTURE(Encode, one_run_of_a, std::string(kBytes, 'a'));
BENCHMARK_CAPTURE(Encode, one_run_of_spaces, std::string(kBytes, ' '));
BENCHMARK(Decode);
BENCHMARK(Load)->Unit(benchmark::kMillisecond);
BENCHMARK(EngramClasses)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kuruma::text
