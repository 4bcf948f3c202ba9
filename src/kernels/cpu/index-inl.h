// Scores of compressed entries.
#ifndef KURUMA_KERNELS_CPU_INDEX_INL_H_
#define KURUMA_KERNELS_CPU_INDEX_INL_H_

#include <span>

#include "kernels/cpu/expand-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/ops.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

constexpr int64_t kIndexBlock = 64;   // keys expanded at a time
constexpr int64_t kIndexItem = 256;   // keys of one unit of parallel work
constexpr int64_t kIndexQueries = 8;  // queries of one sequence that share expanded keys
constexpr int64_t kIndexPad = 16;     // floats between expanded keys

// Scores of up to eight keys from their dots, heads ascending. dots [heads, stride].
KURUMA_INLINE F32x8 CombineHeads(const IndexSpec& spec, const float* dots, int64_t stride,
                                 const float* weights) {
  F32x8 sum = Zero();
  for (int64_t h = 0; h < spec.heads; ++h) {
    const F32x8 dot = Load(dots + h * stride);
    const F32x8 weight = Set(weights[h]);
    if (spec.single_round) {
      sum = Fma(Max(Zero(), dot), weight, sum);
    } else {
      sum = Add(sum, RoundToBf16(Mul(Max(Zero(), RoundToBf16(dot)), weight)));
    }
  }
  return MaybeBf16(sum, spec.round_bf16);
}

// Scores of the keys from `first` on that are expanded in `keys`, at most kIndexBlock.
void ScoreBlock(const IndexSpec& spec, const IndexQuery& query, const ConstRows& keys,
                int64_t first) {
  const Rows dots(ThreadScratch().logits.Get(spec.heads * kIndexBlock), spec.heads, kIndexBlock);
  DotKeys(keys, {query.q, spec.heads, spec.dim}, dots);
  for (int64_t j = 0; j < keys.rows; j += 8) {
    const F32x8 scores = CombineHeads(spec, dots.data + j, kIndexBlock, query.weights);
    StoreUpTo(query.scores + first + j, scores, keys.rows - j);
  }
}

// Consecutive queries of one sequence, scored together so that a key is expanded once for them.
struct QueryRun {
  const IndexQuery* queries = nullptr;
  int64_t count = 0;
  int64_t visible = 0;  // the most any of them sees

  int64_t items() const { return (visible + kIndexItem - 1) / kIndexItem; }
};

QueryRun NextRun(const IndexQuery* queries, int64_t left) {
  QueryRun run{queries, 0, 0};
  while (run.count < Lesser(left, kIndexQueries) &&
         queries[run.count].blocks == queries[0].blocks) {
    run.visible = Greater(run.visible, queries[run.count].visible);
    ++run.count;
  }
  return run;
}

void ScoreItem(const IndexSpec& spec, const QueryRun& run, int64_t item) {
  const int64_t stride = spec.dim + kIndexPad;
  float* keys = ThreadScratch().weights.Get(kIndexBlock * stride);
  const int64_t end = Lesser(run.visible, (item + 1) * kIndexItem);
  for (int64_t first = item * kIndexItem; first < end; first += kIndexBlock) {
    const int64_t count = Lesser(kIndexBlock, end - first);
    for (int64_t j = 0; j < count; ++j) {
      const std::byte* row = spec.keys.row(run.queries->blocks, first + j);
      ExpandRow(spec.keys.format, row, spec.dim, keys + j * stride);
    }
    for (int64_t i = count * stride; i < (count + 3) / 4 * 4 * stride; ++i) keys[i] = 0;
    for (int64_t q = 0; q < run.count; ++q) {
      const int64_t seen = Lesser(count, run.queries[q].visible - first);
      if (seen > 0) ScoreBlock(spec, run.queries[q], {keys, seen, spec.dim, stride}, first);
    }
  }
}

void IndexScores(ThreadPool& pool, const IndexSpec& spec, std::span<const IndexQuery> queries) {
  KURUMA_CHECK(spec.dim % 8 == 0);
  const auto n = static_cast<int64_t>(queries.size());
  int64_t items = 0;
  for (int64_t i = 0; i < n;) {
    const QueryRun run = NextRun(queries.data() + i, n - i);
    items += run.items();
    i += run.count;
  }
  pool.ParallelFor(items, 1, [&](int64_t begin, int64_t end, int) {
    int64_t item = 0;
    for (int64_t i = 0; i < n && item < end;) {
      const QueryRun run = NextRun(queries.data() + i, n - i);
      for (int64_t k = Greater<int64_t>(0, begin - item); k < Lesser(run.items(), end - item);
           ++k) {
        ScoreItem(spec, run, k);
      }
      item += run.items();
      i += run.count;
    }
  });
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_INDEX_INL_H_
