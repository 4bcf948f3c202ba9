#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "api/chat_parts.h"

namespace kuruma::api {
namespace {

using text::JsonValue;

constexpr size_t kMaxStops = 16;
constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();

Status AddStop(const JsonValue& value, const std::string& name, std::vector<std::string>* stops) {
  const auto* text = value.If<std::string>();
  if (text == nullptr) return InvalidArgument(name + " must be a string");
  if (text->empty()) return InvalidArgument(name + " must not be an empty string");
  stops->push_back(*text);
  return {};
}

Status ParseStop(const Fields& body, std::vector<std::string>* stops) {
  const JsonValue* stop = body.Find("stop");
  if (stop == nullptr) return {};
  const auto* list = stop->If<JsonValue::Array>();
  if (list == nullptr) {
    if (stop->If<std::string>() == nullptr) {
      return InvalidArgument("'stop' must be a string or an array of strings");
    }
    return AddStop(*stop, "'stop'", stops);
  }
  if (list->size() > kMaxStops) {
    return InvalidArgument(
        fmt::format("'stop' has {} strings; at most {} are allowed", list->size(), kMaxStops));
  }
  for (size_t i = 0; i < list->size(); ++i) {
    KURUMA_RETURN_IF_ERROR(AddStop((*list)[i], fmt::format("'stop[{}]'", i), stops));
  }
  return {};
}

Status ParseLogitBias(const Fields& body, std::vector<std::pair<int32_t, double>>* bias) {
  const JsonValue* value = body.Find("logit_bias");
  if (value == nullptr) return {};
  const auto* members = value->If<JsonValue::Object>();
  if (members == nullptr) return InvalidArgument("'logit_bias' must be an object");
  for (const auto& [key, entry] : *members) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      return InvalidArgument("the keys of 'logit_bias' must be token ids");
    }
    const std::optional<double> amount = AsNumber(entry);
    if (!amount || *amount < -100 || *amount > 100) {
      return InvalidArgument(fmt::format("'logit_bias.{}' must be a number in [-100, 100]", id));
    }
    bias->emplace_back(id, *amount);
  }
  return {};
}

Status ParseLogprobs(const Fields& body, SamplingOptions* sampling) {
  KURUMA_ASSIGN_OR_RETURN(const auto logprobs, body.Bool("logprobs"));
  KURUMA_ASSIGN_OR_RETURN(const auto top, body.Integer("top_logprobs", 0, 20));
  sampling->logprobs = logprobs.value_or(false);
  if (top && !sampling->logprobs) {
    return InvalidArgument("'top_logprobs' needs 'logprobs' to be true");
  }
  sampling->top_logprobs = static_cast<int>(top.value_or(0));
  return {};
}

}  // namespace

Result<SamplingOptions> ParseSampling(const Fields& body) {
  SamplingOptions sampling;
  KURUMA_ASSIGN_OR_RETURN(const auto temperature, body.Number("temperature", 0, 2));
  KURUMA_ASSIGN_OR_RETURN(const auto top_p, body.Number("top_p", 0, 1));
  KURUMA_ASSIGN_OR_RETURN(const auto presence, body.Number("presence_penalty", -2, 2));
  KURUMA_ASSIGN_OR_RETURN(const auto frequency, body.Number("frequency_penalty", -2, 2));
  KURUMA_ASSIGN_OR_RETURN(sampling.seed, body.Integer("seed", -kMaxInt - 1, kMaxInt));
  KURUMA_ASSIGN_OR_RETURN(const auto n, body.Integer("n", 1, 128));
  KURUMA_ASSIGN_OR_RETURN(const auto max_tokens, body.Integer("max_tokens", 1, kMaxInt));
  KURUMA_ASSIGN_OR_RETURN(const auto max_completion,
                          body.Integer("max_completion_tokens", 1, kMaxInt));
  if (top_p && *top_p == 0) return InvalidArgument("'top_p' must be a number in (0, 1]");
  sampling.temperature = temperature.value_or(sampling.temperature);
  sampling.top_p = top_p.value_or(sampling.top_p);
  sampling.presence_penalty = presence.value_or(0.0);
  sampling.frequency_penalty = frequency.value_or(0.0);
  sampling.n = static_cast<int>(n.value_or(1));
  sampling.max_tokens = max_completion ? max_completion : max_tokens;
  KURUMA_RETURN_IF_ERROR(ParseStop(body, &sampling.stop));
  KURUMA_RETURN_IF_ERROR(ParseLogprobs(body, &sampling));
  KURUMA_RETURN_IF_ERROR(ParseLogitBias(body, &sampling.logit_bias));
  return sampling;
}

}  // namespace kuruma::api
