#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <utility>

#include "api/request_parts.h"

namespace kuruma::api {
namespace {

using text::JsonValue;

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxUserId = 512;
constexpr int64_t kMaxTopLogprobs = 20;
constexpr int64_t kMaxAnswers = 128;
constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();

Status AddStop(const JsonValue& value, const std::string& name, std::vector<std::string>* stops) {
  const auto* text = value.If<std::string>();
  if (text == nullptr) return InvalidArgument(name + " must be a string");
  if (text->empty()) return InvalidArgument(name + " must not be an empty string");
  stops->push_back(*text);
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
      return InvalidArgument("'logit_bias' must have token ids as keys");
    }
    const std::optional<double> amount = AsNumber(entry);
    if (!amount || *amount < -100 || *amount > 100) {
      return InvalidArgument(fmt::format("'logit_bias.{}' must be a number in [-100, 100]", id));
    }
    bias->emplace_back(id, *amount);
  }
  return {};
}

Status ReadStopTokens(const Fields& body, std::vector<int32_t>* ids) {
  KURUMA_ASSIGN_OR_RETURN(const auto* list, ArrayAt(body, "stop_token_ids"));
  if (list == nullptr) return {};
  for (size_t i = 0; i < list->size(); ++i) {
    const std::optional<int64_t> id = AsInteger((*list)[i]);
    if (!id || *id < 0 || *id > kMaxId) {
      return InvalidArgument(fmt::format("'stop_token_ids[{}]' must be a token id", i));
    }
    ids->push_back(static_cast<int32_t>(*id));
  }
  return {};
}

// OpenAI's `seed` is an integer of 64 bits; DeepInfer takes any for `seq_seed`.
Status ReadSeed(const Fields& body, std::optional<int64_t>* seed) {
  KURUMA_ASSIGN_OR_RETURN(*seed, body.Integer("seed", -kMaxInt - 1, kMaxInt));
  const JsonValue* other = body.Find("seq_seed");
  if (other == nullptr) return {};
  std::optional<int64_t> value = AsInteger(*other);
  if (const auto* large = other->If<uint64_t>()) value = static_cast<int64_t>(*large);
  if (!value) return InvalidArgument("'seq_seed' must be an integer of 64 bits");
  if (!*seed) *seed = value;
  return {};
}

Status ReadPenalties(const Fields& body, SamplingOptions* sampling) {
  KURUMA_ASSIGN_OR_RETURN(const auto presence, body.Number("presence_penalty", -2, 2));
  KURUMA_ASSIGN_OR_RETURN(const auto frequency, body.Number("frequency_penalty", -2, 2));
  KURUMA_ASSIGN_OR_RETURN(const auto repetition, body.Number("repetition_penalty", 0, 100));
  if (repetition && *repetition < 1e-6) {
    return InvalidArgument("'repetition_penalty' must be a number in (0, 100]");
  }
  sampling->presence_penalty = presence.value_or(sampling->presence_penalty);
  sampling->frequency_penalty = frequency.value_or(sampling->frequency_penalty);
  sampling->repetition_penalty = repetition.value_or(sampling->repetition_penalty);
  return {};
}

}  // namespace

Status ReadSampling(const Fields& body, SamplingOptions* sampling) {
  KURUMA_ASSIGN_OR_RETURN(const auto temperature, body.Number("temperature", 0, 2));
  KURUMA_ASSIGN_OR_RETURN(const auto top_p, body.Number("top_p", 0, 1));
  KURUMA_ASSIGN_OR_RETURN(const auto top_k, body.Integer("top_k", -1, kMaxInt));
  KURUMA_ASSIGN_OR_RETURN(const auto min_p, body.Number("min_p", 0, 1));
  KURUMA_ASSIGN_OR_RETURN(const auto min_tokens, body.Integer("min_tokens", 0, kMaxInt));
  KURUMA_ASSIGN_OR_RETURN(const auto include_stop, body.Bool("include_stop_str_in_output"));
  KURUMA_ASSIGN_OR_RETURN(const auto ignore_eos, body.Bool("ignore_eos"));
  if (top_p && *top_p == 0) return InvalidArgument("'top_p' must be a number in (0, 1]");
  sampling->temperature = temperature.value_or(sampling->temperature);
  sampling->top_p = top_p.value_or(sampling->top_p);
  sampling->top_k =
      std::max<int64_t>(0, top_k.value_or(sampling->top_k));  // other servers say -1 for all
  sampling->min_p = min_p.value_or(sampling->min_p);
  sampling->min_tokens = min_tokens.value_or(0);
  sampling->include_stop = include_stop.value_or(false);
  sampling->ignore_eos = ignore_eos.value_or(false);
  KURUMA_RETURN_IF_ERROR(ReadPenalties(body, sampling));
  KURUMA_RETURN_IF_ERROR(ReadSeed(body, &sampling->seed));
  KURUMA_RETURN_IF_ERROR(ReadStopTokens(body, &sampling->stop_token_ids));
  return ParseLogitBias(body, &sampling->logit_bias);
}

