// The bytes of blocks in memory. Which block holds what is kv's business.
#ifndef KURUMA_STORE_BLOCK_POOL_H_
#define KURUMA_STORE_BLOCK_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/status.h"

namespace kuruma::store {

// One region for all blocks; the system gives pages when they are first written, so a generous pool
// costs nothing until it is used. Reading and writing different blocks is safe from any thread.
class BlockPool {
 public:
  // ResourceExhausted says how much was asked for when the address space is not there.
  static Result<std::unique_ptr<BlockPool>> Create(int64_t blocks, int64_t block_bytes);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  std::byte* At(BlockId id) const { return memory_ + Index(id) * block_bytes_; }
  int64_t blocks() const { return blocks_; }
  int64_t block_bytes() const { return static_cast<int64_t>(block_bytes_); }

 private:
  BlockPool(std::byte* memory, int64_t blocks, int64_t block_bytes);

  std::byte* memory_;
  int64_t blocks_;
  size_t block_bytes_;
};

}  // namespace kuruma::store

#endif  // KURUMA_STORE_BLOCK_POOL_H_
