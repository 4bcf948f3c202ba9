// Predicts how long a step takes, from the steps that were measured.
#ifndef KURUMA_SCHEDULER_TIME_MODEL_H_
#define KURUMA_SCHEDULER_TIME_MODEL_H_

#include <array>
#include <cstdint>

namespace kuruma::scheduler {

// What a step has to do, as far as time depends on it.
struct StepLoad {
  int64_t rows = 0;
  int64_t row_contexts = 0;  // sum over rows of their position: attention and index scores
};

// milliseconds = a + b rows + c row_contexts, fitted by recursive least squares that forgets slowly
// (a step counts half after about 70 more), coefficients kept from becoming negative. One thread.
class TimeModel {
 public:
  void Observe(const StepLoad& load, double ms);

  // 0 before the first observation.
  double Predict(const StepLoad& load) const;

  // The most prompt rows at positions from `first` on that may join `load` so that the prediction
  // stays within `ms`; at least 0, at most `most`. `most` while nothing is known.
  int64_t RowsWithin(double ms, const StepLoad& load, int64_t first, int64_t most) const;

 private:
  static std::array<double, 3> Features(const StepLoad& load);

  std::array<double, 3> weights_ = {};
  std::array<std::array<double, 3>, 3> covariance_ = {{{1e6, 0, 0}, {0, 1e6, 0}, {0, 0, 1e6}}};
  int64_t observations_ = 0;
};

}  // namespace kuruma::scheduler

#endif  // KURUMA_SCHEDULER_TIME_MODEL_H_
