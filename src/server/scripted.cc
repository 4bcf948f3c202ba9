#include "server/scripted.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "api/fields.h"
#include "text/json.h"

namespace kuruma::server {
namespace {

constexpr double kLongestDelayMs = 3'600'000;

Result<std::vector<int32_t>> ReadTokens(const api::Fields& fields,
                                        const text::Tokenizer& tokenizer) {
  KURUMA_ASSIGN_OR_RETURN(const auto text, fields.String("text"));
  const text::JsonValue* tokens = fields.Find("tokens");
  if (text && tokens != nullptr) return InvalidArgument("'text' and 'tokens' exclude each other");
  if (text) return tokenizer.Encode(*text);
  std::vector<int32_t> ids;
  if (tokens == nullptr) return ids;
  const auto* list = tokens->If<text::JsonValue::Array>();
  if (list == nullptr) return InvalidArgument("'tokens' must be an array of token ids");
  for (const text::JsonValue& value : *list) {
    const auto id = api::AsInteger(value);
    if (!id || *id < 0 || *id >= tokenizer.vocab_size()) {
      return InvalidArgument(
          fmt::format("'tokens' must hold ids from 0 to {}", tokenizer.vocab_size() - 1));
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

Result<ScriptLine> ParseLine(std::string_view text, const text::Tokenizer& tokenizer) {
  KURUMA_ASSIGN_OR_RETURN(const text::JsonValue root, text::ParseJson(text));
  KURUMA_ASSIGN_OR_RETURN(const api::Fields fields, api::Fields::Of(root, ""));
  ScriptLine line;
  KURUMA_ASSIGN_OR_RETURN(auto match, fields.String("match"));
  line.match = std::move(match).value_or("");
  KURUMA_ASSIGN_OR_RETURN(line.tokens, ReadTokens(fields, tokenizer));
  KURUMA_ASSIGN_OR_RETURN(const auto repeats, fields.Bool("repeat"));
  line.repeats = repeats.value_or(false) && !line.tokens.empty();
  KURUMA_ASSIGN_OR_RETURN(const auto delay, fields.Number("delay_ms", 0, kLongestDelayMs));
  line.delay_ms = delay.value_or(0);
  KURUMA_ASSIGN_OR_RETURN(const auto first, fields.Number("first_delay_ms", 0, kLongestDelayMs));
  line.first_delay_ms = first.value_or(0);
  KURUMA_ASSIGN_OR_RETURN(auto error, fields.String("error"));
  line.error = std::move(error).value_or("");
  return line;
}

}  // namespace

Result<std::vector<ScriptLine>> ParseScript(std::string_view text, const std::string& name,
                                            const text::Tokenizer& tokenizer) {
  std::vector<ScriptLine> script;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<ScriptLine> parsed = ParseLine(line, tokenizer);
    if (!parsed.ok()) {
      return InvalidArgument(fmt::format("{}:{}: {}", name, number, parsed.status().message()));
    }
    script.push_back(*std::move(parsed));
  }
  if (script.empty()) return InvalidArgument(name + ": the script has no lines");
  return script;
}

Result<std::vector<ScriptLine>> LoadScript(const std::string& path,
                                           const text::Tokenizer& tokenizer) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound(path + ": cannot be read");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return ParseScript(text, path, tokenizer);
}

ScriptedRunner::ScriptedRunner(std::vector<ScriptLine> script, const text::Tokenizer& tokenizer,
                               int32_t eos_token)
    : script_(std::move(script)), tokenizer_(tokenizer), eos_token_(eos_token) {}

Status ScriptedRunner::Run(const std::vector<engine::SlotStep>& steps,
                           std::vector<engine::SlotResult>* results) {
  results->assign(steps.size(), engine::SlotResult());
  double delay_ms = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const size_t index = Index(steps[i].slot);
    if (slots_.size() <= index) slots_.resize(index + 1);
    Slot& slot = slots_[index];
    if (steps[i].start) Start(*steps[i].start, &slot);
    if (steps[i].draws) Draw(&slot, &(*results)[i], &delay_ms);
  }
  if (delay_ms > 0) {
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(delay_ms));
  }
  return Status();
}

void ScriptedRunner::Start(const engine::SlotStart& start, Slot* slot) const {
  const auto prompt = std::span(start.tokens).first(static_cast<size_t>(start.prompt_tokens));
  const auto decoded = tokenizer_.Decode(prompt);
  const std::string text = decoded.ok() ? *decoded : "";
  slot->line = nullptr;
  slot->drawn = start.tokens.size() - prompt.size();
  for (const ScriptLine& line : script_) {
    if (text.find(line.match) == std::string::npos) continue;
    slot->line = &line;
    break;
  }
}

void ScriptedRunner::Draw(Slot* slot, engine::SlotResult* result, double* delay_ms) const {
  engine::SampledToken token;
  token.token = eos_token_;
  if (const ScriptLine* line = slot->line; line != nullptr) {
    const double first_ms = slot->drawn == 0 ? line->first_delay_ms : 0;
    *delay_ms = std::max(*delay_ms, line->delay_ms + first_ms);
    const size_t size = line->tokens.size();
    if (line->repeats) {
      token.token = line->tokens[slot->drawn % size];
    } else if (slot->drawn < size) {
      token.token = line->tokens[slot->drawn];
    } else if (!line->error.empty()) {
      result->status = Internal(line->error);
      return;
    }
  }
  ++slot->drawn;
  result->drawn = std::move(token);
}

}  // namespace kuruma::server
