#include "engine/logprobs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/fixed_math.h"

namespace kuruma::engine {

double LogSumExp(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float most = -kInfinity;
  bool broken = logits.empty();
  for (const float l : logits) {
    most = std::max(most, l);
    broken |= std::isnan(l);
  }
  if (broken || std::isinf(most)) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;                 // in order of ids: one fixed sequence of roundings
  std::array<double, 256> terms;  // apart from the sum, which cannot be computed in parallel
  for (size_t begin = 0; begin < logits.size(); begin += terms.size()) {
    const size_t count = std::min(terms.size(), logits.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      terms[i] = FixedExp(static_cast<double>(logits[begin + i]) - most);
    }
    for (size_t i = 0; i < count; ++i) sum += terms[i];
  }
  return most + FixedLog(sum);
}

std::vector<TokenLogprob> TopLogprobs(std::span<const float> logits, double log_sum, int64_t k) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto count = std::clamp<int64_t>(k, 0, static_cast<int64_t>(order.size()));
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  std::vector<TokenLogprob> top;
  for (int64_t i = 0; i < count; ++i) top.push_back({order[i], logits[order[i]] - log_sum});
  return top;
}

}  // namespace kuruma::engine
