// kuruma inspect: what a checkpoint is and what it needs, from its headers alone.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.h"
#include "device/host.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/numerics.h"
#include "model/state.h"
#include "model/weights.h"
#include "model_directory.h"
#include "report.h"

namespace kuruma {
namespace {

using Json = nlohmann::ordered_json;

struct InspectFlags {
  std::string directory;
  std::string numerics = "release";
  int64_t context = 0;
  bool json = false;
};

// Consecutive layers of one role.
struct LayerGroup {
  int first = 0;
  int last = 0;
  std::string role;  // "window only", "full", "reuse", "reindex", "draft"
  int ratio = 0;
  int kv_source = -1;
  int index_source = -1;
  bool builds_pool = false;

  bool SameKind(const LayerGroup& other) const {
    return role == other.role && ratio == other.ratio && kv_source == other.kv_source &&
           index_source == other.index_source && builds_pool == other.builds_pool &&
           (role == "reuse" || role == "window only" || role == "draft");
  }
};

// Tensors of one kind.
struct TensorKind {
  const char* name;
  const char* key;  // in JSON
  int64_t tensors = 0;
  int64_t bytes = 0;
};

struct Memory {
  int64_t weights = 0;  // without Engram tables and ignored tensors
  int64_t global_kv_per_token = 0;
  int64_t global_kv = 0;
  int64_t windows = 0;
  int64_t draft_windows = 0;
  int64_t tails = 0;

  int64_t context() const { return global_kv + windows + draft_windows + tails; }
  int64_t total() const { return weights + context(); }
};

struct Report {
  model::ModelConfig config;
  std::vector<LayerGroup> groups;
  std::vector<TensorKind> kinds;
  int64_t shards = 0;
  int64_t tensors = 0;
  int64_t bytes = 0;
  Memory memory;
  device::AvailableMemory available;
  int64_t context = 0;

