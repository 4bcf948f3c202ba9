// Fuzzes the safetensors header and config.json readers, deterministically and bounded:
//   checkpoint_fuzz [ITERATIONS]     (default 20000, a few seconds)
// Whatever the bytes, parsing must end with a value or with one line that names the file. Headers
// that parse must keep what the loader relies on: every tensor inside the file, none overlapping.
// With KURUMA_LIBFUZZER the same checks are a libFuzzer entry point.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/safetensors.h"

namespace {

using kuruma::Status;
using kuruma::model::ParseConfig;
using kuruma::model::ParseSafetensorsHeader;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "checkpoint_fuzz: %s\n", what.c_str());
  std::abort();
}

void CheckMessage(const Status& status) {
  if (status.message().find("fuzz: ") != 0) Fail("error names no file: " + status.message());
}

// Returns whether the header parsed.
bool CheckHeader(std::string_view bytes) {
  const auto header = ParseSafetensorsHeader(bytes, static_cast<int64_t>(bytes.size()), "fuzz");
  if (!header.ok()) {
    CheckMessage(header.status());
    return false;
  }
  int64_t total = 0;
  for (const auto& [name, info] : header->tensors) {
    if (info.begin < 8 || info.bytes < 0 || info.begin + info.bytes > header->file_bytes) {
      Fail("tensor outside the file: " + name);
    }
    total += info.bytes;
  }
  if (total > header->file_bytes) Fail("tensors larger than the file");
  return true;
}

// Returns whether the configuration was accepted.
bool CheckConfig(const std::string& json) {
  const auto config = ParseConfig(json, "fuzz");
  if (!config.ok()) {
    CheckMessage(config.status());
    return false;
  }
  for (int layer = 0; layer < config->layers; ++layer) {
    if (config->ratios[layer] > 0 && config->IndexSource(layer) < config->KvSource(layer)) {
      Fail("a layer without a source was accepted");
    }
  }
  return true;
}

}  // namespace

#ifdef KURUMA_LIBFUZZER

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  CheckHeader(input);
  CheckConfig(input);
  return 0;
}

#else

namespace {

std::string ReadGolden(const std::string& name) {
  std::ifstream file(std::string(KURUMA_SOURCE_DIR) + "/tests/golden/" + name, std::ios::binary);
  if (!file) Fail("cannot read " + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  size_t Below(size_t n) { return n == 0 ? 0 : random_() % n; }

  // One of: a byte changed, bytes removed or repeated, a number or word exchanged, cut short.
  void Mutate(std::string* text) {
    const size_t pos = Below(text->size());
    const size_t length = std::min(text->size() - pos, Below(24) + 1);
    switch (Below(7)) {
      case 0:
        (*text)[pos] = static_cast<char>(Below(256));
        break;
      case 1:
        text->erase(pos, length);
        break;
      case 2:
        text->insert(pos, text->substr(Below(text->size()), length));
        break;
      case 3:
        if (Below(10) == 0) text->resize(pos);
        break;
      default:
        ExchangeValue(text, pos);
    }
    if (text->empty()) text->assign(1, ' ');
  }

 private:
  // Replaces the run of value characters at or after `pos`.
  void ExchangeValue(std::string* text, size_t pos) {
    static const std::vector<std::string> values{"0",
                                                 "-1",
                                                 "1",
                                                 "2",
                                                 "31",
                                                 "64",
                                                 "1e300",
                                                 "0.5",
                                                 "4294967296",
                                                 "9223372036854775807",
                                                 "18446744073709551615",
                                                 "null",
                                                 "true",
                                                 "[]",
                                                 "{}",
                                                 "\"F32\"",
                                                 "\"BF16\"",
                                                 "[[[]]]"};
    const size_t begin = text->find_first_of("0123456789", pos);
    if (begin == std::string::npos) return;
    const size_t end = text->find_first_not_of("0123456789", begin);
    const size_t count = (end == std::string::npos ? text->size() : end) - begin;
    text->replace(begin, count, values[Below(values.size())]);
  }

  std::mt19937 random_;
};

// The header of a small shard as a file of its own: length, JSON, and data of the right size.
std::string WithLength(const std::string& json, size_t data_bytes) {
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + json +
         std::string(data_bytes, '\0');
}

}  // namespace

int main(int argc, char** argv) {
  const int iterations = argc > 1 ? std::atoi(argv[1]) : 20000;
  const std::string config = ReadGolden("nano/checkpoint/config.json");
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"F8_E4M3","shape":[32,2],"data_offsets":[24,88]},)"
      R"("c":{"dtype":"BF16","shape":[],"data_offsets":[88,90]}})";
  if (!CheckConfig(config) || !CheckHeader(WithLength(header, 90))) Fail("the seeds do not parse");
  int accepted = 0;
  for (int i = 0; i < iterations; ++i) {
    Mutator mutator(static_cast<uint32_t>(i));
    std::string json = header, file, bad_config = config;
    for (size_t n = mutator.Below(4) + 1; n > 0; --n) {
      mutator.Mutate(&json);
      mutator.Mutate(&bad_config);
    }
    file = WithLength(json, 90);
    if (mutator.Below(8) == 0) mutator.Mutate(&file);  // the length, too
    accepted += CheckHeader(file);
    accepted += CheckConfig(bad_config);
  }
  std::printf("checkpoint_fuzz: %d iterations, %d inputs accepted\n", iterations, accepted);
  return 0;
}

#endif
