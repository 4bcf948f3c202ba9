// Choice and weights of experts.
#ifndef KURUMA_KERNELS_CPU_ROUTE_INL_H_
#define KURUMA_KERNELS_CPU_ROUTE_INL_H_

#include <cmath>

#include "kernels/cpu/shares-inl.h"
#include "kernels/ops.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

// sqrt(softplus(t)), softplus(t) = t beyond 20, in float64 because scores decide the choice.
KURUMA_INLINE float RouterScore(float logit) {
  const double t = logit;
  return static_cast<float>(__builtin_sqrt(t > 20 ? t : ::log1p(::exp(t))));
}

// ids of the `k` largest of `biased`, in falling order, equal values by lower id.
void TopExperts(const float* biased, int64_t experts, int64_t k, int32_t* ids) {
  int64_t have = 0;
  for (int64_t e = 0; e < experts; ++e) {
    int64_t at = have;
    while (at > 0 && biased[ids[at - 1]] < biased[e]) --at;
    if (at >= k) continue;
    if (have < k) ++have;
    for (int64_t i = have - 1; i > at; --i) ids[i] = ids[i - 1];
    ids[at] = static_cast<int32_t>(e);
  }
}

// One row: `scores` holds the logits and becomes the scores, `biased` is work memory.
void RouteRow(const RouterSpec& spec, float* scores, float* biased, int32_t* ids, float* weights) {
  const int64_t experts = spec.gate.rows;
  for (int64_t e = 0; e < experts; ++e) {
    scores[e] = RouterScore(scores[e]);
    biased[e] = spec.bias != nullptr ? scores[e] + spec.bias[e] : scores[e];
  }
  TopExperts(biased, experts, spec.top_k, ids);
  float sum = 0;
  for (int i = 0; i < spec.top_k; ++i) sum += scores[ids[i]];
  for (int i = 0; i < spec.top_k; ++i) {
    weights[i] = scores[ids[i]] / (sum + 1e-20f) * spec.scale;
  }
}

void Route(ThreadPool& pool, const RouterSpec& spec, ConstRows u, const RouterResult& out) {
  const int64_t experts = spec.gate.rows;
  KURUMA_CHECK(spec.top_k >= 1 && spec.top_k <= experts);
  float* work = ThreadScratch().logits.Get(2 * u.rows * experts);
  const Rows logits(work, u.rows, experts);
  const Rows biased(work + u.rows * experts, u.rows, experts);
  MatMulTask task;
  task.weight = spec.gate;
  task.x = u;
  task.y = logits;
  MatMul(pool, {&task, 1});
  pool.ParallelFor(u.rows, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float* with_bias = out.biased_scores.cols > 0 ? out.biased_scores.row(r) : biased.row(r);
      RouteRow(spec, logits.row(r), with_bias, out.ids.row(r), out.weights.row(r));
    }
  });
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_ROUTE_INL_H_
