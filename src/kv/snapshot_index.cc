#include "kv/snapshot_index.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kuruma::kv {

std::optional<SnapshotId> SnapshotIndex::Add(BlockId block, int64_t bytes) {
  KURUMA_CHECK(bytes > 0);
  if (bytes > budget_ || entries_.contains(static_cast<int32_t>(block))) return std::nullopt;
  // Snapshots are few and large: looking at all of them is cheap beside saving one.
  while (bytes_ + bytes > budget_) {
    const auto oldest = std::min_element(
        entries_.begin(), entries_.end(),
        [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
    Drop(static_cast<BlockId>(oldest->first));
  }
  const SnapshotId id{next_++};
  entries_[static_cast<int32_t>(block)] = {id, bytes, ++clock_};
  bytes_ += bytes;
  return id;
}

std::optional<SnapshotId> SnapshotIndex::Find(BlockId block) {
  const auto found = entries_.find(static_cast<int32_t>(block));
  if (found == entries_.end()) return std::nullopt;
  found->second.last_use = ++clock_;
  return found->second.id;
}

void SnapshotIndex::Drop(BlockId block) {
  const auto found = entries_.find(static_cast<int32_t>(block));
  if (found == entries_.end()) return;
  bytes_ -= found->second.bytes;
  dropped_.push_back(found->second.id);
  entries_.erase(found);
}

void SnapshotIndex::TakeDropped(std::vector<SnapshotId>* dropped) {
  dropped->clear();
  std::swap(*dropped, dropped_);
}

}  // namespace kuruma::kv
