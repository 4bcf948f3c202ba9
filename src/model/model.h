// DeepSeek-V4.1: one checkpoint, its forward pass over a batch of sequences, and its DSpark draft.
//
// The model knows rows and block tables, not requests: a batch is a list of (state, new tokens),
// and every row's result depends on its own sequence alone (DESIGN.md "Batch invariance"). The
// passes are written in layer order in model/forward/, to be read beside the specification.
#ifndef KURUMA_MODEL_MODEL_H_
#define KURUMA_MODEL_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "base/view.h"
#include "kernels/ops.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/numerics.h"
#include "model/state.h"
#include "model/weights.h"

namespace kuruma::model {

// Which decoder rows a prompt computes (DESIGN.md "Prefill modes").
enum class PrefillMode {
  kFull,     // all
  kExact,    // the trapezoid that logits and windows depend on: bit-identical to kFull
  kCompact,  // the last `keep_tokens` in every decoder layer: approximate
};

// "full", "exact" or "compact"; InvalidArgument otherwise.
Result<PrefillMode> FindPrefillMode(const std::string& name);

struct ModelOptions {
  Numerics numerics;
  const kernels::OpTable* ops = nullptr;  // kernels::FindOps
  ThreadPool* pool = nullptr;             // must outlive the model
  PrefillMode prefill = PrefillMode::kExact;
  int64_t keep_tokens = 0;             // kCompact: 0 = window + 12, the released default
  std::vector<int32_t> token_classes;  // [vocab] Engram class of each token; empty: no Engram
};

enum class LogitRows { kNone, kLast, kAll };

// New tokens of one sequence. They are appended at state->position().
struct SequenceInput {
  SequenceState* state = nullptr;
  std::span<const int32_t> tokens;
  // While a prompt is being fed: the length the sequence will have when it is complete, the same
  // value for every chunk of it. 0 for decoding and verifying: all rows run through all layers.
  int64_t prompt_end = 0;
  LogitRows logits = LogitRows::kLast;
};

// Logits [rows, vocab]; `first_row[i]` is where those of input i start, `first_row.back()` the end.
// kLast of an unfinished prompt has no row.
struct ForwardResult {
  std::vector<float> logits;
  std::vector<int64_t> first_row;
  // Per input: the first layer after which its numbers were not finite; -1: they are. Such an
  // input's state is of no use any more.
  std::vector<int> broken_layer;
  int64_t vocab = 0;

  std::span<const float> Row(int64_t row) const {
    return {logits.data() + row * vocab, static_cast<size_t>(vocab)};
  }
};

struct DraftInput {
  const SequenceState* state = nullptr;  // after the forward pass that chose `anchor`
  int32_t anchor = 0;                    // token just drawn for position state->position()
};

// One draft block per input, block_size entries each, input major.
struct DraftResult {
  std::vector<int32_t> tokens;
  std::vector<float> logits;             // [inputs * block_size, vocab], Markov bias included
  std::vector<float> confidence_logits;  // of the conditional acceptance, before the sigmoid
};

// Chooses the draft token of input `input`, number `index`, from its logits.
using DraftChooser = std::function<int32_t(int64_t input, int index, std::span<const float>)>;

// Argmax, ties to the lowest id.
int32_t ArgMax(std::span<const float> logits);

// Lets tests and researchers watch a pass, or replace what enters a layer (teacher forcing).
struct ForwardProbe {
  // Streams [rows, streams * hidden] after any Engram and pre [rows, streams], both writable.
  std::function<void(int layer, Rows streams, Rows pre)> layer_input;
  // Every named intermediate; names are those of tests/golden/README.md, layer -1 for globals.
  std::function<void(std::string_view name, int layer, ConstRows values)> values;
  // Integer results: "expert_ids" [rows, top_k], "index_picks" (one call per row).
  std::function<void(std::string_view name, int layer, int64_t row, std::span<const int32_t>)> ids;
};

// Loaded weights plus everything derived from them. Forward and Draft use the pool and an internal
// workspace: one caller at a time. Everything else is const and thread safe.
class Model {
 public:
  // Opens DIR (config.json, index, shards). Tensor bytes are mapped, not read. Errors: those of
  // LoadConfig, Checkpoint::Open and LoadWeights; InvalidArgument when options and config disagree
  // (Engram without token classes, classes that do not match, prefill mode against layer roles).
  static Result<std::unique_ptr<Model>> Load(const std::string& directory, ModelOptions options);
  ~Model();

  const ModelConfig& config() const;
  const StateLayout& layout() const;
  const ModelWeights& weights() const;
  PrefillMode prefill() const;

  // Where a sequence must be replayed from so that windows and logits are those of a cold run, when
  // global KV of its first `stored` tokens is there and its prompt ends at `prompt_end` > stored:
  // rows lose one window less one of context per layer they have passed since. ResumeSequence.
  int64_t ReplayFrom(int64_t stored, int64_t prompt_end) const;

  // One pass over all inputs. InvalidArgument (nothing changed): token out of range, sequence over
  // the context, a state given twice, decode while a prompt is unfinished, no tokens.
  // `probe` may be null.
  Status Forward(std::span<const SequenceInput> inputs, const ForwardProbe* probe,
                 ForwardResult* result);

  // Proposes draft tokens after `anchor`; states are not changed. InvalidArgument: the config has
  // no draft stages, or an anchor is out of range.
  Status Draft(std::span<const DraftInput> inputs, const DraftChooser& choose, DraftResult* result);

 private:
  struct Parts;
  explicit Model(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace kuruma::model

#endif  // KURUMA_MODEL_MODEL_H_
