// The checkpoint's tensors, found by their released names, checked for type and shape, and given a
// place in the layer that uses them. Nothing is copied: matrices point into the mapped files.
#ifndef KURUMA_MODEL_WEIGHTS_H_
#define KURUMA_MODEL_WEIGHTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "kernels/formats.h"
#include "model/checkpoint.h"
#include "model/config.h"

namespace kuruma::model {

using kernels::Matrix;

struct HcWeights {
  Matrix fn;                     // [streams * (2 + streams), streams * hidden] F32
  const float* base = nullptr;   // [streams * (2 + streams)]
  const float* scale = nullptr;  // [3]
};

struct CompressorWeights {
  Matrix wkv;                            // [head_dim, hidden] BF16
  std::optional<Matrix> wgate;           // the same, ratio > 1 only
  const uint16_t* norm = nullptr;        // [head_dim] BF16
  Matrix index_wk;                       // [index_dim, head_dim] BF16
  const uint16_t* index_norm = nullptr;  // [index_dim] BF16
};

struct IndexerWeights {
  Matrix wq_b;          // [index_heads * index_dim, q_lora] FP8
  Matrix weights_proj;  // [index_heads, hidden] BF16
};

struct AttentionWeights {
  const float* sink = nullptr;  // [heads]
  Matrix wq_a;                  // [q_lora, hidden] FP8
  const uint16_t* q_norm = nullptr;
  Matrix wq_b;  // [heads * head_dim, q_lora] FP8
  Matrix wkv;   // [head_dim, hidden] FP8
  const uint16_t* kv_norm = nullptr;
  Matrix wo_a;  // [o_groups * o_lora, heads * head_dim / o_groups] FP8
  Matrix wo_b;  // [hidden, o_groups * o_lora] FP8
  std::optional<CompressorWeights> compressor;
  std::optional<IndexerWeights> indexer;
};

struct ExpertWeights {
  Matrix w1;  // gate [inner, hidden]
  Matrix w3;  // up   [inner, hidden]
  Matrix w2;  // down [hidden, inner]
};

struct MoeWeights {
  Matrix gate;                         // [experts, hidden] BF16
  const float* bias = nullptr;         // [experts]; text tokens
  int top_k = 0;                       // routed experts per token
  std::vector<ExpertWeights> experts;  // FP4
  ExpertWeights shared;                // FP8
};

struct EngramWeights {
  Matrix table;               // [rows, head_dim] FP8, one scale per row and 32 columns
  Matrix wkv;                 // [hidden * (streams + 1), rows_per_token * head_dim] FP8
  std::vector<float> weight;  // [streams, hidden], q_weight * k_weight (exact in float32)
};

struct LayerWeights {
  const uint16_t* attn_norm = nullptr;  // [hidden] BF16
  const uint16_t* ffn_norm = nullptr;
  HcWeights hc_attn;
  HcWeights hc_ffn;
  AttentionWeights attn;
  MoeWeights moe;
  std::optional<EngramWeights> engram;
};

struct DraftWeights {
  Matrix main_proj;  // [hidden, targets * hidden] FP8
  const uint16_t* main_norm = nullptr;
  std::vector<LayerWeights> stages;
  const uint16_t* norm = nullptr;
  Matrix markov_embed;  // [vocab, rank] BF16
  Matrix markov_head;   // [vocab, rank] BF16
  Matrix confidence;    // [1, hidden + rank] BF16
};

struct ModelWeights {
  Matrix embed;  // [vocab, hidden] BF16
  Matrix head;   // [vocab, hidden] BF16
  const uint16_t* norm = nullptr;
  std::vector<LayerWeights> layers;
  std::optional<DraftWeights> draft;  // when the config has draft stages
};

// Finds every tensor that `config` calls for. kNotFound / kDataLoss name file and tensor when one
// is missing or has another dtype, shape or block size than the config says. With a headers-only
// checkpoint the checks are the same and all data pointers stay null. `checkpoint` must outlive the
// result.
Result<ModelWeights> LoadWeights(const Checkpoint& checkpoint, const ModelConfig& config);

}  // namespace kuruma::model

#endif  // KURUMA_MODEL_WEIGHTS_H_
