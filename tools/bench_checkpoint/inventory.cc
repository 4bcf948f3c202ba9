#include "bench_checkpoint/inventory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace kuruma::bench_checkpoint {
namespace {

using Kind = Recipe::Kind;

// Sizes of the vision branch, which no preset but "released" stores.
constexpr int64_t kVisionBlocks = 32, kVisionDim = 1024, kVisionInner = 2816;
constexpr int64_t kPatchValues = 3 * 14 * 14, kAlignerIn = 9 * kVisionDim;

// Scales of neighbouring blocks are 1/2, 1 and 2 times a base; this is their root mean square.
constexpr double kScaleSpread = 1.3228756555322954;

// Standard deviation of the codes and base scale byte of a matrix whose values shall have the given
// deviation. `least`: smallest deviation of the codes, at most 2 * least.
std::pair<double, int> SplitDeviation(double deviation, double least) {
  const double wanted = deviation / kScaleSpread;
  const int exponent = static_cast<int>(std::floor(std::log2(wanted / least)));
  return {std::ldexp(wanted, -exponent), 127 + exponent};
}

// Collects tensors unit by unit. Gains are chosen as in the golden checkpoints: sublayers see
// inputs of unit variance and add a fraction of that to the streams.
class Inventory {
 public:
  explicit Inventory(const Shape& shape) : c_(shape.config), vision_(shape.vision) {}

  std::vector<Unit> Build() {
    Globals();
    for (int layer = 0; layer < c_.layers; ++layer) {
      units_.emplace_back();
      Block(fmt::format("layers.{}.", layer), c_.experts, Group::kDense);
      Compressed(layer);
      EngramProjection(layer);
    }
    if (c_.draft.stages > 0) DraftGlobals();
    for (int stage = 0; stage < c_.draft.stages; ++stage) {
      units_.emplace_back();
      Block(fmt::format("mtp.{}.", stage), c_.draft.experts, Group::kDraft);
    }
    EngramTables();
    return std::move(units_);
  }

 private:
  void Add(std::string name, Dtype dtype, std::vector<int64_t> shape, Recipe recipe, Group group) {
    if (draft_) group = Group::kDraft;
    units_.back().push_back({std::move(name), dtype, std::move(shape), group, std::move(recipe)});
  }

  void Bf16(std::string name, std::vector<int64_t> shape, double deviation, Group group) {
    Add(std::move(name), Dtype::kBf16, std::move(shape), {Kind::kNormal, 0, deviation}, group);
  }

  void F32(std::string name, std::vector<int64_t> shape, Recipe recipe, Group group) {
    Add(std::move(name), Dtype::kF32, std::move(shape), std::move(recipe), group);
  }

  void Norm(std::string name, int64_t size) {
    Add(std::move(name), Dtype::kBf16, {size}, {Kind::kNormal, 1, 0.2}, Group::kNorm);
  }

  // X.weight and X.scale; the product with an input of unit variance has deviation `gain`.
  void Fp8(const std::string& name, int64_t rows, int64_t cols, double gain,
           Group group = Group::kDense) {
    const auto [deviation, byte] = SplitDeviation(gain / std::sqrt(cols), 8);
    Add(name + ".weight", Dtype::kFp8, {rows, cols}, {Kind::kNormal, 0, deviation}, group);
    Add(name + ".scale", Dtype::kE8m0, {(rows + 31) / 32, (cols + 31) / 32},
        {Kind::kScales, byte - 1.0, 3}, group);
  }

  void Fp4(const std::string& name, int64_t rows, int64_t cols, double gain) {
    const auto [deviation, byte] = SplitDeviation(gain / std::sqrt(cols), 1.1);
    Add(name + ".weight", Dtype::kFp4, {rows, cols / 2}, {Kind::kNormal, 0, deviation},
        Group::kExperts);
    Add(name + ".scale", Dtype::kE8m0, {rows, cols / 32}, {Kind::kScales, byte - 1.0, 3},
        Group::kExperts);
  }

  void Globals() {
    const double d = static_cast<double>(c_.hidden);
    units_.emplace_back();
    Bf16("embed.weight", {c_.vocab, c_.hidden}, 1, Group::kEmbedding);
    if (vision_) Vision();
    units_.emplace_back();
    // Every token leans towards one successor, so greedy decoding has margins above rounding noise:
    // its logit is about 20 times the cosine of the hidden state and the token's embedding.
    Add("head.weight", Dtype::kBf16, {c_.vocab, c_.hidden},
        {Kind::kHead, 1.5 / std::sqrt(d), 20 / d, "embed.weight"}, Group::kHead);
    Norm("norm.weight", c_.hidden);
  }

