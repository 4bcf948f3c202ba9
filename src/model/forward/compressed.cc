// The compressed branch: pooling tokens into shared KV entries with index keys, and choosing the
// entries each query attends.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/forward/context.h"

namespace kuruma::model {
namespace {

// An entry that a pass finishes: entry `number` of the sequence of `segment`.
struct Entry {
  const Segment* segment;
  int64_t number;
};

size_t SourceIndex(const Context& ctx, int layer) {
  const auto& sources = ctx.config.kv_sources;
  return std::find(sources.begin(), sources.end(), layer) - sources.begin();
}

// Groups whose last token is among these rows, but for those that are stored already.
std::vector<Entry> FinishedEntries(const Batch& batch, int ratio) {
  std::vector<Entry> entries;
  for (const Segment& s : batch.segments) {
    const int64_t end = (s.first_position + s.rows) / ratio;
    const int64_t begin = std::max(s.first_position, s.state->stored) / ratio;
    for (int64_t j = begin; j < end; ++j) entries.push_back({&s, j});
  }
  return entries;
}

// Rows of `u` that entries of ratio 1 come from: all of them, unless some are stored already.
ConstRows RowsOf(const Context& ctx, const Batch& batch, ConstRows u,
                 const std::vector<Entry>& entries) {
  const auto count = static_cast<int64_t>(entries.size());
  if (count == batch.rows()) return u;
  const Rows rows = ctx.workspace.Take(count, u.cols);
  for (int64_t e = 0; e < count; ++e) {
    const Segment& s = *entries[e].segment;
    std::copy_n(u.row(s.begin + entries[e].number - s.first_position), u.cols, rows.row(e));
  }
  return rows;
}

// Compressor inputs of ratio > 1: products without rounding, pooled per group; unfinished groups
// wait in the tails. Returns the pooled rows, one per entry.
Rows PoolGroups(const Context& ctx, int layer, const Batch& batch, ConstRows u,
                const std::vector<Entry>& entries) {
  const CompressorWeights& w = *ctx.weights.layers[layer].attn.compressor;
  const int64_t d = ctx.config.head_dim;
  const int ratio = ctx.config.ratios[layer];
  const size_t source = SourceIndex(ctx, layer);
  Rows pooled = ctx.workspace.Take(static_cast<int64_t>(entries.size()), d);
  const Workspace::Scope scope(ctx.workspace);
  Rows kv = ctx.workspace.Take(batch.rows(), d), gate = ctx.workspace.Take(batch.rows(), d);
  ctx.MatMul({{w.wkv, u, kv}, {*w.wgate, u, gate}});
  Rows group_kv = ctx.workspace.Take(pooled.rows * ratio, d);
  Rows group_gate = ctx.workspace.Take(pooled.rows * ratio, d);
  for (int64_t e = 0; e < pooled.rows; ++e) {
    const Segment& s = *entries[e].segment;
    for (int t = 0; t < ratio; ++t) {
      const int64_t position = entries[e].number * ratio + t;
      const int64_t row = s.begin + position - s.first_position;
      const float* tail = s.state->TailRow(source, position);
      const bool waiting = position < s.first_position;
      std::copy_n(waiting ? tail : kv.row(row), d, group_kv.row(e * ratio + t));
      std::copy_n(waiting ? tail + d : gate.row(row), d, group_gate.row(e * ratio + t));
    }
  }
  ctx.ops.compress(ctx.pool, group_kv, group_gate, ctx.numerics.bf16, pooled);
  for (const Segment& s : batch.segments) {
    for (int64_t i = std::max<int64_t>(0, s.rows - ctx.layout.tail_slots); i < s.rows; ++i) {
      float* tail = s.state->TailRow(source, s.first_position + i);
      std::copy_n(kv.row(s.begin + i), d, tail);
      std::copy_n(gate.row(s.begin + i), d, tail + d);
    }
  }
  return pooled;
}

// Rotates row e by the position of the first token of entry e and stores it at `place`.
void RotateAndStore(const Context& ctx, const std::vector<Entry>& entries, int ratio,
                    const kernels::PagedRows& place, Rows rows) {
  Batch at;  // only positions and angles are used
  for (const Entry& entry : entries) at.positions.push_back(entry.number * ratio);
  FillAngles(ctx, &at);
  ctx.Rotate(at, RopeKind::kCompressed, 1, /*inverse=*/false, rows);
  ctx.pool.ParallelFor(rows.rows, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t e = begin; e < end; ++e) {
      const int64_t number = entries[e].number;
      std::byte* block = entries[e].segment->state->blocks.data()[number / place.rows_per_block];
      kernels::StoreRow(place.format, ctx.numerics.fp4_division,
                        {rows.row(e), static_cast<size_t>(rows.cols)},
                        block + place.offset + number % place.rows_per_block * place.row_bytes);
    }
  });
}

}  // namespace

