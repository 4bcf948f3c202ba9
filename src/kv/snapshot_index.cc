#include "kv/snapshot_index.h"

#include <utility>

#include "base/check.h"

namespace kuruma::kv {

std::optional<SnapshotId> SnapshotIndex::Add(BlockId block, int64_t bytes) {
  KURUMA_CHECK(bytes > 0);
  if (of_block_.contains(static_cast<int32_t>(block)) || !MakeRoom(bytes)) return std::nullopt;
  const SnapshotId id{next_++};
  entries_[static_cast<uint64_t>(id)] = {id, block, bytes, ++clock_, 0, false};
  of_block_[static_cast<int32_t>(block)] = id;
  bytes_ += bytes;
  return id;
}

std::optional<SnapshotId> SnapshotIndex::Pin(BlockId block) {
  const auto found = of_block_.find(static_cast<int32_t>(block));
  if (found == of_block_.end()) return std::nullopt;
  Entry& entry = entries_.at(static_cast<uint64_t>(found->second));
  entry.last_use = ++clock_;
  ++entry.pins;
  return entry.id;
}

void SnapshotIndex::Unpin(SnapshotId id) {
  Entry& entry = entries_.at(static_cast<uint64_t>(id));
  KURUMA_CHECK(entry.pins > 0);
  if (--entry.pins == 0 && entry.dropped) Forget(id);
}

void SnapshotIndex::Drop(BlockId block) {
  const auto found = of_block_.find(static_cast<int32_t>(block));
  if (found == of_block_.end()) return;
  const SnapshotId id = found->second;
  of_block_.erase(found);
  Entry& entry = entries_.at(static_cast<uint64_t>(id));
  entry.dropped = true;
  if (entry.pins == 0) Forget(id);
}

void SnapshotIndex::TakeDropped(std::vector<SnapshotId>* dropped) {
  dropped->clear();
  std::swap(*dropped, dropped_);
}

void SnapshotIndex::Forget(SnapshotId id) {
  const auto found = entries_.find(static_cast<uint64_t>(id));
  bytes_ -= found->second.bytes;
  entries_.erase(found);
  dropped_.push_back(id);
}

// Snapshots are few (one per end of a prompt) and large: looking at all of them is cheap beside
// saving one.
bool SnapshotIndex::MakeRoom(int64_t bytes) {
  int64_t in_use = 0;
  for (const auto& [id, entry] : entries_) in_use += entry.pins > 0 ? entry.bytes : 0;
  if (in_use + bytes > budget_) return false;
  while (bytes_ + bytes > budget_) {
    const Entry* oldest = nullptr;
    for (const auto& [id, entry] : entries_) {
      const bool older = oldest == nullptr || entry.last_use < oldest->last_use;
      if (entry.pins == 0 && older) oldest = &entry;
    }
    Drop(oldest->block);
  }
  return true;
}

}  // namespace kuruma::kv
