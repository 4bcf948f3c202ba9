// Continues one prompt, token by token.
#ifndef KURUMA_APPS_GENERATION_H_
#define KURUMA_APPS_GENERATION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/sampler.h"
#include "model_loader.h"

namespace kuruma {

struct GenerationInput {
  std::vector<int32_t> prompt;
  engine::SamplingParams sampling;  // end_tokens are filled in
  int64_t max_tokens = 0;           // >= 1
  bool ignore_eos = false;
  std::vector<int32_t> stop_tokens;  // further ids that end the answer
};

struct Generation {
  std::vector<int32_t> ids;                   // everything drawn, a final stop token included
  std::vector<engine::SampledToken> sampled;  // one per id
  std::string finish_reason;                  // "stop", "length", "interrupted"
  int64_t reused_tokens = 0;                  // of the prompt, already in the state
  double prefill_ms = 0;
  double decode_ms = 0;
  int64_t decode_steps = 0;  // passes after the prompt's
};

enum class SinkVerdict {
  kGoOn,
  kStop,        // a stop string was met
  kReaderGone,  // nobody reads the answer
};

// Receives every token that is drawn, but for the one that ends the answer. `may_stop`: the answer
// has its min_tokens.
using TokenSink = std::function<SinkVerdict(int32_t token, bool may_stop)>;

// Generates until a rule ends it or the user presses Ctrl-C (the first time; a second one ends the
// program). What `*state` holds is kept if the prompt begins with it, else it begins anew; either
// way the answer is the same. Afterwards it holds prompt and answer, but for the last token drawn.
// InvalidArgument: prompt and max_tokens exceed the context, sampling parameters out of range;
// Internal: logits that are not finite.
Result<Generation> Generate(const LoadedModel& loaded, GenerationInput input,
                            model::SequenceState* state, const TokenSink& sink);

// What the model's makers recommend, and a seed from the operating system.
engine::SamplingParams DefaultSampling(const SamplingDefaults& defaults);

// "[prompt 12 tokens, 900.0 tok/s; answer 7 tokens, 300.0 tok/s; stop; seed 4]"
std::string Statistics(const GenerationInput& input, const Generation& generation);

double PerSecond(double count, double ms);

}  // namespace kuruma

#endif  // KURUMA_APPS_GENERATION_H_
