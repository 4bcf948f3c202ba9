#include "bench_checkpoint/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench_checkpoint/inventory.h"
#include "model/engram_hash.h"

namespace kuruma::bench_checkpoint {
namespace {

using model::ModelConfig;

// What every preset shares with the released configuration.
ModelConfig Common() {
  ModelConfig c;
  c.bos_token = 0;
  c.eos_token = 1;
  c.pad_token = 2;
  c.swiglu_limit = 10;
  c.norm_eps = 1e-20;
  c.rope_theta = 10000;
  c.compress_rope_theta = 160000;
  c.has_rope_scaling = true;
  c.rope_scaling = {16, 32, 1, 65536};
  c.routed_scale = 1.5f;
  c.streams = 4;
  c.sinkhorn_iterations = 20;
  c.hc_eps = 1e-6;
  c.engram.max_ngram = 4;
  c.engram.pad_token = 2;
  return c;
}

// Ratios 0, 0, then 2 up to layer `decoder`, then 1.
void SetRatios(ModelConfig& c, int layers, int decoder) {
  c.layers = layers;
  c.ratios.assign(layers, 1);
  std::fill_n(c.ratios.begin(), decoder, 2);
  std::fill_n(c.ratios.begin(), 2, 0);
  c.candidate_source = decoder;
}

ModelConfig Nano() {
  ModelConfig c = Common();
  c.vocab = 256, c.hidden = 64, c.expert_inner = 32, c.heads = 4, c.head_dim = 32, c.rope_dim = 16;
  c.q_lora = 32, c.o_lora = 32, c.o_groups = 2, c.experts = 8, c.top_k = 2, c.window = 8;
  SetRatios(c, 9, 5);
  c.kv_sources = {2, 4, 5};
  c.index_sources = {2, 4, 5, 7};
  c.index_heads = 8, c.index_dim = 32, c.index_topk = 8;
  c.candidate_blocks = 4, c.candidate_block_size = 4;
  c.max_positions = 4096;
  c.rope_scaling.original_positions = 64;
  c.engram.layers = {1, 4};
  c.engram.prime_start = 61, c.engram.heads = 2, c.engram.head_dim = 32;
  c.draft = {2, 3, 0, {6, 7, 8}, 32, 4, 2};
  return c;
}

ModelConfig Demo() {
  ModelConfig c = Common();
  c.vocab = 4096, c.hidden = 64, c.expert_inner = 64, c.heads = 4, c.head_dim = 64, c.rope_dim = 32;
  c.q_lora = 64, c.o_lora = 32, c.o_groups = 2, c.experts = 8, c.top_k = 2, c.window = 32;
  SetRatios(c, 10, 6);
  c.kv_sources = {2, 4, 6};
  c.index_sources = {2, 4, 6, 8};
  c.index_heads = 4, c.index_dim = 32, c.index_topk = 32;
  c.candidate_blocks = 16, c.candidate_block_size = 8;
  c.max_positions = 8192;
  c.rope_scaling.original_positions = 512;
  c.engram.layers = {1, 4};
  c.engram.prime_start = 1000, c.engram.heads = 2, c.engram.head_dim = 32;
  c.draft = {1, 3, 0, {7, 8, 9}, 32, 4, 2};
  return c;
}

ModelConfig Bench() {
  ModelConfig c = Common();
  c.vocab = 16384, c.hidden = 1280, c.expert_inner = 576, c.heads = 16, c.head_dim = 512;
  c.rope_dim = 64, c.q_lora = 320, c.o_lora = 256, c.o_groups = 4, c.experts = 64, c.top_k = 6;
  c.window = 128;
  SetRatios(c, 12, 6);
  c.kv_sources = {2, 4, 6};
  c.index_sources = {2, 4, 6, 8, 10};
  c.index_heads = 8, c.index_dim = 128, c.index_topk = 512;
  c.candidate_blocks = 256, c.candidate_block_size = 8;
  c.max_positions = 131072;
  c.engram.layers = {1, 4};
  c.engram.prime_start = 20000, c.engram.heads = 4, c.engram.head_dim = 128;
  c.draft = {3, 5, 0, {9, 10, 11}, 64, 16, 3};
  return c;
}

// The released configuration of DeepSeek-V4.1-Flash.
ModelConfig Released() {
  ModelConfig c = Common();
  c.vocab = 129280, c.hidden = 5120, c.expert_inner = 2304, c.heads = 64, c.head_dim = 512;
  c.rope_dim = 64, c.q_lora = 1280, c.o_lora = 1024, c.o_groups = 8, c.experts = 384, c.top_k = 6;
  c.window = 128;
  SetRatios(c, 40, 20);
  c.kv_sources = {2, 8, 14, 20};
  c.index_sources = {2, 8, 14, 20, 24, 28, 32, 36};
  c.index_heads = 32, c.index_dim = 128, c.index_topk = 512;
  c.candidate_blocks = 2048, c.candidate_block_size = 8;
  c.max_positions = 1048576;
  c.engram.layers = {1, 14};
  c.engram.prime_start = 16000000, c.engram.heads = 8, c.engram.head_dim = 256;
  c.draft = {3, 5, 0, {37, 38, 39}, 256, 128, 3};
  return c;
}

// Deals the roles of the released model out to another number of layers: half of them decoder, up
// to three KV sources in the encoder, an indexer at each source and at every fourth decoder layer
// (every second one in short models), Engram at layer 1 and in the second ratio-2 group.
void DealLayers(ModelConfig& c, int layers) {
  const int decoder = layers / 2;
  SetRatios(c, layers, decoder);
  c.kv_sources.clear();
  const int step = std::max(1, (decoder - 2 + 2) / 3);
  for (int layer = 2; layer < decoder; layer += step) c.kv_sources.push_back(layer);
  c.kv_sources.push_back(decoder);
  c.index_sources = c.kv_sources;
  const int stride = layers >= 24 ? 4 : 2;
  for (int layer = decoder + stride; layer < layers; layer += stride) {
    c.index_sources.push_back(layer);
  }
  c.engram.layers = {1};
  if (c.kv_sources.size() > 2) c.engram.layers.push_back(c.kv_sources[1]);
  c.draft.target_layers = {layers - 3, layers - 2, layers - 1};
}

// Fields that follow from others.
void Derive(ModelConfig& c, const Changes& changes) {
  if (!changes.draft) c.draft = {};
  c.ratios.resize(c.layers);
  c.ratios.resize(c.layers + c.draft.stages, 0);
  c.image_token = static_cast<int32_t>(std::min<int64_t>(129264, c.vocab - 1));
  if (c.draft.stages > 0) {
    c.draft.noise_token = static_cast<int32_t>(std::min<int64_t>(128799, c.vocab - 6));
  }
  c.engram.classes = changes.classes.value_or(static_cast<int32_t>(c.vocab * 99092 / 129280));
  c.engram.table_rows.clear();
  for (const auto& primes :
       model::EngramPrimes(static_cast<int>(c.engram.layers.size()), c.engram.max_ngram,
                           c.engram.heads, c.engram.prime_start)) {
    c.engram.table_rows.push_back(std::accumulate(primes.begin(), primes.end(), int64_t{0}));
  }
}

// Number of experts that brings the checkpoint closest to `size_gb`.
Result<int> ExpertsForSize(Shape shape, double size_gb) {
  shape.config.experts = 0;
  const int64_t fixed = Count(MakeInventory(shape)).bytes;
  shape.config.experts = 1;
  const int64_t each = Count(MakeInventory(shape)).bytes - fixed;
  const double experts = (size_gb * 1e9 - static_cast<double>(fixed)) / static_cast<double>(each);
  if (experts < shape.config.top_k || experts > 4096) {
    return InvalidArgument(fmt::format(
        "--size-gb {}: this shape has {:.3f} GB without experts and {:.3f} GB per expert; "
        "between {} and 4096 experts are possible",
        size_gb, static_cast<double>(fixed) / 1e9, static_cast<double>(each) / 1e9,
        shape.config.top_k));
  }
  return static_cast<int>(std::lround(experts));
}

Status Validate(const Changes& changes) {
  if (changes.layers && (*changes.layers < 6 || *changes.layers > 1000)) {
    return InvalidArgument(fmt::format("--layers {}: 6 to 1000 are possible", *changes.layers));
  }
  if (changes.hidden && (*changes.hidden < 32 || *changes.hidden % 32 != 0)) {
    return InvalidArgument(fmt::format("--hidden {}: not a multiple of 32", *changes.hidden));
  }
  if (changes.vocab && (*changes.vocab < 16 || *changes.vocab > 10000000)) {
    return InvalidArgument(fmt::format("--vocab {}: 16 to 10000000 are possible", *changes.vocab));
  }
  if (changes.experts && changes.size_gb) {
    return InvalidArgument("--size-gb chooses the number of experts: leave out --experts");
  }
  return {};
}

}  // namespace

const std::vector<std::string>& PresetNames() {
  static const std::vector<std::string> names = {"nano", "demo", "bench", "released"};
  return names;
}

Result<Shape> MakeShape(const std::string& preset, const Changes& changes) {
  KURUMA_RETURN_IF_ERROR(Validate(changes));
  Shape shape;
  ModelConfig& c = shape.config;
  if (preset == "nano") {
    c = Nano();
  } else if (preset == "demo") {
    c = Demo();
  } else if (preset == "bench") {
    c = Bench();
  } else if (preset == "released") {
    c = Released();
    shape.vision = true;
  } else {
    return InvalidArgument(fmt::format("--preset {}: there is no such preset", preset));
  }
  if (changes.layers) DealLayers(c, *changes.layers);
  c.hidden = changes.hidden.value_or(c.hidden);
  c.vocab = changes.vocab.value_or(c.vocab);
  c.experts = changes.experts.value_or(c.experts);
  Derive(c, changes);
  if (changes.size_gb) {
    KURUMA_ASSIGN_OR_RETURN(c.experts, ExpertsForSize(shape, *changes.size_gb));
  }
  if (c.experts < c.top_k || c.experts > 4096) {
    return InvalidArgument(
        fmt::format("--experts {}: {} to 4096 are possible", c.experts, c.top_k));
  }
  return shape;
}

}  // namespace kuruma::bench_checkpoint
