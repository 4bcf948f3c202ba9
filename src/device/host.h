// The host as a compute device: what processors and memory it has for this process. CPU kernels
// need no more of a device than this; other devices get their own folders here.
#ifndef KURUMA_DEVICE_HOST_H_
#define KURUMA_DEVICE_HOST_H_

#include <cstdint>
#include <string>

namespace kuruma::device {

// Number of processors this process may run on (affinity mask and control group quota), at least 1.
int AvailableProcessors();

struct AvailableMemory {
  int64_t bytes = -1;      // -1: unknown
  std::string limited_by;  // "MemAvailable", or the control group file that allows less
};

// The smaller of MemAvailable and what the control groups (v1 or v2) of this process leave.
AvailableMemory FindAvailableMemory();

// Resident size of this process, in bytes; -1: unknown.
int64_t ResidentBytes();

// Largest resident size of this process so far (VmHWM), in bytes; -1: unknown. Mapped files count.
int64_t PeakResidentBytes();

}  // namespace kuruma::device

#endif  // KURUMA_DEVICE_HOST_H_
