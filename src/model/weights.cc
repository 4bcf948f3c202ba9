#include "model/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

namespace kuruma::model {
namespace {

using kernels::WeightFormat;

// Looks tensors up and keeps the first complaint; later look-ups return empty views.
class Finder {
 public:
  Finder(const Checkpoint& checkpoint, const ModelConfig& config)
      : checkpoint_(checkpoint), config_(config) {}

  const Status& status() const { return status_; }

  const float* F32(const std::string& name, std::vector<int64_t> shape) {
    const TensorInfo* info = Find(name, DType::kF32, shape);
    return info == nullptr ? nullptr : reinterpret_cast<const float*>(info->data);
  }

  const uint16_t* Bf16(const std::string& name, int64_t size) {
    const TensorInfo* info = Find(name, DType::kBf16, {size});
    return info == nullptr ? nullptr : reinterpret_cast<const uint16_t*>(info->data);
  }

  Matrix F32Matrix(const std::string& name, int64_t rows, int64_t cols) {
    return Plain(name, DType::kF32, WeightFormat::kF32, rows, cols);
  }

  Matrix Bf16Matrix(const std::string& name, int64_t rows, int64_t cols) {
    return Plain(name, DType::kBf16, WeightFormat::kBf16, rows, cols);
  }

  // `prefix`.weight with its `prefix`.scale, one scale per tile of the config's block size.
  Matrix Fp8Matrix(const std::string& prefix, int64_t rows, int64_t cols) {
    return Scaled({prefix, DType::kF8E4m3, WeightFormat::kFp8, config_.weight_block_rows,
                   config_.weight_block_cols},
                  rows, cols);
  }

  // The same with one scale per row and 32 columns: packed FP4 experts, FP8 table rows.
  Matrix RowScaledMatrix(const std::string& prefix, WeightFormat format, int64_t rows,
                         int64_t cols) {
    const DType dtype = format == WeightFormat::kFp4 ? DType::kI8 : DType::kF8E4m3;
    return Scaled({prefix, dtype, format, 1, 32}, rows, cols);
  }

  // BF16 or F32 values as floats; empty when only headers are there.
  std::vector<float> Floats(const std::string& name, std::vector<int64_t> shape) {
    const TensorInfo* found = checkpoint_.Find(name);
    const bool is_f32 = found != nullptr && found->dtype == DType::kF32;
    const TensorInfo* info = Find(name, is_f32 ? DType::kF32 : DType::kBf16, shape);
    if (info == nullptr || info->data == nullptr) return {};
    std::vector<float> values(info->bytes / (is_f32 ? 4 : 2));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = is_f32 ? reinterpret_cast<const float*>(info->data)[i]
                         : kernels::Bf16ToFloat(reinterpret_cast<const uint16_t*>(info->data)[i]);
    }
    return values;
  }

 private:
  struct ScaledKind {
    std::string prefix;
    DType dtype;
    WeightFormat format;
    int64_t block_rows;
    int64_t block_cols;
  };

  const TensorInfo* Find(const std::string& name, DType dtype, const std::vector<int64_t>& shape) {
    if (!status_.ok()) return nullptr;
    const TensorInfo* info = checkpoint_.Find(name);
    if (info == nullptr) {
      status_ = NotFound(fmt::format("{}: tensor {} is missing", checkpoint_.directory(), name));
      return nullptr;
    }
    if (info->dtype != dtype || info->shape != shape) {
      status_ = DataLoss(fmt::format("{}: tensor {}: is {}, config.json calls for {} [{}]",
                                     checkpoint_.FileOf(name), name, info->Describe(),
                                     DTypeName(dtype), fmt::join(shape, ", ")));
      return nullptr;
    }
    return info;
  }

  Matrix Plain(const std::string& name, DType dtype, WeightFormat format, int64_t rows,
               int64_t cols) {
    Matrix matrix{.format = format, .rows = rows, .cols = cols};
    const TensorInfo* info = Find(name, dtype, {rows, cols});
    if (info != nullptr) matrix.data = info->data;
    return matrix;
  }

