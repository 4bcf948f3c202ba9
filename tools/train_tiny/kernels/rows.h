// Loops over rows that every kernel here is made of.
//
// Sums over rows (gradients of weights) are taken in kParts fixed parts and added in order, so
// results do not depend on the number of threads.
#ifndef TRAIN_TINY_KERNELS_ROWS_H_
#define TRAIN_TINY_KERNELS_ROWS_H_

#include <ATen/Parallel.h>
#include <torch/extension.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace train_tiny {

using torch::Tensor;
constexpr int64_t kParts = 4;

// exp with a relative error below 2e-7; exactly 0 below -87. Written so that compilers vectorise
// it.
inline float Exp(float x) {
  const float clamped = std::min(std::max(x, -87.0f), 88.0f);
  const float n = std::nearbyintf(clamped * 1.44269504f);
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return x < -87.0f ? 0.0f : p * scale;
}

inline float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

template <typename F>
void ForRows(int64_t rows, const F& f) {
  at::parallel_for(0, rows, std::max<int64_t>(rows / 16, 64), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}

// f(row, sums): each part adds into its own `width` sums; returns their total.
template <typename F>
Tensor SumRows(int64_t rows, int64_t width, const F& f) {
  const Tensor parts = torch::zeros({kParts, width});
  float* sums = parts.data_ptr<float>();
  at::parallel_for(0, kParts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      for (int64_t row = rows * part / kParts; row < rows * (part + 1) / kParts; ++row) {
        f(row, sums + part * width);
      }
    }
  });
  return parts.sum(0);
}

inline float Dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// hyper.cpp
std::vector<Tensor> HcSplit(const Tensor& raw, const Tensor& scale, const Tensor& base,
                            int64_t iterations, double eps);
// grads of pre, post, comb; inputs raw, scale, base. Returns gradients of the inputs.
std::vector<Tensor> HcSplitBackward(const std::vector<Tensor>& grads,
                                    const std::vector<Tensor>& inputs, int64_t iterations,
                                    double eps);
Tensor HcCollapse(const Tensor& x, const Tensor& pre);
std::vector<Tensor> HcCollapseBackward(const Tensor& dy, const Tensor& x, const Tensor& pre);
Tensor HcExpand(const Tensor& y, const Tensor& x, const Tensor& post, const Tensor& comb);
std::vector<Tensor> HcExpandBackward(const Tensor& grad, const Tensor& y, const Tensor& x,
                                     const Tensor& post, const Tensor& comb);

}  // namespace train_tiny

#endif  // TRAIN_TINY_KERNELS_ROWS_H_
