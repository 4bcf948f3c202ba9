// Compositions that every layer is written with, and the feed-forward half of a block.
#include <algorithm>

#include "model/forward/context.h"
#include "model/rope.h"

namespace kuruma::model {

ConstRows Context::Quantized(ConstRows x) const {
  if (!numerics.quantize_activations) return x;
  Rows y = workspace.Take(x.rows, x.cols);
  ops.quantize_fp8(pool, x, y);
  return y;
}

void Context::MatMul(std::initializer_list<kernels::MatMulTask> tasks) const {
  ops.matmul(pool, std::span(tasks.begin(), tasks.size()));
}

void Context::Norm(Rows x, const uint16_t* weight) const {
  ops.rms_norm(pool, x, weight, {config.norm_eps, numerics.bf16}, x);
}

void Context::Rotate(const Batch& batch, RopeKind kind, int64_t heads, bool inverse, Rows x) const {
  const int k = static_cast<int>(kind);
  const auto angles = [&](const OwnedRows& m) {
    return ConstRows(m.data.data(), batch.rows(), m.cols);
  };
  ops.rope(pool,
           {.heads = heads,
            .head_dim = x.cols / heads,
            .cos = angles(batch.cos[k]),
            .sin = angles(batch.sin[k]),
            .inverse = inverse,
            .round_bf16 = numerics.bf16},
           x);
}

Rows Context::CollapseAndNorm(ConstRows streams, ConstRows pre, const uint16_t* norm) const {
  Rows u = workspace.Take(streams.rows, config.hidden);
  ops.hc_collapse(pool, streams, pre, numerics.bf16, u);
  Norm(u, norm);
  return u;
}

void FillAngles(const Context& ctx, Batch* batch) {
  for (int kind = 0; kind < 2; ++kind) {
    const auto pairs = static_cast<int64_t>(ctx.frequencies[kind].size());
    batch->cos[kind].Resize(batch->rows(), pairs);
    batch->sin[kind].Resize(batch->rows(), pairs);
    RopeAngles(batch->positions, ctx.frequencies[kind], batch->cos[kind].view(),
               batch->sin[kind].view());
  }
}

void EmbedTokens(const Context& ctx, std::span<const int32_t> tokens, Batch* batch) {
  const int64_t hidden = ctx.config.hidden;
  const int n = ctx.config.streams;
  batch->streams.Resize(batch->rows(), n * hidden);
  batch->pre.Resize(batch->rows(), n);
  for (int64_t r = 0; r < batch->rows(); ++r) {
    float* streams = batch->streams.view().row(r);
    kernels::DequantizeRow(ctx.weights.embed, tokens[r], streams);
    for (int k = 1; k < n; ++k) std::copy_n(streams, hidden, streams + k * hidden);
    batch->pre.view().row(r)[0] = 1;
  }
  FillAngles(ctx, batch);
}

kernels::HcMix MixCoefficients(const Context& ctx, const HcWeights& w, ConstRows streams) {
  const int n = ctx.config.streams;
  const kernels::HcMix mix{.pre = ctx.workspace.Take(streams.rows, n),
                           .post = ctx.workspace.Take(streams.rows, n),
                           .comb = ctx.workspace.Take(streams.rows, n * n)};
  ctx.ops.hc_mix(ctx.pool,
                 {.fn = w.fn,
                  .scale = w.scale,
                  .base = w.base,
                  .streams = n,
                  .iterations = ctx.config.sinkhorn_iterations,
                  .norm_eps = ctx.config.norm_eps,
                  .eps = ctx.config.hc_eps},
                 streams, mix);
  return mix;
}

void FeedForwardHalf(const Context& ctx, const LayerWeights& w, int layer, ConstRows attention_pre,
                     Batch* batch) {
  const Workspace::Scope scope(ctx.workspace);
  Rows streams = batch->streams.view();
  const kernels::HcMix mix = MixCoefficients(ctx, w.hc_ffn, streams);
  const Rows u = ctx.CollapseAndNorm(streams, attention_pre, w.ffn_norm);
  Rows y = ctx.workspace.Take(batch->rows(), ctx.config.hidden);
  MixtureOfExperts(ctx, w.moe, layer, u, y);
  ctx.ops.hc_expand(ctx.pool, y, mix, ctx.numerics.bf16, streams);
  std::copy_n(mix.pre.data, mix.pre.rows * mix.pre.cols, batch->pre.data.data());
  ctx.trace.Values("ffn_pre", layer, mix.pre);
  ctx.trace.Values("ffn_post", layer, mix.post);
  ctx.trace.Values("ffn_comb", layer, mix.comb);
  ctx.trace.Values("ffn_in", layer, u);
  ctx.trace.Values("ffn_out", layer, y);
}

}  // namespace kuruma::model
