#include "bench_checkpoint/config_json.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/philox.h"
#include "model/engram_hash.h"

namespace kuruma::bench_checkpoint {
namespace {

using Json = nlohmann::ordered_json;

Json Attention(const model::ModelConfig& c) {
  return {{"num_attention_heads", c.heads},
          {"num_key_value_heads", 1},
          {"head_dim", c.head_dim},
          {"qk_rope_head_dim", c.rope_dim},
          {"q_lora_rank", c.q_lora},
          {"o_lora_rank", c.o_lora},
          {"o_groups", c.o_groups},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"max_position_embeddings", c.max_positions},
          {"rope_theta", static_cast<int64_t>(c.rope_theta)},
          {"rope_scaling",
           {{"rope_type", "yarn"},
            {"factor", static_cast<int64_t>(c.rope_scaling.factor)},
            {"beta_fast", static_cast<int64_t>(c.rope_scaling.beta_fast)},
            {"beta_slow", static_cast<int64_t>(c.rope_scaling.beta_slow)},
            {"original_max_position_embeddings", c.rope_scaling.original_positions}}},
          {"compress_rope_theta", static_cast<int64_t>(c.compress_rope_theta)},
          {"sliding_window", c.window},
          {"compress_ratios", c.ratios},
          {"kv_source_layer_ids", c.kv_sources},
          {"index_source_layer_ids", c.index_sources},
          {"index_n_heads", c.index_heads},
          {"index_head_dim", c.index_dim},
          {"index_topk", c.index_topk},
          {"candidate_source_layer_id", c.candidate_source},
          {"candidate_topk_blocks", c.candidate_blocks},
          {"candidate_block_size", c.candidate_block_size}};
}

Json Experts(const model::ModelConfig& c) {
  return {{"hidden_act", "silu"},
          {"swiglu_limit", c.swiglu_limit},
          {"n_routed_experts", c.experts},
          {"n_shared_experts", 1},
          {"num_experts_per_tok", c.top_k},
          {"scoring_func", "sqrtsoftplus"},
          {"topk_method", "noaux_tc"},
          {"norm_topk_prob", true},
          {"routed_scaling_factor", c.routed_scale},
          {"hc_mult", c.streams},
          {"hc_sinkhorn_iters", c.sinkhorn_iterations},
          {"hc_eps", c.hc_eps}};
}

Json Engram(const model::EngramConfig& e) {
  return {{"engram_layer_ids", e.layers},
          {"engram_num_embeddings", e.table_rows},
          {"engram_max_ngram_size", e.max_ngram},
          {"engram_vocab_size", e.prime_start},
          {"engram_n_heads", e.heads},
          {"engram_head_dim", e.head_dim},
          {"engram_pad_token_id", e.pad_token},
          {"engram_compressed_vocab_size", e.classes}};
}

Json Draft(const model::DraftConfig& d) {
  if (d.stages == 0) return {{"num_nextn_predict_layers", 0}};
  return {{"num_nextn_predict_layers", d.stages},   {"dspark_block_size", d.block_size},
          {"dspark_noise_token_id", d.noise_token}, {"dspark_target_layer_ids", d.target_layers},
          {"dspark_markov_rank", d.markov_rank},    {"dspark_n_routed_experts", d.experts},
          {"dspark_num_experts_per_tok", d.top_k}};
}

}  // namespace

std::string ConfigJson(const Shape& shape) {
  const model::ModelConfig& c = shape.config;
  Json text = {{"model_type", "deepseek_v41_text"}, {"vocab_size", c.vocab},
               {"hidden_size", c.hidden},           {"moe_intermediate_size", c.expert_inner},
               {"num_hidden_layers", c.layers},     {"rms_norm_eps", c.norm_eps},
               {"tie_word_embeddings", false}};
  for (const Json& part : {Attention(c), Experts(c), Engram(c.engram), Draft(c.draft)}) {
    text.update(part);
  }
  const Json top = {{"architectures", {"DeepseekV41ForCausalLM"}},
                    {"model_type", "deepseek_v41"},
                    {"dtype", "bfloat16"},
                    {"bos_token_id", c.bos_token},
                    {"eos_token_id", c.eos_token},
                    {"pad_token_id", c.pad_token},
                    {"image_token_id", c.image_token},
                    {"transformers_version", "5.6.0"},
                    {"quantization_config",
                     {{"quant_method", "fp8"},
                      {"activation_scheme", "dynamic"},
                      {"weight_block_size", {c.weight_block_rows, c.weight_block_cols}},
                      {"scale_fmt", "ue8m0"},
                      {"expert_dtype", "fp4"}}},
                    {"text_config", text},
                    {"vision_config",
                     {{"model_type", "deepseek_v41_vision"},
                      {"num_hidden_layers", shape.vision ? 32 : 0},
                      {"hidden_size", 1024},
                      {"num_attention_heads", 16},
                      {"intermediate_size", 2816},
                      {"patch_size", 14},
                      {"rope_theta", 10000},
                      {"downsample_ratio", 3},
                      {"max_image_tokens", 1024},
                      {"min_pixels", 295936},
                      {"max_wh_ratio", nullptr}}}};
  return top.dump(1) + "\n";
}

std::string TokenMapJson(const model::ModelConfig& config, uint64_t seed) {
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32)};
  const int64_t vocab = config.vocab, classes = config.engram.classes;
  std::vector<int64_t> map;
  int64_t next = 0;
  for (int64_t id = 0; id < vocab; ++id) {
    const auto random = Philox4x32({static_cast<uint32_t>(id), 0, 0, 0x746F6B}, key);
    // A new class with probability (classes still needed) / (tokens left): it comes out even.
    const bool fresh = next == 0 || static_cast<int64_t>(random[0] % (vocab - id)) < classes - next;
    map.push_back(fresh ? next++ : static_cast<int64_t>(random[1] % next));
  }
  const model::EngramConfig& e = config.engram;
  Json primes = Json::array(), multipliers = Json::array();
  for (const auto& layer : model::EngramPrimes(static_cast<int>(e.layers.size()), e.max_ngram,
                                               e.heads, e.prime_start)) {
    Json by_ngram = Json::array();
    for (auto head = layer.begin(); head < layer.end(); head += e.heads) {
      by_ngram.push_back(std::vector<int64_t>(head, head + e.heads));
    }
    primes.push_back(by_ngram);
  }
  for (const auto& layer : model::EngramMultipliers(e.layers, e.max_ngram, e.classes)) {
    multipliers.push_back(Json::array());
    for (int64_t value : layer) multipliers.back().push_back(std::to_string(value));
  }
  return Json{{"token_map", map},
              {"pad_class", map[e.pad_token]},
              {"primes", primes},
              {"multipliers", multipliers}}
             .dump() +
         "\n";
}

}  // namespace kuruma::bench_checkpoint
