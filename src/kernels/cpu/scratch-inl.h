// Per-thread work memory that only grows, so that no op allocates in a steady state.
#ifndef KURUMA_KERNELS_CPU_SCRATCH_INL_H_
#define KURUMA_KERNELS_CPU_SCRATCH_INL_H_

#include <cstdlib>

#include "base/check.h"
#include "kernels/cpu/simd-inl.h"

namespace kuruma::kernels::KURUMA_CPU_TARGET {
namespace {

// A grow-only array of 64-byte aligned floats. Contents are lost when it grows.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  float* Get(int64_t count) {
    if (count > size_) Grow(count);
    return data_;
  }

 private:
  void Grow(int64_t count) {
    std::free(data_);
    size_ = (count + count / 4 + 1023) / 1024 * 1024;
    data_ = static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(size_) * sizeof(float)));
    KURUMA_CHECK(data_ != nullptr);
  }

  float* data_ = nullptr;
  int64_t size_ = 0;
};

// What one thread holds between calls; members are named for their users.
struct Scratch {
  Buffer panel;    // matmul: activations in lane order
  Buffer scaled;   // matmul: a chunk of the panel times FP8 scales
  Buffer weights;  // matmul: expanded weight tile; attention, index: expanded rows
  Buffer sums;     // matmul: accumulators of a tile
  Buffer scales;   // matmul: scale bytes at 32-column steps
  Buffer natural;  // matmul: one row in natural order on the slow path
  Buffer logits;   // attention, index, route, hc: products before the non-linear part
  Buffer results;  // attention: weighted sums of a head group
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace
}  // namespace kuruma::kernels::KURUMA_CPU_TARGET

#endif  // KURUMA_KERNELS_CPU_SCRATCH_INL_H_
