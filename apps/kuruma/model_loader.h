// Opens a checkpoint directory for the commands that run it.
#ifndef KURUMA_APPS_MODEL_LOADER_H_
#define KURUMA_APPS_MODEL_LOADER_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "base/thread_pool.h"
#include "model/model.h"
#include "model_directory.h"
#include "text/tokenizer.h"

namespace kuruma {

// What the user may choose about a model.
struct ModelFlags {
  std::string directory;  // empty: the bundled model
  std::string numerics = "release";
  std::string kernels = "cpu";
  std::string prefill = "exact";
  int64_t keep_tokens = 0;  // with prefill "compact"; 0: the released default
  int64_t chunk = 512;      // prompt tokens per pass; 0: the whole prompt
  int threads = 0;          // 0: every available processor
};

// Adds --model, --numerics, --kernels, --prefill (or another name for the prefill mode),
// --keep-tokens, --chunk, --threads.
void AddModelFlags(CLI::App* command, ModelFlags* flags,
                   const std::string& prefill_name = "--prefill");

// Whether DIR/tokenizer.json is read. kIfThere: it may be absent. kOnlyForEngram: only when the
// Engram's token classes must be computed from it.
enum class TokenizerUse { kRequired, kIfThere, kOnlyForEngram };

// A model ready to run. Members are destroyed in reverse order: the pool outlives the model.
struct LoadedModel {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<text::Tokenizer> tokenizer;  // null: there is none, token ids only
  std::unique_ptr<model::Model> model;
  bool random_weights = false;  // DIR/kuruma.json says that the weights mean nothing
  SamplingDefaults sampling;    // what DIR/generation_config.json asks for
  int64_t chunk = 0;
  double load_ms = 0;
};

// Loads DIR. Token classes come from DIR/engram_token_map.json when it is there, else from the
// tokenizer. Errors name the file: those of Model::Load and Tokenizer::Load; InvalidArgument also
// for unknown flag values and for a tokenizer or token map of another vocabulary.
Result<LoadedModel> LoadModel(const ModelFlags& flags, TokenizerUse use);

// Called after each pass with the absolute position of the pass's first token.
using PassSink = std::function<Status(int64_t first_position, const model::ForwardResult& result)>;

// What FeedPrompt computes.
struct PromptPass {
  std::span<const int32_t> tokens;
  model::LogitRows logits = model::LogitRows::kLast;
};

// Runs a prompt through the model in chunks, as the only sequence of each pass. InvalidArgument
// when the prompt exceeds the context; else errors of Forward and of the sink.
Status FeedPrompt(const LoadedModel& loaded, const PromptPass& prompt, model::SequenceState* state,
                  const PassSink& sink);

}  // namespace kuruma

#endif  // KURUMA_APPS_MODEL_LOADER_H_
