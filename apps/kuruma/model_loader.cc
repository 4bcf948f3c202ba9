#include "model_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/log.h"
#include "device/host.h"
#include "inputs.h"
#include "kernels/dispatch.h"
#include "model_directory.h"
#include "report.h"
#include "text/engram_map.h"

namespace kuruma {
namespace {

// token_map of engram_token_map.json: one class per token id.
Result<std::vector<int32_t>> ReadTokenMap(const std::string& path, int64_t vocab) {
  KURUMA_ASSIGN_OR_RETURN(const std::string text, ReadInput(path));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return DataLoss(path + ": not valid JSON");
  const auto map = json.is_object() ? json.find("token_map") : json.end();
  if (map == json.end() || !map->is_array()) return DataLoss(path + ": token_map: not a list");
  if (static_cast<int64_t>(map->size()) != vocab) {
    return InvalidArgument(
        fmt::format("{}: token_map has {} entries, config.json says vocab_size "
                    "is {}",
                    path, map->size(), vocab));
  }
  std::vector<int32_t> classes;
  classes.reserve(map->size());
  for (const auto& item : *map) {
    if (!item.is_number_integer() || item < 0 || item >= vocab) {
      return DataLoss(fmt::format("{}: token_map[{}] must be an integer in 0..{}", path,
                                  classes.size(), vocab - 1));
    }
    classes.push_back(item.get<int32_t>());
  }
  return classes;
}

Result<std::unique_ptr<text::Tokenizer>> ReadTokenizer(const std::string& path, int64_t vocab) {
  KURUMA_ASSIGN_OR_RETURN(auto tokenizer, text::Tokenizer::Load(path));
  if (tokenizer->vocab_size() != vocab) {
    return InvalidArgument(fmt::format("{}: has {} tokens, config.json says vocab_size is {}", path,
                                       tokenizer->vocab_size(), vocab));
  }
  return tokenizer;
}

// Tokenizer and token classes, each from the file that has it.
Status LoadVocabulary(const std::string& directory, const model::ModelConfig& config,
                      TokenizerUse use, LoadedModel* loaded, std::vector<int32_t>* classes) {
  const std::string map_path = directory + "/engram_token_map.json";
  const std::string tokenizer_path = directory + "/tokenizer.json";
  const bool needs_classes = !config.engram.layers.empty();
  const bool has_map = needs_classes && FileExists(map_path);
  if (has_map) {
    KURUMA_ASSIGN_OR_RETURN(*classes, ReadTokenMap(map_path, config.vocab));
  }
  const bool reads_tokenizer = use == TokenizerUse::kRequired || (needs_classes && !has_map) ||
                               (use == TokenizerUse::kIfThere && FileExists(tokenizer_path));
  if (!reads_tokenizer) return Status();
  if (!FileExists(tokenizer_path)) {
    return NotFound(fmt::format("{}: no such file{}", tokenizer_path,
                                use == TokenizerUse::kRequired
                                    ? " (texts need it; give token ids instead)"
                                    : ", and no engram_token_map.json either"));
  }
  KURUMA_ASSIGN_OR_RETURN(loaded->tokenizer, ReadTokenizer(tokenizer_path, config.vocab));
  if (needs_classes && !has_map) {
    *classes = text::ComputeTokenClasses(*loaded->tokenizer).class_of;
  }
  return Status();
}

}  // namespace

void AddModelFlags(CLI::App* command, ModelFlags* flags, const std::string& prefill_name) {
  command
      ->add_option("--model", flags->directory, "Checkpoint directory (default: the bundled model)")
      ->type_name("DIR");
  command
      ->add_option("--numerics", flags->numerics,
                   "Rounding points: release (serving engine), exact (float32), vendor")
      ->capture_default_str()
      ->type_name("MODE");
  command
      ->add_option("--kernels", flags->kernels,
                   "Implementation: cpu (fastest here), cpu-avx2, cpu-portable, reference")
      ->capture_default_str()
      ->type_name("NAME");
  command
      ->add_option(prefill_name, flags->prefill,
                   "Decoder rows a prompt computes: full, exact (same result, less work), "
                   "compact (approximate)")
      ->capture_default_str()
      ->type_name("MODE");
  command
      ->add_option("--keep-tokens", flags->keep_tokens,
                   "With prefill compact: last tokens kept (0: the released default)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->type_name("N");
  command
      ->add_option("--chunk", flags->chunk,
                   "Prompt tokens per pass (0: the whole prompt); never changes a result")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--threads", flags->threads, "Compute threads (0: all processors)")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->type_name("N");
}

Result<LoadedModel> LoadModel(const ModelFlags& flags, TokenizerUse use) {
  const Stopwatch watch;
  KURUMA_ASSIGN_OR_RETURN(const std::string directory, ModelDirectory(flags.directory));
  const Progress progress("loading " + directory, 0);
  model::ModelOptions options;
  KURUMA_ASSIGN_OR_RETURN(options.numerics, model::FindNumerics(flags.numerics));
  KURUMA_ASSIGN_OR_RETURN(options.ops, kernels::FindOps(flags.kernels));
  KURUMA_ASSIGN_OR_RETURN(options.prefill, model::FindPrefillMode(flags.prefill));
  options.keep_tokens = flags.keep_tokens;
  KURUMA_ASSIGN_OR_RETURN(const model::ModelConfig config, model::LoadConfig(directory));
  LoadedModel loaded;
  KURUMA_RETURN_IF_ERROR(LoadVocabulary(directory, config, use, &loaded, &options.token_classes));
  KURUMA_ASSIGN_OR_RETURN(loaded.random_weights, ReadRandomWeights(directory));
  KURUMA_ASSIGN_OR_RETURN(loaded.sampling, ReadSamplingDefaults(directory));
  const int threads = flags.threads > 0 ? flags.threads : device::AvailableProcessors();
  loaded.pool = std::make_unique<ThreadPool>(threads);
  options.pool = loaded.pool.get();
  const char* kernels = options.ops->name;
  KURUMA_ASSIGN_OR_RETURN(loaded.model, model::Model::Load(directory, std::move(options)));
  loaded.chunk = flags.chunk;
  loaded.load_ms = watch.ms();
  LogInfo("{}: loaded in {:.0f} ms; numerics {}, kernels {}, {} threads", directory, loaded.load_ms,
          flags.numerics, kernels, threads);
  return loaded;
}

Status FeedPrompt(const LoadedModel& loaded, const PromptPass& prompt, model::SequenceState* state,
                  const PassSink& sink) {
  const auto total = static_cast<int64_t>(prompt.tokens.size());
  const int64_t context = loaded.model->config().max_positions;
  if (state->position() + total > context) {
    return InvalidArgument(fmt::format("the prompt has {} tokens; the context is {}",
                                       state->position() + total, context));
  }
  const int64_t end = state->position() + total;
  const int64_t chunk = loaded.chunk > 0 ? loaded.chunk : std::max<int64_t>(total, 1);
  Progress progress("reading the prompt", total);
  model::ForwardResult result;
  for (int64_t begin = 0; begin < total; begin += chunk) {
    const int64_t first_position = state->position();
    const int64_t count = std::min(chunk, total - begin);
    const model::SequenceInput input{state, prompt.tokens.subspan(begin, count), end,
                                     prompt.logits};
    KURUMA_RETURN_IF_ERROR(loaded.model->Forward({&input, 1}, nullptr, &result));
    KURUMA_RETURN_IF_ERROR(sink(first_position, result));
    progress.Update(begin + count);
    LogDebug("prompt tokens {} to {} of {} done", begin, begin + count, total);
  }
  return Status();
}

}  // namespace kuruma
