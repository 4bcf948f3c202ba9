#include "latency.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kuruma {
namespace {

TEST(Percentile, IsLinearBetweenNeighbours) {
  EXPECT_DOUBLE_EQ(Percentile({40, 10, 30, 20}, 0), 10);
  EXPECT_DOUBLE_EQ(Percentile({40, 10, 30, 20}, 50), 25);
  EXPECT_DOUBLE_EQ(Percentile({40, 10, 30, 20}, 90), 37);
  EXPECT_DOUBLE_EQ(Percentile({40, 10, 30, 20}, 100), 40);
  EXPECT_DOUBLE_EQ(Percentile({7}, 99), 7);
  EXPECT_TRUE(std::isnan(Percentile({}, 50)));
  EXPECT_DOUBLE_EQ(Median({3, 1, 2}), 2);
  EXPECT_TRUE(std::isnan(Mean({})));
}

TEST(Summarize, FollowsTheDefinitions) {
  const std::vector<RequestTimes> requests{
      {.sent_ms = 100, .token_ms = {110, 112, 118}},  // TTFT 10, TPOT 4, gaps 2 and 6, E2E 18
      {.sent_ms = 0, .token_ms = {30, 32}},           // TTFT 30, TPOT 2, gap 2, E2E 32
      {.sent_ms = 50, .token_ms = {70}},              // TTFT 20, E2E 20
      {.sent_ms = 50, .token_ms = {}}};
  const LatencySummary s = Summarize(requests);
  EXPECT_DOUBLE_EQ(s.ttft_mean_ms, 20);
  EXPECT_DOUBLE_EQ(s.ttft_p50_ms, 20);
  EXPECT_DOUBLE_EQ(s.ttft_p90_ms, 28);
  EXPECT_DOUBLE_EQ(s.ttft_p99_ms, 29.8);
  EXPECT_DOUBLE_EQ(s.tpot_p50_ms, 3);
  EXPECT_DOUBLE_EQ(s.tpot_p90_ms, 3.8);
  EXPECT_DOUBLE_EQ(s.tpot_p99_ms, 3.98);
  EXPECT_DOUBLE_EQ(s.itl_p99_ms, 5.92);
  EXPECT_DOUBLE_EQ(s.e2e_p50_ms, 20);
  EXPECT_DOUBLE_EQ(s.e2e_p99_ms, 31.76);
}

TEST(Summarize, WhatNobodyHasIsNaN) {
  const std::vector<RequestTimes> requests{{.sent_ms = 1, .token_ms = {2}}};
  const LatencySummary s = Summarize(requests);
  EXPECT_DOUBLE_EQ(s.ttft_p99_ms, 1);
  EXPECT_TRUE(std::isnan(s.tpot_p50_ms));
  EXPECT_TRUE(std::isnan(s.itl_p99_ms));
  EXPECT_TRUE(std::isnan(Summarize({}).ttft_mean_ms));
}

}  // namespace
}  // namespace kuruma
