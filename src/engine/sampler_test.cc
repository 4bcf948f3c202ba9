#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "engine/fixed_math.h"

namespace kuruma::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SampledToken Draw(const std::vector<float>& logits, SamplingParams params, int64_t position = 0,
                  const TokenHistory& history = {}) {
  Sampler sampler(std::move(params));
  auto result = sampler.Sample(logits, history, position);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : SampledToken{-1, 0, {}};
}

// Tokens that come up in `draws` positions.
std::vector<int> Counts(const std::vector<float>& logits, const SamplingParams& params, int draws,
                        const TokenHistory& history = {}) {
  std::vector<int> counts(logits.size());
  Sampler sampler(params);
  for (int position = 0; position < draws; ++position) {
    const auto result = sampler.Sample(logits, history, position);
    EXPECT_TRUE(result.ok());
    ++counts[result->token];
  }
  return counts;
}

std::vector<int32_t> Support(const std::vector<float>& logits, const SamplingParams& params) {
  const std::vector<int> counts = Counts(logits, params, 4000);
  std::vector<int32_t> support;
  for (size_t v = 0; v < counts.size(); ++v) {
    if (counts[v] > 0) support.push_back(static_cast<int32_t>(v));
  }
  return support;
}

std::vector<float> RandomLogits(std::mt19937& random, size_t vocab, double spread) {
  std::normal_distribution<double> normal(0, spread);
  std::vector<float> logits(vocab);
  // Coarse values, so that ties are frequent.
  for (float& l : logits) l = static_cast<float>(std::round(normal(random) * 8) / 8);
  return logits;
}

double UlpDistance(double actual, double expected) {
  const double ulp = std::nextafter(std::fabs(expected), INFINITY) - std::fabs(expected);
  return std::fabs(actual - expected) / ulp;
}

TEST(FixedMath, LogIsWithinOneUlpOfTheLibrary) {
  std::mt19937_64 random(1);
  double worst = 0;
  for (int i = 0; i < 1000000; ++i) {
    const double u = static_cast<double>((random() >> 11) | 1) * 0x1p-53;
    worst = std::max(worst, UlpDistance(FixedLog(u), std::log(u)));
    const double near_one = 1.0 - u * 1e-6;
    worst = std::max(worst, UlpDistance(FixedLog(near_one), std::log(near_one)));
    const double large = std::exp(u * 1400 - 700);
    worst = std::max(worst, UlpDistance(FixedLog(large), std::log(large)));
  }
  EXPECT_LE(worst, 1.0);
  EXPECT_EQ(FixedLog(1.0), 0.0);
}

TEST(FixedMath, ExpIsWithinTwoUlpsOfTheLibrary) {
  std::mt19937_64 random(2);
  double worst = 0;
  for (int i = 0; i < 1000000; ++i) {
    const double u = static_cast<double>(random() >> 11) * 0x1p-53;
    for (const double x : {-u, -40 * u, -690 * u}) {
      worst = std::max(worst, UlpDistance(FixedExp(x), std::exp(x)));
    }
  }
  EXPECT_LE(worst, 2.0);
  EXPECT_EQ(FixedExp(0.0), 1.0);
  EXPECT_EQ(FixedExp(-701.0), FixedExp(-700.0));
  EXPECT_EQ(FixedExp(-INFINITY), FixedExp(-700.0));
}

// Bits that every build must produce; values checked with 200-bit arithmetic when they were taken.
TEST(FixedMath, BitsNeverChange) {
  const std::pair<double, uint64_t> logs[] = {
      {0x1p-54, 0xc042b708872320e2}, {1 - 0x1p-53, 0xbca0000000000000}, {0.5, 0xbfe62e42fefa39ef},
      {0.1, 0xc0026bb1bbb55515},     {0.7071, 0xbfd62e6b3842a25e},      {1.5, 0x3fd9f323ecbf984c},
      {3.0, 0x3ff193ea7aad030a},     {37.43, 0x400cfad2dfa25083},       {0.999, 0xbf5064670d979b73},
      {1e10, 0x4037069e2aa2aa5b}};
  for (const auto& [x, bits] : logs) EXPECT_EQ(std::bit_cast<uint64_t>(FixedLog(x)), bits) << x;
  const std::pair<double, uint64_t> exps[] = {
      {-1.0, 0x3fd78b56362cef38},  {-0.5, 0x3fe368b2fc6f960a},  {-0.1, 0x3fecf46d99d52b3a},
      {-10.0, 0x3f07cd79b5647c9a}, {-88.0, 0x38007b7112bc1ffe}, {-600.5, 0x09c94f535b837056},
      {-1e-9, 0x3fefffffff768fa1}};
  for (const auto& [x, bits] : exps) EXPECT_EQ(std::bit_cast<uint64_t>(FixedExp(x)), bits) << x;
}

