// The smallest tokenizer.json of the released kind, for tests to build on.
#ifndef KURUMA_TESTS_SUPPORT_BYTE_TOKENIZER_H_
#define KURUMA_TESTS_SUPPORT_BYTE_TOKENIZER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/byte_alphabet.h"
#include "text/pretokenizer.h"
#include "text/utf8.h"

namespace kuruma::testing {

// Ids 0..255 are the letters of the byte alphabet in their order; no merges, no added tokens.
inline nlohmann::ordered_json ByteTokenizer() {
  using Json = nlohmann::ordered_json;
  Json vocab = Json::object();
  int next = 0;
  for (uint32_t letter = 0; letter < text::kAlphabetEnd; ++letter) {
    if (text::kByteOfLetter[letter] < 0) continue;
    std::string spelling;
    text::AppendCodePoint(letter, &spelling);
    vocab[spelling] = next++;
  }
  Json steps = Json::array();
  for (const std::string_view pattern : text::kSplitPatterns) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", std::string(pattern)}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  return {{"version", "1.0"},
          {"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
}

struct AddedTokenFlags {
  bool normalized = false;
  bool special = false;
};

inline nlohmann::ordered_json AddedToken(int id, const char* content, AddedTokenFlags flags = {}) {
  return {{"id", id},
          {"content", content},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false},
          {"normalized", flags.normalized},
          {"special", flags.special}};
}

}  // namespace kuruma::testing

#endif  // KURUMA_TESTS_SUPPORT_BYTE_TOKENIZER_H_
