#include "model/forward/pass.h"

#include <algorithm>
#include <bit>

namespace kuruma::model {
namespace {

// Appends row `row` of `from` to `to`.
void AppendRow(const Batch& from, int64_t row, Batch* to) {
  to->positions.push_back(from.positions[row]);
  const auto append = [row](const OwnedRows& source, OwnedRows* target) {
    target->cols = source.cols;
    const auto begin = source.data.begin() + row * source.cols;
    target->data.insert(target->data.end(), begin, begin + source.cols);
  };
  append(from.streams, &to->streams);
  append(from.pre, &to->pre);
}

// Infinity and NaN are the numbers whose exponent has all bits set.
bool AnyNotFinite(std::span<const float> values) {
  uint32_t largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7FFFFFFF);
  }
  return largest >= 0x7F800000;
}

}  // namespace

Pass::Pass(const Context& ctx, const PrefillPlan& plan, std::span<const EngramHash> hashes,
           std::span<const int32_t> token_classes)
    : ctx_(ctx), plan_(plan), hashes_(hashes), token_classes_(token_classes) {}

bool Pass::RunsAllRows(size_t i) const {
  const SequenceInput& in = inputs_[i];
  return in.prompt_end == 0 || in.logits == LogitRows::kAll || plan_.mode == PrefillMode::kFull;
}

bool Pass::DecodesNow(size_t i) const {
  return RunsAllRows(i) || inputs_[i].state->position() >= inputs_[i].prompt_end;
}

int64_t Pass::NeededFrom(size_t i, int d) const {
  const SequenceInput& in = inputs_[i];
  if (RunsAllRows(i)) return 0;
  const int decoder_layers = ctx_.config.layers - ctx_.config.decoder_begin();
  if (d == decoder_layers) return in.prompt_end - (in.logits == LogitRows::kNone ? 0 : 1);
  if (plan_.mode == PrefillMode::kCompact) return in.prompt_end - plan_.keep_tokens;
  const int64_t window = ctx_.config.window;
  return in.prompt_end - (window + (decoder_layers - 1 - d) * (window - 1));
}

int64_t Pass::DecoderWindowBegin(size_t i, int64_t position) const {
  const SequenceInput& in = inputs_[i];
  int64_t begin = std::max(position - ctx_.config.window + 1, in.state->decoder_floor);
  if (plan_.mode == PrefillMode::kCompact && in.prompt_end > 0) {
    const int64_t cut = in.prompt_end - plan_.keep_tokens;
    if (position >= cut) begin = std::max(begin, cut);
  }
  return begin;
}

Batch Pass::Embed() const {
  Batch batch;
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const SequenceInput& in = inputs_[i];
    SequenceState& state = *in.state;
    const auto rows = static_cast<int64_t>(in.tokens.size());
    batch.segments.push_back({i, &state, batch.rows(), rows, state.position()});
    for (int64_t r = 0; r < rows; ++r) batch.positions.push_back(state.position() + r);
    tokens.insert(tokens.end(), in.tokens.begin(), in.tokens.end());
    state.tokens.insert(state.tokens.end(), in.tokens.begin(), in.tokens.end());
    state.blocks.Reserve(state.position());
  }
  EmbedTokens(ctx_, tokens, &batch);
  ctx_.trace.Values("embed", -1, batch.streams.view().Columns(0, ctx_.config.hidden));
  return batch;
}

void Pass::EnterLayer(int layer, Batch* batch) const {
  const auto& ids = ctx_.config.engram.layers;
  const auto which = std::find(ids.begin(), ids.end(), layer);
  if (which != ids.end()) {
    ApplyEngram(ctx_, layer, hashes_[which - ids.begin()], token_classes_, batch);
  }
  if (ctx_.trace.probe != nullptr && ctx_.trace.probe->layer_input) {
    ctx_.trace.probe->layer_input(layer, batch->streams.view(), batch->pre.view());
  }
  ctx_.trace.Values("streams_in", layer, batch->streams.view());
}

