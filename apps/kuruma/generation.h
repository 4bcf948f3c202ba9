// Continues one prompt, token by token.
#ifndef KURUMA_APPS_GENERATION_H_
#define KURUMA_APPS_GENERATION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/sampler.h"
#include "model_loader.h"

namespace kuruma {

// When an answer ends, beside the context.
struct StopRules {
  int64_t max_tokens = 0;  // >= 1
  bool ignore_eos = false;
  std::vector<std::string> texts;  // stop strings; need a tokenizer
  std::vector<int32_t> tokens;     // further ids that end the answer
};

struct Generation {
  std::vector<int32_t> ids;  // everything drawn, a final stop token included
  std::string text;          // without stop token and stop string; empty without a tokenizer
  std::vector<engine::SampledToken> sampled;  // one per id
  std::string finish_reason;                  // "stop", "length", "interrupted"
  double prefill_ms = 0;
  double decode_ms = 0;
  int64_t decode_steps = 0;  // passes after the prompt's
};

// Receives text as soon as it is certain (ids and spaces without a tokenizer). False: nobody reads
// it, generation ends.
using TextSink = std::function<bool(std::string_view text)>;

// Generates until a rule ends it or the user presses Ctrl-C (the first time; a second one ends the
// program). `sampling.end_tokens` are filled in. Stop strings are looked for from min_tokens on.
// InvalidArgument: prompt and max_tokens exceed the context, sampling parameters out of range, stop
// strings without a tokenizer; Internal: logits that are not finite.
Result<Generation> Generate(const LoadedModel& loaded, const std::vector<int32_t>& prompt,
                            engine::SamplingParams sampling, const StopRules& rules,
                            const TextSink& sink);

}  // namespace kuruma

#endif  // KURUMA_APPS_GENERATION_H_
