// Attention over selected cached rows, and index scores.
#ifndef KURUMA_KERNELS_CPU_SPARSE_INL_H_
#define KURUMA_KERNELS_CPU_SPARSE_INL_H_

#include <span>

#include "kernels/cpu/expand-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/ops.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

constexpr int64_t kRowPad = 16;     // floats between expanded rows, against cache set conflicts
constexpr int64_t kValueBlock = 64; // rows whose values stay in L2 for all heads

KURUMA_INLINE int64_t Attended(const AttentionQuery& query) {
  return static_cast<int64_t>(query.window.size() + query.picks.size());
}

// Rows [begin, end) of those a query attends, expanded; the last is followed by zero rows up to a
// multiple of eight.
void ExpandAttended(const AttentionSpec& spec, const AttentionQuery& query, int64_t begin,
                    int64_t end, float* rows, int64_t stride) {
  const auto window = static_cast<int64_t>(query.window.size());
  for (int64_t j = begin; j < end; ++j) {
    float* to = rows + j * stride;
    if (j < window) {
      ExpandRow(spec.window_format, query.window.data()[j], spec.head_dim, to);
    } else {
      const std::byte* row = spec.compressed.row(query.blocks, query.picks.data()[j - window]);
      ExpandRow(spec.compressed.format, row, spec.head_dim, to);
    }
  }
  const int64_t count = Attended(query);
  if (end != count) return;
  for (int64_t i = count * stride; i < (count + 7) / 8 * 8 * stride; ++i) rows[i] = 0;
}

