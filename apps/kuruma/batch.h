// Runs many requests through the engine and writes what came of them.
#ifndef KURUMA_APPS_BATCH_H_
#define KURUMA_APPS_BATCH_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "model_loader.h"
#include "request_file.h"

namespace kuruma {

struct BatchOptions {
  engine::EngineOptions engine;
  bool json = false;     // one object per request instead of text
  bool digests = false;  // with json: SHA-256 of the logits that tokens were drawn from
  bool quiet = false;    // no statistics on stderr
};

// All at once; results go to stdout in the order of `requests`, each as soon as it and those before
// it are there. `name` is what messages call the file. The exit code of the command: 130 after
// Ctrl-C (what there was is written), 1 if a request failed (its line says why).
// InvalidArgument, with nothing run: a request that can never run, named by its line.
Result<int> RunBatch(const LoadedModel& loaded, std::vector<FileRequest> requests,
                     const BatchOptions& options, const std::string& name);

}  // namespace kuruma

#endif  // KURUMA_APPS_BATCH_H_
