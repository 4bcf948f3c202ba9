// The engine's entries in a metrics registry, under the names users of other servers know
// (docs/engine.md lists them).
#ifndef KURUMA_ENGINE_ENGINE_METRICS_H_
#define KURUMA_ENGINE_ENGINE_METRICS_H_

#include <array>
#include <cstdint>

#include "base/metrics.h"
#include "scheduler/plan.h"

namespace kuruma::engine {

struct EngineCounts;

// One thread; without a registry all calls do nothing.
class EngineMetrics {
 public:
  explicit EngineMetrics(MetricsRegistry* registry);

  void Stepped(double ms, int64_t rows);
  void Finished(scheduler::FinishReason reason);
  // The levels, and the growth of what is counted since the last call.
  void Update(const EngineCounts& counts);

 private:
  struct Grown {  // shows a count that is kept elsewhere
    Counter* counter = nullptr;
    double shown = 0;
    void Show(double value);
  };

  MetricsRegistry* registry_;
  Gauge* running_ = nullptr;
  Gauge* waiting_ = nullptr;
  Gauge* cache_usage_ = nullptr;
  Histogram* step_seconds_ = nullptr;
  Histogram* step_rows_ = nullptr;
  std::array<Counter*, 5> finished_ = {};  // by FinishReason
  Grown prompt_tokens_, cached_tokens_, idle_seconds_, generation_tokens_, preemptions_, hits_,
      queries_, evictions_, snapshot_hits_, replayed_, slow_steps_, planning_seconds_;
};

}  // namespace kuruma::engine

#endif  // KURUMA_ENGINE_ENGINE_METRICS_H_
