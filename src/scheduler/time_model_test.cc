#include "scheduler/time_model.h"

#include <gtest/gtest.h>

#include <random>

namespace kuruma::scheduler {
namespace {

double Truth(const StepLoad& load) {
  return 3 + 0.05 * static_cast<double>(load.rows) + 2e-5 * static_cast<double>(load.row_contexts);
}

TimeModel Fitted(double noise) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> factor(1 - noise, 1 + noise);
  TimeModel model;
  for (int i = 0; i < 400; ++i) {
    const auto rows = static_cast<int64_t>(1 + random() % 256);
    const StepLoad load{rows, rows * static_cast<int64_t>(random() % 4000)};
    model.Observe(load, Truth(load) * factor(random));
  }
  return model;
}

TEST(TimeModel, FindsTheCostsBehindNoisySteps) {
  const TimeModel model = Fitted(0.2);
  for (const StepLoad& load : {StepLoad{1, 100}, StepLoad{64, 64'000}, StepLoad{256, 500'000}}) {
    EXPECT_NEAR(model.Predict(load), Truth(load), 0.1 * Truth(load)) << load.rows;
  }
}

TEST(TimeModel, OneHeldUpStepChangesLittle) {
  TimeModel model = Fitted(0);
  model.Observe({10, 1000}, 60'000);
  EXPECT_LT(model.Predict({10, 1000}), 3 * Truth({10, 1000}));
}

TEST(TimeModel, FollowsAMachineThatBecameSlower) {
  TimeModel model = Fitted(0);
  for (int i = 0; i < 600; ++i) {
    const StepLoad load{1 + i % 200, (1 + i % 200) * (i % 17) * 100};
    model.Observe(load, 2 * Truth(load));
  }
  EXPECT_NEAR(model.Predict({100, 50'000}), 2 * Truth({100, 50'000}), 1);
}

TEST(TimeModel, RowsWithinIsTheMostThatFits) {
  EXPECT_EQ(TimeModel().RowsWithin(1, {}, 0, 77), 77) << "nothing is known yet";
  const TimeModel model = Fitted(0);
  const StepLoad load{16, 16'000};
  for (const double ms : {0.1, 4.5, 8.0, 1000.0}) {
    const int64_t rows = model.RowsWithin(ms, load, 2000, 300);
    const auto time = [&](int64_t r) {
      return model.Predict({load.rows + r, load.row_contexts + r * 2000 + r * (r - 1) / 2});
    };
    EXPECT_TRUE(rows == 0 || time(rows) <= ms) << ms;
    EXPECT_TRUE(rows == 300 || time(rows + 1) > ms) << ms;
  }
}

}  // namespace
}  // namespace kuruma::scheduler
