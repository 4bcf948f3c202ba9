// The DSpark draft module: a block of guessed tokens after an anchor, from rows that the backbone
// left in the draft windows. Source: specification of the text path, section "DSpark".
#include <algorithm>
#include <memory>

#include "model/forward/pass.h"

namespace kuruma::model {
namespace {

// Anchor and noise tokens of every input, positions start .. start + block - 1.
Batch EmbedBlocks(const Context& ctx, std::span<const DraftInput> inputs) {
  const ModelConfig& c = ctx.config;
  Batch batch;
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t start = inputs[i].state->position();
    batch.segments.push_back({i, nullptr, batch.rows(), c.draft.block_size, start});
    for (int k = 0; k < c.draft.block_size; ++k) {
      batch.positions.push_back(start + k);
      tokens.push_back(k == 0 ? inputs[i].anchor : c.draft.noise_token);
    }
  }
  EmbedTokens(ctx, tokens, &batch);
  return batch;
}

// Every row of a block sees the sequence's last `window` draft rows and the whole block.
WindowLists BlockWindows(const Context& ctx, std::span<const DraftInput> inputs, int64_t ring,
                         const WindowChunk& chunk, const Batch& batch) {
  WindowLists lists(batch.rows());
  for (const Segment& s : batch.segments) {
    std::vector<const std::byte*> rows;
    for (int64_t p = std::max<int64_t>(0, s.first_position - ctx.config.window);
         p < s.first_position; ++p) {
      rows.push_back(inputs[s.input].state->WindowRow(ring, p));
    }
    for (int64_t r = s.begin; r < s.begin + s.rows; ++r) rows.push_back(chunk.row(r));
    for (int64_t r = s.begin; r < s.begin + s.rows; ++r) lists[r] = rows;
  }
  return lists;
}

void Stage(const Context& ctx, std::span<const DraftInput> inputs, int stage, Batch* batch) {
  const Workspace::Scope scope(ctx.workspace);
  const LayerWeights& w = ctx.weights.draft->stages[stage];
  const int ring = ctx.config.layers + stage;
  const Rows streams = batch->streams.view();
  const Rows u = ctx.CollapseAndNorm(streams, batch->pre.view(), w.attn_norm);
  const WindowChunk chunk = MakeWindowRows(ctx, w.attn, RopeKind::kWindow, *batch, u);
  const kernels::HcMix mix = MixCoefficients(ctx, w.hc_attn, streams);
  const Queries queries = MakeQueries(ctx, w.attn, RopeKind::kWindow, *batch, u);
  const WindowLists windows = BlockWindows(ctx, inputs, ring, chunk, *batch);
  Rows y = ctx.workspace.Take(batch->rows(), ctx.config.hidden);
  AttendAndProject(ctx,
                   {.weights = &w.attn,
                    .kind = RopeKind::kWindow,
                    .layer = ring,
                    .entries = nullptr,
                    .windows = &windows},
                   *batch, queries.q, y);
  ctx.ops.hc_expand(ctx.pool, y, mix, ctx.numerics.bf16, streams);
  FeedForwardHalf(ctx, w, ring, mix.pre, batch);
}

// Adds the Markov bias of the token before each draft, left to right, and chooses the drafts.
// `features` [rows, hidden + rank] receives the embedding of that token in its last columns.
void ChooseTokens(const Context& ctx, std::span<const DraftInput> inputs,
                  const DraftChooser& choose, Rows features, DraftResult* result) {
  const DraftWeights& w = *ctx.weights.draft;
  const int block = ctx.config.draft.block_size;
  const int64_t vocab = ctx.config.vocab, rank = ctx.config.draft.markov_rank;
  const auto count = static_cast<int64_t>(inputs.size());
  Rows embedded = ctx.workspace.Take(count, rank), bias = ctx.workspace.Take(count, vocab);
  for (int k = 0; k < block; ++k) {
    for (int64_t i = 0; i < count; ++i) {
      const int32_t previous = k == 0 ? inputs[i].anchor : result->tokens[i * block + k - 1];
      kernels::DequantizeRow(w.markov_embed, previous, embedded.row(i));
      std::copy_n(embedded.row(i), rank, features.row(i * block + k) + ctx.config.hidden);
    }
    ctx.MatMul({{w.markov_head, embedded, bias}});
    for (int64_t i = 0; i < count; ++i) {
      float* logits = result->logits.data() + (i * block + k) * vocab;
      for (int64_t v = 0; v < vocab; ++v) logits[v] += bias.row(i)[v];
      result->tokens[i * block + k] = choose(i, k, {logits, static_cast<size_t>(vocab)});
    }
  }
}

}  // namespace

void DraftPass(const Context& ctx, std::span<const DraftInput> inputs, const DraftChooser& choose,
               DraftResult* result) {
  const Workspace::Scope scope(ctx.workspace);
  const DraftWeights& w = *ctx.weights.draft;
  const int64_t hidden = ctx.config.hidden;
  Batch batch = EmbedBlocks(ctx, inputs);
  for (size_t stage = 0; stage < w.stages.size(); ++stage) {
    Stage(ctx, inputs, static_cast<int>(stage), &batch);
  }
  result->tokens.resize(batch.rows());
  result->logits.resize(batch.rows() * ctx.config.vocab);
  result->confidence_logits.resize(batch.rows());
  // Confidence reads the collapsed streams before the norm, beside the Markov embedding.
  Rows features = ctx.workspace.Take(batch.rows(), hidden + ctx.config.draft.markov_rank);
  Rows x = features.Columns(0, hidden);
  ctx.ops.hc_collapse(ctx.pool, batch.streams.view(), batch.pre.view(), ctx.numerics.bf16, x);
  Rows h = ctx.workspace.Take(batch.rows(), hidden);
  ctx.ops.rms_norm(ctx.pool, x, w.norm, {ctx.config.norm_eps, ctx.numerics.bf16}, h);
  ctx.MatMul({{ctx.weights.head, h, {result->logits.data(), batch.rows(), ctx.config.vocab}}});
  ChooseTokens(ctx, inputs, choose, features, result);
  ctx.MatMul({{w.confidence, features, {result->confidence_logits.data(), batch.rows(), 1}}});
}

}  // namespace kuruma::model
