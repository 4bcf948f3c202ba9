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
// recently used ones that nobody restores go first when the budget is exceeded. One thread.
class SnapshotIndex {
 public:
  // `budget` in bytes; 0: nothing is kept.
  explicit SnapshotIndex(int64_t budget) : budget_(budget) {}

  // A number for the windows after `block`, to be saved by the caller; nothing if there is one
  // already, or if it does not fit beside those in use.
  std::optional<SnapshotId> Add(BlockId block, int64_t bytes);

  // The snapshot of `block`, now in use until Unpin; nothing if there is none.
  std::optional<SnapshotId> Pin(BlockId block);
  void Unpin(SnapshotId id);

  // The block is given up, and with it its snapshot.
  void Drop(BlockId block);

  // Snapshots whose bytes may be freed, since the last call; `*dropped` is replaced.
  void TakeDropped(std::vector<SnapshotId>* dropped);

  int64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    SnapshotId id = {};
    BlockId block = {};
    int64_t bytes = 0;
    uint64_t last_use = 0;
    int32_t pins = 0;
    bool dropped = false;  // its block is gone; forgotten at the last Unpin
  };

  void Forget(SnapshotId id);
  bool MakeRoom(int64_t bytes);

  int64_t budget_;
  int64_t bytes_ = 0;
  uint64_t clock_ = 0;
  uint64_t next_ = 0;
  std::unordered_map<uint64_t, Entry> entries_;       // by id
  std::unordered_map<int32_t, SnapshotId> of_block_;  // that are not dropped
  std::vector<SnapshotId> dropped_;
};

}  // namespace kuruma::kv

#endif  // KURUMA_KV_SNAPSHOT_INDEX_H_
