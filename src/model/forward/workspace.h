// Scratch memory of a pass: a stack of float matrices, reused from layer to layer.
#ifndef KURUMA_MODEL_FORWARD_WORKSPACE_H_
#define KURUMA_MODEL_FORWARD_WORKSPACE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "base/view.h"

namespace kuruma::model {

// Take() hands out uninitialised matrices; a Scope gives back everything taken since it began.
// Memory grows to the largest pass and is kept. One thread.
class Workspace {
 public:
  class Scope {
   public:
    explicit Scope(Workspace& workspace)
        : workspace_(workspace), chunk_(workspace.chunk_), used_(workspace.used_) {}
    ~Scope() {
      workspace_.chunk_ = chunk_;
      workspace_.used_ = used_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace& workspace_;
    size_t chunk_;
    int64_t used_;
  };

  // [rows, cols], 64-byte aligned, contiguous.
  Rows Take(int64_t rows, int64_t cols) { return {Allocate(rows * cols), rows, cols}; }

 private:
  static constexpr int64_t kAlignFloats = 16;
  static constexpr int64_t kChunkFloats = int64_t{1} << 20;

  struct AlignedDelete {
    void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  struct Chunk {
    std::unique_ptr<float[], AlignedDelete> memory;
    int64_t floats;
  };

  float* Allocate(int64_t floats) {
    floats = (std::max<int64_t>(floats, 1) + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
    while (chunk_ < chunks_.size() && used_ + floats > chunks_[chunk_].floats) {
      ++chunk_;
      used_ = 0;
    }
    if (chunk_ == chunks_.size()) {
      const int64_t size = std::max(floats, kChunkFloats);
      void* memory =
          ::operator new[](static_cast<size_t>(size) * sizeof(float), std::align_val_t{64});
      chunks_.push_back(
          {std::unique_ptr<float[], AlignedDelete>(static_cast<float*>(memory)), size});
      used_ = 0;
    }
    float* result = chunks_[chunk_].memory.get() + used_;
    used_ += floats;
    return result;
  }

  std::vector<Chunk> chunks_;
  size_t chunk_ = 0;  // chunk being filled
  int64_t used_ = 0;  // floats used of it
};

}  // namespace kuruma::model

#endif  // KURUMA_MODEL_FORWARD_WORKSPACE_H_
