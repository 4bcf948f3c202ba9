// Which window snapshots exist: saved windows at block boundaries, under a byte budget.
#ifndef KURUMA_KV_SNAPSHOT_INDEX_H_
#define KURUMA_KV_SNAPSHOT_INDEX_H_

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace kuruma::kv {

enum class SnapshotId : uint64_t {};  // never reused

// At most one snapshot per block: the windows as they are after the block's last token. The least
// recently used ones go first when the budget is exceeded. One thread.
class SnapshotIndex {
 public:
  // `budget` in bytes; 0: nothing is kept.
  explicit SnapshotIndex(int64_t budget) : budget_(budget) {}

  // A number for the windows after `block`, to be saved by the caller; nothing if there is one
  // already, or if `bytes` exceed the budget.
  std::optional<SnapshotId> Add(BlockId block, int64_t bytes);

  // The snapshot of `block`, which counts as a use; nothing if there is none. Its bytes are there
  // until the caller has seen it in TakeDropped.
  std::optional<SnapshotId> Find(BlockId block);

  // The block is given up, and with it its snapshot.
  void Drop(BlockId block);

  // Snapshots whose bytes may be freed, since the last call; `*dropped` is replaced.
  void TakeDropped(std::vector<SnapshotId>* dropped);

  int64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    SnapshotId id = {};
    int64_t bytes = 0;
    uint64_t last_use = 0;
  };

  int64_t budget_;
  int64_t bytes_ = 0;
  uint64_t clock_ = 0;
  uint64_t next_ = 0;
  std::unordered_map<int32_t, Entry> entries_;  // by block
  std::vector<SnapshotId> dropped_;
};

}  // namespace kuruma::kv

#endif  // KURUMA_KV_SNAPSHOT_INDEX_H_
