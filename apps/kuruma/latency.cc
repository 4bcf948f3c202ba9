#include "latency.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

namespace kuruma {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

}  // namespace

double Percentile(std::vector<double> values, double percent) {
  if (values.empty()) return kNone;
  std::sort(values.begin(), values.end());
  const double at = percent / 100 * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - std::floor(at)) * (values[above] - values[below]);
}

double Median(std::vector<double> values) { return Percentile(std::move(values), 50); }

double Mean(std::span<const double> values) {
  if (values.empty()) return kNone;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

LatencySummary Summarize(std::span<const RequestTimes> requests) {
  std::vector<double> ttft, tpot, itl, e2e;
  for (const RequestTimes& request : requests) {
    const std::vector<double>& tokens = request.token_ms;
    if (tokens.empty()) continue;
    ttft.push_back(tokens.front() - request.sent_ms);
    e2e.push_back(tokens.back() - request.sent_ms);
    if (tokens.size() < 2) continue;
    tpot.push_back((tokens.back() - tokens.front()) / static_cast<double>(tokens.size() - 1));
    for (size_t i = 1; i < tokens.size(); ++i) itl.push_back(tokens[i] - tokens[i - 1]);
  }
  return {.ttft_mean_ms = Mean(ttft),
          .ttft_p50_ms = Median(ttft),
          .ttft_p90_ms = Percentile(ttft, 90),
          .ttft_p99_ms = Percentile(ttft, 99),
          .tpot_p50_ms = Median(tpot),
          .tpot_p90_ms = Percentile(tpot, 90),
          .tpot_p99_ms = Percentile(tpot, 99),
          .itl_p99_ms = Percentile(itl, 99),
          .e2e_p50_ms = Median(e2e),
          .e2e_p99_ms = Percentile(e2e, 99)};
}

}  // namespace kuruma
