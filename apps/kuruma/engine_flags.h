// The engine's options on the command line, the same for every command that runs it.
#ifndef KURUMA_APPS_ENGINE_FLAGS_H_
#define KURUMA_APPS_ENGINE_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>

#include "base/status.h"
#include "engine/engine.h"
#include "model_loader.h"

namespace kuruma {

// What the user may choose about the engine; see engine::EngineOptions.
struct EngineFlags {
  int64_t max_sequences = 32;
  int64_t max_step_tokens = 512;
  int64_t kv_bytes = 0;
  int64_t snapshot_bytes = int64_t{256} << 20;
  bool synchronous = false;
  bool no_prefix_cache = false;
  std::string replay = "exact";
  double target_tpot_ms = 0;
  uint64_t chaos_seed = 0;
};

// Adds --max-sequences, --max-step-tokens, --kv-memory, --snapshot-memory, --sync,
// --no-prefix-cache, --replay,
// --target-tpot-ms and --chaos.
void AddEngineFlags(CLI::App* command, EngineFlags* flags);

// All variables of this process.
std::map<std::string, std::string> Environment();

// Takes DEEPINFER_* variables with a meaning here (docs/serve_options.md) for flags of `command`
// that were not given; others are reported in the log. InvalidArgument names a variable with a
// value that DeepInfer would not know.
Status AdoptDeepinferSwitches(const CLI::App& command, ModelFlags* model, EngineFlags* engine);

// InvalidArgument names a flag that is out of range, with the range.
Result<engine::EngineOptions> ToOptions(const EngineFlags& flags);

}  // namespace kuruma

#endif  // KURUMA_APPS_ENGINE_FLAGS_H_
