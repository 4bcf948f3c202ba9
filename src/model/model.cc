#include "model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "model/forward/pass.h"
#include "model/rope.h"

namespace kuruma::model {

struct Model::Parts {
  ModelConfig config;
  ModelOptions options;
  std::unique_ptr<Checkpoint> checkpoint;
  ModelWeights weights;
  std::unique_ptr<StateLayout> layout;
  std::vector<EngramHash> hashes;
  std::vector<float> frequencies[2];  // by RopeKind
  PrefillPlan prefill;
  Workspace workspace;

  Context MakeContext(const ForwardProbe* probe) {
    return {.config = config,
            .weights = weights,
            .layout = *layout,
            .numerics = options.numerics,
            .ops = *options.ops,
            .pool = *options.pool,
            .workspace = workspace,
            .frequencies = frequencies,
            .trace = {probe}};
  }
};

namespace {

Status CheckTokenClasses(const ModelConfig& c, const std::vector<int32_t>& classes) {
  if (c.engram.layers.empty()) return Status();
  if (static_cast<int64_t>(classes.size()) != c.vocab) {
    return InvalidArgument(fmt::format(
        "the Engram needs a class for each of the {} tokens of the vocabulary, {} are known "
        "(tokenizer.json or engram_token_map.json of another model?)",
        c.vocab, classes.size()));
  }
  const auto [least, most] = std::minmax_element(classes.begin(), classes.end());
  if (*least < 0 || *most + 1 != c.engram.classes) {
    return InvalidArgument(
        fmt::format("the tokenizer has {} token classes, engram_compressed_vocab_size is {}",
                    *most + 1, c.engram.classes));
  }
  return Status();
}

std::vector<EngramHash> MakeHashes(const ModelConfig& c, const std::vector<int32_t>& classes) {
  const EngramConfig& e = c.engram;
  std::vector<EngramHash> hashes;
  if (e.layers.empty()) return hashes;
  const auto primes =
      EngramPrimes(static_cast<int>(e.layers.size()), e.max_ngram, e.heads, e.prime_start);
  const auto multipliers = EngramMultipliers(e.layers, e.max_ngram, e.classes);
  for (size_t i = 0; i < e.layers.size(); ++i) {
    EngramHash hash{.heads = e.heads,
                    .pad_class = classes[e.pad_token],
                    .primes = primes[i],
                    .offsets = {},
                    .multipliers = multipliers[i]};
    int64_t offset = 0;
    for (int64_t prime : hash.primes) {
      hash.offsets.push_back(offset);
      offset += prime;
    }
    hashes.push_back(std::move(hash));
  }
  return hashes;
}

// Skipping decoder rows is possible when nothing but the decoder needs them.
Result<PrefillPlan> MakePrefillPlan(const ModelConfig& c, const ModelOptions& options) {
  PrefillPlan plan{options.prefill, options.keep_tokens};
  if (plan.mode == PrefillMode::kFull) return plan;
  for (int layer : c.draft.target_layers) {
    if (layer < c.decoder_begin()) {
      return InvalidArgument(fmt::format(
          "draft target layer {} comes before the decoder (layer {}): use --prefill full", layer,
          c.decoder_begin()));
    }
  }
  constexpr int64_t kReleasedMargin = 12;  // 140 - 128 in the released engine
  if (plan.keep_tokens == 0) plan.keep_tokens = c.window + kReleasedMargin;
  const int64_t least = c.window + c.draft.block_size + 1;
  if (plan.mode == PrefillMode::kCompact && plan.keep_tokens < least) {
    return InvalidArgument(fmt::format(
        "compact prefill keeps {} tokens, at least {} (window + longest rollback) are needed",
        plan.keep_tokens, least));
  }
  return plan;
}

}  // namespace

Result<PrefillMode> FindPrefillMode(const std::string& name) {
  if (name == "full") return PrefillMode::kFull;
  if (name == "exact") return PrefillMode::kExact;
  if (name == "compact") return PrefillMode::kCompact;
  return InvalidArgument("prefill mode \"" + name + "\" is unknown (full, exact, compact)");
}

int32_t ArgMax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

Model::Model(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Model::~Model() = default;
const ModelConfig& Model::config() const { return parts_->config; }
const StateLayout& Model::layout() const { return *parts_->layout; }
const ModelWeights& Model::weights() const { return parts_->weights; }
PrefillMode Model::prefill() const { return parts_->prefill.mode; }

Result<std::unique_ptr<Model>> Model::Load(const std::string& directory, ModelOptions options) {
  KURUMA_CHECK(options.ops != nullptr && options.pool != nullptr);
  auto parts = std::make_unique<Parts>();
  KURUMA_ASSIGN_OR_RETURN(parts->config, LoadConfig(directory));
  const ModelConfig& c = parts->config;
  KURUMA_ASSIGN_OR_RETURN(parts->prefill, MakePrefillPlan(c, options));
  KURUMA_ASSIGN_OR_RETURN(parts->checkpoint, Checkpoint::Open(directory, ReadScope::kWhole));
  KURUMA_ASSIGN_OR_RETURN(parts->weights, LoadWeights(*parts->checkpoint, c));
  KURUMA_RETURN_IF_ERROR(CheckTokenClasses(c, options.token_classes));
  parts->hashes = MakeHashes(c, options.token_classes);
  parts->options = std::move(options);
  parts->layout = std::make_unique<StateLayout>(c, parts->options.numerics);
  parts->frequencies[0] = RopeFrequencies(c.rope_dim, c.rope_theta, nullptr);
  parts->frequencies[1] = RopeFrequencies(c.rope_dim, c.compress_rope_theta,
                                          c.has_rope_scaling ? &c.rope_scaling : nullptr);
  return std::unique_ptr<Model>(new Model(std::move(parts)));
}

namespace {

Status CheckInput(const ModelConfig& c, const SequenceInput& in) {
  const auto count = static_cast<int64_t>(in.tokens.size());
  const int64_t end = in.state->position() + count;
  if (count == 0) return InvalidArgument("a sequence was given no tokens");
  if (end > c.max_positions) {
    return InvalidArgument(
        fmt::format("the sequence would have {} tokens; the context is {}", end, c.max_positions));
  }
  for (int32_t token : in.tokens) {
    if (token < 0 || token >= c.vocab) {
      return InvalidArgument(
          fmt::format("token {} is not in the vocabulary of {} tokens", token, c.vocab));
    }
  }
  if (in.prompt_end != 0 && end > in.prompt_end) {
    return InvalidArgument(
        fmt::format("a prompt chunk ends at {}, beyond the prompt's end {}", end, in.prompt_end));
  }
  if (in.prompt_end == 0 && in.state->carry.rows > 0) {
    return InvalidArgument("cannot decode before the prompt is complete");
  }
  return Status();
}

}  // namespace

int64_t Model::ReplayFrom(int64_t stored, int64_t prompt_end) const {
  const ModelConfig& c = parts_->config;
  const int64_t reach = c.window - 1;  // positions that a row sees beside its own
  const int64_t decoder_layers = c.layers - c.decoder_begin();
  // First row that must be right at the entrance of the decoder half.
  int64_t decoder_from = prompt_end - (c.window + (decoder_layers - 1) * reach);
  if (parts_->prefill.mode == PrefillMode::kFull) decoder_from = stored - decoder_layers * reach;
  if (parts_->prefill.mode == PrefillMode::kCompact) {
    decoder_from = prompt_end - parts_->prefill.keep_tokens;
  }
  const int64_t right_from = std::min(stored, decoder_from);
  return std::max<int64_t>(0, right_from - c.decoder_begin() * reach);
}

Status Model::Forward(std::span<const SequenceInput> inputs, const ForwardProbe* probe,
                      ForwardResult* result) {
  std::set<const SequenceState*> states;
  for (const SequenceInput& in : inputs) {
    KURUMA_RETURN_IF_ERROR(CheckInput(parts_->config, in));
    if (!states.insert(in.state).second) {
      return InvalidArgument("a sequence appears twice in one pass");
    }
  }
  if (inputs.empty()) return InvalidArgument("a pass needs at least one sequence");
  const Context ctx = parts_->MakeContext(probe);
  Pass(ctx, parts_->prefill, parts_->hashes, parts_->options.token_classes).Run(inputs, result);
  return Status();
}

Status Model::Draft(std::span<const DraftInput> inputs, const DraftChooser& choose,
                    DraftResult* result) {
  if (!parts_->weights.draft) return InvalidArgument("the checkpoint has no draft module");
  for (const DraftInput& in : inputs) {
    if (in.anchor < 0 || in.anchor >= parts_->config.vocab) {
      return InvalidArgument(fmt::format("token {} is not in the vocabulary of {} tokens",
                                         in.anchor, parts_->config.vocab));
    }
  }
  const Context ctx = parts_->MakeContext(nullptr);
  DraftPass(ctx, inputs, choose, result);
  return Status();
}

}  // namespace kuruma::model