  Matrix Scaled(const ScaledKind& kind, int64_t rows, int64_t cols) {
    Matrix matrix{.format = kind.format,
                  .rows = rows,
                  .cols = cols,
                  .block_rows = kind.block_rows,
                  .block_cols = kind.block_cols};
    const int64_t stored_cols = kind.format == WeightFormat::kFp4 ? cols / 2 : cols;
    const TensorInfo* weight = Find(kind.prefix + ".weight", kind.dtype, {rows, stored_cols});
    const int64_t tile_rows = (rows + kind.block_rows - 1) / kind.block_rows;
    const int64_t tile_cols = (cols + kind.block_cols - 1) / kind.block_cols;
    const TensorInfo* scale = Find(kind.prefix + ".scale", DType::kF8E8m0, {tile_rows, tile_cols});
    matrix.scale_stride = tile_cols;
    if (weight != nullptr) matrix.data = weight->data;
    if (scale != nullptr) matrix.scales = reinterpret_cast<const uint8_t*>(scale->data);
    return matrix;
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  Status status_;
};

HcWeights FindHc(Finder& f, const std::string& prefix, const ModelConfig& c) {
  const int64_t outputs = c.streams * (2 + c.streams);
  return {.fn = f.F32Matrix(prefix + "_fn", outputs, c.streams * c.hidden),
          .base = f.F32(prefix + "_base", {outputs}),
          .scale = f.F32(prefix + "_scale", {3})};
}

ExpertWeights FindExpert(Finder& f, const std::string& p, const ModelConfig& c, bool fp4) {
  const auto find = [&](const char* name, int64_t rows, int64_t cols) {
    return fp4 ? f.RowScaledMatrix(p + name, WeightFormat::kFp4, rows, cols)
               : f.Fp8Matrix(p + name, rows, cols);
  };
  return {.w1 = find("w1", c.expert_inner, c.hidden),
          .w3 = find("w3", c.expert_inner, c.hidden),
          .w2 = find("w2", c.hidden, c.expert_inner)};
}

MoeWeights FindMoe(Finder& f, const std::string& p, const ModelConfig& c, bool draft) {
  const int experts = draft ? c.draft.experts : c.experts;
  MoeWeights moe{.gate = f.Bf16Matrix(p + "gate.weight", experts, c.hidden),
                 .bias = f.F32(p + "gate.bias", {experts}),
                 .top_k = draft ? c.draft.top_k : c.top_k,
                 .experts = {},
                 .shared = FindExpert(f, p + "shared_experts.", c, /*fp4=*/false)};
  for (int e = 0; e < experts && f.status().ok(); ++e) {
    moe.experts.push_back(FindExpert(f, fmt::format("{}experts.{}.", p, e), c, /*fp4=*/true));
  }
  return moe;
}

AttentionWeights FindAttention(Finder& f, const std::string& p, const ModelConfig& c) {
  const int64_t group_cols = c.heads * c.head_dim / c.o_groups;
  return {.sink = f.F32(p + "attn_sink", {c.heads}),
          .wq_a = f.Fp8Matrix(p + "wq_a", c.q_lora, c.hidden),
          .q_norm = f.Bf16(p + "q_norm.weight", c.q_lora),
          .wq_b = f.Fp8Matrix(p + "wq_b", c.heads * c.head_dim, c.q_lora),
          .wkv = f.Fp8Matrix(p + "wkv", c.head_dim, c.hidden),
          .kv_norm = f.Bf16(p + "kv_norm.weight", c.head_dim),
          .wo_a = f.Fp8Matrix(p + "wo_a", c.o_groups * c.o_lora, group_cols),
          .wo_b = f.Fp8Matrix(p + "wo_b", c.hidden, c.o_groups * c.o_lora),
          .compressor = std::nullopt,
          .indexer = std::nullopt};
}

// Tensors that every block has, backbone or draft.
LayerWeights FindBlock(Finder& f, const std::string& p, const ModelConfig& c, bool draft) {
  return {.attn_norm = f.Bf16(p + "attn_norm.weight", c.hidden),
          .ffn_norm = f.Bf16(p + "ffn_norm.weight", c.hidden),
          .hc_attn = FindHc(f, p + "hc_attn", c),
          .hc_ffn = FindHc(f, p + "hc_ffn", c),
          .attn = FindAttention(f, p + "attn.", c),
          .moe = FindMoe(f, p + "ffn.", c, draft),
          .engram = std::nullopt};
}

CompressorWeights FindCompressor(Finder& f, const std::string& p, const ModelConfig& c, int ratio) {
  CompressorWeights w{.wkv = f.Bf16Matrix(p + "compressor.wkv.weight", c.head_dim, c.hidden),
                      .wgate = std::nullopt,
                      .norm = f.Bf16(p + "compressor.norm.weight", c.head_dim),
                      .index_wk = f.Bf16Matrix(p + "indexer.wk.weight", c.index_dim, c.head_dim),
                      .index_norm = f.Bf16(p + "indexer.k_norm.weight", c.index_dim)};
  if (ratio > 1) w.wgate = f.Bf16Matrix(p + "compressor.wgate.weight", c.head_dim, c.hidden);
  return w;
}

IndexerWeights FindIndexer(Finder& f, const std::string& p, const ModelConfig& c) {
  return {.wq_b = f.Fp8Matrix(p + "indexer.wq_b", c.index_heads * c.index_dim, c.q_lora),
          .weights_proj = f.Bf16Matrix(p + "indexer.weights_proj.weight", c.index_heads, c.hidden)};
}

EngramWeights FindEngram(Finder& f, const std::string& p, const ModelConfig& c, size_t which) {
  const EngramConfig& e = c.engram;
  EngramWeights w{
      .table = f.RowScaledMatrix(p + "embed", WeightFormat::kFp8, e.table_rows[which], e.head_dim),
      .wkv = f.Fp8Matrix(p + "wkv", c.hidden * (c.streams + 1), e.rows_per_token() * e.head_dim),
      .weight = f.Floats(p + "q_weight", {c.streams, c.hidden})};
  const std::vector<float> k_weight = f.Floats(p + "k_weight", {c.streams, c.hidden});
  if (k_weight.size() == w.weight.size()) {
    for (size_t i = 0; i < k_weight.size(); ++i) w.weight[i] *= k_weight[i];
  }
  return w;
}

LayerWeights FindLayer(Finder& f, const ModelConfig& c, int layer) {
  const std::string p = fmt::format("layers.{}.", layer);
  LayerWeights w = FindBlock(f, p, c, /*draft=*/false);
  if (Contains(c.kv_sources, layer)) {
    w.attn.compressor = FindCompressor(f, p + "attn.", c, c.ratios[layer]);
  }
  if (Contains(c.index_sources, layer)) w.attn.indexer = FindIndexer(f, p + "attn.", c);
  const auto engram = std::find(c.engram.layers.begin(), c.engram.layers.end(), layer);
  if (engram != c.engram.layers.end()) {
    w.engram = FindEngram(f, p + "engram.", c, engram - c.engram.layers.begin());
  }
  return w;
}

DraftWeights FindDraft(Finder& f, const ModelConfig& c) {
  const int64_t targets = static_cast<int64_t>(c.draft.target_layers.size());
  const std::string last = fmt::format("mtp.{}.", c.draft.stages - 1);
  DraftWeights w{
      .main_proj = f.Fp8Matrix("mtp.0.main_proj", c.hidden, targets * c.hidden),
      .main_norm = f.Bf16("mtp.0.main_norm.weight", c.hidden),
      .stages = {},
      .norm = f.Bf16(last + "norm.weight", c.hidden),
      .markov_embed = f.Bf16Matrix(last + "markov_head.embed.weight", c.vocab, c.draft.markov_rank),
      .markov_head = f.Bf16Matrix(last + "markov_head.head.weight", c.vocab, c.draft.markov_rank),
      .confidence =
          f.Bf16Matrix(last + "confidence_head.proj.weight", 1, c.hidden + c.draft.markov_rank)};
  for (int s = 0; s < c.draft.stages && f.status().ok(); ++s) {
    w.stages.push_back(FindBlock(f, fmt::format("mtp.{}.", s), c, /*draft=*/true));
  }
  return w;
}

}  // namespace

Result<ModelWeights> LoadWeights(const Checkpoint& checkpoint, const ModelConfig& config) {
  Finder f(checkpoint, config);
  ModelWeights weights{.embed = f.Bf16Matrix("embed.weight", config.vocab, config.hidden),
                       .head = f.Bf16Matrix("head.weight", config.vocab, config.hidden),
                       .norm = f.Bf16("norm.weight", config.hidden),
                       .layers = {},
                       .draft = std::nullopt};
  for (int layer = 0; layer < config.layers && f.status().ok(); ++layer) {
    weights.layers.push_back(FindLayer(f, config, layer));
  }
  if (config.draft.stages > 0 && f.status().ok()) weights.draft = FindDraft(f, config);
  KURUMA_RETURN_IF_ERROR(f.status());
  return weights;
}

}  // namespace kuruma::model
