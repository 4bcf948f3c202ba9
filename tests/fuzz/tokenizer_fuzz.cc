// Fuzzes the tokenizer.json reader, deterministically and bounded, so that it can run in CI:
//   tokenizer_fuzz [ITERATIONS]     (default 20000, about a second)
// Mutates a small valid file. Whatever the bytes, loading must end with a tokenizer or with an
// error that says something, and every tokenizer that loads must encode and decode any text.
// With KURUMA_LIBFUZZER the same check is a libFuzzer entry point.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/byte_tokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using Json = nlohmann::ordered_json;
using kuruma::text::ParseTokenizer;
using kuruma::text::Tokenizer;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "tokenizer_fuzz: %s\n", what.c_str());
  std::abort();
}

// The 256 bytes, a few merges and three added tokens.
std::string SmallTokenizer() {
  Json file = kuruma::testing::ByteTokenizer();
  Json& vocab = file["model"]["vocab"];
  int next = static_cast<int>(vocab.size());
  for (const char* piece : {"he", "ll", "hell", "hello", "Ġhello", "ĠĠ", "aa"})
    vocab[piece] = next++;
  file["model"]["merges"] =
      Json::array({"h e", "l l", Json::array({"he", "ll"}), "hell o", "Ġ hello", "Ġ Ġ", "a a"});
  using kuruma::testing::AddedToken;
  file["added_tokens"] = Json::array({AddedToken(next, "<｜User｜>", {.normalized = true}),
                                      AddedToken(next + 1, "<｜end｜>", {.special = true}),
                                      AddedToken(next + 2, "<｜")});
  return file.dump();
}

// Loads `json` and, if that works, pushes `text` through. Returns whether it loaded.
bool Check(std::string_view json, std::string_view text) {
  const auto tokenizer = ParseTokenizer(json, "fuzz.json");
  if (!tokenizer.ok()) {
    if (tokenizer.status().message().find("fuzz.json: ") != 0) Fail("error names no file");
    return false;
  }
  const auto ids = (*tokenizer)->Encode(text);
  const auto plain = (*tokenizer)->EncodePlain(text);
  if (ids.ok() != plain.ok()) Fail("Encode and EncodePlain disagree on what is UTF-8");
  if (!ids.ok()) return true;
  for (const auto* list : {&*ids, &*plain}) {
    const auto decoded = (*tokenizer)->Decode(*list);
    if (!decoded.ok() || *decoded != text) Fail("decoding does not undo encoding");
  }
  return true;
}

}  // namespace

#ifdef KURUMA_LIBFUZZER

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The file, and after the first NUL byte the text.
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view text = end == std::string_view::npos ? "hello" : input.substr(end + 1);
  Check(input.substr(0, end), text);
  return 0;
}

#else

namespace {

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  std::string Text() {
    std::string text;
    for (size_t count = Below(40); count > 0; --count) {
      static const std::vector<std::string> parts = {
          "hello", " hello", "  ", "<｜User｜>", "<｜end｜>", "<｜", "aaaa", "你好", "1234", "\n"};
      const uint32_t code = static_cast<uint32_t>(Below(0xD800));
      if (Below(3) == 0) {
        kuruma::text::AppendCodePoint(code, &text);
      } else {
        text += parts[Below(parts.size())];
      }
    }
    return text;
  }

  // One of: bytes changed, removed, repeated; a number, word or string exchanged; cut short.
  void Mutate(std::string* json) {
    const size_t pos = Below(json->size());
    const size_t length = std::min(json->size() - pos, Below(30) + 1);
    switch (Below(6)) {
      case 0:
        (*json)[pos] = static_cast<char>(Below(256));
        break;
      case 1:
        json->erase(pos, length);
        break;
      case 2:
        json->insert(pos, json->substr(Below(json->size()), length));
        break;
      case 3:
        ExchangeNear(json, pos, "0123456789", Pick({"-1", "0", "261", "4294967296", "1e3", "1.5"}));
        break;
      case 4:
        ExchangeNear(json, pos, "truefalsn", Pick({"true", "false", "null", "[]", "{}", "\"x\""}));
        break;
      default:
        if (Below(10) == 0) json->resize(pos);
    }
    if (json->empty()) *json = " ";
  }

 private:
  size_t Below(size_t bound) { return random_() % bound; }

  std::string Pick(const std::vector<std::string>& list) { return list[Below(list.size())]; }

  // Replaces the first run of `letters` from `pos` on.
  static void ExchangeNear(std::string* json, size_t pos, const char* letters,
                           const std::string& value) {
    const size_t begin = json->find_first_of(letters, pos);
    if (begin == std::string::npos) return;
    const size_t end = json->find_first_not_of(letters, begin);
    json->replace(begin, (end == std::string::npos ? json->size() : end) - begin, value);
  }

  std::mt19937 random_;
};

}  // namespace

int main(int argc, char** argv) {
  const int iterations = argc > 1 ? std::atoi(argv[1]) : 20000;
  const std::string valid = SmallTokenizer();
  if (!Check(valid, "hello <｜User｜> hello")) Fail("the unchanged file does not load");
  int loaded = 0;
  for (int i = 0; i < iterations; ++i) {
    Mutator mutator(static_cast<uint32_t>(i));
    std::string json = valid;
    for (int mutations = i % 4; mutations >= 0; --mutations) mutator.Mutate(&json);
    loaded += Check(json, mutator.Text()) ? 1 : 0;
  }
  std::printf("tokenizer_fuzz: %d files, %d loaded\n", iterations, loaded);
  // Mutations that never load would test no more than the JSON parser.
  return iterations >= 1000 && loaded == 0 ? 1 : 0;
}

#endif
