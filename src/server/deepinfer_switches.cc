#include "server/deepinfer_switches.h"

#include <fmt/format.h>

#include <algorithm>

namespace kuruma::server {
namespace {

constexpr std::string_view kPrefix = "DEEPINFER_";

struct Switch {
  std::string_view name;    // without the prefix
  std::string_view key;     // the option it sets; empty: accepted, changes nothing
  std::string_view values;  // "theirs=ours|..."; empty: the value is taken as it is
  std::string_view help;
};

// Values that count as false there are "0", "", "false" and "False"; "true" here stands for any
// other.
constexpr std::string_view kInverted = "false=true|true=false";
constexpr std::string_view kAnyBool = "false=|true=";

constexpr Switch kSwitches[] = {
    {"YOCO_PREFILL_TRUNCATION_MODE", "prefill", "off=full|mask=compact|compact=compact",
     "off: prefill full; mask and compact (which agree bit for bit): prefill compact"},
    {"YOCO_PREFILL_KEEP_TOKENS", "keep_tokens", "", "keep_tokens"},
    {"ZERO_OVERHEAD_SCHEDULING", "sync", kInverted, "0: sync"},
    {"CPP_LOG_LEVEL", "log_level", "off=off|error=error|warn=warn|info=info", "log_level"},
    {"BATCH_INVARIANT", "", kAnyBool, "accepted; results never depend on the batch here"},
};

// DeepInfer's other variables: devices, collectives, graphs, its scheduler's votes, debugging.
constexpr std::string_view kWithoutMeaning[] = {
    "ACCELERATOR",
    "COMPUTE_SUM_SMALLER_PROBS",
    "JIT_CACHE_DIR",
    "NCCL_NUM_SMS",
    "USERBUFFER_COMM_SMS",
    "GLOO_TIMEOUT",
    "REARRANGE_P2P_GROUPS",
    "OVERRIDE_NUM_EXTRA_EXPERTS",
    "EXPERT_COUNT_WINDOW_SIZE",
    "EXPERT_REARRANGEMENT_STEP_INTERVAL",
    "REARRANGE_AFTER_PREFILL_IN_NORMAL_ENGINE",
    "MOE_LB_STAT_INTERVAL",
    "FORCE_IMBALANCE_RATIO",
    "FORCE_LOAD_BALANCE",
    "SHOW_EPLB_DETAIL",
    "PREFILL_MAX_SUM_SEQLEN_K",
    "INDEX_ATTN_MEMORY_LIMIT",
    "USE_NEXTN_DECODE",
    "ENABLE_MTP_VARLEN",
    "MAX_BACKTRACKING_TOKENS",
    "DFLASH_CONFIDENCE_HEAD_TEMPERATURE",
    "ENGRAM_PAD_TOKEN",
    "ENGRAM_FORCE_GPU_STORAGE",
    "SAMPLER_FORCE_TOPK",
    "DECODE_TOKEN_BLACKLIST",
    "ENFORCE_EAGER",
    "CUDAGRAPH_BATCH_SIZE_INTERVAL",
    "DFLASH_ENFORCE_EAGER",
    "DFLASH_CUDAGRAPH_BATCH_SIZE_INTERVAL",
    "DECODE_PERF_CACHE_DIR",
    "DECODE_PERF_CACHE_TTL_SEC",
    "NUM_STATE_SLOTS_RATIO",
    "PREFILL_STORE_EXTRA_STATE",
    "PREFILL_STORE_EXTRA_SIZE",
    "XGRAMMAR_DEBUG",
    "XGRAMMAR_TIMEOUT",
    "XGRAMMAR_DISABLE_CACHE",
    "XGRAMMAR_CACHE_LIMIT_BYTES",
    "SO_BUILDER_CPUS",
    "PREFILL_ATTEMPT_INTERVAL",
    "PREFILL_ANY_ATTEMPT_INTERVAL",
    "LOGGING_INTERVAL_STEP",
    "NCCL_MEMORY_SAMPLE_INTERVAL_STEPS",
    "GC_INTERVAL_STEP",
    "RINGBUFFER_WARNING_INTERVAL",
    "DISABLE_SYNC_GUARD",
    "PROFILE_TORCH_CUDA_MEMORY",
    "ENABLE_MEMORY_TRACING",
    "PROFILE_HTTP_ENABLE",
    "PROFILE_HTTP_PORT_BASE",
    "USE_MULTIMODAL_POOL",
    "MULTIMODAL_POOL_SIZE_GB",
    "MULTI_MODAL_BUFFER_SIZE",
    "MULTI_MODAL_WORKER_TIMEOUT",
};

bool IsBool(const Switch& known) { return known.values == kInverted || known.values == kAnyBool; }

std::string AsTheirBool(const std::string& value) {
  const bool no = value.empty() || value == "0" || value == "false" || value == "False";
  return no ? "false" : "true";
}

// Our value for theirs; InvalidArgument lists what theirs may be.
Result<std::string> Translate(const Switch& known, const std::string& value) {
  if (known.values.empty()) return value;
  const std::string theirs = IsBool(known) ? AsTheirBool(value) : value;
  std::string allowed;
  std::string_view rest = known.values;
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('|'));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) == theirs) return std::string(pair.substr(equals + 1));
    allowed.append(allowed.empty() ? "" : ", ").append(pair.substr(0, equals));
  }
  return InvalidArgument(fmt::format("environment variable {}{}: must be one of {}, not \"{}\"",
                                     kPrefix, known.name, allowed, value));
}

}  // namespace

Result<DeepinferSwitches> ReadDeepinferSwitches(
    const std::map<std::string, std::string>& environment) {
  DeepinferSwitches switches;
  for (const auto& [variable, value] : environment) {
    if (!variable.starts_with(kPrefix)) continue;
    const std::string_view name = std::string_view(variable).substr(kPrefix.size());
    const auto* known = std::find_if(std::begin(kSwitches), std::end(kSwitches),
                                     [&](const Switch& s) { return s.name == name; });
    if (known != std::end(kSwitches)) {
      KURUMA_ASSIGN_OR_RETURN(std::string ours, Translate(*known, value));
      if (!known->key.empty()) {
        switches.choices.push_back({std::string(known->key), std::move(ours), variable});
      }
    } else if (std::find(std::begin(kWithoutMeaning), std::end(kWithoutMeaning), name) !=
               std::end(kWithoutMeaning)) {
      switches.warnings.push_back(
          fmt::format("environment variable {} has no meaning here and is ignored", variable));
    } else {
      switches.warnings.push_back(
          fmt::format("environment variable {} is unknown and ignored", variable));
    }
  }
  return switches;
}

std::string DescribeDeepinferSwitches() {
  std::string text;
  for (const Switch& s : kSwitches) {
    text += fmt::format("{}{}\n    {}\n", kPrefix, s.name, s.help);
  }
  return text;
}

}  // namespace kuruma::server
