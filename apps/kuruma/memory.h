// What memory this machine has for us.
#ifndef KURUMA_APPS_MEMORY_H_
#define KURUMA_APPS_MEMORY_H_

#include <cstdint>
#include <string>

namespace kuruma {

struct AvailableMemory {
  int64_t bytes = -1;      // -1: unknown
  std::string limited_by;  // "MemAvailable", or the control group file that allows less
};

// The smaller of MemAvailable and what the control groups (v1 or v2) of this process leave.
AvailableMemory FindAvailableMemory();

// Largest resident size of this process so far (VmHWM), in bytes; -1: unknown. Mapped files count.
int64_t PeakResidentBytes();

// "1.25 GiB", "890 B".
std::string FormatBytes(int64_t bytes);

}  // namespace kuruma

#endif  // KURUMA_APPS_MEMORY_H_
