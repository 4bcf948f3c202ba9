#include "model/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "model/engram_hash.h"

namespace kuruma::model {
namespace {

using Json = nlohmann::json;

// A value for an error message; structured ones only by type, they may be huge.
std::string Show(const Json& value) {
  return value.is_structured() ? std::string("an ") + value.type_name() : value.dump();
}

// Reads typed fields of one JSON object and keeps the first complaint.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  const Status& status() const { return status_; }

  void Fail(const std::string& field, const std::string& rule) {
    if (status_.ok()) status_ = InvalidArgument(fmt::format("{}{}: {}", where_, field, rule));
  }

  void Require(bool holds, const std::string& field, const std::string& rule) {
    if (!holds) Fail(field, rule);
  }

  // The value, or null when the field is absent (or JSON null) and optional.
  const Json* Find(const std::string& field, bool optional = false) {
    const auto it = object_.find(field);
    if (it != object_.end() && !it->is_null()) return &*it;
    if (!optional) Fail(field, "missing");
    return nullptr;
  }

  template <typename T>
  void Integer(const std::string& field, int64_t low, int64_t high, T* out, bool optional = false) {
    const Json* value = Find(field, optional);
    if (value == nullptr) return;
    if (!value->is_number_integer() ||
        (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(high)) ||
        value->get<int64_t>() < low || value->get<int64_t>() > high) {
      Fail(field, fmt::format("must be an integer in [{}, {}], got {}", low, high, Show(*value)));
      return;
    }
    *out = static_cast<T>(value->get<int64_t>());
  }

  template <typename T>
  void Number(const std::string& field, double low, double high, T* out) {
    const Json* value = Find(field);
    if (value == nullptr) return;
    if (!value->is_number() || !(value->get<double>() >= low) || !(value->get<double>() <= high)) {
      Fail(field, fmt::format("must be a number in [{}, {}], got {}", low, high, Show(*value)));
      return;
    }
    *out = value->get<T>();
  }

  template <typename T>
  void IntegerList(const std::string& field, int64_t low, int64_t high, std::vector<T>* out) {
    const Json* value = Find(field);
    if (value == nullptr) return;
    if (!value->is_array() || value->size() > 100000) return Fail(field, "must be a list");
    out->clear();
    for (const Json& item : *value) {
      if (!item.is_number_integer() || item.get<int64_t>() < low || item.get<int64_t>() > high) {
        return Fail(field, fmt::format("entries must be integers in [{}, {}], got {}", low, high,
                                       Show(item)));
      }
      out->push_back(static_cast<T>(item.get<int64_t>()));
    }
  }

  // The field must be exactly `expected` (an optional one may be absent).
  void Constant(const std::string& field, const Json& expected, bool optional = false) {
    const Json* value = Find(field, optional);
    if (value != nullptr && *value != expected) {
      Fail(field, fmt::format("value {} is not supported, only {}", Show(*value), expected.dump()));
    }
  }

