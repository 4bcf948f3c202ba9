#include "engine/engine_metrics.h"

#include "engine/engine.h"

namespace kuruma::engine {

EngineMetrics::EngineMetrics(MetricsRegistry* registry) : registry_(registry) {
  if (registry_ == nullptr) return;
  MetricsRegistry& r = *registry_;
  running_ = &r.AddGauge("kuruma_num_requests_running", "Sequences that run.");
  waiting_ = &r.AddGauge("kuruma_num_requests_waiting", "Sequences that wait to begin.");
  cache_usage_ = &r.AddGauge("kuruma_kv_cache_usage_perc",
                             "Share of the cache's blocks that running sequences hold, 0 to 1.");
  prompt_tokens_.counter =
      &r.AddCounter("kuruma_prompt_tokens_total", "Prompt tokens of begun sequences.");
  cached_tokens_.counter = &r.AddCounter("kuruma_prompt_tokens_cached_total",
                                         "Prompt tokens that were found in the prefix cache.");
  generation_tokens_.counter = &r.AddCounter("kuruma_generation_tokens_total", "Tokens drawn.");
  preemptions_.counter =
      &r.AddCounter("kuruma_num_preemptions_total", "Sequences that had to step aside.");
  queries_.counter =
      &r.AddCounter("kuruma_prefix_cache_queries_total", "Blocks looked for in the prefix cache.");
  hits_.counter =
      &r.AddCounter("kuruma_prefix_cache_hits_total", "Blocks found in the prefix cache.");
  evictions_.counter =
      &r.AddCounter("kuruma_prefix_cache_evictions_total", "Blocks given up for others.");
  snapshot_hits_.counter =
      &r.AddCounter("kuruma_snapshot_hits_total", "Sequences that went on from saved windows.");
  replayed_.counter =
      &r.AddCounter("kuruma_replayed_rows_total", "Rows computed again to rebuild windows.");
  slow_steps_.counter =
      &r.AddCounter("kuruma_slow_steps_total", "Steps that took ten times as long as predicted.");
  planning_seconds_.counter =
      &r.AddCounter("kuruma_planning_seconds_total", "Time spent planning and committing steps.");
  idle_seconds_.counter = &r.AddCounter("kuruma_idle_seconds_total",
                                        "Time the model waited for a plan while there was work.");
  step_seconds_ = &r.AddHistogram(
      "kuruma_step_seconds", "Duration of steps.",
      {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60});
  step_rows_ = &r.AddHistogram("kuruma_step_rows", "Rows of steps.",
                               {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192});
  for (size_t i = 0; i < finished_.size(); ++i) {
    finished_[i] = &r.AddCounter(
        "kuruma_request_success_total", "Samples that ended, by reason.",
        {{"finished_reason", scheduler::Name(static_cast<scheduler::FinishReason>(i))}});
  }
}

void EngineMetrics::Grown::Show(double value) {
  counter->Add(value - shown);
  shown = value;
}

void EngineMetrics::Stepped(double ms, int64_t rows) {
  if (registry_ == nullptr) return;
  step_seconds_->Observe(ms / 1000);
  step_rows_->Observe(static_cast<double>(rows));
}

void EngineMetrics::Finished(scheduler::FinishReason reason) {
  if (registry_ == nullptr) return;
  finished_[static_cast<size_t>(reason)]->Add();
}

void EngineMetrics::Update(const EngineCounts& c) {
  if (registry_ == nullptr) return;
  running_->Set(static_cast<double>(c.running));
  waiting_->Set(static_cast<double>(c.waiting));
  cache_usage_->Set(static_cast<double>(c.blocks_in_use) / static_cast<double>(c.blocks));
  prompt_tokens_.Show(static_cast<double>(c.prompt_tokens));
  cached_tokens_.Show(static_cast<double>(c.cached_tokens));
  generation_tokens_.Show(static_cast<double>(c.tokens));
  preemptions_.Show(static_cast<double>(c.preemptions));
  queries_.Show(static_cast<double>(c.block_lookups));
  hits_.Show(static_cast<double>(c.block_hits));
  evictions_.Show(static_cast<double>(c.evictions));
  snapshot_hits_.Show(static_cast<double>(c.snapshot_hits));
  replayed_.Show(static_cast<double>(c.replayed_rows));
  slow_steps_.Show(static_cast<double>(c.slow_steps));
  planning_seconds_.Show(c.plan_ms / 1000);
  idle_seconds_.Show(c.idle_ms / 1000);
}

}  // namespace kuruma::engine
