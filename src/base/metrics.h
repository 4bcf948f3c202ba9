// Numbers a running program shows: counters, gauges and histograms, written as Prometheus text.
// Source: the Prometheus text exposition format, version 0.0.4.
#ifndef KURUMA_BASE_METRICS_H_
#define KURUMA_BASE_METRICS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace kuruma {

// Only grows. Any thread.
class Counter {
 public:
  void Add(double amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// Goes up and down. Any thread.
class Gauge {
 public:
  void Set(double value) { value_.store(value, std::memory_order_relaxed); }
  void Add(double amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// Counts values by upper bound. Any thread; a reader may see a value counted in its bucket and not
// yet in the sum.
class Histogram {
 public:
  // `bounds` increase; what exceeds the last one is counted in +Inf alone.
  explicit Histogram(std::vector<double> bounds);

  void Observe(double value);

  struct Snapshot {
    std::vector<uint64_t> cumulative;  // values <= bounds[i]; the last entry counts all
    double sum = 0;
  };
  Snapshot snapshot() const;
  const std::vector<double>& bounds() const { return bounds_; }

 private:
  std::vector<double> bounds_;
  std::unique_ptr<std::atomic<uint64_t>[]> counts_;  // per bucket, the last one is +Inf
  std::atomic<double> sum_{0};
};

// Label names and values of one series, e.g. {{"reason", "stop"}}.
using Labels = std::vector<std::pair<std::string, std::string>>;

// Owns metrics; references it hands out live as long as it does. Any thread. Asking again for the
// same name and labels gives the same metric.
class MetricsRegistry {
 public:
  // Names are [a-z_:][a-z0-9_:]*; one name has one kind and one help text (the first).
  Counter& AddCounter(std::string_view name, std::string_view help, const Labels& labels = {});
  Gauge& AddGauge(std::string_view name, std::string_view help, const Labels& labels = {});
  Histogram& AddHistogram(std::string_view name, std::string_view help, std::vector<double> bounds,
                          const Labels& labels = {});

  // All of them, in order of name and of addition.
  std::string Text() const;

 private:
  struct Series {
    std::string labels;  // as written, without braces
    std::unique_ptr<Counter> counter;
    std::unique_ptr<Gauge> gauge;
    std::unique_ptr<Histogram> histogram;
  };
  struct Family {
    std::string help;
    const char* kind = "";
    std::deque<Series> series;
  };

  Series& Find(std::string_view name, std::string_view help, const char* kind,
               const Labels& labels);

  mutable std::mutex mutex_;
  std::map<std::string, Family, std::less<>> families_;
};

}  // namespace kuruma

#endif  // KURUMA_BASE_METRICS_H_