 private:
  const Json& object_;
  std::string where_;
  Status status_;
};

constexpr int64_t kMaxSize = int64_t{1} << 30;  // keeps every product of two sizes in int64

void ReadConstants(Fields& f) {
  f.Constant("model_type", "deepseek_v41_text", true);
  f.Constant("num_key_value_heads", 1);
  f.Constant("hidden_act", "silu");
  f.Constant("attention_bias", false, true);
  f.Constant("attention_dropout", 0.0, true);
  f.Constant("tie_word_embeddings", false, true);
  f.Constant("n_shared_experts", 1);
  f.Constant("scoring_func", "sqrtsoftplus");
  f.Constant("topk_method", "noaux_tc");
  f.Constant("norm_topk_prob", true);
  f.Constant("gate_temp", 1.0, true);
  f.Constant("hc_shifted", true, true);
  f.Constant("use_fp4_sparse_kv", true, true);
  f.Constant("dspark_target_attn_input", true, true);
}

void ReadSizes(Fields& f, ModelConfig* c) {
  f.Integer("vocab_size", 1, kMaxSize, &c->vocab);
  f.Integer("hidden_size", 1, kMaxSize, &c->hidden);
  f.Integer("moe_intermediate_size", 1, kMaxSize, &c->expert_inner);
  f.Integer("num_hidden_layers", 1, 4096, &c->layers);
  f.Integer("num_attention_heads", 1, 65536, &c->heads);
  f.Integer("head_dim", 1, 65536, &c->head_dim);
  f.Integer("qk_rope_head_dim", 2, 65536, &c->rope_dim);
  f.Integer("q_lora_rank", 1, kMaxSize, &c->q_lora);
  f.Integer("o_lora_rank", 1, kMaxSize, &c->o_lora);
  f.Integer("o_groups", 1, 65536, &c->o_groups);
  f.Number("swiglu_limit", 1e-6, 1e30, &c->swiglu_limit);
  f.Number("rms_norm_eps", 0, 1, &c->norm_eps);
  f.Integer("max_position_embeddings", 1, int64_t{1} << 40, &c->max_positions);
  f.Number("rope_theta", 1, 1e12, &c->rope_theta);
  f.Number("compress_rope_theta", 1, 1e12, &c->compress_rope_theta);
  f.Integer("n_routed_experts", 1, 65536, &c->experts);
  f.Integer("num_experts_per_tok", 1, 65536, &c->top_k);
  f.Number("routed_scaling_factor", -1e6, 1e6, &c->routed_scale);
  f.Integer("sliding_window", 1, 1 << 20, &c->window);
  f.Integer("hc_mult", 1, 64, &c->streams);
  f.Integer("hc_sinkhorn_iters", 1, 1000, &c->sinkhorn_iterations);
  f.Number("hc_eps", 0, 1, &c->hc_eps);
  f.Integer("index_n_heads", 1, 65536, &c->index_heads);
  f.Integer("index_head_dim", 1, 65536, &c->index_dim);
  f.Integer("index_topk", 1, kMaxSize, &c->index_topk);
  f.Integer("candidate_source_layer_id", -kMaxSize, 4096, &c->candidate_source, true);
  c->candidate_source = std::max(c->candidate_source, -1);
  if (c->candidate_source >= 0) {
    f.Integer("candidate_topk_blocks", 1, kMaxSize, &c->candidate_blocks);
    f.Integer("candidate_block_size", 1, kMaxSize, &c->candidate_block_size);
  }
}

void ReadRopeScaling(Fields& f, ModelConfig* c) {
  const Json* scaling = f.Find("rope_scaling", true);
  if (scaling == nullptr) return;
  if (!scaling->is_object()) return f.Fail("rope_scaling", "must be an object");
  Fields g(*scaling, "");
  g.Constant(scaling->contains("type") ? "type" : "rope_type", "yarn");
  g.Number("factor", 1, 1e6, &c->rope_scaling.factor);
  g.Number("beta_fast", 1e-6, 1e9, &c->rope_scaling.beta_fast);
  g.Number("beta_slow", 1e-6, 1e9, &c->rope_scaling.beta_slow);
  g.Integer("original_max_position_embeddings", 1, int64_t{1} << 40,
            &c->rope_scaling.original_positions);
  if (!g.status().ok()) return f.Fail("rope_scaling", g.status().message());
  c->has_rope_scaling = true;
}

void ReadSources(Fields& f, ModelConfig* c) {
  f.IntegerList("compress_ratios", 0, kBlockTokens, &c->ratios);
  f.IntegerList("kv_source_layer_ids", 0, c->layers - 1, &c->kv_sources);
  f.IntegerList("index_source_layer_ids", 0, c->layers - 1, &c->index_sources);
  if (const Json* keys = f.Find("index_k_source_layer_ids", true); keys != nullptr) {
    f.Require(*keys == Json(c->kv_sources), "index_k_source_layer_ids",
              "must equal kv_source_layer_ids");
  }
}

void ReadEngram(Fields& f, ModelConfig* c) {
  if (f.Find("engram_layer_ids", true) == nullptr) return;
  EngramConfig& e = c->engram;
  f.IntegerList("engram_layer_ids", 0, c->layers - 1, &e.layers);
  if (e.layers.empty()) return;
  f.IntegerList("engram_num_embeddings", 1, int64_t{1} << 40, &e.table_rows);
  f.Integer("engram_max_ngram_size", 2, 8, &e.max_ngram);
  f.Integer("engram_vocab_size", 1, int64_t{1} << 32, &e.prime_start);
  f.Integer("engram_n_heads", 1, 64, &e.heads);
  f.Integer("engram_head_dim", 1, 65536, &e.head_dim);
  f.Integer("engram_pad_token_id", 0, c->vocab - 1, &e.pad_token);
  f.Integer("engram_compressed_vocab_size", 1, c->vocab, &e.classes);
}

void ReadDraft(Fields& f, ModelConfig* c) {
  DraftConfig& d = c->draft;
  f.Integer("num_nextn_predict_layers", 0, 64, &d.stages, true);
  if (d.stages == 0) return;
  f.Integer("dspark_block_size", 1, 64, &d.block_size);
  f.Integer("dspark_noise_token_id", 0, c->vocab - 1, &d.noise_token);
  f.IntegerList("dspark_target_layer_ids", 0, c->layers - 1, &d.target_layers);
  f.Integer("dspark_markov_rank", 1, kMaxSize, &d.markov_rank);
  f.Integer("dspark_n_routed_experts", 1, 65536, &d.experts);
  f.Integer("dspark_num_experts_per_tok", 1, 65536, &d.top_k);
}

void CheckSizes(Fields& f, const ModelConfig& c) {
  const auto multiple = [&](int64_t value, const char* field) {
    f.Require(value % 32 == 0, field,
              fmt::format("{} is not a multiple of 32, the activation scale group", value));
  };
  multiple(c.hidden, "hidden_size");
  multiple(c.expert_inner, "moe_intermediate_size");
  multiple(c.head_dim, "head_dim");
  multiple(c.q_lora, "q_lora_rank");
  multiple(c.index_dim, "index_head_dim");
  multiple(c.o_lora * c.o_groups, "o_lora_rank * o_groups");
  f.Require(c.rope_dim % 2 == 0, "qk_rope_head_dim", "must be even");
  f.Require(c.rope_dim <= std::min(c.head_dim, c.index_dim), "qk_rope_head_dim",
            "must not exceed head_dim or index_head_dim");
  f.Require(c.heads * c.head_dim % c.o_groups == 0, "o_groups",
            "must divide num_attention_heads * head_dim");
  multiple(c.heads * c.head_dim / c.o_groups, "num_attention_heads * head_dim / o_groups");
  f.Require(c.top_k <= c.experts, "num_experts_per_tok", "must not exceed n_routed_experts");
}

bool Ascending(const std::vector<int>& ids) {
  return std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end();
}

// Every layer with a compressed branch finds a KV source and an index source of its own ratio, and
// the index source scores that very KV source.
void CheckLayerSources(Fields& f, const ModelConfig& c) {
  for (int layer = 0; layer < c.layers; ++layer) {
    const int ratio = c.ratios[layer];
    if (ratio == 0) continue;
    f.Require(kBlockTokens % ratio == 0, "compress_ratios",
              fmt::format("ratio {} of layer {} does not divide {}", ratio, layer, kBlockTokens));
    const int kv = c.KvSource(layer), index = c.IndexSource(layer);
    f.Require(kv >= 0, "kv_source_layer_ids", fmt::format("no source for layer {}", layer));
    f.Require(index >= 0, "index_source_layer_ids", fmt::format("no source for layer {}", layer));
    if (kv < 0 || index < 0) return;
    f.Require(c.ratios[kv] == ratio, "kv_source_layer_ids",
              fmt::format("source {} of layer {} has another compression ratio", kv, layer));
    f.Require(c.ratios[index] == ratio && index >= kv, "index_source_layer_ids",
              fmt::format("source {} of layer {} does not index KV source {}", index, layer, kv));
  }
}

void CheckSources(Fields& f, ModelConfig* c) {
  const size_t layers = c->layers, drafts = c->draft.stages;
  f.Require(c->ratios.size() == layers || c->ratios.size() == layers + drafts, "compress_ratios",
            fmt::format("has {} entries, expected {} layers + {} draft layers", c->ratios.size(),
                        layers, drafts));
  if (!f.status().ok()) return;
  c->ratios.resize(layers + drafts, 0);
  for (size_t i = layers; i < c->ratios.size(); ++i) {
    f.Require(c->ratios[i] == 0, "compress_ratios", "draft layers must have ratio 0");
  }
  f.Require(Ascending(c->kv_sources), "kv_source_layer_ids", "must ascend");
  f.Require(Ascending(c->index_sources), "index_source_layer_ids", "must ascend");
  for (int id : c->kv_sources) {
    f.Require(c->ratios[id] > 0, "kv_source_layer_ids",
              fmt::format("layer {} has compression ratio 0", id));
  }
  for (int id : c->index_sources) {
    f.Require(c->ratios[id] > 0, "index_source_layer_ids",
              fmt::format("layer {} has compression ratio 0", id));
  }
  if (f.status().ok()) CheckLayerSources(f, *c);
}

void CheckCandidates(Fields& f, const ModelConfig& c) {
  if (c.candidate_source < 0 || !f.status().ok()) return;
  const char* field = "candidate_source_layer_id";
  f.Require(Contains(c.index_sources, c.candidate_source), field,
            fmt::format("layer {} is not in index_source_layer_ids", c.candidate_source));
  // Later layers read the pool as entries of their own KV source.
  f.Require(!c.kv_sources.empty() && c.candidate_source >= c.kv_sources.back(), field,
            "must not come before the last KV source");
  f.Require(
      c.candidate_blocks * c.candidate_block_size - (c.candidate_block_size - 1) >= c.index_topk,
      "candidate_topk_blocks",
      fmt::format("a pool of {} blocks of {} can hold fewer than index_topk = {} entries",
                  c.candidate_blocks, c.candidate_block_size, c.index_topk));
}

void CheckEngram(Fields& f, const ModelConfig& c) {
  const EngramConfig& e = c.engram;
  if (e.layers.empty() || !f.status().ok()) return;
  f.Require(Ascending(e.layers), "engram_layer_ids", "must ascend");
  f.Require(e.table_rows.size() == e.layers.size(), "engram_num_embeddings",
            "must have one entry per Engram layer");
  f.Require(e.head_dim % 32 == 0, "engram_head_dim", "must be a multiple of 32");
  if (!f.status().ok()) return;
  const auto primes =
      EngramPrimes(static_cast<int>(e.layers.size()), e.max_ngram, e.heads, e.prime_start);
  for (size_t i = 0; i < primes.size(); ++i) {
    const int64_t sum = std::accumulate(primes[i].begin(), primes[i].end(), int64_t{0});
    f.Require(sum == e.table_rows[i], "engram_num_embeddings",
              fmt::format("entry {} is {}, but the primes from engram_vocab_size sum to {}", i,
                          e.table_rows[i], sum));
  }
}

void CheckDraft(Fields& f, const ModelConfig& c) {
  const DraftConfig& d = c.draft;
  if (d.stages == 0 || !f.status().ok()) return;
  f.Require(!d.target_layers.empty() && Ascending(d.target_layers), "dspark_target_layer_ids",
            "must be a non-empty ascending list");
  f.Require(d.top_k <= d.experts, "dspark_num_experts_per_tok",
            "must not exceed dspark_n_routed_experts");
}

Status ReadTop(const Json& top, const std::string& name, ModelConfig* c) {
  Fields f(top, name + ": ");
  f.Constant("model_type", "deepseek_v41");
  f.Constant("architectures", Json::array({"DeepseekV41ForCausalLM"}), true);
  f.Constant("dtype", "bfloat16", true);
  const Json* text = f.Find("text_config");
  if (text != nullptr) f.Require(text->is_object(), "text_config", "must be an object");
  const Json* quantization = f.Find("quantization_config");
  if (quantization != nullptr) {
    f.Require(quantization->is_object(), "quantization_config", "must be an object");
  }
  KURUMA_RETURN_IF_ERROR(f.status());
  Fields q(*quantization, name + ": quantization_config.");
  q.Constant("quant_method", "fp8");
  q.Constant("activation_scheme", "dynamic");
  q.Constant("scale_fmt", "ue8m0");
  q.Constant("expert_dtype", "fp4");
  std::vector<int64_t> block;
  q.IntegerList("weight_block_size", 1, 1 << 20, &block);
  q.Require(block.size() == 2 && block[1] % 32 == 0, "weight_block_size",
            "must be [rows, columns] with columns a multiple of 32");
  KURUMA_RETURN_IF_ERROR(q.status());
  c->weight_block_rows = block[0];
  c->weight_block_cols = block[1];
  return Status();
}

Status ReadSpecialTokens(const Json& top, const std::string& name, ModelConfig* c) {
  Fields f(top, name + ": ");
  f.Integer("bos_token_id", 0, c->vocab - 1, &c->bos_token);
  f.Integer("eos_token_id", 0, c->vocab - 1, &c->eos_token);
  f.Integer("pad_token_id", 0, c->vocab - 1, &c->pad_token, true);
  f.Integer("image_token_id", 0, c->vocab - 1, &c->image_token, true);
  return f.status();
}

int LatestAtOrBefore(const std::vector<int>& ids, int layer) {
  const auto next = std::upper_bound(ids.begin(), ids.end(), layer);
  return next == ids.begin() ? -1 : *(next - 1);
}

}  // namespace

