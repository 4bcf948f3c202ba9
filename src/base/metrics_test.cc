#include "base/metrics.h"

#include <gtest/gtest.h>

#include <thread>

namespace kuruma {
namespace {

TEST(Metrics, AreWrittenAsPrometheusText) {
  MetricsRegistry registry;
  registry.AddCounter("b_total", "Things done.", {{"how", "well \"so\"\n"}}).Add(2);
  registry.AddCounter("b_total", "ignored", {{"how", "badly"}});
  registry.AddGauge("a", "A level.").Set(-1.5);
  Histogram& h = registry.AddHistogram("c_seconds", "Times.", {0.1, 1}, {{"x", "y"}});
  for (const double value : {0.05, 0.1, 0.5, 7.0}) h.Observe(value);
  EXPECT_EQ(registry.Text(),
            "# HELP a A level.\n# TYPE a gauge\na -1.5\n"
            "# HELP b_total Things done.\n# TYPE b_total counter\n"
            "b_total{how=\"well \\\"so\\\"\\n\"} 2\nb_total{how=\"badly\"} 0\n"
            "# HELP c_seconds Times.\n# TYPE c_seconds histogram\n"
            "c_seconds_bucket{x=\"y\",le=\"0.1\"} 2\nc_seconds_bucket{x=\"y\",le=\"1\"} 3\n"
            "c_seconds_bucket{x=\"y\",le=\"+Inf\"} 4\nc_seconds_sum{x=\"y\"} 7.65\n"
            "c_seconds_count{x=\"y\"} 4\n");
}

TEST(Metrics, TheSameNameAndLabelsAreTheSameMetric) {
  MetricsRegistry registry;
  Counter& first = registry.AddCounter("a_total", "");
  std::thread other([&] { registry.AddCounter("a_total", "").Add(1); });
  first.Add(1);
  other.join();
  EXPECT_EQ(first.value(), 2);
}

}  // namespace
}  // namespace kuruma
