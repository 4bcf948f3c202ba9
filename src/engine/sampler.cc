#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <unordered_map>

#include "base/philox.h"
#include "engine/fixed_math.h"

namespace kuruma::engine {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
constexpr double kUnit = 0x1p-53;

// The 53-bit integer behind u; kept apart because its leading zeros bound the noise.
uint64_t UniformBits(uint64_t seed, uint32_t stream, int64_t position, int32_t token) {
  const auto where = static_cast<uint64_t>(position);
  const auto words = Philox4x32({static_cast<uint32_t>(token), static_cast<uint32_t>(where),
                                 static_cast<uint32_t>(where >> 32), stream},
                                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return (uint64_t{words[0]} << 21) | (words[1] >> 11);
}

// u = k * 2^-53; k = 0 counts as half a unit, so that u is never 0 (nor ever 1).
double NoiseFromBits(uint64_t k) {
  const double u = k == 0 ? 0.5 * kUnit : static_cast<double>(k) * kUnit;
  return -FixedLog(-FixedLog(u));
}

// No less than the noise of `k`: -log(u) >= 1 - u, and 1 - u >= 2^-(z+1) with z leading zeros in
// its 53 bits. The small addition covers the rounding of both logarithms.
double NoiseBound(uint64_t k) {
  constexpr double kLn2Up = 0.6931471805599454;
  const uint64_t rest = (uint64_t{1} << 53) - k;    // (1 - u) in units; at least 1
  const int leading = std::countl_zero(rest) - 10;  // 2^-leading <= 1 - u
  return leading * kLn2Up + 1e-9;
}

// Mass of a token in fixed point: 18 bits of vocabulary leave the sum exact in a double.
constexpr double kMassUnit = 0x1p35;
int64_t Mass(double weight) { return static_cast<int64_t>(weight * kMassUnit + 0.5); }

bool InRange(double x, double low, double high) { return x >= low && x <= high; }

Status OutOfRange(const char* field, double value, const char* range) {
  return InvalidArgument(fmt::format("{} must be {}, got {}", field, range, value));
}

Status CheckToken(const char* field, int32_t token, int64_t vocab) {
  if (token >= 0 && token < vocab) return Status();
  return InvalidArgument(
      fmt::format("{}: token {} is not in the vocabulary of {} tokens", field, token, vocab));
}

}  // namespace

uint64_t DrawSeed() {
  thread_local std::random_device device;
  return ((uint64_t{device()} << 32) | device()) >> 1;
}

Status CheckSamplingParams(const SamplingParams& p, int64_t vocab) {
  constexpr double kHuge = 1e6;  // keeps every intermediate value finite
  if (!InRange(p.temperature, 0, kHuge)) {
    return OutOfRange("temperature", p.temperature, "at least 0");
  }
  if (p.temperature > 0 && p.temperature < 1e-6) {
    return OutOfRange("temperature", p.temperature, "0 or at least 1e-6");
  }
  if (p.top_k < 0) {
    return OutOfRange("top_k", static_cast<double>(p.top_k), "at least 0 (0: all tokens)");
  }
  if (!(p.top_p > 0 && p.top_p <= 1)) return OutOfRange("top_p", p.top_p, "in (0, 1]");
  if (!InRange(p.min_p, 0, 1)) return OutOfRange("min_p", p.min_p, "in [0, 1]");
  if (!InRange(p.repetition_penalty, 1e-6, kHuge)) {
    return OutOfRange("repetition_penalty", p.repetition_penalty, "above 0");
  }
  if (!InRange(p.presence_penalty, -kHuge, kHuge)) {
    return OutOfRange("presence_penalty", p.presence_penalty, "a finite number");
  }
  if (!InRange(p.frequency_penalty, -kHuge, kHuge)) {
    return OutOfRange("frequency_penalty", p.frequency_penalty, "a finite number");
  }
  for (const auto& [token, bias] : p.logit_bias) {
    KURUMA_RETURN_IF_ERROR(CheckToken("logit_bias", token, vocab));
    if (!InRange(bias, -kHuge, kHuge)) return OutOfRange("logit_bias", bias, "a finite number");
  }
  for (const int32_t token : p.banned) KURUMA_RETURN_IF_ERROR(CheckToken("banned", token, vocab));
  for (const int32_t token : p.end_tokens) {
    KURUMA_RETURN_IF_ERROR(CheckToken("stop token", token, vocab));
  }
  return Status();
}

double GumbelNoise(uint64_t seed, uint32_t stream, int64_t position, int32_t token) {
  return NoiseFromBits(UniformBits(seed, stream, position, token));
}

// Logit bias, bans, penalties, mask.
void Sampler::Adjust(const TokenHistory& history, std::span<const uint64_t> mask) {
  for (const auto& [token, bias] : params_.logit_bias) adjusted_[token] += bias;
  for (const int32_t token : params_.banned) adjusted_[token] = kMinusInfinity;
  if (static_cast<int64_t>(history.answer.size()) < params_.min_tokens) {
    for (const int32_t token : params_.end_tokens) adjusted_[token] = kMinusInfinity;
  }
  const bool repeats = params_.repetition_penalty != 1;
  if (repeats || params_.presence_penalty != 0 || params_.frequency_penalty != 0) {
    std::unordered_map<int32_t, int64_t> counts;  // occurrences in the answer
    if (repeats) {
      for (const int32_t token : history.prompt) counts.emplace(token, 0);
    }
    for (const int32_t token : history.answer) ++counts[token];
    for (const auto& [token, count] : counts) {  // tokens do not touch each other: any order
      double& l = adjusted_[token];
      if (repeats) l = l > 0 ? l / params_.repetition_penalty : l * params_.repetition_penalty;
      if (count > 0) l -= params_.presence_penalty;
      l -= params_.frequency_penalty * static_cast<double>(count);
    }
  }
  if (mask.empty()) return;
  for (size_t v = 0; v < adjusted_.size(); ++v) {
    const bool allowed = v / 64 < mask.size() && (mask[v / 64] >> (v % 64) & 1) != 0;
    if (!allowed) adjusted_[v] = kMinusInfinity;
  }
}

bool Sampler::Better(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.token < b.token;
}

// Candidates in order of ids, logits divided by the temperature.
void Sampler::CollectCandidates() {
  candidates_.clear();
  double most = kMinusInfinity;
  for (double& value : adjusted_) {
    value /= params_.temperature;
    most = std::max(most, value);
  }
  weights_.resize(adjusted_.size());
  for (size_t v = 0; v < adjusted_.size(); ++v) weights_[v] = FixedExp(adjusted_[v] - most);
  candidates_.reserve(adjusted_.size());
  for (size_t v = 0; v < adjusted_.size(); ++v) {
    if (adjusted_[v] == kMinusInfinity) continue;
    candidates_.push_back({static_cast<int32_t>(v), adjusted_[v], weights_[v]});
  }
}

// The nucleus is measured on the distribution before top-k, as the released engine does. Masses are
// integers, so that their sum does not depend on an order: a selection can stand for a sort.
void Sampler::FilterTopKAndTopP() {
  const auto begin = candidates_.begin();
  const auto all = static_cast<double>(candidates_.size());
  int64_t total = 0;
  for (const Candidate& c : candidates_) total += Mass(c.weight);
  if (params_.top_k > 0 && params_.top_k < static_cast<int64_t>(candidates_.size())) {
    std::nth_element(begin, begin + params_.top_k, candidates_.end(), Better);
    candidates_.resize(params_.top_k);
  }
  if (params_.top_p >= 1) return;
  const double wanted = params_.top_p * static_cast<double>(total);
  // Tokens this light cannot reach the missing mass together, so the nucleus ends before them.
  const double light = ((static_cast<double>(total) - wanted) / (2 * all) - 1) / kMassUnit;
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < light; });
  // The nucleus has more than `low` and at most `high` tokens; the first `low` weigh `mass`.
  int64_t low = 0, high = static_cast<int64_t>(candidates_.size()), mass = 0;
  while (high - low > 1) {
    const int64_t middle = low + (high - low - 1) / 2;
    std::nth_element(begin + low, begin + middle, begin + high, Better);
    int64_t more = mass;
    for (int64_t i = low; i <= middle; ++i) more += Mass(candidates_[i].weight);
    if (static_cast<double>(more) >= wanted) {
      high = middle + 1;
    } else {
      mass = more;
      low = middle + 1;
    }
  }
  candidates_.resize(high);
}