void Compress(const Context& ctx, int layer, const Batch& batch, ConstRows u) {
  const Workspace::Scope scope(ctx.workspace);
  const CompressorWeights& w = *ctx.weights.layers[layer].attn.compressor;
  const SourceLayout& source = ctx.layout.Source(layer);
  const std::vector<Entry> entries = FinishedEntries(batch, source.ratio);
  const auto count = static_cast<int64_t>(entries.size());
  Rows latent;
  if (source.ratio > 1) {
    latent = PoolGroups(ctx, layer, batch, u, entries);
  } else {
    latent = ctx.workspace.Take(count, ctx.config.head_dim);
    if (count > 0) ctx.MatMul({ctx.Linear(RowsOf(ctx, batch, u, entries), w.wkv, latent)});
  }
  if (count == 0) return;
  ctx.Norm(latent, w.norm);
  ctx.trace.Values("latent", layer, latent);
  Rows keys = ctx.workspace.Take(count, ctx.config.index_dim);  // from the latent before rotation
  ctx.MatMul({ctx.Linear(latent, w.index_wk, keys)});
  ctx.Norm(keys, w.index_norm);
  RotateAndStore(ctx, entries, source.ratio, source.keys, keys);
  RotateAndStore(ctx, entries, source.ratio, source.entries, latent);
}

namespace {

// Index queries and head weights of some rows.
struct IndexQueries {
  Rows q;        // [rows, index_heads * index_dim], quantised and dequantised
  Rows weights;  // [rows, index_heads]
};

IndexQueries MakeIndexQueries(const Context& ctx, int layer, const Queries& queries, ConstRows u,
                              const Batch& batch) {
  const IndexerWeights& w = *ctx.weights.layers[layer].attn.indexer;
  const int64_t heads = ctx.config.index_heads, dim = ctx.config.index_dim;
  IndexQueries out{ctx.workspace.Take(batch.rows(), heads * dim),
                   ctx.workspace.Take(batch.rows(), heads)};
  ctx.MatMul({ctx.Linear(queries.low_quantized, w.wq_b, out.q),
              ctx.Linear(u, w.weights_proj, out.weights)});
  ctx.Rotate(batch, RopeKind::kCompressed, heads, /*inverse=*/false, out.q);
  const float scale = static_cast<float>(std::pow(static_cast<double>(dim), -0.5) *
                                         std::pow(static_cast<double>(heads), -0.5));
  const kernels::RowFormat format = ctx.layout.Source(ctx.config.KvSource(layer)).keys.format;
  ctx.pool.ParallelFor(batch.rows(), 4, [&](int64_t begin, int64_t end, int) {
    std::vector<std::byte> packed(kernels::RowBytes(format, heads * dim));
    for (int64_t r = begin; r < end; ++r) {
      // Quantisation groups divide the head size, so all heads can be packed as one row.
      kernels::StoreRow(format, ctx.numerics.fp4_division,
                        {out.q.row(r), static_cast<size_t>(heads * dim)}, packed.data());
      kernels::LoadRow(format, packed.data(), heads * dim, out.q.row(r));
      for (int64_t h = 0; h < heads; ++h) {
        const float scaled = out.weights.row(r)[h] * scale;
        out.weights.row(r)[h] = ctx.numerics.bf16 ? kernels::RoundBf16(scaled) : scaled;
      }
    }
  });
  return out;
}

// Whether a query over `visible` entries has a choice to make at `layer`.
bool NeedsScores(const ModelConfig& c, int layer, int64_t visible) {
  if (visible > c.index_topk) return true;
  const int64_t size = c.candidate_block_size;
  return layer == c.candidate_source && (visible + size - 1) / size > c.candidate_blocks;
}

// Picks (and pool) of one row from its scores; no scores: everything visible.
void SelectRow(const Context& ctx, int layer, int64_t row, std::span<const float> scores,
               Batch* batch) {
  const ModelConfig& c = ctx.config;
  if (layer == c.candidate_source) {
    batch->pools[row] =
        kernels::BuildCandidatePool(scores, c.candidate_block_size, c.candidate_blocks);
  }
  const bool restricted = c.candidate_source >= 0 && layer > c.candidate_source;
  batch->picks[row] = restricted ? kernels::SelectTopK(batch->pools[row].Mask(scores), c.index_topk)
                                 : kernels::SelectTopK(scores, c.index_topk);
}

}  // namespace

