// Which checkpoint directory a command uses, and what its small files say.
#ifndef KURUMA_APPS_MODEL_DIRECTORY_H_
#define KURUMA_APPS_MODEL_DIRECTORY_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace kuruma {

bool FileExists(const std::string& path);

// `given`, or where the bundled model lies if that is empty: models/tiny in a directory above the
// program's own (a build folder), else share/kuruma/models/tiny beside its bin (an installation).
// NotFound when there is none, or `given` is no directory.
Result<std::string> ModelDirectory(const std::string& given);

// `given`, or the tokenizer.json of the bundled model.
Result<std::string> TokenizerFile(const std::string& given);

// How a model's makers want it sampled, where the user says nothing.
struct SamplingDefaults {
  double temperature = 1;
  double top_p = 0.95;
  int64_t top_k = 0;
  double min_p = 0;
  double repetition_penalty = 1;
};

// From DIR/generation_config.json, as transformers and vLLM read it: "do_sample": false is
// temperature 0, what is absent (or the whole file) keeps the values above. DataLoss names file and
// field when a value is not a number in its range.
Result<SamplingDefaults> ReadSamplingDefaults(const std::string& directory);

// Whether DIR/kuruma.json says that the weights are random. DataLoss for a file that is not JSON.
Result<bool> ReadRandomWeights(const std::string& directory);

}  // namespace kuruma

#endif  // KURUMA_APPS_MODEL_DIRECTORY_H_
