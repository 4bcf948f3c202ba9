#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kuruma::model {

std::vector<float> RopeFrequencies(int64_t rope_dim, double theta, const RopeScaling* scaling) {
  const int64_t pairs = rope_dim / 2;
  const float base = static_cast<float>(theta);
  std::vector<float> frequencies(pairs);
  for (int64_t i = 0; i < pairs; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope_dim);
    const float power = static_cast<float>(std::pow(static_cast<double>(base), exponent));
    frequencies[i] = 1.0f / power;
  }
  if (scaling == nullptr) return frequencies;
  // Dimension whose wavelength makes `turns` turns over the original context.
  const auto turns_to_dim = [&](double turns) {
    return static_cast<double>(rope_dim) *
           std::log(static_cast<double>(scaling->original_positions) /
                    (turns * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  const double low = std::max(std::floor(turns_to_dim(scaling->beta_fast)), 0.0);
  const double high =
      std::min(std::ceil(turns_to_dim(scaling->beta_slow)), static_cast<double>(rope_dim - 1));
  const float width = static_cast<float>(std::max(high - low, 1e-3));
  const float factor = static_cast<float>(scaling->factor);
  for (int64_t i = 0; i < pairs; ++i) {
    const float ramp = (static_cast<float>(i) - static_cast<float>(low)) / width;
    const float keep = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
    frequencies[i] = frequencies[i] / factor * (1.0f - keep) + frequencies[i] * keep;
  }
  return frequencies;
}

void RopeAngles(std::span<const int64_t> positions, std::span<const float> frequencies, Rows cos,
                Rows sin) {
  for (size_t r = 0; r < positions.size(); ++r) {
    const float position = static_cast<float>(positions[r]);
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const double angle = position * frequencies[i];
      cos.row(r)[i] = static_cast<float>(std::cos(angle));
      sin.row(r)[i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace kuruma::model
