#include "scheduler/time_model.h"

#include <algorithm>
#include <cmath>

namespace kuruma::scheduler {
namespace {

constexpr double kForgetting = 0.99;
// Features of similar size keep the fit well conditioned.
constexpr double kRowUnit = 64;
constexpr double kContextUnit = 64 * 1024;

double Dot(const std::array<double, 3>& a, const std::array<double, 3>& b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

}  // namespace

std::array<double, 3> TimeModel::Features(const StepLoad& load) {
  return {1, static_cast<double>(load.rows) / kRowUnit,
          static_cast<double>(load.row_contexts) / kContextUnit};
}

void TimeModel::Observe(const StepLoad& load, double ms) {
  if (!std::isfinite(ms) || ms < 0) return;
  // A step that was held up by something else says nothing about its rows.
  if (observations_ > 8 && ms > 10 * Predict(load)) ms = 10 * Predict(load);
  const std::array<double, 3> x = Features(load);
  std::array<double, 3> gain;
  for (size_t i = 0; i < 3; ++i) gain[i] = Dot(covariance_[i], x);
  const double scale = kForgetting + Dot(gain, x);
  const double error = ms - Dot(weights_, x);
  const auto before = gain;
  for (double& g : gain) g /= scale;
  for (size_t i = 0; i < 3; ++i) {
    weights_[i] += gain[i] * error;
    for (size_t j = 0; j < 3; ++j) {
      covariance_[i][j] = (covariance_[i][j] - gain[i] * before[j]) / kForgetting;
    }
    // What is never excited must not grow for ever.
    covariance_[i][i] = std::min(covariance_[i][i], 1e6);
  }
  ++observations_;
}

double TimeModel::Predict(const StepLoad& load) const {
  const std::array<double, 3> x = Features(load);
  double ms = 0;
  for (size_t i = 0; i < 3; ++i) ms += std::max(weights_[i], 0.0) * x[i];
  return ms;
}

int64_t TimeModel::RowsWithin(double ms, const StepLoad& load, int64_t first, int64_t most) const {
  if (observations_ == 0) return most;
  const auto fits = [&](int64_t rows) {
    const int64_t contexts = rows * first + rows * (rows - 1) / 2;
    return Predict({load.rows + rows, load.row_contexts + contexts}) <= ms;
  };
  int64_t low = 0, high = most;  // fits(low) or low = 0; the answer is in [low, high]
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace kuruma::scheduler