  void Block(const std::string& p, int experts, Group group) {
    draft_ = group == Group::kDraft;
    HyperConnections(p);
    Attention(p + "attn.");
    const std::string f = p + "ffn.";
    const int64_t d = c_.hidden, inner = c_.expert_inner;
    Bf16(f + "gate.weight", {experts, d}, 2 / std::sqrt(d), Group::kRouter);
    F32(f + "gate.bias", {experts}, {Kind::kNormal, 0, 0.5}, Group::kRouter);
    F32(f + "gate.bias_vl", {experts}, {Kind::kNormal, 0, 0.2}, Group::kRouter);
    for (int e = 0; e < experts; ++e) {
      const std::string expert = fmt::format("{}experts.{}.", f, e);
      Fp4(expert + "w1", inner, d, 1.5);
      Fp4(expert + "w3", inner, d, 1.5);
      Fp4(expert + "w2", d, inner, 0.06);
    }
    Fp8(f + "shared_experts.w1", inner, d, 1.5);
    Fp8(f + "shared_experts.w3", inner, d, 1.5);
    Fp8(f + "shared_experts.w2", d, inner, 0.2);
    draft_ = false;
  }

  void HyperConnections(const std::string& p) {
    const int64_t n = c_.streams, mixes = n * (2 + n), width = n * c_.hidden;
    for (const char* site : {"attn", "ffn"}) {
      Norm(fmt::format("{}{}_norm.weight", p, site), c_.hidden);
      const std::string hc = fmt::format("{}hc_{}_", p, site);
      F32(hc + "fn", {mixes, width}, {Kind::kNormal, 0, 1 / std::sqrt(width)}, Group::kHyper);
      F32(hc + "base", {mixes}, {Kind::kHyperBase, 1.5, 0.7}, Group::kHyper);
      F32(hc + "scale", {3}, {Kind::kUniform, 0.3, 1.2}, Group::kHyper);
    }
  }

  void Attention(const std::string& a) {
    const int64_t all_heads = c_.heads * c_.head_dim, o_rows = c_.o_groups * c_.o_lora;
    F32(a + "attn_sink", {c_.heads}, {Kind::kNormal, 0, 1}, Group::kDense);
    Fp8(a + "wq_a", c_.q_lora, c_.hidden, 1);
    Norm(a + "q_norm.weight", c_.q_lora);
    Fp8(a + "wq_b", all_heads, c_.q_lora, 1.5);
    Fp8(a + "wkv", c_.head_dim, c_.hidden, 1);
    Norm(a + "kv_norm.weight", c_.head_dim);
    Fp8(a + "wo_a", o_rows, all_heads / c_.o_groups, 1);
    Fp8(a + "wo_b", c_.hidden, o_rows, 0.2);
  }

  void Compressed(int layer) {
    const std::string a = fmt::format("layers.{}.attn.", layer);
    const double d = static_cast<double>(c_.hidden), hd = static_cast<double>(c_.head_dim);
    if (std::ranges::count(c_.kv_sources, layer) > 0) {
      const std::vector<int64_t> shape = {c_.head_dim, c_.hidden};
      Bf16(a + "compressor.wkv.weight", shape, 1 / std::sqrt(d), Group::kCompressor);
      if (c_.ratios[layer] > 1) {
        Bf16(a + "compressor.wgate.weight", shape, 1.5 / std::sqrt(d), Group::kCompressor);
      }
      Norm(a + "compressor.norm.weight", c_.head_dim);
      Bf16(a + "indexer.wk.weight", {c_.index_dim, c_.head_dim}, 1 / std::sqrt(hd),
           Group::kCompressor);
      Norm(a + "indexer.k_norm.weight", c_.index_dim);
    }
    if (std::ranges::count(c_.index_sources, layer) > 0) {
      Fp8(a + "indexer.wq_b", c_.index_heads * c_.index_dim, c_.q_lora, 1);
      Bf16(a + "indexer.weights_proj.weight", {c_.index_heads, c_.hidden}, 1 / std::sqrt(d),
           Group::kCompressor);
    }
  }

  void EngramProjection(int layer) {
    if (std::ranges::count(c_.engram.layers, layer) == 0) return;
    const std::string p = fmt::format("layers.{}.engram.", layer);
    const int64_t width = c_.engram.rows_per_token() * c_.engram.head_dim;
    Fp8(p + "wkv", c_.hidden * (c_.streams + 1), width, 0.08, Group::kEngramDense);
    for (const auto& [name, mean] : {std::pair("q_weight", 1.0), std::pair("k_weight", 2.0)}) {
      Add(p + name, Dtype::kBf16, {c_.streams, c_.hidden}, {Kind::kNormal, mean, 0.3},
          Group::kNorm);
    }
  }