  bool fits() const { return available.bytes < 0 || memory.total() <= available.bytes; }
};

LayerGroup Classify(const model::ModelConfig& c, int layer) {
  LayerGroup g{.first = layer, .last = layer, .role = "window only"};
  if (layer >= c.layers) {
    g.role = "draft";
    return g;
  }
  g.ratio = c.ratios[layer];
  if (g.ratio == 0) return g;
  g.kv_source = c.KvSource(layer);
  g.index_source = c.IndexSource(layer);
  g.builds_pool = layer == c.candidate_source;
  g.role = g.kv_source == layer ? "full" : g.index_source == layer ? "reindex" : "reuse";
  return g;
}

std::vector<LayerGroup> GroupLayers(const model::ModelConfig& c) {
  std::vector<LayerGroup> groups;
  for (int layer = 0; layer < c.layers + c.draft.stages; ++layer) {
    const LayerGroup g = Classify(c, layer);
    if (!groups.empty() && groups.back().SameKind(g)) {
      groups.back().last = layer;
    } else {
      groups.push_back(g);
    }
  }
  return groups;
}

// Order of the report; Kind() returns positions in this list.
std::vector<TensorKind> AllKinds() {
  return {{"FP8 dense", "fp8_dense"},
          {"FP4 experts", "fp4_experts"},
          {"BF16", "bf16"},
          {"F32", "f32"},
          {"E8M0 scales", "scales"},
          {"Engram tables", "engram_tables"},
          {"draft stages", "draft"},
          {"vision (ignored)", "vision_ignored"},
          {"other (ignored)", "other_ignored"}};
}

enum Kind { kFp8, kFp4, kBf16, kF32, kScales, kEngram, kDraft, kVision, kOther };

bool StartsWith(const std::string& name, const char* prefix) { return name.rfind(prefix, 0) == 0; }

bool EndsWith(const std::string& name, const std::string& suffix) {
  return name.size() >= suffix.size() &&
         name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
}

Kind KindOf(const std::string& name, model::DType dtype) {
  if (StartsWith(name, "vision.") || StartsWith(name, "aligner.") || StartsWith(name, "image_") ||
      EndsWith(name, ".gate.bias_vl")) {
    return kVision;
  }
  if (StartsWith(name, "mtp.")) return kDraft;
  if (EndsWith(name, ".engram.embed.weight") || EndsWith(name, ".engram.embed.scale")) {
    return kEngram;
  }
  switch (dtype) {
    case model::DType::kF8E4m3:
      return kFp8;
    case model::DType::kI8:
      return kFp4;
    case model::DType::kBf16:
      return kBf16;
    case model::DType::kF32:
      return kF32;
    case model::DType::kF8E8m0:
      return kScales;
    default:
      return kOther;
  }
}

void CountTensors(const model::Checkpoint& checkpoint, Report* report) {
  report->kinds = AllKinds();
  report->shards = static_cast<int64_t>(checkpoint.shards().size());
  for (const std::string& name : checkpoint.Names()) {
    const model::TensorInfo* info = checkpoint.Find(name);
    TensorKind& kind = report->kinds[KindOf(name, info->dtype)];
    ++kind.tensors;
    kind.bytes += info->bytes;
    ++report->tensors;
    report->bytes += info->bytes;
  }
}

Memory MeasureMemory(const Report& report, const model::Numerics& numerics) {
  const model::ModelConfig& c = report.config;
  const model::StateLayout layout(c, numerics);
  Memory m;
  m.weights = report.bytes;
  for (const Kind kind : {kEngram, kVision, kOther}) m.weights -= report.kinds[kind].bytes;
  m.global_kv_per_token = layout.block_bytes / model::kBlockTokens;
  const int64_t blocks = (report.context + model::kBlockTokens - 1) / model::kBlockTokens;
  m.global_kv = blocks * layout.block_bytes;
  const int64_t ring_bytes = layout.window_slots * layout.window_row_bytes;
  m.windows = c.layers * ring_bytes;
  m.draft_windows = c.draft.stages * ring_bytes;
  m.tails = static_cast<int64_t>(layout.sources.size()) * layout.tail_slots *
            layout.tail_row_floats * static_cast<int64_t>(sizeof(float));
  return m;
}

std::string Range(int first, int last) {
  return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

// "ratio 2, KV of 2, selection of 2".
std::string DescribeGroup(const model::ModelConfig& c, const LayerGroup& g) {
  std::vector<std::string> facts;
  if (g.ratio > 0) facts.push_back(fmt::format("ratio {}", g.ratio));
  if (g.role == "full") facts.push_back("own KV, own index");
  if (g.role == "reindex") {
    facts.push_back(fmt::format("KV of {}, own index", g.kv_source));
    if (c.candidate_source >= 0 && g.first > c.candidate_source) {
      facts.back() += fmt::format(" inside the pool of {}", c.candidate_source);
    }
  }
  if (g.role == "reuse") {
    facts.push_back(fmt::format("KV of {}, selection of {}", g.kv_source, g.index_source));
  }
  if (g.builds_pool) facts.push_back("builds the candidate pool");
  if (g.role != "draft" && g.first <= c.decoder_begin() && c.decoder_begin() <= g.last) {
    facts.push_back(fmt::format("decoder begins at {}", c.decoder_begin()));
  }
  for (const int layer : c.engram.layers) {
    if (g.first <= layer && layer <= g.last) {
      facts.push_back(fmt::format("Engram before {}", layer));
    }
  }
  return fmt::format("{}", fmt::join(facts, ", "));
}

std::string FactsText(const model::ModelConfig& c) {
  std::string out;
  out += fmt::format("model      DeepSeek-V4.1: {} layers, hidden {}, vocabulary {}, context {}\n",
                     c.layers, c.hidden, c.vocab, c.max_positions);
  out += fmt::format(
      "attention  {} heads x {} (rotary {}), query rank {}, output {} x {}, "
      "window {}\n",
      c.heads, c.head_dim, c.rope_dim, c.q_lora, c.o_groups, c.o_lora, c.window);
  out += fmt::format("selection  top {} of {} index heads x {}", c.index_topk, c.index_heads,
                     c.index_dim);
  if (c.candidate_source >= 0) {
    out += fmt::format(", pool {} x {}", c.candidate_blocks, c.candidate_block_size);
  }
  out += fmt::format("\nexperts    {} per layer, {} per token, 1 shared, inner {}\n", c.experts,
                     c.top_k, c.expert_inner);
  out += fmt::format("streams    {} (hyper-connections), weight blocks {} x {}\n", c.streams,
                     c.weight_block_rows, c.weight_block_cols);
  if (!c.engram.layers.empty()) {
    out += fmt::format("engram     before layers {}: {} rows x {}, {} look-ups per token\n",
                       fmt::join(c.engram.layers, ", "), fmt::join(c.engram.table_rows, " + "),
                       c.engram.head_dim, c.engram.rows_per_token());
  }
  if (c.draft.stages > 0) {
    out += fmt::format(
        "draft      {} stages, {} drafts per pass, {} experts, {} per token, after "
        "layers {}\n",
        c.draft.stages, c.draft.block_size, c.draft.experts, c.draft.top_k,
        fmt::join(c.draft.target_layers, ", "));
  }
  return out;
}

std::string ToText(const Report& r) {
  std::string out = FactsText(r.config) + "\nlayers\n";
  for (const LayerGroup& g : r.groups) {
    const std::string row = fmt::format("  {:>7}  {:<11}  {}", Range(g.first, g.last), g.role,
                                        DescribeGroup(r.config, g));
    out += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  out += "\ntensors\n";
  for (const TensorKind& kind : r.kinds) {
    if (kind.tensors == 0) continue;
    out +=
        fmt::format("  {:<17} {:>7}  {:>12}\n", kind.name, kind.tensors, FormatBytes(kind.bytes));
  }
  out += fmt::format("  {:<17} {:>7}  {:>12}  in {} shard{} ({} bytes)\n", "total", r.tensors,
                     FormatBytes(r.bytes), r.shards, r.shards == 1 ? "" : "s", r.bytes);
  const Memory& m = r.memory;
  out += fmt::format("\nmemory for a context of {} tokens\n", r.context);
  const auto line = [&](const char* name, int64_t bytes, const std::string& remark) {
    out += fmt::format("  {:<17} {:>12}{}\n", name, FormatBytes(bytes), remark);
  };
  line("weights", m.weights, "  Engram tables stay on disk");
  line("global KV", m.global_kv, fmt::format("  {} B/token", m.global_kv_per_token));
  line("windows", m.windows, "");
  line("draft windows", m.draft_windows, "");
  line("tails", m.tails, "");
  line("total", m.total(), "");
  if (r.available.bytes < 0) return out + "\nhow much memory this machine has is unknown\n";
  out +=
      fmt::format("\n{}: {} of {} available ({})\n",
                  r.fits() ? "fits here" : "does NOT fit here: weights will be read from disk",
                  FormatBytes(m.total()), FormatBytes(r.available.bytes), r.available.limited_by);
  return out;
}

Json ConfigJson(const model::ModelConfig& c) {
  return {{"layers", c.layers},
          {"hidden", c.hidden},
          {"vocab", c.vocab},
          {"context", c.max_positions},
          {"heads", c.heads},
          {"head_dim", c.head_dim},
          {"window", c.window},
          {"experts", c.experts},
          {"experts_per_token", c.top_k},
          {"expert_inner", c.expert_inner},
          {"streams", c.streams},
          {"index_topk", c.index_topk},
          {"decoder_begin", c.decoder_begin()},
          {"engram_layers", c.engram.layers},
          {"draft_stages", c.draft.stages},
          {"draft_block_size", c.draft.block_size}};
}

Json ToJson(const Report& r) {
  Json out{{"config", ConfigJson(r.config)}};
  auto layers = Json::array();
  for (const LayerGroup& g : r.groups) {
    for (int layer = g.first; layer <= g.last; ++layer) {
      Json entry{{"layer", layer}, {"role", g.role}, {"ratio", g.ratio}};
      if (g.kv_source >= 0) entry["kv_source"] = g.kv_source;
      if (g.index_source >= 0) entry["index_source"] = g.index_source;
      if (g.builds_pool) entry["builds_pool"] = true;
      if (model::Contains(r.config.engram.layers, layer)) entry["engram"] = true;
      layers.push_back(std::move(entry));
    }
  }
  out["layers"] = std::move(layers);
  Json kinds = Json::object();
  for (const TensorKind& kind : r.kinds) {
    kinds[kind.key] = {{"tensors", kind.tensors}, {"bytes", kind.bytes}};
  }
  out["tensors"] = {
      {"count", r.tensors}, {"bytes", r.bytes}, {"shards", r.shards}, {"kinds", kinds}};
  const Memory& m = r.memory;
  out["memory"] = {{"context_tokens", r.context},
                   {"weights_bytes", m.weights},
                   {"global_kv_bytes_per_token", m.global_kv_per_token},
                   {"global_kv_bytes", m.global_kv},
                   {"window_bytes", m.windows},
                   {"draft_window_bytes", m.draft_windows},
                   {"tail_bytes", m.tails},
                   {"total_bytes", m.total()}};
  out["available"] = nullptr;
  out["fits"] = nullptr;
  if (r.available.bytes >= 0) {
    out["available"] = {{"bytes", r.available.bytes}, {"limited_by", r.available.limited_by}};
    out["fits"] = r.fits();
  }
  return out;
}

Result<Report> Inspect(const InspectFlags& flags) {
  KURUMA_ASSIGN_OR_RETURN(const model::Numerics numerics, model::FindNumerics(flags.numerics));
  KURUMA_ASSIGN_OR_RETURN(const std::string directory, ModelDirectory(flags.directory));
  Report report;
  KURUMA_ASSIGN_OR_RETURN(report.config, model::LoadConfig(directory));
  KURUMA_ASSIGN_OR_RETURN(const auto checkpoint,
                          model::Checkpoint::Open(directory, model::ReadScope::kHeadersOnly));
  const auto weights = model::LoadWeights(*checkpoint, report.config);  // for its checks
  if (!weights.ok()) return weights.status();
  report.groups = GroupLayers(report.config);
  CountTensors(*checkpoint, &report);
  report.context = flags.context > 0 ? flags.context : report.config.max_positions;
  if (report.context > report.config.max_positions) {
    return InvalidArgument(fmt::format("--context {}: the model's context is {}", report.context,
                                       report.config.max_positions));
  }
  report.memory = MeasureMemory(report, numerics);
  report.available = device::FindAvailableMemory();
  return report;
}

int RunInspect(const InspectFlags& flags) {
  const Result<Report> report = Inspect(flags);
  if (!report.ok()) return Fail("inspect", report.status());
  return WriteOut(flags.json ? Dump(ToJson(*report)) + "\n" : ToText(*report)) ? kExitOk
                                                                               : kExitBadInput;
}

}  // namespace

void RegisterInspect(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = app.add_subcommand(
      "inspect", "What a checkpoint is and the memory it needs, from config and headers alone");
  command
      ->add_option("directory", flags->directory,
                   "Checkpoint directory (default: the bundled model)")
      ->type_name("DIR");
  command
      ->add_option("--context", flags->context,
                   "Tokens of one sequence to reckon with (default: the model's context)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->type_name("N");
  command
      ->add_option("--numerics", flags->numerics,
                   "release, exact, vendor: decides the size of caches")
      ->capture_default_str()
      ->type_name("MODE");
  command->add_flag("--json", flags->json, "One JSON object instead of text");
  command->footer(
      "Examples:\n"
      "  kuruma inspect DIR\n"
      "  kuruma inspect DIR --context 131072 --json\n"
      "Needs config.json, the index and the headers of the shards, and checks every tensor that "
      "the\nconfig calls for. Draft stages count whole in their own row, scales included.");
  command->callback([flags, exit_code] { *exit_code = RunInspect(*flags); });
}

}  // namespace kuruma