int32_t Sampler::Draw(int64_t position) const {
  const auto best_value =
      std::max_element(candidates_.begin(), candidates_.end(),
                       [](const Candidate& a, const Candidate& b) { return a.value < b.value; });
  // Starting from a token that is likely to win lets the bounds rule out the others early.
  int32_t winner = best_value->token;
  double best =
      best_value->value + GumbelNoise(params_.seed, params_.stream, position, best_value->token);
  for (const Candidate& c : candidates_) {
    if (c.value + kGumbelMax < best) continue;
    const uint64_t bits = UniformBits(params_.seed, params_.stream, position, c.token);
    if (c.value + NoiseBound(bits) < best) continue;
    const double value = c.value + NoiseFromBits(bits);
    if (value > best || (value == best && c.token < winner)) {
      best = value;
      winner = c.token;
    }
  }
  return winner;
}

void Sampler::Report(std::span<const float> logits, double log_sum, SampledToken* result) const {
  if (!params_.filtered_logprobs) {
    result->logprob = logits[result->token] - log_sum;
    if (params_.top_logprobs > 0) {
      result->top = TopLogprobs(logits, log_sum, params_.top_logprobs);
    }
    return;
  }
  std::vector<Candidate> left = candidates_;
  std::sort(left.begin(), left.end(), Better);
  double sum = 0;
  for (const Candidate& c : left) sum += FixedExp(c.value - left[0].value);
  const double log_total = left[0].value + FixedLog(sum);
  for (const Candidate& c : left) {
    if (c.token == result->token) result->logprob = c.value - log_total;
    if (static_cast<int>(result->top.size()) < params_.top_logprobs) {
      result->top.push_back({c.token, c.value - log_total});
    }
  }
}

Result<SampledToken> Sampler::Sample(std::span<const float> logits, const TokenHistory& history,
                                     int64_t position, std::span<const uint64_t> mask) {
  const double log_sum = LogSumExp(logits);
  if (std::isnan(log_sum)) {
    return Internal(fmt::format("the logits of position {} are not finite", position));
  }
  adjusted_.assign(logits.begin(), logits.end());
  Adjust(history, mask);
  const auto most = std::max_element(adjusted_.begin(), adjusted_.end());
  if (*most == kMinusInfinity) {
    return InvalidArgument(
        fmt::format("bans and grammar leave no token for position {}", position));
  }
  SampledToken result;
  if (params_.temperature == 0) {
    result.token = static_cast<int32_t>(most - adjusted_.begin());
    candidates_.assign(1, {result.token, *most, 1.0});
  } else {
    CollectCandidates();
    FilterTopKAndTopP();
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < params_.min_p; });
    result.token = Draw(position);
  }
  Report(logits, log_sum, &result);
  return result;
}

}  // namespace kuruma::engine
