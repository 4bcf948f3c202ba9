#include "api/writer.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "api/json_text.h"
#include "base/philox.h"
#include "text/utf8.h"

namespace kuruma::api {
namespace {

void AppendScore(const TokenScore& score, std::string* out) {
  *out += "{\"token\":\"";
  AppendEscaped(TokenSpelling(score.bytes), out);
  *out += "\",\"logprob\":";
  *out += LogprobNumber(score.logprob);
  *out += ",\"bytes\":[";
  for (size_t i = 0; i < score.bytes.size(); ++i) {
    if (i > 0) *out += ',';
    *out += fmt::format_int(static_cast<uint8_t>(score.bytes[i])).str();
  }
  *out += ']';
}

}  // namespace

std::string IdSource::Next(std::string_view prefix) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  std::string id(prefix);
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed_),
                                       static_cast<uint32_t>(seed_ >> 32)};
  for (int i = 0; i < 6; ++i) {
    for (const uint32_t word : Philox4x32({drawn_, 0, 0, 0}, key)) {
      id += kLetters[static_cast<size_t>(uint64_t{word} * kLetters.size() >> 32)];
    }
    ++drawn_;
  }
  return id;
}

std::string UsageJson(const Usage& usage) {
  const PromptUsage& prompt = usage.prompt;
  return fmt::format(R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},)"
                     R"("prompt_tokens_details":{{"cached_tokens":{}}},)"
                     R"("completion_tokens_details":{{"reasoning_tokens":{}}},)"
                     R"("prompt_cache_hit_tokens":{},"prompt_cache_miss_tokens":{}}})",
                     prompt.prompt_tokens, usage.completion_tokens,
                     prompt.prompt_tokens + usage.completion_tokens, prompt.cached_tokens,
                     usage.reasoning_tokens, prompt.cached_tokens,
                     prompt.prompt_tokens - prompt.cached_tokens);
}

std::string TokenSpelling(std::string_view bytes) {
  if (!text::FindInvalidUtf8(bytes)) return std::string(bytes);
  std::string spelling;
  for (const char c : bytes) {
    fmt::format_to(std::back_inserter(spelling), "\\x{:02x}", static_cast<uint8_t>(c));
  }
  return spelling;
}

std::string LogprobNumber(double logprob) {
  return std::isfinite(logprob) ? fmt::format("{}", logprob) : "-9999.0";
}

void AppendEntries(std::span<const LogprobEntry> entries, std::string* out) {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) *out += ',';
    AppendScore(entries[i].chosen, out);
    *out += ",\"top_logprobs\":[";
    for (size_t j = 0; j < entries[i].top.size(); ++j) {
      if (j > 0) *out += ',';
      AppendScore(entries[i].top[j], out);
      *out += '}';
    }
    *out += "]}";
  }
}

}  // namespace kuruma::api
