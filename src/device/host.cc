#include "device/host.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <optional>

namespace kuruma::device {
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

int AvailableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int count = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) count = std::max(1, CPU_COUNT(&set));
  std::ifstream quota("/sys/fs/cgroup/cpu.max");
  std::string limit;
  double period = 0;
  if (quota >> limit >> period && limit != "max" && period > 0) {
    const int cores = static_cast<int>(std::max(1.0, std::stod(limit) / period + 0.5));
    count = std::min(count, cores);
  }
  return count;
}

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

int64_t ResidentBytes() { return ProcField("/proc/self/status", "VmRSS").value_or(-1); }

int64_t PeakResidentBytes() { return ProcField("/proc/self/status", "VmHWM").value_or(-1); }

}  // namespace kuruma::device