// Logits of one head to probabilities in place (padding becomes zero); returns the denominator.
float Softmax(float* logits, int64_t count, float scale, float sink, bool round) {
  F32x8 most = Set(-3.0e38f);
  for (int64_t j = 0; j < count; j += 8) {
    F32x8 l = Mul(Load(logits + j), Set(scale));
    if (count - j < 8) {
      Store(logits + j, l);
      for (int64_t i = count; i < j + 8; ++i) logits[i] = -3.0e38f;
      l = Load(logits + j);
    }
    Store(logits + j, l);
    most = Max(most, l);
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

// H heads by V vectors of the result, rows [0, count) in ascending order.
template <int H, int V>
KURUMA_INLINE void ValueTile(const FloatRows& rows, int64_t count, const float* p,
                             int64_t p_stride, float* out, int64_t out_stride) {
  F32x8 acc[H][V];
  KURUMA_UNROLL
  for (int h = 0; h < H; ++h) {
    KURUMA_UNROLL
    for (int v = 0; v < V; ++v) acc[h][v] = Load(out + h * out_stride + 8 * v);
  }
  const float* row = rows.x;
  for (int64_t j = 0; j < count; ++j, row += rows.stride) {
    F32x8 value[V];
    KURUMA_UNROLL
    for (int v = 0; v < V; ++v) value[v] = Load(row + 8 * v);
    KURUMA_UNROLL
    for (int h = 0; h < H; ++h) {
      const F32x8 weight = Set(p[h * p_stride + j]);
      KURUMA_UNROLL
      for (int v = 0; v < V; ++v) acc[h][v] = Fma(weight, value[v], acc[h][v]);
    }
  }
  KURUMA_UNROLL
  for (int h = 0; h < H; ++h) {
    KURUMA_UNROLL
    for (int v = 0; v < V; ++v) Store(out + h * out_stride + 8 * v, acc[h][v]);
  }
}

template <int V>
void ValueColumns(const FloatRows& rows, int64_t count, const float* p, int64_t p_stride,
                  int64_t heads, float* out, int64_t out_stride) {
  for (int64_t h = 0; h < heads;) {
    const int64_t left = heads - h;
    const int64_t take = left == 4 || left == 2 ? 2 : left == 1 ? 1 : 3;
    const float* ph = p + h * p_stride;
    float* to = out + h * out_stride;
    if (take == 3) ValueTile<3, V>(rows, count, ph, p_stride, to, out_stride);
    if (take == 2) ValueTile<2, V>(rows, count, ph, p_stride, to, out_stride);
    if (take == 1) ValueTile<1, V>(rows, count, ph, p_stride, to, out_stride);
    h += take;
  }
}

// out [heads, dim] += p . rows, rows in blocks so that a block is read from L2 for every head.
void WeighRows(const FloatRows& rows, int64_t count, const float* p, int64_t p_stride,
               int64_t heads, int64_t dim, float* out) {
  for (int64_t begin = 0; begin < count; begin += kValueBlock) {
    const int64_t some = Lesser(kValueBlock, count - begin);
    const float* first = rows.x + begin * rows.stride;
    int64_t c = 0;
    for (; c + 32 <= dim; c += 32) {
      ValueColumns<4>({first + c, rows.stride}, some, p + begin, p_stride, heads, out + c, dim);
    }
    for (; c < dim; c += 8) {
      ValueColumns<1>({first + c, rows.stride}, some, p + begin, p_stride, heads, out + c, dim);
    }
  }
}

// Heads [begin, end) of a query over its expanded rows.
void AttendHeads(const AttentionSpec& spec, const AttentionQuery& query, const FloatRows& rows,
                 int64_t begin, int64_t end) {
  const int64_t count = Attended(query);
  const int64_t dim = spec.head_dim;
  const int64_t heads = end - begin;
  float* out = query.out + begin * dim;
  if (count == 0) {
    for (int64_t i = 0; i < heads * dim; ++i) out[i] = 0;
    return;
  }
  Scratch& scratch = ThreadScratch();
  const int64_t padded = (count + 7) / 8 * 8 + 8;
  float* p = scratch.logits.Get(heads * padded);
  float* sums = scratch.results.Get(heads * dim + heads);
  float* denominators = sums + heads * dim;
  DotKeys(rows, count, {query.q + begin * dim, dim}, heads, dim, p, padded);
  const float scale = static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(dim)));
  for (int64_t h = 0; h < heads; ++h) {
    denominators[h] =
        Softmax(p + h * padded, count, scale, spec.sink[begin + h], spec.round_bf16);
  }
  for (int64_t i = 0; i < heads * dim; ++i) sums[i] = 0;
  WeighRows(rows, count, p, padded, heads, dim, sums);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t c = 0; c < dim; c += 8) {
      const F32x8 result = Div(Load(sums + h * dim + c), Set(denominators[h]));
      Store(out + h * dim + c, MaybeBf16(result, spec.round_bf16));
    }
  }
}

// Many queries: one thread does a query whole. Few: rows, then heads, are split over the threads.
void Attention(ThreadPool& pool, const AttentionSpec& spec,
               std::span<const AttentionQuery> queries) {
  KURUMA_CHECK(spec.head_dim % 8 == 0);
  const auto n = static_cast<int64_t>(queries.size());
  const int64_t stride = spec.head_dim + kRowPad;
  const auto room = [stride](const AttentionQuery& query) { return (Attended(query) + 8) * stride; };
  if (pool.threads() == 1 || n >= 2 * pool.threads()) {
    pool.ParallelFor(n, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const AttentionQuery& query = queries.data()[i];
        float* rows = ThreadScratch().weights.Get(room(query));
        ExpandAttended(spec, query, 0, Attended(query), rows, stride);
        AttendHeads(spec, query, {rows, stride}, 0, spec.heads);
      }
    });
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const AttentionQuery& query = queries.data()[i];
    float* rows = ThreadScratch().weights.Get(room(query));
    pool.ParallelFor(Attended(query), RowsPerPart(spec.head_dim),
                     [&](int64_t begin, int64_t end, int) {
      ExpandAttended(spec, query, begin, end, rows, stride);
    });
    pool.ParallelFor(spec.heads, RowsPerPart(Attended(query) * spec.head_dim / 4),
                     [&](int64_t begin, int64_t end, int) {
      AttendHeads(spec, query, {rows, stride}, begin, end);
    });
  }
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_SPARSE_INL_H_