TEST(Gumbel, BitsNeverChange) {
  // Philox of counter 0 and key 0 begins 6627e8d5 e169c58d, of which u takes the first 53 bits.
  EXPECT_EQ(std::bit_cast<uint64_t>(GumbelNoise(0, 0, 0, 0)), 0x3fb5b6c7ad999333u);
  EXPECT_EQ(std::bit_cast<uint64_t>(GumbelNoise(0x123456789abcdef0, 1, 1000, 129279)),
            0xbff09377aaa5ef3fu);
}

TEST(Gumbel, NoiseStaysWithinItsBounds) {
  double least = 100, most = -100;
  for (int64_t position = 0; position < 200000; ++position) {
    const double noise = GumbelNoise(7, 0, position, 3);
    least = std::min(least, noise);
    most = std::max(most, noise);
  }
  EXPECT_GE(least, kGumbelMin);
  EXPECT_LE(most, kGumbelMax);
  EXPECT_LT(least, -2.0);
  EXPECT_GT(most, 9.0);
}

TEST(Gumbel, EverySeedStreamPositionAndTokenCounts) {
  const double base = GumbelNoise(1, 0, 5, 9);
  EXPECT_NE(base, GumbelNoise(1 | (uint64_t{1} << 32), 0, 5, 9));
  EXPECT_NE(base, GumbelNoise(2, 0, 5, 9));
  EXPECT_NE(base, GumbelNoise(1, 1, 5, 9));
  EXPECT_NE(base, GumbelNoise(1, 0, 5 + (int64_t{1} << 32), 9));
  EXPECT_NE(base, GumbelNoise(1, 0, 5, 10));
}

TEST(Sampler, GreedyTakesTheLowestIdOfTheBest) {
  EXPECT_EQ(Draw({1, 3, 2, 3}, {.temperature = 0}).token, 1);
  EXPECT_EQ(Draw({-5, -5, -5}, {.temperature = 0}).token, 0);
  // Filters do not apply to a greedy draw.
  EXPECT_EQ(Draw({1, 3, 2}, {.temperature = 0, .top_k = 1, .top_p = 0.01, .min_p = 1}).token, 1);
}

TEST(Sampler, EmpiricalDistributionIsTheSoftmax) {
  const std::vector<float> logits{0.5f, -1.0f, 2.0f, 0.0f, 1.25f, -3.0f, 0.5f, 1.0f};
  for (const double temperature : {0.7, 1.0, 1.6}) {
    constexpr int kDraws = 100000;
    const auto counts = Counts(logits, {.temperature = temperature, .seed = 11}, kDraws);
    double total = 0;
    for (const float l : logits) total += std::exp(l / temperature);
    double chi_square = 0;
    for (size_t v = 0; v < logits.size(); ++v) {
      const double expected = kDraws * std::exp(logits[v] / temperature) / total;
      chi_square += std::pow(counts[v] - expected, 2) / expected;
    }
    EXPECT_LT(chi_square, 24.3) << temperature;  // 7 degrees of freedom, one in a thousand
  }
}

TEST(Sampler, EqualSeedsGiveEqualTokensAndOthersDiffer) {
  const std::vector<float> flat(100, 0.0f);
  int equal = 0;
  for (int64_t position = 0; position < 200; ++position) {
    const int32_t token = Draw(flat, {.seed = 5}, position).token;
    EXPECT_EQ(token, Draw(flat, {.seed = 5}, position).token);
    equal += token == Draw(flat, {.seed = 6}, position).token;
  }
  EXPECT_LT(equal, 10);
}

