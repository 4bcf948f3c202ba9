// What the engine itself costs: planning, committing and delivering, around a runner that computes
// nothing. us_per_step is the engine thread's own time in a step of as many decoding sequences.
#include <benchmark/benchmark.h>

#include <latch>
#include <memory>
#include <stdexcept>

#include "engine/engine.h"
#include "tests/support/heap.h"

namespace kuruma::engine {
namespace {

class NullRunner : public Runner {
 public:
  Status Run(const std::vector<SlotStep>& steps, std::vector<SlotResult>* results) override {
    results->resize(steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      SlotResult& result = (*results)[i];
      if (!steps[i].draws) {
        result.drawn.reset();
        continue;
      }
      if (!result.drawn) result.drawn.emplace();
      result.drawn->token = static_cast<int32_t>(steps[i].slot);  // no two answers share blocks
    }
    return Status();
  }
};

struct Mark {
  EngineCounts counts;
  int64_t allocations = 0;
};

void Decode(benchmark::State& state) {
  const int64_t sequences = state.range(0);
  EngineOptions options{.max_sequences = sequences, .max_step_tokens = 4096};
  options.synchronous = state.range(1) == 0;
  options.kv_bytes = (sequences * 64) << 10;  // 64 blocks each
  const RunnerTraits traits{
      .digest = "", .vocab = 1 << 16, .context = 1 << 16, .block_bytes = 1024, .replay_from = {}};
  auto engine = Engine::Create(std::make_unique<NullRunner>(), traits, options);
  if (!engine.ok()) throw std::runtime_error(engine.status().message());
  double us = 0, steps = 0, allocations = 0;
  int32_t prompt = 0;
  for (auto unused : state) {
    // Taken on the engine's own thread, long after all prompts were read.
    Mark begin, end;
    int64_t tokens = 0;
    std::latch ended(sequences);
    for (int64_t i = 0; i < sequences; ++i) {
      Request request;
      request.prompt.assign(200, ++prompt % (1 << 16));
      request.max_tokens = 4000;
      const auto id = (*engine)->Submit(std::move(request), [&, first = i == 0](const Event& e) {
        if (e.kind == Event::Kind::kFinished) return ended.count_down();
        if (!first) return;
        ++tokens;
        if (tokens == 1000) begin = {(*engine)->counts(), testing::Allocations()};
        if (tokens == 3000) end = {(*engine)->counts(), testing::Allocations()};
      });
      if (!id.ok()) throw std::runtime_error(id.status().message());
    }
    ended.wait();
    steps += static_cast<double>(end.counts.steps - begin.counts.steps);
    us += (end.counts.plan_ms - begin.counts.plan_ms) * 1000;
    allocations += static_cast<double>(end.allocations - begin.allocations);
  }
  state.counters["us_per_step"] = us / steps;
  state.counters["target_us"] = 50 + 0.5 * static_cast<double>(sequences);
  state.counters["allocations_per_step"] = allocations / steps;
}

BENCHMARK(Decode)
    ->ArgNames({"sequences", "async"})
    ->ArgsProduct({{1, 16, 64, 256}, {0, 1}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace kuruma::engine
