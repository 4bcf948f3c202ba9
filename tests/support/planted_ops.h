// Kernels with a mistake planted, for tests that must notice it.
#ifndef KURUMA_TESTS_SUPPORT_PLANTED_OPS_H_
#define KURUMA_TESTS_SUPPORT_PLANTED_OPS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/dispatch.h"
#include "kernels/formats.h"
#include "kernels/ops.h"

namespace kuruma::testing {

// A product that adds up in another order when several rows are there.
inline void OrderDependentMatMul(ThreadPool& pool, std::span<const kernels::MatMulTask> tasks) {
  std::vector<float> row;
  for (const kernels::MatMulTask& task : tasks) {
    if (task.x.rows <= 1) {
      kernels::ReferenceOps().matmul(pool, {&task, 1});
      continue;
    }
    row.resize(task.weight.cols);
    for (int64_t n = 0; n < task.weight.rows; ++n) {
      kernels::DequantizeRow(task.weight, n, row.data());
      for (int64_t m = 0; m < task.x.rows; ++m) {
        float sum = 0;
        for (int64_t k = task.weight.cols - 1; k >= 0; --k) sum += task.x.row(m)[k] * row[k];
        task.y.row(m)[n] = task.round_bf16 ? kernels::RoundBf16(sum) : sum;
      }
    }
  }
}

// The reference kernels with that product: results depend on what shares a step.
inline kernels::OpTable OrderDependentOps() {
  kernels::OpTable ops = kernels::ReferenceOps();
  ops.matmul = OrderDependentMatMul;
  return ops;
}

}  // namespace kuruma::testing

#endif  // KURUMA_TESTS_SUPPORT_PLANTED_OPS_H_
