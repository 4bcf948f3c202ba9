#include "memory.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <optional>

namespace kuruma {
namespace {

// Value of a "Name:   123 kB" line of a /proc file, in bytes.
std::optional<int64_t> ProcField(const char* path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  int64_t kilobytes = 0;
  while (file >> word) {
    if (word == name + ":" && file >> kilobytes) return kilobytes * 1024;
  }
  return std::nullopt;
}

// A file with one number; nothing when it is absent or says "max".
std::optional<int64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// Path of this process in the unified (v2) hierarchy, or "".
std::string ControlGroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, 3, "0::") == 0) return line.substr(3);
  }
  return "";
}

void Tighten(const std::string& limit_path, const std::string& usage_path,
             AvailableMemory* available) {
  const auto limit = NumberIn(limit_path), usage = NumberIn(usage_path);
  if (!limit || !usage) return;
  const int64_t left = *limit > *usage ? *limit - *usage : 0;
  if (available->bytes >= 0 && left >= available->bytes) return;
  *available = {left, limit_path};
}

}  // namespace

AvailableMemory FindAvailableMemory() {
  AvailableMemory available;
  if (const auto bytes = ProcField("/proc/meminfo", "MemAvailable")) {
    available = {*bytes, "MemAvailable"};
  }
  Tighten("/sys/fs/cgroup/memory/memory.limit_in_bytes",
          "/sys/fs/cgroup/memory/memory.usage_in_bytes", &available);
  // Every group from ours up to the root may have a limit.
  for (std::string group = ControlGroup();; group.resize(group.rfind('/'))) {
    if (group == "/") group.clear();
    const std::string folder = "/sys/fs/cgroup" + group;
    Tighten(folder + "/memory.max", folder + "/memory.current", &available);
    if (group.empty() || group.rfind('/') == std::string::npos) break;
  }
  return available;
}

int64_t PeakResidentBytes() { return ProcField("/proc/self/status", "VmHWM").value_or(-1); }

std::string FormatBytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::fabs(value) >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

}  // namespace kuruma
