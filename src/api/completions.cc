#include "api/completions.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <utility>

#include "api/request_parts.h"
#include "base/check.h"

namespace kuruma::api {
namespace {

using text::JsonValue;

constexpr size_t kMaxPrompts = 2048;
constexpr int64_t kDefaultMaxTokens = 16;
constexpr int64_t kMaxLogprobs = 20;

// Grammars for the answer.
constexpr std::array<std::string_view, 9> kConstraints = {
    "response_format", "structured_outputs", "guided_json", "guided_regex",
    "guided_choice",   "guided_grammar",     "regex",       "ebnf",
    "structural_tag"};

constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
constexpr std::string_view kFillBegin = "<｜fim▁begin｜>";
constexpr std::string_view kFillHole = "<｜fim▁hole｜>";
constexpr std::string_view kFillEnd = "<｜fim▁end｜>";

Result<std::vector<int32_t>> ReadIds(const JsonValue::Array& list, const std::string& path) {
  if (list.empty()) return InvalidArgument(fmt::format("'{}' must not be empty", path));
  std::vector<int32_t> ids;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::optional<int64_t> id = AsInteger(list[i]);
    if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument(fmt::format("'{}[{}]' must be a token id", path, i));
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

// A string, ids, or a list of strings or of lists of ids.
Result<std::vector<CompletionPrompt>> ParsePrompts(const Fields& body) {
  std::vector<CompletionPrompt> prompts;
  const JsonValue* value = body.Find("prompt");
  if (value == nullptr) return InvalidArgument("'prompt' is required");
  if (const auto* text = value->If<std::string>()) {
    prompts.emplace_back(*text);
    return prompts;
  }
  const auto* list = value->If<JsonValue::Array>();
  if (list == nullptr) {
    return InvalidArgument("'prompt' must be a string, token ids, or an array of these");
  }
  if (list->empty()) return InvalidArgument("'prompt' must not be empty");
  if (AsInteger((*list)[0])) {
    KURUMA_ASSIGN_OR_RETURN(std::vector<int32_t> ids, ReadIds(*list, "prompt"));
    prompts.emplace_back(std::move(ids));
    return prompts;
  }
  if (list->size() > kMaxPrompts) {
    return InvalidArgument(
        fmt::format("'prompt' has {} prompts; at most {} are allowed", list->size(), kMaxPrompts));
  }
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string path = fmt::format("prompt[{}]", i);
    if (const auto* text = (*list)[i].If<std::string>()) {
      prompts.emplace_back(*text);
    } else if (const auto* tokens = (*list)[i].If<JsonValue::Array>()) {
      KURUMA_ASSIGN_OR_RETURN(std::vector<int32_t> ids, ReadIds(*tokens, path));
      prompts.emplace_back(std::move(ids));
    } else {
      return InvalidArgument(fmt::format("'{}' must be a string or an array of token ids", path));
    }
    if (prompts.back().index() != prompts.front().index()) {
      return InvalidArgument(fmt::format("'{}': texts and token ids cannot be mixed", path));
    }
  }
  return prompts;
}

Status ParseOptions(const Fields& body, CompletionRequest* request) {
  SamplingOptions& sampling = request->sampling;
  KURUMA_RETURN_IF_ERROR(ReadSampling(body, &sampling));
  KURUMA_RETURN_IF_ERROR(ReadStop(body, "stop", &sampling));
  sampling.max_tokens = kDefaultMaxTokens;
  KURUMA_RETURN_IF_ERROR(ReadMaxTokens(body, "max_tokens", &sampling));
  KURUMA_RETURN_IF_ERROR(CheckMinTokens(sampling));
  KURUMA_ASSIGN_OR_RETURN(const auto logprobs, body.Integer("logprobs", 0, kMaxLogprobs));
  sampling.logprobs = logprobs.has_value();
  sampling.top_logprobs = static_cast<int>(logprobs.value_or(0));
  KURUMA_ASSIGN_OR_RETURN(sampling.n, ReadCount(body));
  KURUMA_ASSIGN_OR_RETURN(const auto best_of, body.Integer("best_of", 1, INT32_MAX));
  if (best_of && *best_of != 1 && *best_of != sampling.n) {
    return InvalidArgument("'best_of' must be 1 or equal to 'n'");
  }
  KURUMA_ASSIGN_OR_RETURN(const auto echo, body.Bool("echo"));
  KURUMA_ASSIGN_OR_RETURN(const auto parse_special, body.Bool("parse_special"));
  KURUMA_ASSIGN_OR_RETURN(const auto add_bos, body.Bool("add_special_tokens"));
  request->echo = echo.value_or(false);
  request->parse_special = parse_special.value_or(true);
  request->add_bos = add_bos.value_or(true);
  return {};
}

void AddSpecial(std::string_view spelling, text::RenderedPrompt* prompt) {
  const size_t begin = prompt->text.size();
  prompt->text += spelling;
  prompt->specials.push_back({begin, prompt->text.size()});
}

}  // namespace

Result<CompletionRequest> ParseCompletionRequest(std::string_view body_text,
                                                 const SamplingOptions& defaults) {
  KURUMA_ASSIGN_OR_RETURN(const JsonValue root, text::ParseJson(body_text));
  KURUMA_ASSIGN_OR_RETURN(const Fields body, Fields::Of(root, ""));
  CompletionRequest request;
  request.sampling = defaults;
  KURUMA_ASSIGN_OR_RETURN(auto model, body.String("model"));
  request.model = std::move(model).value_or("");
  KURUMA_ASSIGN_OR_RETURN(request.prompts, ParsePrompts(body));
  KURUMA_ASSIGN_OR_RETURN(request.suffix, body.String("suffix"));
  KURUMA_RETURN_IF_ERROR(RefuseConstraints(body, kConstraints));
  KURUMA_RETURN_IF_ERROR(ParseOptions(body, &request));
  const bool is_one_text =
      request.prompts.size() == 1 && std::holds_alternative<std::string>(request.prompts[0]);
  if (request.suffix && !is_one_text) return InvalidArgument("'suffix' needs one prompt, a string");
  if (request.suffix && request.echo) {
    return InvalidArgument("'suffix' and 'echo' exclude each other");
  }
  KURUMA_ASSIGN_OR_RETURN(const StreamOptions stream, ReadStream(body));
  KURUMA_ASSIGN_OR_RETURN(Routing routing, ReadRouting(body));
  request.stream = stream.stream;
  request.include_usage = stream.include_usage;
  request.continuous_usage_stats = stream.continuous_usage_stats;
  request.user = std::move(routing.user);
  request.cache_salt = std::move(routing.cache_salt);
  request.priority = routing.priority;
  return request;
}

text::RenderedPrompt RenderFill(std::string_view prompt, std::string_view suffix) {
  text::RenderedPrompt result;
  AddSpecial(kBos, &result);
  AddSpecial(kFillBegin, &result);
  result.text += prompt;
  AddSpecial(kFillHole, &result);
  result.text += suffix;
  AddSpecial(kFillEnd, &result);
  return result;
}

Result<std::vector<int32_t>> EncodeCompletionPrompt(const CompletionRequest& request, size_t index,
                                                    const text::Tokenizer& tokenizer) {
  KURUMA_CHECK(index < request.prompts.size());
  const CompletionPrompt& prompt = request.prompts[index];
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
    for (size_t i = 0; i < ids->size(); ++i) {
      if ((*ids)[i] >= tokenizer.vocab_size()) {
        return InvalidArgument(fmt::format("'prompt': id {} at place {} is not below {}", (*ids)[i],
                                           i, tokenizer.vocab_size()));
      }
    }
    return *ids;
  }
  const std::string& text = std::get<std::string>(prompt);
  if (request.suffix) {
    for (const std::string_view token : {kFillBegin, kFillHole, kFillEnd}) {
      if (!tokenizer.AddedTokenId(token)) {
        return InvalidArgument(fmt::format("'suffix': the tokenizer has no token {}", token));
      }
    }
    return text::EncodePrompt(RenderFill(text, *request.suffix), tokenizer);
  }
  KURUMA_ASSIGN_OR_RETURN(std::vector<int32_t> ids, request.parse_special
                                                        ? tokenizer.Encode(text)
                                                        : tokenizer.EncodePlain(text));
  const std::optional<int32_t> bos = tokenizer.AddedTokenId(kBos);
  // A prompt rendered elsewhere may begin with it already.
  if (request.add_bos && bos && (ids.empty() || ids[0] != *bos)) ids.insert(ids.begin(), *bos);
  return ids;
}

}  // namespace kuruma::api