Status ReadStop(const Fields& body, std::string_view key, SamplingOptions* sampling) {
  const JsonValue* stop = body.Find(key);
  if (stop == nullptr) return {};
  const std::string name = body.Name(key);
  const auto* list = stop->If<JsonValue::Array>();
  if (list == nullptr) {
    if (stop->If<std::string>() == nullptr) {
      return InvalidArgument(name + " must be a string or an array of strings");
    }
    return AddStop(*stop, name, &sampling->stop);
  }
  if (list->size() > kMaxStops) {
    return InvalidArgument(
        fmt::format("{} has {} strings; at most {} are allowed", name, list->size(), kMaxStops));
  }
  for (size_t i = 0; i < list->size(); ++i) {
    KURUMA_RETURN_IF_ERROR(
        AddStop((*list)[i], fmt::format("'{}[{}]'", PathOf(body, key), i), &sampling->stop));
  }
  return {};
}

Status ReadMaxTokens(const Fields& body, std::string_view key, SamplingOptions* sampling) {
  KURUMA_ASSIGN_OR_RETURN(const auto max_tokens, body.Integer(key, 1, kMaxInt));
  if (max_tokens) sampling->max_tokens = max_tokens;
  return {};
}

Status CheckMinTokens(const SamplingOptions& sampling) {
  if (!sampling.max_tokens || sampling.min_tokens <= *sampling.max_tokens) return {};
  return InvalidArgument(
      fmt::format("'min_tokens' is {}, but the answer may have {} tokens at most",
                  sampling.min_tokens, *sampling.max_tokens));
}

Status ReadLogprobs(const Fields& body, SamplingOptions* sampling) {
  KURUMA_ASSIGN_OR_RETURN(const auto logprobs, body.Bool("logprobs"));
  KURUMA_ASSIGN_OR_RETURN(const auto top, body.Integer("top_logprobs", 0, kMaxTopLogprobs));
  sampling->logprobs = logprobs.value_or(false);
  if (top && !sampling->logprobs) {
    return InvalidArgument("'top_logprobs' needs 'logprobs' to be true");
  }
  sampling->top_logprobs = static_cast<int>(top.value_or(0));
  return {};
}

Result<int> ReadCount(const Fields& body) {
  KURUMA_ASSIGN_OR_RETURN(const auto n, body.Integer("n", 1, kMaxAnswers));
  return static_cast<int>(n.value_or(1));
}

Result<StreamOptions> ReadStream(const Fields& body) {
  KURUMA_ASSIGN_OR_RETURN(const auto stream, body.Bool("stream"));
  KURUMA_ASSIGN_OR_RETURN(const auto options, body.Object("stream_options"));
  StreamOptions result;
  result.stream = stream.value_or(false);
  if (!options) return result;
  if (!result.stream) return InvalidArgument("'stream_options' needs 'stream' to be true");
  KURUMA_ASSIGN_OR_RETURN(const auto include_usage, options->Bool("include_usage"));
  KURUMA_ASSIGN_OR_RETURN(const auto continuous, options->Bool("continuous_usage_stats"));
  result.include_usage = include_usage.value_or(false);
  result.continuous_usage_stats = continuous.value_or(false);
  return result;
}

Result<Routing> ReadRouting(const Fields& body) {
  Routing routing;
  KURUMA_ASSIGN_OR_RETURN(auto user, body.String("user"));
  KURUMA_ASSIGN_OR_RETURN(auto user_id, body.String("user_id"));
  KURUMA_ASSIGN_OR_RETURN(auto salt, body.String("cache_salt"));
  KURUMA_ASSIGN_OR_RETURN(const auto priority, body.Integer("priority", INT32_MIN, INT32_MAX));
  const auto fits = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  if (user_id &&
      (user_id->size() > kMaxUserId || !std::all_of(user_id->begin(), user_id->end(), fits))) {
    return InvalidArgument(fmt::format("'user_id' must match ^[A-Za-z0-9_-]{{0,{}}}$", kMaxUserId));
  }
  routing.user = user_id ? *std::move(user_id) : std::move(user).value_or("");
  routing.cache_salt = std::move(salt).value_or("");
  routing.priority = static_cast<int>(priority.value_or(0));
  return routing;
}

}  // namespace kuruma::api