  void EngramTables() {
    for (size_t i = 0; i < c_.engram.layers.size(); ++i) {
      units_.emplace_back();
      const std::string p = fmt::format("layers.{}.engram.embed.", c_.engram.layers[i]);
      const int64_t rows = c_.engram.table_rows[i], dim = c_.engram.head_dim;
      // Values of deviation 1/8 to 4, as six scale bytes allow.
      Add(p + "weight", Dtype::kFp8, {rows, dim}, {Kind::kNormal, 0, 32}, Group::kEngramTable);
      Add(p + "scale", Dtype::kE8m0, {rows, dim / 32}, {Kind::kScales, 127 - 5 - 3, 6},
          Group::kEngramTable);
    }
  }

  void DraftGlobals() {
    units_.emplace_back();
    draft_ = true;
    const int64_t d = c_.hidden, rank = c_.draft.markov_rank;
    Fp8("mtp.0.main_proj", d, d * static_cast<int64_t>(c_.draft.target_layers.size()), 1);
    Norm("mtp.0.main_norm.weight", d);
    const std::string p = fmt::format("mtp.{}.", c_.draft.stages - 1);
    Norm(p + "norm.weight", d);
    Bf16(p + "markov_head.embed.weight", {c_.vocab, rank}, 1, Group::kDraft);
    Add(p + "markov_head.head.weight", Dtype::kBf16, {c_.vocab, rank},
        {Kind::kMarkovHead, 1 / std::sqrt(rank), 22.0 / static_cast<double>(rank),
         p + "markov_head.embed.weight"},
        Group::kDraft);
    Bf16(p + "confidence_head.proj.weight", {1, d + rank}, 1.5 / std::sqrt(d + rank),
         Group::kDraft);
    draft_ = false;
  }

  void VisionLinear(const std::string& name, int64_t rows, int64_t cols, bool bias) {
    Bf16(name + ".weight", {rows, cols}, 1 / std::sqrt(cols), Group::kVision);
    if (bias) Bf16(name + ".bias", {rows}, 0.02, Group::kVision);
  }

  void VisionNorm(const std::string& name) {
    Add(name, Dtype::kBf16, {kVisionDim}, {Kind::kNormal, 1, 0.2}, Group::kVision);
  }

  void Vision() {
    VisionLinear("vision.patch_embed.proj", kVisionDim, kPatchValues, true);
    for (int64_t i = 0; i < kVisionBlocks; ++i) {
      const std::string p = fmt::format("vision.blocks.{}.", i);
      VisionNorm(p + "norm1.weight");
      VisionLinear(p + "attn.wqkv", 3 * kVisionDim, kVisionDim, true);
      VisionLinear(p + "attn.wo", kVisionDim, kVisionDim, true);
      VisionNorm(p + "norm2.weight");
      VisionLinear(p + "mlp.w1", 2 * kVisionInner, kVisionDim, false);
      VisionLinear(p + "mlp.w2", kVisionDim, kVisionInner, false);
    }
    VisionNorm("vision.norm.weight");
    VisionLinear("aligner.w1", c_.hidden, kAlignerIn, true);
    VisionLinear("aligner.w2", c_.hidden, c_.hidden, true);
    for (const char* name : {"image_start", "image_end", "image_newline"}) {
      Bf16(name, {c_.hidden}, 1, Group::kVision);
    }
  }

  const model::ModelConfig& c_;
  bool vision_;
  bool draft_ = false;  // what is added now belongs to the draft stages
  std::vector<Unit> units_;
};

}  // namespace

const char* DtypeName(Dtype dtype) {
  constexpr const char* kNames[] = {"F32", "BF16", "F8_E4M3", "F8_E8M0", "I8"};
  return kNames[static_cast<int>(dtype)];
}

const char* GroupName(Group group) {
  constexpr const char* kNames[kGroups] = {"embedding",    "head",         "norm",   "hyper",
                                           "dense",        "experts",      "router", "compressor",
                                           "engram_dense", "engram_table", "draft",  "vision"};
  return kNames[static_cast<int>(group)];
}

int64_t Tensor::elements() const {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return n;
}

int64_t Tensor::bytes() const {
  const int64_t width = dtype == Dtype::kF32 ? 4 : dtype == Dtype::kBf16 ? 2 : 1;
  return elements() * width;
}

std::vector<Unit> MakeInventory(const Shape& shape) { return Inventory(shape).Build(); }

Totals Count(const std::vector<Unit>& units) {
  Totals totals;
  for (const Unit& unit : units) {
    totals.tensors += static_cast<int64_t>(unit.size());
    for (const Tensor& tensor : unit) totals.bytes += tensor.bytes();
  }
  return totals;
}

}  // namespace kuruma::bench_checkpoint