WindowLists Pass::Windows(int layer, const WindowChunk& chunk, const Batch& batch) const {
  const bool decoder = layer >= ctx_.config.decoder_begin();
  WindowLists lists(batch.rows());
  for (size_t i = 0; i < batch.segments.size(); ++i) {
    const Segment& s = batch.segments[i];
    const Segment& made = chunk.segments[i];
    for (int64_t r = s.begin; r < s.begin + s.rows; ++r) {
      const int64_t p = batch.positions[r];
      const int64_t begin = decoder ? DecoderWindowBegin(s.input, p)
                                    : std::max(s.state->window_floor, p - ctx_.config.window + 1);
      for (int64_t q = begin; q <= p; ++q) {
        lists[r].push_back(q >= made.first_position
                               ? chunk.row(made.begin + q - made.first_position)
                               : s.state->WindowRow(layer, q));
      }
    }
  }
  return lists;
}

void Pass::Layer(int layer, bool compress, const std::vector<int64_t>* keep_from, Batch* batch) {
  const Workspace::Scope scope(ctx_.workspace);
  const LayerWeights& w = ctx_.weights.layers[layer];
  const RopeKind kind = ctx_.Kind(layer);
  Rows u = ctx_.CollapseAndNorm(batch->streams.view(), batch->pre.view(), w.attn_norm);
  const WindowChunk chunk = MakeWindowRows(ctx_, w.attn, kind, *batch, u);
  ctx_.trace.Values("attn_in", layer, u);
  if (compress) Compress(ctx_, layer, *batch, u);
  if (keep_from != nullptr) batch->DropFront(*keep_from, &u);
  if (batch->rows() == 0) return CommitWindowRows(ctx_, chunk, layer);
  const kernels::HcMix mix = MixCoefficients(ctx_, w.hc_attn, batch->streams.view());
  const Queries queries = MakeQueries(ctx_, w.attn, kind, *batch, u);
  AttentionInput in{
      .weights = &w.attn, .kind = kind, .layer = layer, .entries = nullptr, .windows = nullptr};
  if (ctx_.config.ratios[layer] > 0) {
    in.entries = &ctx_.layout.Source(ctx_.config.KvSource(layer)).entries;
    if (w.attn.indexer) Select(ctx_, layer, queries, u, batch);
  }
  const WindowLists windows = Windows(layer, chunk, *batch);
  in.windows = &windows;
  Rows y = ctx_.workspace.Take(batch->rows(), ctx_.config.hidden);
  AttendAndProject(ctx_, in, *batch, queries.q, y);
  ctx_.ops.hc_expand(ctx_.pool, y, mix, ctx_.numerics.bf16, batch->streams.view());
  CommitWindowRows(ctx_, chunk, layer);
  ctx_.trace.Values("attn_out", layer, y);
  ctx_.trace.Values("attn_pre", layer, mix.pre);
  ctx_.trace.Values("attn_post", layer, mix.post);
  ctx_.trace.Values("attn_comb", layer, mix.comb);
  FeedForwardHalf(ctx_, w, layer, mix.pre, batch);
  LookForBroken(layer, batch);
  ctx_.trace.Values("streams_out", layer, batch->streams.view());
}

void Pass::LookForBroken(int layer, Batch* batch) {
  const Rows streams = batch->streams.view();
  broken_rows_.resize(static_cast<size_t>(batch->rows()));
  ctx_.pool.ParallelFor(batch->rows(), 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      broken_rows_[r] = AnyNotFinite({streams.row(r), static_cast<size_t>(streams.cols)});
    }
  });
  for (const Segment& s : batch->segments) {
    const auto rows = broken_rows_.begin() + s.begin;
    if (broken_layer_[s.input] < 0 && std::find(rows, rows + s.rows, 1) != rows + s.rows) {
      broken_layer_[s.input] = layer;
    }
  }
}

