#include "step_cost.h"

#include <algorithm>

namespace kuruma {
namespace {

using kernels::Matrix;

// Bytes and operations per row of matrices that every row uses.
struct Sum {
  int64_t bytes = 0;
  double flops = 0;

  void Add(const Matrix& m) {
    bytes += m.rows * m.row_bytes();
    if (m.scales != nullptr) bytes += (m.rows + m.block_rows - 1) / m.block_rows * m.scale_stride;
    flops += 2.0 * static_cast<double>(m.rows) * static_cast<double>(m.cols);
  }
  void Add(const model::ExpertWeights& expert) {
    Add(expert.w1);
    Add(expert.w3);
    Add(expert.w2);
  }
};

Sum DenseOf(const model::LayerWeights& w) {
  Sum sum;
  for (const Matrix* m : {&w.hc_attn.fn, &w.hc_ffn.fn, &w.attn.wq_a, &w.attn.wq_b, &w.attn.wkv,
                          &w.attn.wo_a, &w.attn.wo_b, &w.moe.gate}) {
    sum.Add(*m);
  }
  // Each group of the first output projection multiplies its own columns: rows x columns as stored.
  sum.Add(w.moe.shared);
  if (w.attn.compressor) {
    sum.Add(w.attn.compressor->wkv);
    if (w.attn.compressor->wgate) sum.Add(*w.attn.compressor->wgate);
    sum.Add(w.attn.compressor->index_wk);
  }
  if (w.attn.indexer) {
    sum.Add(w.attn.indexer->wq_b);
    sum.Add(w.attn.indexer->weights_proj);
  }
  if (w.engram) sum.Add(w.engram->wkv);
  return sum;
}

}  // namespace

CostModel::CostModel(const model::Model& model) : model_(model) {
  const model::ModelConfig& c = model.config();
  for (const model::LayerWeights& w : model.weights().layers) {
    const Sum dense = DenseOf(w);
    Sum expert;
    expert.Add(w.moe.experts.front());
    dense_bytes_ += dense.bytes;
    expert_bytes_.push_back(expert.bytes);
    row_flops_.push_back(dense.flops + c.top_k * expert.flops);
    if (w.engram) {
      engram_row_bytes_ +=
          c.engram.rows_per_token() * (c.engram.head_dim + w.engram->table.scale_stride);
    }
  }
  Sum head;
  head.Add(model.weights().head);
  head_bytes_ = head.bytes;
  head_flops_ = head.flops;
  dense_bytes_ += head_bytes_;
}

CostModel::Row CostModel::CacheOfRow(int layer, int64_t position) const {
  const model::ModelConfig& c = model_.config();
  const model::StateLayout& layout = model_.layout();
  const int64_t window_rows = std::min(position + 1, c.window);
  Row row{.cache_bytes = window_rows * layout.window_row_bytes};
  int64_t attended = window_rows;
  if (c.ratios[layer] > 0) {
    const model::SourceLayout& source = layout.Source(c.KvSource(layer));
    const int64_t visible = (position + 1) / source.ratio;
    const int64_t picked = std::min(visible, c.index_topk);
    attended += picked;
    row.cache_bytes += picked * source.entries.row_bytes;
    if (c.IndexSource(layer) == layer && visible > c.index_topk) {
      row.cache_bytes += visible * source.keys.row_bytes;
      row.flops += 2.0 * static_cast<double>(c.index_heads * c.index_dim * visible);
    }
  }
  row.flops += 4.0 * static_cast<double>(c.heads * c.head_dim * attended);  // scores and values
  return row;
}

StepCost CostModel::Step(std::span<const int64_t> positions,
                         const std::map<int, int64_t>& distinct_experts) const {
  StepCost cost{.dense_bytes = dense_bytes_};
  for (const auto& [layer, count] : distinct_experts) {
    cost.expert_bytes += count * expert_bytes_[layer];
  }
  for (const int64_t position : positions) {
    cost.cache_bytes += engram_row_bytes_;
    cost.flops += head_flops_;
    for (size_t layer = 0; layer < row_flops_.size(); ++layer) {
      const Row row = CacheOfRow(static_cast<int>(layer), position);
      cost.cache_bytes += row.cache_bytes;
      cost.flops += row_flops_[layer] + row.flops;
    }
  }
  return cost;
}

double CostModel::PromptFlops(int64_t tokens, model::PrefillMode mode, int64_t keep_tokens) const {
  const model::ModelConfig& c = model_.config();
  double flops = head_flops_;
  for (int layer = 0; layer < c.layers; ++layer) {
    int64_t rows = tokens;
    if (layer >= c.decoder_begin() && mode == model::PrefillMode::kExact) {
      rows = c.window + (c.layers - 1 - layer) * (c.window - 1);
    } else if (layer >= c.decoder_begin() && mode == model::PrefillMode::kCompact) {
      rows = keep_tokens > 0 ? keep_tokens : c.window;
    }
    rows = std::min(rows, tokens);
    flops += row_flops_[layer] * static_cast<double>(rows);
    for (int64_t p = tokens - rows; p < tokens; ++p) flops += CacheOfRow(layer, p).flops;
  }
  return flops;
}

}  // namespace kuruma
