#include "base/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace kuruma {
namespace {

std::string Written(const Labels& labels) {
  std::string out;
  for (const auto& [name, value] : labels) {
    if (!out.empty()) out += ',';
    out += name + "=\"";
    for (const char c : value) {
      if (c == '\n') {
        out += "\\n";
        continue;
      }
      if (c == '\\' || c == '"') out += '\\';
      out += c;
    }
    out += '"';
  }
  return out;
}

// One line; `extra` is a further label, or empty.
void AppendLine(std::string_view name, std::string_view labels, std::string_view extra,
                double value, std::string* out) {
  *out += name;
  if (!labels.empty() || !extra.empty()) {
    const char* comma = !labels.empty() && !extra.empty() ? "," : "";
    fmt::format_to(std::back_inserter(*out), "{{{}{}{}}}", labels, comma, extra);
  }
  fmt::format_to(std::back_inserter(*out), " {}\n", value);
}

void AppendHistogram(const std::string& name, const std::string& labels, const Histogram& histogram,
                     std::string* out) {
  const Histogram::Snapshot s = histogram.snapshot();
  for (size_t i = 0; i < s.cumulative.size(); ++i) {
    const std::string bound = i < histogram.bounds().size()
                                  ? fmt::format("le=\"{}\"", histogram.bounds()[i])
                                  : "le=\"+Inf\"";
    AppendLine(name + "_bucket", labels, bound, static_cast<double>(s.cumulative[i]), out);
  }
  AppendLine(name + "_sum", labels, "", s.sum, out);
  AppendLine(name + "_count", labels, "", static_cast<double>(s.cumulative.back()), out);
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)),
      counts_(std::make_unique<std::atomic<uint64_t>[]>(bounds_.size() + 1)) {
  KURUMA_CHECK(std::is_sorted(bounds_.begin(), bounds_.end()));
}

void Histogram::Observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[bucket].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

Histogram::Snapshot Histogram::snapshot() const {
  Snapshot s;
  uint64_t count = 0;
  for (size_t i = 0; i <= bounds_.size(); ++i) {
    count += counts_[i].load(std::memory_order_relaxed);
    s.cumulative.push_back(count);
  }
  s.sum = sum_.load(std::memory_order_relaxed);
  return s;
}

MetricsRegistry::Series& MetricsRegistry::Find(std::string_view name, std::string_view help,
                                               const char* kind, const Labels& labels) {
  Family& family = families_[std::string(name)];
  if (family.series.empty()) {
    family.help = help;
    family.kind = kind;
  }
  KURUMA_CHECK(std::string_view(family.kind) == kind);
  const std::string written = Written(labels);
  for (Series& series : family.series) {
    if (series.labels == written) return series;
  }
  family.series.push_back({written, nullptr, nullptr, nullptr});
  return family.series.back();
}

Counter& MetricsRegistry::AddCounter(std::string_view name, std::string_view help,
                                     const Labels& labels) {
  const std::lock_guard lock(mutex_);
  Series& series = Find(name, help, "counter", labels);
  if (series.counter == nullptr) series.counter = std::make_unique<Counter>();
  return *series.counter;
}

Gauge& MetricsRegistry::AddGauge(std::string_view name, std::string_view help,
                                 const Labels& labels) {
  const std::lock_guard lock(mutex_);
  Series& series = Find(name, help, "gauge", labels);
  if (series.gauge == nullptr) series.gauge = std::make_unique<Gauge>();
  return *series.gauge;
}

Histogram& MetricsRegistry::AddHistogram(std::string_view name, std::string_view help,
                                         std::vector<double> bounds, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  Series& series = Find(name, help, "histogram", labels);
  if (series.histogram == nullptr) series.histogram = std::make_unique<Histogram>(bounds);
  return *series.histogram;
}

std::string MetricsRegistry::Text() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& [name, family] : families_) {
    fmt::format_to(std::back_inserter(out), "# HELP {} {}\n# TYPE {} {}\n", name, family.help, name,
                   family.kind);
    for (const Series& s : family.series) {
      if (s.histogram != nullptr) {
        AppendHistogram(name, s.labels, *s.histogram, &out);
      } else {
        AppendLine(name, s.labels, "", s.counter ? s.counter->value() : s.gauge->value(), &out);
      }
    }
  }
  return out;
}

}  // namespace kuruma