Batch Pass::TakeDecoderRows(Batch batch) const {
  Batch decoder;
  decoder.streams.cols = batch.streams.cols;
  decoder.pre.cols = batch.pre.cols;
  for (const Segment& s : batch.segments) {
    Carry& carry = s.state->carry;
    Batch rows;  // carried rows, then new ones, from the first one needed
    const int64_t needed = NeededFrom(s.input, 0);
    const int64_t begin = std::max(needed, s.first_position);
    if (carry.rows == 0) carry.first_position = begin;
    rows.streams = {std::move(carry.streams), batch.streams.cols};
    rows.pre = {std::move(carry.pre), batch.pre.cols};
    for (int64_t i = 0; i < carry.rows; ++i) rows.positions.push_back(carry.first_position + i);
    for (int64_t p = begin; p < s.first_position + s.rows; ++p) {
      AppendRow(batch, s.begin + p - s.first_position, &rows);
    }
    Segment mine{s.input, s.state, decoder.rows(), 0, carry.first_position};
    if (DecodesNow(s.input)) {
      mine.rows = rows.rows();
      const auto append = [](const OwnedRows& from, OwnedRows* to) {
        to->data.insert(to->data.end(), from.data.begin(), from.data.end());
      };
      append(rows.streams, &decoder.streams);
      append(rows.pre, &decoder.pre);
      decoder.positions.insert(decoder.positions.end(), rows.positions.begin(),
                               rows.positions.end());
      carry = Carry{};
    } else {
      carry.rows = rows.rows();
      carry.streams = std::move(rows.streams.data);
      carry.pre = std::move(rows.pre.data);
    }
    decoder.segments.push_back(mine);
  }
  FillAngles(ctx_, &decoder);
  return decoder;
}

void Pass::KeepForDraft(int layer, Batch* batch) {
  if (ctx_.config.draft.stages == 0 || !Contains(ctx_.config.draft.target_layers, layer)) return;
  const int64_t hidden = ctx_.config.hidden;
  const int n = ctx_.config.streams;
  Kept kept{.segments = batch->segments, .means = {}};
  kept.means.Resize(batch->rows(), hidden);
  const Rows streams = batch->streams.view(), means = kept.means.view();
  ctx_.pool.ParallelFor(batch->rows(), 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = 0; c < hidden; ++c) {
        double sum = 0;
        for (int k = 0; k < n; ++k) sum += streams.row(r)[k * hidden + c];
        const float mean = static_cast<float>(sum / n);
        means.row(r)[c] = ctx_.numerics.bf16 ? kernels::RoundBf16(mean) : mean;
      }
    }
  });
  kept_.push_back(std::move(kept));
}

void Pass::ExtendDraftWindows() {
  if (kept_.empty()) return;
  const Workspace::Scope scope(ctx_.workspace);
  const DraftWeights& w = *ctx_.weights.draft;
  const int64_t hidden = ctx_.config.hidden;
  // Rows present at the last target layer were present at the earlier ones; only the newest matter.
  Batch batch;
  const std::vector<Segment>& last = kept_.back().segments;
  for (const Segment& s : last) {
    const int64_t rows =
        ctx_.trace.on() ? s.rows : std::min<int64_t>(s.rows, ctx_.layout.window_slots);
    const int64_t first = s.first_position + s.rows - rows;
    batch.segments.push_back({s.input, s.state, batch.rows(), rows, first});
    for (int64_t r = 0; r < rows; ++r) batch.positions.push_back(first + r);
  }
  FillAngles(ctx_, &batch);
  Rows joined = ctx_.workspace.Take(batch.rows(), hidden * static_cast<int64_t>(kept_.size()));
  for (size_t t = 0; t < kept_.size(); ++t) {
    for (size_t i = 0; i < batch.segments.size(); ++i) {
      const Segment& s = batch.segments[i];
      const Segment& from = kept_[t].segments[i];
      for (int64_t r = 0; r < s.rows; ++r) {
        const int64_t row = from.begin + s.first_position + r - from.first_position;
        std::copy_n(kept_[t].means.view().row(row), hidden,
                    joined.row(s.begin + r) + static_cast<int64_t>(t) * hidden);
      }
    }
  }
  Rows main_x = ctx_.workspace.Take(batch.rows(), hidden);
  ctx_.MatMul({ctx_.Linear(ctx_.Quantized(joined), w.main_proj, main_x)});
  ctx_.Norm(main_x, w.main_norm);
  ctx_.trace.Values("main_hidden", -1, joined);
  ctx_.trace.Values("main_x", -1, main_x);
  for (size_t stage = 0; stage < w.stages.size(); ++stage) {
    const WindowChunk chunk =
        MakeWindowRows(ctx_, w.stages[stage].attn, RopeKind::kWindow, batch, main_x);
    CommitWindowRows(ctx_, chunk, ctx_.config.layers + static_cast<int64_t>(stage));
  }
}

