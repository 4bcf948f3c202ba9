// Attention over selected cached rows.
#ifndef KURUMA_KERNELS_CPU_SPARSE_INL_H_
#define KURUMA_KERNELS_CPU_SPARSE_INL_H_

#include <span>

#include "kernels/cpu/expand-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/ops.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

constexpr int64_t kRowPad = 16;       // floats between expanded rows, against cache set conflicts
constexpr int64_t kValueBlock = 64;   // rows whose values stay in L2 for all heads
constexpr float kNoLogit = -3.0e38f;  // what padding holds: its probability is zero

KURUMA_INLINE int64_t Attended(const AttentionQuery& query) {
  return static_cast<int64_t>(query.window.size() + query.picks.size());
}

// This thread's memory for the rows of a query, with room up to a multiple of eight.
Rows RowMemory(const AttentionSpec& spec, const AttentionQuery& query) {
  const int64_t count = Attended(query);
  const int64_t stride = spec.head_dim + kRowPad;
  return {ThreadScratch().weights.Get((count + 7) / 8 * 8 * stride), count, spec.head_dim, stride};
}

// Rows [begin, end) of those a query attends, expanded; the last is followed by zero rows up to a
// multiple of eight.
void ExpandAttended(const AttentionSpec& spec, const AttentionQuery& query, int64_t begin,
                    int64_t end, const Rows& rows) {
  const auto window = static_cast<int64_t>(query.window.size());
  for (int64_t j = begin; j < end; ++j) {
    if (j < window) {
      ExpandRow(spec.window_format, query.window.data()[j], spec.head_dim, rows.row(j));
    } else {
      const std::byte* row = spec.compressed.row(query.blocks, query.picks.data()[j - window]);
      ExpandRow(spec.compressed.format, row, spec.head_dim, rows.row(j));
    }
  }
  if (end != rows.rows) return;
  float* const stop = rows.row((rows.rows + 7) / 8 * 8);
  for (float* p = rows.row(rows.rows); p < stop; ++p) *p = 0;
}

// Logits of one head to probabilities in place, up to a multiple of eight; returns the denominator.
float Softmax(float* logits, int64_t count, float scale, float sink, bool round) {
  F32x8 most = Set(kNoLogit);
  for (int64_t j = 0; j < count; j += 8) {
    Store(logits + j, Mul(Load(logits + j), Set(scale)));
    for (int64_t i = count; i < j + 8; ++i) logits[i] = kNoLogit;
    most = Max(most, Load(logits + j));
  }
  const float peak = ReduceMax(most);
  F32x8 sum = Zero();
  for (int64_t j = 0; j < count; j += 8) {
    const F32x8 p = Exp(Sub(Load(logits + j), Set(peak)));
    sum = Add(sum, p);
    Store(logits + j, MaybeBf16(p, round));
  }
  return ReduceAdd(sum) + ExpScalar(sink - peak);
}

// out [H, 8 V] += p [H, rows] . rows [rows, 8 V], rows in ascending order.
template <int H, int V>
KURUMA_INLINE void ValueTile(const ConstRows& rows, const ConstRows& p, const Rows& out) {
  F32x8 acc[H][V];
  KURUMA_UNROLL
  for (int h = 0; h < H; ++h) {
    KURUMA_UNROLL
    for (int v = 0; v < V; ++v) acc[h][v] = Load(out.row(h) + 8 * v);
  }
  const float* row = rows.data;
  for (int64_t j = 0; j < rows.rows; ++j, row += rows.stride) {
    F32x8 value[V];
    KURUMA_UNROLL
    for (int v = 0; v < V; ++v) value[v] = Load(row + 8 * v);
    KURUMA_UNROLL
    for (int h = 0; h < H; ++h) {
      const F32x8 weight = Set(p.row(h)[j]);
      KURUMA_UNROLL
      for (int v = 0; v < V; ++v) acc[h][v] = Fma(weight, value[v], acc[h][v]);
    }
  }
  KURUMA_UNROLL
  for (int h = 0; h < H; ++h) {
    KURUMA_UNROLL
    for (int v = 0; v < V; ++v) Store(out.row(h) + 8 * v, acc[h][v]);
  }
}