int ModelConfig::KvSource(int layer) const { return LatestAtOrBefore(kv_sources, layer); }

int ModelConfig::IndexSource(int layer) const { return LatestAtOrBefore(index_sources, layer); }

Result<ModelConfig> ParseConfig(const std::string& json, const std::string& name) {
  const Json top = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (top.is_discarded()) return DataLoss(name + ": not valid JSON");
  if (!top.is_object()) return DataLoss(name + ": not a JSON object");
  ModelConfig c;
  KURUMA_RETURN_IF_ERROR(ReadTop(top, name, &c));
  Fields f(top["text_config"], name + ": text_config.");
  ReadConstants(f);
  ReadSizes(f, &c);
  ReadRopeScaling(f, &c);
  KURUMA_RETURN_IF_ERROR(f.status());  // sizes bound what follows
  ReadSources(f, &c);
  ReadEngram(f, &c);
  ReadDraft(f, &c);
  KURUMA_RETURN_IF_ERROR(f.status());
  CheckSizes(f, c);
  CheckSources(f, &c);
  CheckCandidates(f, c);
  CheckEngram(f, c);
  CheckDraft(f, c);
  KURUMA_RETURN_IF_ERROR(f.status());
  KURUMA_RETURN_IF_ERROR(ReadSpecialTokens(top, name, &c));
  return c;
}

Result<ModelConfig> LoadConfig(const std::string& directory) {
  const std::string path = directory + "/config.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound(path + ": cannot be opened");
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return DataLoss(path + ": cannot be read");
  return ParseConfig(text.str(), path);
}

}  // namespace kuruma::model