void Pass::Logits(const Batch& batch, ForwardResult* result) const {
  const Workspace::Scope scope(ctx_.workspace);
  std::vector<int64_t> rows;
  result->vocab = ctx_.config.vocab;
  result->first_row.assign(1, 0);
  for (const Segment& s : batch.segments) {
    const LogitRows wanted = inputs_[s.input].logits;
    int64_t count = wanted == LogitRows::kAll ? static_cast<int64_t>(inputs_[s.input].tokens.size())
                                              : wanted == LogitRows::kLast;
    count = std::min(count, s.rows);
    for (int64_t r = s.rows - count; r < s.rows; ++r) rows.push_back(s.begin + r);
    result->first_row.push_back(static_cast<int64_t>(rows.size()));
  }
  const auto count = static_cast<int64_t>(rows.size());
  result->logits.resize(count * ctx_.config.vocab);
  if (count == 0) return;
  Rows streams = ctx_.workspace.Take(count, batch.streams.cols);
  Rows pre = ctx_.workspace.Take(count, batch.pre.cols);
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(batch.streams.data.data() + rows[i] * streams.cols, streams.cols, streams.row(i));
    std::copy_n(batch.pre.data.data() + rows[i] * pre.cols, pre.cols, pre.row(i));
  }
  const Rows h = ctx_.CollapseAndNorm(streams, pre, ctx_.weights.norm);
  const Rows logits(result->logits.data(), count, ctx_.config.vocab);
  ctx_.MatMul({{ctx_.weights.head, h, logits}});
  ctx_.trace.Values("final_hidden", -1, h);
  ctx_.trace.Values("logits", -1, logits);
}

void Pass::Run(std::span<const SequenceInput> inputs, ForwardResult* result) {
  inputs_ = inputs;
  broken_layer_.assign(inputs.size(), -1);
  const int layers = ctx_.config.layers, decoder_begin = ctx_.config.decoder_begin();
  Batch batch = Embed();
  for (int layer = 0; layer < decoder_begin; ++layer) {
    EnterLayer(layer, &batch);
    KeepForDraft(layer, &batch);
    Layer(layer, Contains(ctx_.config.kv_sources, layer), nullptr, &batch);
  }
  // Every token's global KV at the first decoder layer, whether or not its row goes on.
  EnterLayer(decoder_begin, &batch);
  if (Contains(ctx_.config.kv_sources, decoder_begin)) {
    const Workspace::Scope scope(ctx_.workspace);
    Compress(ctx_, decoder_begin, batch,
             ctx_.CollapseAndNorm(batch.streams.view(), batch.pre.view(),
                                  ctx_.weights.layers[decoder_begin].attn_norm));
  }
  batch = TakeDecoderRows(std::move(batch));
  const bool decodes = batch.rows() > 0;
  for (int layer = decoder_begin; layer < layers && batch.rows() > 0; ++layer) {
    if (layer > decoder_begin) EnterLayer(layer, &batch);
    KeepForDraft(layer, &batch);
    std::vector<int64_t> keep_from;
    for (const Segment& s : batch.segments) {
      keep_from.push_back(NeededFrom(s.input, layer + 1 - decoder_begin));
    }
    Layer(layer, /*compress=*/false, &keep_from, &batch);
  }
  if (decodes) ExtendDraftWindows();
  Logits(batch, result);
  result->broken_layer = broken_layer_;
  for (const SequenceInput& in : inputs) {
    if (in.prompt_end == 0 || in.state->position() < in.prompt_end) continue;
    if (plan_.mode == PrefillMode::kCompact) {
      in.state->decoder_floor =
          std::max(in.state->decoder_floor, in.prompt_end - plan_.keep_tokens);
    }
    if (plan_.mode != PrefillMode::kFull) in.state->truncate_floor = in.prompt_end;
  }
}

}  // namespace kuruma::model