template <int V>
void ValueColumns(const ConstRows& rows, const ConstRows& p, const Rows& out) {
  for (int64_t h = 0; h < p.rows;) {
    const int64_t take = NextRows(p.rows - h);
    if (take == 3) ValueTile<3, V>(rows, p.Slice(h, 3), out.Slice(h, 3));
    if (take == 2) ValueTile<2, V>(rows, p.Slice(h, 2), out.Slice(h, 2));
    if (take == 1) ValueTile<1, V>(rows, p.Slice(h, 1), out.Slice(h, 1));
    h += take;
  }
}

// out [heads, dim] += p [heads, rows] . rows, in blocks of rows so that a block is read from L2 for
// every head.
void WeighRows(const ConstRows& rows, const ConstRows& p, const Rows& out) {
  for (int64_t begin = 0; begin < rows.rows; begin += kValueBlock) {
    const int64_t count = Lesser(kValueBlock, rows.rows - begin);
    const ConstRows block = rows.Slice(begin, count);
    const ConstRows weights = p.Columns(begin, count);
    int64_t c = 0;
    for (; c + 32 <= out.cols; c += 32) {
      ValueColumns<4>(block.Columns(c, 32), weights, out.Columns(c, 32));
    }
    for (; c < out.cols; c += 8) {
      ValueColumns<1>(block.Columns(c, 8), weights, out.Columns(c, 8));
    }
  }
}

// Heads [begin, end) of a query over its expanded rows.
void AttendHeads(const AttentionSpec& spec, const AttentionQuery& query, const ConstRows& rows,
                 int64_t begin, int64_t end) {
  const int64_t dim = spec.head_dim;
  const int64_t heads = end - begin;
  const Rows out(query.out + begin * dim, heads, dim);
  if (rows.rows == 0) {
    for (int64_t i = 0; i < heads * dim; ++i) out.data[i] = 0;
    return;
  }
  Scratch& scratch = ThreadScratch();
  const int64_t padded = (rows.rows + 7) / 8 * 8 + 8;
  const Rows p(scratch.logits.Get(heads * padded), heads, rows.rows, padded);
  float* denominators = scratch.results.Get(heads + heads * dim);
  const Rows sums(denominators + heads, heads, dim);
  DotKeys(rows, {query.q + begin * dim, heads, dim}, p);
  const float scale = static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(dim)));
  for (int64_t h = 0; h < heads; ++h) {
    denominators[h] = Softmax(p.row(h), rows.rows, scale, spec.sink[begin + h], spec.round_bf16);
  }
  for (int64_t i = 0; i < heads * dim; ++i) sums.data[i] = 0;
  WeighRows(rows, p, sums);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t c = 0; c < dim; c += 8) {
      const F32x8 result = Div(Load(sums.row(h) + c), Set(denominators[h]));
      Store(out.row(h) + c, MaybeBf16(result, spec.round_bf16));
    }
  }
}

// Many queries: one thread does a query whole. Few: rows, then heads, are split over the threads.
void Attention(ThreadPool& pool, const AttentionSpec& spec,
               std::span<const AttentionQuery> queries) {
  KURUMA_CHECK(spec.head_dim % 8 == 0);
  const auto n = static_cast<int64_t>(queries.size());
  if (pool.threads() == 1 || n >= 2 * pool.threads()) {
    pool.ParallelFor(n, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const AttentionQuery& query = queries.data()[i];
        const Rows rows = RowMemory(spec, query);
        ExpandAttended(spec, query, 0, rows.rows, rows);
        AttendHeads(spec, query, rows, 0, spec.heads);
      }
    });
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const AttentionQuery& query = queries.data()[i];
    const Rows rows = RowMemory(spec, query);
    pool.ParallelFor(rows.rows, RowsPerPart(spec.head_dim), [&](int64_t begin, int64_t end, int) {
      ExpandAttended(spec, query, begin, end, rows);
    });
    pool.ParallelFor(
        spec.heads, RowsPerPart(rows.rows * spec.head_dim / 4),
        [&](int64_t begin, int64_t end, int) { AttendHeads(spec, query, rows, begin, end); });
  }
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_SPARSE_INL_H_
