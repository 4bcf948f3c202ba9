// The kinds of load, each with its report as JSON. Times are in milliseconds unless named
// otherwise.
#ifndef BENCH_SERVE_LOAD_MODES_H_
#define BENCH_SERVE_LOAD_MODES_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "crowd.h"

namespace kuruma::load {

using Json = nlohmann::ordered_json;

struct Target {
  uint16_t port = 8000;
  pid_t pid = 0;  // of the server, for its CPU time and files; 0: not measured
  std::string prompt = "short";
  int max_tokens = 16;
  double seconds = 10;  // that are measured
};

// A whole request to /v1/chat/completions, as bytes.
std::string ChatRequest(const Target& target, bool stream);

// {"p50", "p90", "p99", "max"}, null without values.
Json Quantiles(std::vector<float> values);

// Closed loop: every connection sends its next request when it has its answer.
Json RunShort(const Target& target, size_t connections);

struct RateOptions {
  double rate = 100;          // requests per second, arrivals of a Poisson process
  double bound_ms = 1000;     // later answers are no goodput
  size_t connections = 1000;  // open from the start; what falls due while all are busy is not sent
  uint64_t seed = 1;
};
// Open loop; latencies count from when a request was due, whether it could be sent then or not.
Json RunRate(const Target& target, const RateOptions& options);

// `streams` at once, whose tokens come every `delay_ms`, begun over `ramp_s`; then measured.
Json RunStreams(const Target& target, size_t streams, double delay_ms, double ramp_s);

struct SoakOptions {
  size_t connections = 8;  // closed loop of short requests
  size_t streams = 32;     // that follow each other, every other one is left in the middle
  std::string stream_prompt = "stream";
  int stream_tokens = 40;
  double sample_s = 2;
};
// Everything at once; resident bytes (from /stats) and open files against time.
Json RunSoak(const Target& target, const SoakOptions& options);

}  // namespace kuruma::load

#endif  // BENCH_SERVE_LOAD_MODES_H_
