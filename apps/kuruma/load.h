// Puts a workload on an engine and notes when things happen.
#ifndef KURUMA_APPS_LOAD_H_
#define KURUMA_APPS_LOAD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "latency.h"
#include "workload.h"

namespace kuruma {

struct LoadOptions {
  int64_t concurrency = 1;  // requests in flight at most
  std::string label;        // shown while it runs
};

// Counts are those of requests that were answered.
struct LoadResult {
  std::vector<RequestTimes> times;
  int64_t failed = 0;
  std::string first_error;  // why the first of them failed
  double duration_s = 0;    // from the start to the last end
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of prompts, found in the cache
  int64_t output_tokens = 0;
  engine::EngineCounts counts;  // what the engine did meanwhile; waiting and running are 0
};

// Sends the requests in order, each when it has arrived and there is a place, and waits for all.
// Answers are greedy and as long as asked for. A request's time runs from its arrival in a timed
// workload, so that waiting for a place counts, else from when it was sent. The engine must have
// nothing else to do. Errors are those of Submit; nothing runs any more then.
Result<LoadResult> RunLoad(engine::Engine* engine, const Workload& workload,
                           const LoadOptions& options);

}  // namespace kuruma

#endif  // KURUMA_APPS_LOAD_H_
