// What this machine can do at most, measured with the engine's own threads: the yardsticks beside
// which `kuruma bench` and kernels_bench print their numbers.
#ifndef KURUMA_KERNELS_PROBE_H_
#define KURUMA_KERNELS_PROBE_H_

#include "base/thread_pool.h"

namespace kuruma::kernels {

// Bytes per second that the pool's threads read together from a buffer far larger than the caches
// (256 MiB, held during the call); best of several passes, well under a second.
double MeasureReadBandwidth(ThreadPool& pool);

// Float32 operations per second (a multiply-add counts as two) that the pool's threads reach on
// registers with the widest instructions the CPU targets use; best of several passes.
double MeasureFmaPeak(ThreadPool& pool);

}  // namespace kuruma::kernels

#endif  // KURUMA_KERNELS_PROBE_H_
