#include "store/block_pool.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace kuruma::store {

Result<std::unique_ptr<BlockPool>> BlockPool::Create(int64_t blocks, int64_t block_bytes) {
  KURUMA_CHECK(blocks > 0 && block_bytes > 0);
  const bool fits = blocks <= std::numeric_limits<int64_t>::max() / block_bytes;
  void* memory = MAP_FAILED;
  if (fits) {
    memory = mmap(nullptr, static_cast<size_t>(blocks * block_bytes), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  if (memory == MAP_FAILED) {
    return ResourceExhausted(
        fmt::format("no memory for {} blocks of {} bytes ({}); lower --kv-memory", blocks,
                    block_bytes, std::strerror(fits ? errno : ENOMEM)));
  }
  return std::unique_ptr<BlockPool>(
      new BlockPool(static_cast<std::byte*>(memory), blocks, block_bytes));
}

BlockPool::BlockPool(std::byte* memory, int64_t blocks, int64_t block_bytes)
    : memory_(memory), blocks_(blocks), block_bytes_(static_cast<size_t>(block_bytes)) {}

BlockPool::~BlockPool() { munmap(memory_, static_cast<size_t>(blocks_) * block_bytes_); }

}  // namespace kuruma::store
