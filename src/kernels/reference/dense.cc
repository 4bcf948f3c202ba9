// Products, norm and activation quantisation.
#include <vector>

#include "kernels/reference/reference.h"

namespace kuruma::kernels::reference {
namespace {

double Dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

}  // namespace

void MatMul(ThreadPool& pool, std::span<const MatMulTask> tasks) {
  for (const MatMulTask& task : tasks) {
    pool.ParallelFor(task.weight.rows, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<float> row(task.weight.cols);
      for (int64_t n = begin; n < end; ++n) {
        DequantizeRow(task.weight, n, row.data());
        for (int64_t m = 0; m < task.x.rows; ++m) {
          task.y.row(m)[n] =
              Round(Dot(task.x.row(m), row.data(), task.weight.cols), task.round_bf16);
        }
      }
    });
  }
}

void RmsNorm(ThreadPool& pool, ConstRows x, const uint16_t* weight, NormSpec spec, Rows y) {
  pool.ParallelFor(x.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const double mean = Dot(x.row(r), x.row(r), x.cols) / static_cast<double>(x.cols);
      const double rstd = 1.0 / std::sqrt(mean + spec.eps);
      for (int64_t c = 0; c < x.cols; ++c) {
        y.row(r)[c] = Round(Bf16ToFloat(weight[c]) * (x.row(r)[c] * rstd), spec.round_bf16);
      }
    }
  });
}

void QuantizeFp8(ThreadPool& pool, ConstRows x, Rows y) {
  pool.ParallelFor(x.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      QuantizeDequantizeFp8({x.row(r), static_cast<size_t>(x.cols)}, y.row(r));
    }
  });
}

}  // namespace kuruma::kernels::reference
