// Operations on single rows: rotation, gated activation, sums, pooling.
#include <algorithm>
#include <vector>

#include "kernels/reference/reference.h"

namespace kuruma::kernels::reference {

void Rope(ThreadPool& pool, const RopeSpec& spec, Rows x) {
  const int64_t pairs = spec.cos.cols;
  pool.ParallelFor(x.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t head = 0; head < spec.heads; ++head) {
        float* tail = x.row(r) + (head + 1) * spec.head_dim - 2 * pairs;
        for (int64_t i = 0; i < pairs; ++i) {
          const double cos = spec.cos.row(r)[i];
          const double sin = spec.inverse ? -spec.sin.row(r)[i] : spec.sin.row(r)[i];
          const double even = tail[2 * i], odd = tail[2 * i + 1];
          tail[2 * i] = Round(even * cos - odd * sin, spec.round_bf16);
          tail[2 * i + 1] = Round(even * sin + odd * cos, spec.round_bf16);
        }
      }
    }
  });
}

void Swiglu(ThreadPool& pool, const SwigluSpec& spec, ConstRows gate, ConstRows up, Rows y) {
  pool.ParallelFor(y.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = 0; c < y.cols; ++c) {
        const double g = std::min(gate.row(r)[c], spec.limit);
        const double v = std::clamp(up.row(r)[c], -spec.limit, spec.limit);
        double act = g * Sigmoid(g) * v;
        if (spec.weights != nullptr) act *= spec.weights[r];
        y.row(r)[c] = Round(act, spec.round_bf16);
      }
    }
  });
}

void SumExperts(ThreadPool& pool, const ExpertSum& spec, ConstRows parts, Rows y) {
  pool.ParallelFor(y.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = 0; c < y.cols; ++c) {
        double sum = 0;
        for (int64_t i = 0; i < spec.index.cols; ++i) sum += parts.row(spec.index.row(r)[i])[c];
        y.row(r)[c] = Round(sum + spec.shared.row(r)[c], spec.round_bf16);
      }
    }
  });
}

void Compress(ThreadPool& pool, ConstRows kv, ConstRows gate, bool round_bf16, Rows y) {
  if (y.rows == 0) return;
  const int64_t ratio = kv.rows / y.rows;
  pool.ParallelFor(y.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin; g < end; ++g) {
      for (int64_t c = 0; c < y.cols; ++c) {
        double peak = gate.row(g * ratio)[c];
        for (int64_t t = 1; t < ratio; ++t) {
          peak = std::max<double>(peak, gate.row(g * ratio + t)[c]);
        }
        double sum = 0, weights = 0;
        for (int64_t t = 0; t < ratio; ++t) {
          weights += std::exp(gate.row(g * ratio + t)[c] - peak);
        }
        for (int64_t t = 0; t < ratio; ++t) {
          const double weight = std::exp(gate.row(g * ratio + t)[c] - peak);
          sum += kv.row(g * ratio + t)[c] * weight / weights;
        }
        y.row(g)[c] = Round(sum, round_bf16);
      }
    }
  });
}

}  // namespace kuruma::kernels::reference
