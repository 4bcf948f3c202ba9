// What the text and api tests share: the reference data and the tokenizer it belongs to.
#ifndef KURUMA_TEXT_GOLDEN_TEST_UTIL_H_
#define KURUMA_TEXT_GOLDEN_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "text/parser.h"
#include "text/prompt.h"
#include "text/tokenizer.h"

namespace kuruma::text {

// Rows of a file of tests/golden/frontend, one JSON object per line.
inline std::vector<nlohmann::ordered_json> ReadGoldenRows(const std::string& name) {
  const std::string path = KURUMA_SOURCE_DIR "/tests/golden/frontend/" + name;
  std::ifstream file(path);
  EXPECT_TRUE(file) << path << " is missing";
  std::vector<nlohmann::ordered_json> rows;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) rows.push_back(nlohmann::ordered_json::parse(line));
  }
  EXPECT_FALSE(rows.empty()) << path;
  return rows;
}

// The V4.1 tokenizer, loaded once. Null with a test failure if it has not been made.
inline const Tokenizer* GoldenTokenizer() {
  static const auto loaded = Tokenizer::Load(KURUMA_SOURCE_DIR "/build/data/tokenizer.json");
  if (!loaded.ok()) {
    ADD_FAILURE() << loaded.status().message() << " (run `make data` to build it)";
    return nullptr;
  }
  return loaded->get();
}

// The parser's options for a setting of stream_settings.json.
inline ParserOptions SettingOptions(const nlohmann::ordered_json& setting) {
  Conversation conversation;
  conversation.messages.resize(1);
  conversation.thinking = setting["thinking"];
  if (setting["tools"]) conversation.tools.resize(1);
  if (setting.value("required", false)) conversation.tool_choice = ToolChoice::kRequired;
  if (setting.contains("prefix")) {
    Message& prefix = conversation.messages.emplace_back();
    prefix.role = Role::kAssistant;
    prefix.prefix = true;
    prefix.content = setting["prefix"]["content"];
    prefix.reasoning = setting["prefix"]["reasoning"];
  }
  ParserOptions options = ParserOptionsFor(conversation);
  options.stops = setting.value("stops", std::vector<std::string>());
  return options;
}

// stream_settings.json: by protocol and name.
inline nlohmann::ordered_json ReadSettings() {
  std::ifstream file(KURUMA_SOURCE_DIR "/tests/golden/frontend/stream_settings.json");
  EXPECT_TRUE(file);
  return nlohmann::ordered_json::parse(file);
}

// SHA-256 (FIPS 180-4) in lower-case hex: how the reference data shortens long id lists.
inline std::string Sha256Hex(std::string data) {
  // Round constants: the first 32 bits of the fractional parts of the cube roots of the first 64
  // primes; initial state: of the square roots of the first 8.
  std::array<uint32_t, 64> constants{};
  std::array<uint32_t, 8> state{};
  for (uint32_t count = 0, candidate = 2; count < 64; ++candidate) {
    bool is_prime = true;
    for (uint32_t d = 2; d * d <= candidate; ++d) is_prime = is_prime && candidate % d != 0;
    if (!is_prime) continue;
    const auto fraction = [](long double root) {
      return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
    };
    if (count < 8) state[count] = fraction(std::sqrt(static_cast<long double>(candidate)));
    constants[count++] = fraction(std::cbrt(static_cast<long double>(candidate)));
  }
  const uint64_t bits = data.size() * 8;
  data += '\x80';
  while (data.size() % 64 != 56) data += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) data += static_cast<char>(bits >> shift);
  for (size_t block = 0; block < data.size(); block += 64) {
    std::array<uint32_t, 64> w{};
    for (size_t i = 0; i < 64; ++i)
      w[i / 4] = w[i / 4] << 8 | static_cast<uint8_t>(data[block + i]);
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + constants[i] + w[i];
      const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = std::exchange(g, std::exchange(f, std::exchange(e, d + t1)));
      d = std::exchange(c, std::exchange(b, std::exchange(a, t1 + t2)));
    }
    const std::array<uint32_t, 8> sums = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state[i] += sums[i];
  }
  std::string hex;
  for (const uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[word >> shift & 15];
  }
  return hex;
}

}  // namespace kuruma::text

#endif  // KURUMA_TEXT_GOLDEN_TEST_UTIL_H_
