// Log-probabilities of a row of logits: natural logarithms, in double, the same bits on every
// build.
#ifndef KURUMA_ENGINE_LOGPROBS_H_
#define KURUMA_ENGINE_LOGPROBS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace kuruma::engine {

struct TokenLogprob {
  int32_t token = 0;
  double logprob = 0;
};

// log(sum of exp(l)); entries of minus infinity count nothing. NaN if any entry is NaN or plus
// infinity, or if all are minus infinity. The log-probability of v is logits[v] -
// LogSumExp(logits). Pure; any thread.
double LogSumExp(std::span<const float> logits);

// The `k` most probable tokens, best first, ties to the lowest id; `log_sum` is LogSumExp(logits).
// Fewer when the vocabulary is smaller. Pure; any thread.
std::vector<TokenLogprob> TopLogprobs(std::span<const float> logits, double log_sum, int64_t k);

}  // namespace kuruma::engine

#endif  // KURUMA_ENGINE_LOGPROBS_H_
