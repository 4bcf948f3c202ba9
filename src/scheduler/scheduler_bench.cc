// What the scheduler costs per step while sequences decode; the engine has to plan and commit
// within the time of a step of the model.
#include <benchmark/benchmark.h>

#include "scheduler/decode_load_test_util.h"
#include "tests/support/heap.h"

namespace kuruma::scheduler {
namespace {

// One plan, what each sequence of it holds, one commit; another step is out meanwhile. Counters:
// heap allocations per step, and microseconds per sequence.
void BM_DecodeStep(benchmark::State& state) {
  DecodeLoad load({.sequences = state.range(0),
                   .spread = 1,
                   .waiting = state.range(1),
                   .has_slot = state.range(2) != 0});
  const int64_t before = testing::Allocations();
  for (auto _ : state) benchmark::DoNotOptimize(load.Step());
  const auto steps = static_cast<double>(state.iterations());
  state.counters["allocations"] = static_cast<double>(testing::Allocations() - before) / steps;
  state.counters["per_sequence"] =
      benchmark::Counter(static_cast<double>(state.range(0)) * steps,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_DecodeStep)
    ->ArgNames({"sequences", "waiting", "has_slot"})
    ->Args({16, 0, 0})
    ->Args({256, 0, 0})
    ->Args({256, 1000, 0})
    ->Args({256, 1000, 1})
    ->Iterations(4000)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kuruma::scheduler
