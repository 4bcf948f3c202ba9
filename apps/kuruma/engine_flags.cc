#include "engine_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/log.h"
#include "server/deepinfer_switches.h"
#include "size_option.h"

namespace kuruma {

void AddEngineFlags(CLI::App* command, EngineFlags* flags) {
  command
      ->add_option("--max-sequences", flags->max_sequences,
                   "Sequences that run at once; further ones wait")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--max-step-tokens", flags->max_step_tokens,
                   "Tokens of a step, of prompts and answers together; at least --max-sequences")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str()
      ->type_name("N");
  AddSizeOption(command, "--kv-memory", &flags->kv_bytes,
                "Memory of the cache of global KV, such as 512MiB (auto: half of what is free, at "
                "most what can be of use)");
  AddSizeOption(command, "--snapshot-memory", &flags->snapshot_bytes,
                "Memory of saved windows, which spare replay after a prefix hit (0: none)");
  command->add_flag("--sync", flags->synchronous,
                    "Plan a step only when the one before is done (default: while it runs)");
  command->add_flag("--no-prefix-cache", flags->no_prefix_cache,
                    "Neither look for equal beginnings of prompts nor keep them");
  command
      ->add_option("--replay", flags->replay,
                   "After a hit, recompute windows from all tokens that matter (exact) or from one "
                   "window (bounded: less work, approximate)")
      ->capture_default_str()
      ->type_name("exact|bounded");
  command
      ->add_option("--target-tpot-ms", flags->target_tpot_ms,
                   "Longest step while answers are written, in ms; prompts are cut to keep it (0: "
                   "no bound)")
      ->capture_default_str()
      ->type_name("MS");
  command
      ->add_option("--chaos", flags->chaos_seed,
                   "For tests: random chunks and preemptions from this seed (0: none)")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()))
      ->capture_default_str()
      ->type_name("SEED");
}

std::map<std::string, std::string> Environment() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return environment;
}

Status AdoptDeepinferSwitches(const CLI::App& command, ModelFlags* model, EngineFlags* engine) {
  KURUMA_ASSIGN_OR_RETURN(const auto switches, server::ReadDeepinferSwitches(Environment()));
  for (const std::string& warning : switches.warnings) LogWarn("{}", warning);
  for (const auto& choice : switches.choices) {
    if (choice.key == "log_level") {
      KURUMA_RETURN_IF_ERROR(SetLogLevel(choice.value));
      continue;
    }
    std::string flag = "--" + choice.key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    if (command.get_option(flag)->count() > 0) continue;
    if (choice.key == "prefill") model->prefill = choice.value;
    if (choice.key == "sync") engine->synchronous = choice.value == "true";
    if (choice.key == "keep_tokens") {
      const char* end = choice.value.data() + choice.value.size();
      const auto [rest, error] = std::from_chars(choice.value.data(), end, model->keep_tokens);
      if (error != std::errc() || rest != end || model->keep_tokens < 0) {
        return InvalidArgument(
            fmt::format("environment variable {}: must be a number of tokens, "
                        "not \"{}\"",
                        choice.variable, choice.value));
      }
    }
  }
  return Status();
}

Result<engine::EngineOptions> ToOptions(const EngineFlags& flags) {
  if (flags.max_step_tokens < flags.max_sequences) {
    return InvalidArgument(
        fmt::format("--max-step-tokens must be at least --max-sequences ({}), "
                    "got {}",
                    flags.max_sequences, flags.max_step_tokens));
  }
  if (flags.replay != "exact" && flags.replay != "bounded") {
    return InvalidArgument(
        fmt::format("--replay must be exact or bounded, got \"{}\"", flags.replay));
  }
  constexpr double kLongestStepMs = 1e9;
  if (!(flags.target_tpot_ms >= 0 && flags.target_tpot_ms <= kLongestStepMs)) {
    return InvalidArgument(fmt::format("--target-tpot-ms must be in 0..{:.0f}, got {}",
                                       kLongestStepMs, flags.target_tpot_ms));
  }
  engine::EngineOptions options;
  options.max_sequences = flags.max_sequences;
  options.max_step_tokens = flags.max_step_tokens;
  options.kv_bytes = flags.kv_bytes;
  options.snapshot_bytes = flags.snapshot_bytes;
  options.target_tpot_ms = flags.target_tpot_ms;
  options.synchronous = flags.synchronous;
  options.prefix_cache = !flags.no_prefix_cache;
  options.bounded_replay = flags.replay == "bounded";
  options.chaos_seed = flags.chaos_seed;
  return options;
}

}  // namespace kuruma
