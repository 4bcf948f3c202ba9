// What a benchmark sends: prompts of random tokens, lengths and arrivals from flags or from a trace
// file. Pure: the same seed gives the same workload on every machine, up to the last bit of
// logarithms in Poisson arrivals.
#ifndef KURUMA_APPS_WORKLOAD_H_
#define KURUMA_APPS_WORKLOAD_H_

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kuruma {

struct WorkloadOptions {
  int64_t num_prompts = 32;
  int64_t input_len = 128;  // tokens of a prompt behind its prefix
  int64_t output_len = 64;
  double range_ratio = 0;    // [0, 1): lengths are uniform in len * (1 - ratio)..len * (1 + ratio)
  int64_t prefix_len = 0;    // tokens in front of every prompt
  int64_t num_prefixes = 1;  // distinct ones; prompts take them in turn
  double request_rate = std::numeric_limits<double>::infinity();  // per second, Poisson
  uint64_t seed = 0;
};

// What the model allows.
struct WorkloadLimits {
  int64_t vocab = 0;
  int64_t context = 0;  // longest prompt and answer together
};

struct WorkloadRequest {
  double arrival_s = 0;  // from the start
  std::vector<int32_t> prompt;
  int64_t output_tokens = 1;
};

struct Workload {
  bool timed = false;                     // arrivals count; else all are there from the start
  std::vector<WorkloadRequest> requests;  // by arrival
};

// InvalidArgument names the flag that is out of range, or lengths beyond the context.
Result<Workload> MakeWorkload(const WorkloadOptions& options, const WorkloadLimits& limits);

// A trace in JSON Lines, one request a line:
//   {"arrival_s": 0.5, "input_len": 100, "output_len": 20, "prefix_len": 0, "prefix": 0}
// The last two may be missing. prefix_len tokens in front of the prompt are those that every
// request with the same "prefix" begins with. Empty lines are skipped, requests sorted by arrival.
// InvalidArgument: nothing in it, or "NAME: line N: " and what is wrong.
Result<Workload> ParseTrace(std::string_view text, const std::string& name, uint64_t seed,
                            const WorkloadLimits& limits);

// `count` requests of the lengths of `like` (in turn), all there from the start, with tokens that
// `like` has nowhere: what runs before a measurement fills no cache for it.
Workload MakeWarmup(const Workload& like, int64_t count, uint64_t seed, int64_t vocab);

}  // namespace kuruma

#endif  // KURUMA_APPS_WORKLOAD_H_
