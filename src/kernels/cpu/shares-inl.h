// Which thread computes which output rows of a group of products.
#ifndef KURUMA_KERNELS_CPU_SHARES_INL_H_
#define KURUMA_KERNELS_CPU_SHARES_INL_H_

#include <span>

#include "kernels/cpu/matmul-inl.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

// One unit is about 20 ps of one core: a multiply-add of a full tile.
constexpr int64_t kShareUnits = 400'000;  // about 8 us: waking a worker costs a few
constexpr int64_t kShareRows = 4;         // boundaries fall on multiples of this
// Shares per thread: threads take them as they become free, so a core that another process uses
// delays a product by one share. Each share packs the activations anew, which many rows would feel.
constexpr int64_t kSharesFewRows = 4;
constexpr int64_t kSharesManyRows = 2;
constexpr int64_t kFewRows = 16;

// Reading and decoding a weight costs as much as this many multiply-adds.
KURUMA_INLINE int64_t DecodeUnits(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return 12;
    case WeightFormat::kBf16:
      return 6;
    default:
      return 4;
  }
}

KURUMA_INLINE int64_t RowUnits(const MatMulTask& task) {
  if (task.x.rows == 0) return 0;
  return task.weight.cols * (DecodeUnits(task.weight.format) + task.x.rows);
}

// The tasks' output rows laid end to end on an axis of units; shares are equal lengths of it.
struct ShareAxis {
  const MatMulTask* tasks = nullptr;
  int64_t count = 0;
  int64_t total = 0;
  int64_t shares = 1;

  // The row of a task whose units start at `start` where share `i` begins.
  int64_t Boundary(const MatMulTask& task, int64_t start, int64_t i) const {
    if (i == shares) return task.weight.rows;
    const int64_t offset = total / shares * i - start;
    if (offset <= 0) return 0;
    return Lesser(offset / RowUnits(task) / kShareRows * kShareRows, task.weight.rows);
  }

  void RunShare(int64_t i) const {
    PackedRows packed;
    int64_t start = 0;
    for (int64_t t = 0; t < count; ++t) {
      const MatMulTask& task = tasks[t];
      const int64_t row_units = RowUnits(task);
      if (row_units == 0) continue;
      const int64_t begin = Boundary(task, start, i);
      const int64_t end = Boundary(task, start, i + 1);
      if (begin < end) MultiplyTask(task, begin, end, packed);
      start += row_units * task.weight.rows;
    }
  }
};

void MatMul(ThreadPool& pool, std::span<const MatMulTask> tasks) {
  ShareAxis axis;
  axis.tasks = tasks.data();
  axis.count = static_cast<int64_t>(tasks.size());
  int64_t most_rows = 0;
  for (int64_t t = 0; t < axis.count; ++t) {
    axis.total += RowUnits(axis.tasks[t]) * axis.tasks[t].weight.rows;
    most_rows = Greater(most_rows, axis.tasks[t].x.rows);
  }
  const int64_t per_thread = most_rows <= kFewRows ? kSharesFewRows : kSharesManyRows;
  const int64_t most = pool.threads() == 1 ? 1 : per_thread * pool.threads();
  axis.shares = Greater<int64_t>(1, Lesser<int64_t>(most, axis.total / kShareUnits));
  pool.ParallelFor(axis.shares, 1, [&axis](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) axis.RunShare(i);
  });
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_SHARES_INL_H_
