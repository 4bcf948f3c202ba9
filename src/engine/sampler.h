// Draws the next token from a row of logits. The draw is a pure function of logits, history, seed
// and position: no state, no global generator, so every answer can be replayed.
//
// Order: bias and bans; repetition, presence and frequency penalties; grammar mask; temperature (0:
// argmax, ties to the lowest id, nothing below applies); top-k; top-p; min-p; draw by Gumbel-max:
// argmax over v of l_v / T + G(seed, stream, position, v).
// Source: DESIGN.md "Sampling"; Gumbel-max, Maddison et al. 2014; Philox, base/philox.h.
#ifndef KURUMA_ENGINE_SAMPLER_H_
#define KURUMA_ENGINE_SAMPLER_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/logprobs.h"

namespace kuruma::engine {

// How a request wants its tokens drawn. The defaults change nothing: the model's own distribution.
struct SamplingParams {
  double temperature = 1;         // >= 0; 0 is greedy
  int64_t top_k = 0;              // the k best, ties by lower id; 0: all
  double top_p = 1;               // (0, 1]; smallest set of best tokens whose mass reaches top_p
  double min_p = 0;               // [0, 1]; tokens at least min_p times as probable as the best
  double repetition_penalty = 1;  // > 0; divides positive logits of tokens in prompt or answer
  double presence_penalty = 0;    // subtracted once for tokens that the answer already holds
  double frequency_penalty = 0;   // subtracted per occurrence in the answer
  std::vector<std::pair<int32_t, double>> logit_bias = {};  // added; for one token they add up
  std::vector<int32_t> banned = {};                         // never drawn
  std::vector<int32_t> end_tokens = {};  // banned before min_tokens tokens of answer
  int64_t min_tokens = 0;
  uint64_t seed = 0;
  uint32_t stream = 0;             // 0: the target's draw; n: the n-th further sample of one prompt
  int top_logprobs = 0;            // how many alternatives to report
  bool filtered_logprobs = false;  // report after all filters instead of the model's distribution
};

// A seed from the operating system; fits the signed integers that requests hold. Any thread.
uint64_t DrawSeed();

// InvalidArgument names the first field that is out of range (token ids included).
Status CheckSamplingParams(const SamplingParams& params, int64_t vocab);

// What the sequence holds so far. Penalties for repetition count both parts, those for presence and
// frequency the answer alone.
struct TokenHistory {
  std::span<const int32_t> prompt;
  std::span<const int32_t> answer;
};

struct SampledToken {
  int32_t token = 0;
  double logprob = 0;             // of `token`
  std::vector<TokenLogprob> top;  // params.top_logprobs best tokens, best first
};

// The random term of one token: -log(-log(u)), u from 53 bits of Philox4x32-10 with key = seed (low
// word, high word) and counter = (token, position low, position high, stream). Between kGumbelMin
// and kGumbelMax. Pure; any thread.
double GumbelNoise(uint64_t seed, uint32_t stream, int64_t position, int32_t token);
inline constexpr double kGumbelMin = -3.63;
inline constexpr double kGumbelMax = 36.75;

// Draws for one request. Holds scratch memory: one thread at a time.
class Sampler {
 public:
  // `params` have passed CheckSamplingParams.
  explicit Sampler(SamplingParams params) : params_(std::move(params)) {}

  const SamplingParams& params() const { return params_; }

  // Token for absolute position `position`. `mask`: bit v % 64 of word v / 64 allows token v; empty
  // allows all. Internal: logits are not finite; InvalidArgument: bans and mask leave no token.
  Result<SampledToken> Sample(std::span<const float> logits, const TokenHistory& history,
                              int64_t position, std::span<const uint64_t> mask = {});

 private:
  struct Candidate {
    int32_t token;
    double value;   // logit after penalties, then divided by the temperature
    double weight;  // exp(value - largest value)
  };

  static bool Better(const Candidate& a, const Candidate& b);
  void Adjust(const TokenHistory& history, std::span<const uint64_t> mask);
  void CollectCandidates();
  void FilterTopKAndTopP();
  int32_t Draw(int64_t position) const;
  void Report(std::span<const float> logits, double log_sum, SampledToken* result) const;

  SamplingParams params_;
  std::vector<double> adjusted_;       // [vocab]; minus infinity: may not be drawn
  std::vector<double> weights_;        // [vocab]
  std::vector<Candidate> candidates_;  // what filters have left
};

}  // namespace kuruma::engine

#endif  // KURUMA_ENGINE_SAMPLER_H_
