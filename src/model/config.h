// The configuration of a DeepSeek-V4.1 checkpoint: `config.json` with its nested `text_config`.
// Every constant of the forward pass comes from here; nothing is hard-coded.
// Source: released configuration and its rules (DESIGN.md "Configuration rules").
#ifndef KURUMA_MODEL_CONFIG_H_
#define KURUMA_MODEL_CONFIG_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace kuruma::model {

inline constexpr int64_t kBlockTokens = 128;  // tokens of one block of global KV

struct RopeScaling {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_positions = 0;
};

struct EngramConfig {
  std::vector<int> layers;          // applied before these layers; empty: no Engram
  std::vector<int64_t> table_rows;  // per Engram layer
  int max_ngram = 0;                // 2-grams .. max_ngram-grams
  int64_t prime_start = 0;          // engram_vocab_size
  int heads = 0;
  int64_t head_dim = 0;
  int32_t pad_token = 0;
  int32_t classes = 0;  // engram_compressed_vocab_size

  int rows_per_token() const { return (max_ngram - 1) * heads; }
};

struct DraftConfig {
  int stages = 0;      // num_nextn_predict_layers; 0: no draft module
  int block_size = 0;  // drafts per pass
  int32_t noise_token = 0;
  std::vector<int> target_layers;  // layers whose input streams feed the draft
  int64_t markov_rank = 0;
  int experts = 0;
  int top_k = 0;
};

// Whether a list of layer numbers holds `id`.
inline bool Contains(const std::vector<int>& ids, int id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// All sizes in elements, all layer numbers 0-based. Immutable after loading.
struct ModelConfig {
  // Special tokens of the top level.
  int32_t bos_token = 0;
  int32_t eos_token = 0;
  int32_t pad_token = 0;
  int32_t image_token = -1;        // -1: absent
  int64_t weight_block_rows = 32;  // quantization_config.weight_block_size
  int64_t weight_block_cols = 32;

  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t expert_inner = 0;  // moe_intermediate_size
  int layers = 0;
  int heads = 0;
  int64_t head_dim = 0;
  int64_t rope_dim = 0;
  int64_t q_lora = 0;
  int64_t o_lora = 0;
  int o_groups = 0;
  float swiglu_limit = 0;
  double norm_eps = 0;
  int64_t max_positions = 0;
  double rope_theta = 0;
  double compress_rope_theta = 0;
  bool has_rope_scaling = false;
  RopeScaling rope_scaling;
  int experts = 0;
  int top_k = 0;  // num_experts_per_tok
  float routed_scale = 1;
  int64_t window = 0;
  std::vector<int> ratios;  // layers + draft stages entries; 0 = window only
  std::vector<int> kv_sources;
  std::vector<int> index_sources;
  int64_t index_heads = 0;
  int64_t index_dim = 0;
  int64_t index_topk = 0;
  int candidate_source = -1;  // -1: no candidate pool
  int64_t candidate_blocks = 0;
  int64_t candidate_block_size = 0;
  int streams = 0;  // hc_mult
  int sinkhorn_iterations = 0;
  double hc_eps = 0;
  EngramConfig engram;
  DraftConfig draft;

  // First decoder layer: the last KV source (0 without one). Layers before it are the encoder.
  int decoder_begin() const { return kv_sources.empty() ? 0 : kv_sources.back(); }
  // Largest source at or before `layer`; only for layers with ratio > 0.
  int KvSource(int layer) const;
  int IndexSource(int layer) const;
};

// Reads and validates DIR/config.json. kNotFound: no file; kDataLoss: not JSON; kInvalidArgument:
// a field is missing, of the wrong type, unknown in value or breaks a rule. The message names the
// file, the field and the rule. Any thread.
Result<ModelConfig> LoadConfig(const std::string& directory);

// The same from text; `name` stands for the file in messages.
Result<ModelConfig> ParseConfig(const std::string& json, const std::string& name);

}  // namespace kuruma::model

#endif  // KURUMA_MODEL_CONFIG_H_
