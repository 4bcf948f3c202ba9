// Statistics over the times of requests: what `kuruma bench engine` reports. Pure; any thread.
#ifndef KURUMA_APPS_LATENCY_H_
#define KURUMA_APPS_LATENCY_H_

#include <span>
#include <vector>

namespace kuruma {

// The value that `percent` (0..100) of `values` do not exceed, linear between neighbours as NumPy
// does it. NaN without values.
double Percentile(std::vector<double> values, double percent);

// Percentile 50. NaN without values.
double Median(std::vector<double> values);

// NaN without values.
double Mean(std::span<const double> values);

// When a request was sent and got its tokens, in ms of one clock.
struct RequestTimes {
  double sent_ms = 0;            // or arrived, if it had to wait before it could be sent
  std::vector<double> token_ms;  // ascending
};

// Over requests. What no request has (a second token, say) is NaN. Definitions are those of vLLM's
// `bench serve`.
struct LatencySummary {
  double ttft_mean_ms, ttft_p50_ms, ttft_p90_ms, ttft_p99_ms;  // sent to first token
  double tpot_p50_ms, tpot_p90_ms, tpot_p99_ms;  // mean time per token after the first, by request
  double itl_p99_ms;                             // between one token and the next, over all tokens
  double e2e_p50_ms, e2e_p99_ms;                 // sent to last token
};

// Requests without tokens are left out.
LatencySummary Summarize(std::span<const RequestTimes> requests);

}  // namespace kuruma

#endif  // KURUMA_APPS_LATENCY_H_