TEST(Sampler, TopKKeepsLowerIdsOfTies) {
  EXPECT_EQ(Support({1, 2, 1, 1}, {.top_k = 2}), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(Support({1, 2, 1, 1}, {.top_k = 9}), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesTheMass) {
  const std::vector<float> equal(4, 0.0f);  // a quarter each
  EXPECT_EQ(Support(equal, {.top_p = 0.5}), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(Support(equal, {.top_p = 0.5000001}), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(Support(equal, {.top_p = 1e-9}), (std::vector<int32_t>{0}));
  EXPECT_EQ(Support(equal, {.top_p = 1}), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(Support({0, 1, 1, 0}, {.top_p = 0.4}), (std::vector<int32_t>{1, 2}));
}

// Cases of the released engine: both filters look at the distribution before either.
TEST(Sampler, TopKAndTopPTogether) {
  const std::vector<float> logits{-0.1533f, 0.7198f,  -1.564f,  0.1431f, 1.3297f, -0.5736f,
                                  3.2411f,  -3.1934f, -0.1034f, -0.612f, 0.497f,  -0.4451f,
                                  1.8263f,  0.4087f,  1.148f,   0.8327f};
  EXPECT_EQ(Support(logits, {.top_k = 3}), (std::vector<int32_t>{4, 6, 12}));
  EXPECT_EQ(Support(logits, {.top_p = 0.6}), (std::vector<int32_t>{6, 12}));
  EXPECT_EQ(Support(logits, {.temperature = 0.7, .top_k = 2, .top_p = 0.95}),
            (std::vector<int32_t>{6, 12}));
}

TEST(Sampler, MinPComparesWithTheBest) {
  const std::vector<float> logits{0.0f, std::log(0.5f), std::log(0.25f), std::log(0.1f)};
  EXPECT_EQ(Support(logits, {.min_p = 0.2}), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(Support(logits, {.min_p = 1}), (std::vector<int32_t>{0}));
  EXPECT_EQ(Support({2, 2, 1}, {.min_p = 1}), (std::vector<int32_t>{0, 1}));
}

TEST(Sampler, PenaltiesFollowTheirDefinitions) {
  const std::vector<int32_t> prompt{0}, answer{1, 1, 2};
  const TokenHistory history{prompt, answer};
  // Positive logits are divided, negative ones multiplied; prompt and answer count.
  EXPECT_EQ(Draw({4, 4, 4, 2.1f}, {.temperature = 0, .repetition_penalty = 2}, 0, history).token,
            3);
  EXPECT_EQ(
      Draw({-1, -9, -9, -1.9f}, {.temperature = 0, .repetition_penalty = 2}, 0, history).token, 3);
  // The prompt does not count for these two.
  EXPECT_EQ(Draw({3, 4, 4, 0}, {.temperature = 0, .presence_penalty = 1.5}, 0, history).token, 0);
  EXPECT_EQ(
      Draw({3, 4, 4, 0}, {.temperature = 0, .repetition_penalty = 1.0001, .presence_penalty = 1.5},
           0, history)
          .token,
      0);
  EXPECT_EQ(Draw({1, 4, 3.5f, 0}, {.temperature = 0, .frequency_penalty = 0.75}, 0, history).token,
            2);
}

TEST(Sampler, BiasBansMinTokensAndMask) {
  EXPECT_EQ(Draw({1, 2, 3}, {.temperature = 0, .logit_bias = {{0, 1.5}, {0, 1}}}).token, 0);
  EXPECT_EQ(Draw({1, 2, 3}, {.temperature = 0, .banned = {2}}).token, 1);
  EXPECT_EQ(Draw({1, 2, 3}, {.temperature = 0, .logit_bias = {{2, 100}}, .banned = {2}}).token, 1);
  const std::vector<int32_t> two{0, 0};
  const SamplingParams params{.temperature = 0, .end_tokens = {2}, .min_tokens = 2};
  EXPECT_EQ(Draw({1, 2, 3}, params).token, 1);
  EXPECT_EQ(Draw({1, 2, 3}, params, 0, {{}, two}).token, 2);
  Sampler sampler({.temperature = 0});
  const std::vector<uint64_t> mask{0b011}, none{0};
  EXPECT_EQ(sampler.Sample(std::vector<float>{1, 2, 3}, {}, 0, mask)->token, 1);
  EXPECT_EQ(sampler.Sample(std::vector<float>{1, 2, 3}, {}, 0, none).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(Sampler, ReportsTheModelsDistributionBeforeFilters) {
  const std::vector<float> logits{0, 1, 2};
  const double log_sum = std::log(std::exp(0.0) + std::exp(1.0) + std::exp(2.0));
  const auto drawn =
      Draw(logits, {.temperature = 0.1, .top_k = 1, .banned = {2}, .top_logprobs = 2});
  EXPECT_EQ(drawn.token, 1);
  EXPECT_NEAR(drawn.logprob, 1 - log_sum, 1e-12);
  ASSERT_EQ(drawn.top.size(), 2u);
  EXPECT_EQ(drawn.top[0].token, 2);
  EXPECT_NEAR(drawn.top[0].logprob, 2 - log_sum, 1e-12);
}

TEST(Sampler, ReportsTheFilteredDistributionWhenAsked) {
  const auto drawn = Draw(
      {0, 1, 2}, {.temperature = 0.5, .top_k = 2, .top_logprobs = 3, .filtered_logprobs = true});
  ASSERT_EQ(drawn.top.size(), 2u);
  EXPECT_NEAR(drawn.top[0].logprob, -std::log(1 + std::exp(-2.0)), 1e-12);
  EXPECT_NEAR(drawn.top[1].logprob, -std::log(1 + std::exp(2.0)), 1e-12);
}

TEST(Sampler, LogitsThatAreNotFiniteAreAnError) {
  for (const float bad : {std::nanf(""), kInfinity}) {
    Sampler sampler({});
    EXPECT_EQ(sampler.Sample(std::vector<float>{0, bad}, {}, 3).status().code(),
              StatusCode::kInternal);
  }
}

TEST(Sampler, ParamsOutOfRangeAreNamed) {
  const auto message = [](const SamplingParams& params) {
    return CheckSamplingParams(params, 10).message();
  };
  EXPECT_TRUE(CheckSamplingParams({}, 10).ok());
  EXPECT_NE(message({.temperature = -1}).find("temperature"), std::string::npos);
  EXPECT_NE(message({.temperature = std::nan("")}).find("temperature"), std::string::npos);
  EXPECT_NE(message({.top_k = -1}).find("top_k"), std::string::npos);
  EXPECT_NE(message({.top_p = 0}).find("top_p"), std::string::npos);
  EXPECT_NE(message({.min_p = 1.5}).find("min_p"), std::string::npos);
  EXPECT_NE(message({.repetition_penalty = 0}).find("repetition"), std::string::npos);
  EXPECT_NE(message({.logit_bias = {{10, 1}}}).find("token 10"), std::string::npos);
}

// The definition, without any short cut: full sort, noise of every survivor.
int32_t NaiveDraw(const std::vector<float>& logits, const SamplingParams& p, int64_t position) {
  struct Entry {
    int32_t token;
    double value, weight;
  };
  const double most = *std::max_element(logits.begin(), logits.end()) / p.temperature;
  std::vector<Entry> entries;
  int64_t total = 0;
  const auto mass_of = [](double weight) {
    return static_cast<int64_t>(weight * 0x1p35 + 0.5);  // fixed point, as the sampler counts
  };
  for (size_t v = 0; v < logits.size(); ++v) {
    const double value = logits[v] / p.temperature;
    entries.push_back({static_cast<int32_t>(v), value, FixedExp(value - most)});
    total += mass_of(entries.back().weight);
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.value > b.value; });
  std::vector<Entry> kept;
  int64_t mass = 0;
  for (const Entry& e : entries) {
    if (p.top_k > 0 && static_cast<int64_t>(kept.size()) >= p.top_k) break;
    if (p.top_p < 1 && static_cast<double>(mass) >= p.top_p * static_cast<double>(total)) {
      break;
    }
    mass += mass_of(e.weight);
    kept.push_back(e);
  }
  int32_t winner = -1;
  double best = -INFINITY;
  for (const Entry& e : kept) {
    if (e.weight < p.min_p) continue;
    const double value = e.value + GumbelNoise(p.seed, p.stream, position, e.token);
    if (value > best || (value == best && e.token < winner)) {
      best = value;
      winner = e.token;
    }
  }
  return winner;
}

TEST(Sampler, SkippingNeverChangesTheResult) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    const size_t vocab = 1 + random() % 700;
    const std::vector<float> logits = RandomLogits(random, vocab, 0.05 * (1 << random() % 10));
    SamplingParams params{.temperature = 0.25 * static_cast<double>(1 + random() % 8)};
    if (random() % 2) params.top_k = static_cast<int64_t>(random() % 500);
    if (random() % 2) params.top_p = static_cast<double>(1 + random() % 100) / 100;
    if (random() % 4 == 0) params.min_p = static_cast<double>(random() % 100) / 100;
    params.seed = random();
    params.stream = random() % 3;
    const auto position = static_cast<int64_t>(random() % 100000);
    ASSERT_EQ(Draw(logits, params, position).token, NaiveDraw(logits, params, position))
        << "round " << round;
  }
}

TEST(Logprobs, TopIsOrderedAndTiesPreferLowerIds) {
  const std::vector<float> logits{1, 3, 3, 0};
  const auto top = TopLogprobs(logits, LogSumExp(logits), 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].token, 1);
  EXPECT_EQ(top[1].token, 2);
  EXPECT_EQ(top[2].token, 0);
  EXPECT_EQ(TopLogprobs(logits, 0, 99).size(), 4u);
  EXPECT_TRUE(TopLogprobs(logits, 0, 0).empty());
}

TEST(Logprobs, LogSumExpHandlesExtremes) {
  EXPECT_NEAR(LogSumExp(std::vector<float>{1000, 1000}), 1000 + std::log(2.0), 1e-9);
  EXPECT_NEAR(LogSumExp(std::vector<float>{-1e30f, 0}), 0, 1e-12);
  EXPECT_NEAR(LogSumExp(std::vector<float>{-kInfinity, 2}), 2, 1e-12);
  EXPECT_TRUE(std::isnan(LogSumExp(std::vector<float>{-kInfinity})));
}

}  // namespace
}  // namespace kuruma::engine