void Select(const Context& ctx, int layer, const Queries& queries, ConstRows u, Batch* batch) {
  const Workspace::Scope scope(ctx.workspace);
  const ModelConfig& c = ctx.config;
  const SourceLayout& source = ctx.layout.Source(c.KvSource(layer));
  batch->picks.resize(batch->rows());
  if (layer == c.candidate_source) batch->pools.resize(batch->rows());
  std::vector<const std::byte* const*> blocks(batch->rows());
  std::vector<int64_t> visible(batch->rows());
  bool any = ctx.trace.on();
  for (const Segment& s : batch->segments) {
    for (int64_t r = s.begin; r < s.begin + s.rows; ++r) {
      blocks[r] = s.state->blocks.data();
      visible[r] = (batch->positions[r] + 1) / source.ratio;
      any = any || NeedsScores(c, layer, visible[r]);
    }
  }
  // Without a choice anywhere the selection is "all visible" whatever the scores.
  IndexQueries index;
  if (any) index = MakeIndexQueries(ctx, layer, queries, u, *batch);
  const kernels::IndexSpec spec{.heads = c.index_heads,
                                .dim = c.index_dim,
                                .keys = source.keys,
                                .single_round = ctx.numerics.index_single_round,
                                .round_bf16 = ctx.numerics.bf16};
  // Score in slices, so that memory stays bounded however long the context is.
  constexpr int64_t kSliceFloats = int64_t{4} << 20;
  for (int64_t begin = 0; begin < batch->rows();) {
    const Workspace::Scope slice_scope(ctx.workspace);
    std::vector<kernels::IndexQuery> slice;
    int64_t end = begin;
    for (int64_t floats = 0; end < batch->rows() && floats < kSliceFloats; ++end) {
      floats += visible[end];
      Rows scores = ctx.workspace.Take(1, visible[end]);
      if (any) {
        slice.push_back(
            {index.q.row(end), index.weights.row(end), scores.data, visible[end], blocks[end]});
      } else {
        std::fill_n(scores.data, visible[end], 0.0f);
        slice.push_back({nullptr, nullptr, scores.data, visible[end], blocks[end]});
      }
    }
    if (any) ctx.ops.index_scores(ctx.pool, spec, slice);
    ctx.pool.ParallelFor(end - begin, 1, [&](int64_t first, int64_t last, int) {
      for (int64_t i = first; i < last; ++i) {
        const auto count = static_cast<size_t>(slice[i].visible);
        SelectRow(ctx, layer, begin + i, {slice[i].scores, count}, batch);
      }
    });
    for (int64_t r = begin; r < end; ++r) {
      ctx.trace.Ids("index_picks", layer, r, batch->picks[r]);
      ctx.trace.Values("index_scores", layer, {slice[r - begin].scores, 1, visible[r]});
    }
    begin = end;
  }
}

}  // namespace kuruma::model
