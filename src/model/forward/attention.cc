// Window rows, queries, sparse attention and the grouped output projection.
#include <algorithm>

#include "model/forward/context.h"

namespace kuruma::model {

WindowChunk MakeWindowRows(const Context& ctx, const AttentionWeights& w, RopeKind kind,
                           const Batch& batch, ConstRows u) {
  const Workspace::Scope scope(ctx.workspace);
  Rows rows = ctx.workspace.Take(batch.rows(), ctx.config.head_dim);
  ctx.MatMul({ctx.Linear(ctx.Quantized(u), w.wkv, rows)});
  ctx.Norm(rows, w.kv_norm);
  ctx.Rotate(batch, kind, 1, /*inverse=*/false, rows);
  WindowChunk chunk{.segments = batch.segments,
                    .rows = std::vector<std::byte>(rows.rows * ctx.layout.window_row_bytes),
                    .row_bytes = ctx.layout.window_row_bytes};
  ctx.pool.ParallelFor(rows.rows, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      kernels::StoreRow(ctx.layout.window_format, ctx.numerics.fp4_division,
                        {rows.row(r), static_cast<size_t>(rows.cols)},
                        chunk.rows.data() + r * chunk.row_bytes);
    }
  });
  return chunk;
}

void CommitWindowRows(const Context& ctx, const WindowChunk& chunk, int64_t ring) {
  for (const Segment& s : chunk.segments) {
    const int64_t first = std::max<int64_t>(0, s.rows - ctx.layout.window_slots);
    for (int64_t i = first; i < s.rows; ++i) {
      std::copy_n(chunk.row(s.begin + i), chunk.row_bytes,
                  s.state->MutableWindowRow(ring, s.first_position + i));
    }
  }
}

Queries MakeQueries(const Context& ctx, const AttentionWeights& w, RopeKind kind,
                    const Batch& batch, ConstRows u) {
  Queries out;
  out.low = ctx.workspace.Take(batch.rows(), ctx.config.q_lora);
  out.q = ctx.workspace.Take(batch.rows(), ctx.config.heads * ctx.config.head_dim);
  ctx.MatMul({ctx.Linear(ctx.Quantized(u), w.wq_a, out.low)});
  ctx.Norm(out.low, w.q_norm);
  out.low_quantized = ctx.Quantized(out.low);
  ctx.MatMul({ctx.Linear(out.low_quantized, w.wq_b, out.q)});
  ctx.Rotate(batch, kind, ctx.config.heads, /*inverse=*/false, out.q);
  return out;
}

namespace {

// y = wo_b . concat_g(wo_a[g] . o[g]). Released engine: both products take FP8 inputs and the
// intermediate stays float32; single-file reference: the first one is a bfloat16 product.
void ProjectOutput(const Context& ctx, const AttentionWeights& w, ConstRows o, Rows y) {
  const Workspace::Scope scope(ctx.workspace);
  const int64_t groups = ctx.config.o_groups, rank = ctx.config.o_lora;
  const int64_t group_cols = o.cols / groups;
  const bool fp8 = ctx.numerics.fp8_output_lora;
  const ConstRows in = fp8 ? ctx.Quantized(o) : o;
  Rows z = ctx.workspace.Take(o.rows, groups * rank);
  std::vector<kernels::MatMulTask> tasks;
  for (int64_t g = 0; g < groups; ++g) {
    tasks.push_back({w.wo_a.Slice(g * rank, rank), in.Columns(g * group_cols, group_cols),
                     z.Columns(g * rank, rank), ctx.numerics.bf16 && !fp8});
  }
  ctx.ops.matmul(ctx.pool, tasks);
  ctx.MatMul({ctx.Linear(ctx.Quantized(z), w.wo_b, y)});
}

}  // namespace

void AttendAndProject(const Context& ctx, const AttentionInput& in, const Batch& batch, ConstRows q,
                      Rows y) {
  const Workspace::Scope scope(ctx.workspace);
  const int64_t heads = ctx.config.heads;
  Rows o = ctx.workspace.Take(batch.rows(), q.cols);
  kernels::AttentionSpec spec{.heads = heads,
                              .head_dim = ctx.config.head_dim,
                              .sink = in.weights->sink,
                              .window_format = ctx.layout.window_format,
                              .compressed = {},
                              .round_bf16 = ctx.numerics.bf16};
  if (in.entries != nullptr) spec.compressed = *in.entries;
  std::vector<kernels::AttentionQuery> queries(batch.rows());
  for (const Segment& s : batch.segments) {
    for (int64_t r = s.begin; r < s.begin + s.rows; ++r) {
      queries[r] = {.q = q.row(r),
                    .out = o.row(r),
                    .window = (*in.windows)[r],
                    .picks = {},
                    .blocks = nullptr};
      if (in.entries == nullptr) continue;
      queries[r].picks = batch.picks[r];
      queries[r].blocks = s.state->blocks.data();
    }
  }
  ctx.ops.attention(ctx.pool, spec, queries);
  ctx.trace.Values("q", in.layer, q);
  ctx.trace.Values("attn_heads", in.layer, o);
  ctx.Rotate(batch, in.kind, heads, /*inverse=*/true, o);
  ProjectOutput(ctx, *in.weights, o, y);
}

}  // namespace kuruma::model
