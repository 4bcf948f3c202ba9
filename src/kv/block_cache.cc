#include "kv/block_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace kuruma::kv {
namespace {

constexpr size_t kHeapSlack = 4;  // stale candidates per block before they are swept

size_t BlocksFor(int64_t tokens) {
  return static_cast<size_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

}  // namespace

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  cache_ = std::exchange(other.cache_, nullptr);
  blocks_ = std::exchange(other.blocks_, {});
  published_ = std::exchange(other.published_, 0);
  return *this;
}

void Lease::Release() {
  if (cache_ != nullptr) cache_->Release(this);
}

BlockCache::BlockCache(const BlockCacheOptions& options)
    : blocks_(static_cast<size_t>(options.blocks)),
      keys_(static_cast<size_t>(options.blocks)),
      table_(static_cast<size_t>(options.blocks), &keys_),
      snapshots_(options.snapshot_bytes),
      records_moves_(options.records_moves),
      until_failure_(options.fails_reserve) {
  KURUMA_CHECK(options.blocks > 0);
  free_.reserve(blocks_.size());
  for (size_t i = blocks_.size(); i > 0; --i) free_.push_back(static_cast<BlockId>(i - 1));
  heap_.reserve((kHeapSlack + 1) * blocks_.size());
}

Lease BlockCache::Match(std::span<const BlockKey> keys, int64_t tokens, const Room& room) {
  const size_t most = tokens > 0 ? static_cast<size_t>((tokens - 1) / kBlockTokens) : 0;
  const size_t asked = std::min(keys.size(), most);
  keys = keys.first(Published(keys.first(asked)));
  const auto found = static_cast<int64_t>(keys.size()) * kBlockTokens;
  const int64_t end = found + std::min(room.rows, tokens - found);
  if (room.rows > 0 && !HasRoom(keys, end, room.left)) return Lease();
  Lease lease;
  lease.blocks_.reserve(std::max(BlocksFor(tokens), keys.size()));
  lease.cache_ = this;
  ++clock_;
  for (const BlockKey& key : keys) {
    const BlockId block = table_.Find(key);
    Pin(block);
    lease.blocks_.push_back(block);
  }
  lease.published_ = keys.size();
  if (room.rows > 0 && !Reserve(end, &lease)) return Lease();
  counts_.lookups += static_cast<int64_t>(asked);
  counts_.hits += static_cast<int64_t>(keys.size());
  return lease;
}

// How many of a chain of keys are published. A block stays as long as those behind it, so that they
// are the first ones.
size_t BlockCache::Published(std::span<const BlockKey> keys) const {
  const auto is_published = [&](const BlockKey& key) {
    return table_.Find(key) != KeyTable::kNone;
  };
  const auto end = std::partition_point(keys.begin(), keys.end(), is_published);
  return static_cast<size_t>(end - keys.begin());
}

// Whether `tokens` tokens find blocks, the published ones of `found` among them, and `left` blocks
// stay. Blocks are pinned from the first of a chain on.
bool BlockCache::HasRoom(std::span<const BlockKey> found, int64_t tokens, int64_t left) const {
  const auto is_pinned = [&](const BlockKey& key) {
    return blocks_[Index(table_.Find(key))].pins > 0;
  };
  const auto unpinned = found.end() - std::partition_point(found.begin(), found.end(), is_pinned);
  const auto missing = static_cast<int64_t>(BlocksFor(tokens) - found.size());
  return static_cast<int64_t>(free_.size()) + unpinned_ - unpinned - missing >= left;
}

bool BlockCache::Reserve(int64_t tokens, Lease* lease) {
  KURUMA_CHECK(lease->cache_ == nullptr || lease->cache_ == this);
  const size_t wanted = BlocksFor(tokens);
  if (wanted <= lease->blocks_.size()) return true;
  const size_t missing = wanted - lease->blocks_.size();
  if (missing > free_.size() + static_cast<size_t>(unpinned_)) return false;
  if (until_failure_ > 0 && --until_failure_ == 0) return false;
  if (wanted > lease->blocks_.capacity()) {  // may throw: before anything changes
    lease->blocks_.reserve(std::max(wanted, 2 * lease->blocks_.capacity()));
  }
  lease->cache_ = this;
  while (lease->blocks_.size() < wanted) {
    const BlockId block = Take();
    At(block).use = Use::kPrivate;
    ++counts_.private_blocks;
    lease->blocks_.push_back(block);
  }
  return true;
}

void BlockCache::Truncate(int64_t tokens, Lease* lease) {
  const size_t kept = std::max(BlocksFor(tokens), lease->published_);
  while (lease->blocks_.size() > kept) {
    Free(lease->blocks_.back());
    lease->blocks_.pop_back();
  }
}

void BlockCache::Publish(std::span<const BlockKey> keys, Lease* lease,
                         std::vector<Replacement>* replacements) {
  KURUMA_CHECK(lease->cache_ == this && keys.size() <= lease->blocks_.size());
  if (keys.size() <= lease->published_) return;
  replacements->reserve(replacements->size() + keys.size() - lease->published_);
  ++clock_;
  while (lease->published_ < keys.size()) {
    PublishNext(keys[lease->published_], lease, replacements);
  }
}

void BlockCache::PublishNext(const BlockKey& key, Lease* lease,
                             std::vector<Replacement>* replacements) {
  const size_t i = lease->published_;
  const BlockId own = lease->blocks_[i];
  const BlockId known = table_.Find(key);
  if (known != KeyTable::kNone) {
    Pin(known);
    Free(own);
    lease->blocks_[i] = known;
    replacements->push_back({i, known});
  } else {
    const BlockId parent = i > 0 ? lease->blocks_[i - 1] : KeyTable::kNone;
    keys_[Index(own)] = key;
    At(own) = {Use::kPublished, parent, 0, 1, clock_};
    table_.Insert(own);
    if (parent != KeyTable::kNone) ++At(parent).children;
    --counts_.private_blocks;
    ++counts_.pinned;
  }
  ++lease->published_;
}

void BlockCache::TakeMoves(std::vector<Move>* moves) {
  moves->clear();
  std::swap(*moves, moves_);
}

BlockCacheCounts BlockCache::counts() const {
  BlockCacheCounts counts = counts_;
  counts.free = static_cast<int64_t>(free_.size());
  counts.evictable = unpinned_;
  return counts;
}

void BlockCache::Release(Lease* lease) {
  // From the end, so that chains are given up from their end.
  for (size_t i = lease->blocks_.size(); i > 0; --i) {
    if (i > lease->published_) {
      Free(lease->blocks_[i - 1]);
    } else {
      Unpin(lease->blocks_[i - 1]);
    }
  }
  lease->blocks_.clear();
  lease->published_ = 0;
  lease->cache_ = nullptr;
}

bool BlockCache::Later(const Candidate& a, const Candidate& b) {
  return a.last_use != b.last_use ? a.last_use > b.last_use : a.block > b.block;
}

bool BlockCache::IsEvictable(BlockId id) const {
  const Block& block = blocks_[Index(id)];
  return block.use == Use::kPublished && block.pins == 0 && block.children == 0;
}

void BlockCache::Pin(BlockId id) {
  Block& block = At(id);
  if (block.pins++ == 0) {
    --unpinned_;
    ++counts_.pinned;
  }
  block.last_use = clock_;
}

void BlockCache::Unpin(BlockId id) {
  Block& block = At(id);
  if (--block.pins > 0) return;
  ++unpinned_;
  --counts_.pinned;
  OfferIfEvictable(id);
}

void BlockCache::OfferIfEvictable(BlockId id) {
  if (!IsEvictable(id)) return;
  if (heap_.size() == heap_.capacity()) {
    const auto is_stale = [&](const Candidate& c) {
      return !IsEvictable(c.block) || At(c.block).last_use != c.last_use;
    };
    std::erase_if(heap_, is_stale);
    // One entry per block: a block may have been offered twice since it was used last.
    std::sort(heap_.begin(), heap_.end(), Later);
    const auto same = [](const Candidate& a, const Candidate& b) { return a.block == b.block; };
    heap_.erase(std::unique(heap_.begin(), heap_.end(), same), heap_.end());
    std::make_heap(heap_.begin(), heap_.end(), Later);
  }
  heap_.push_back({At(id).last_use, id});
  std::push_heap(heap_.begin(), heap_.end(), Later);
}

// A block for new content; there is one.
BlockId BlockCache::Take() {
  if (free_.empty()) return Evict();
  const BlockId block = free_.back();
  free_.pop_back();
  return block;
}

BlockId BlockCache::Evict() {
  while (true) {
    KURUMA_CHECK(!heap_.empty());
    const Candidate oldest = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    heap_.pop_back();
    const BlockId id = oldest.block;
    if (!IsEvictable(id) || At(id).last_use != oldest.last_use) continue;
    if (records_moves_) moves_.push_back({keys_[Index(id)], id});
    snapshots_.Drop(id);
    table_.Erase(id);
    const BlockId parent = At(id).parent;
    At(id) = {};
    --unpinned_;
    ++counts_.evictions;
    if (parent != KeyTable::kNone) {
      --At(parent).children;
      OfferIfEvictable(parent);
    }
    return id;
  }
}

// A private block becomes free.
void BlockCache::Free(BlockId id) {
  KURUMA_CHECK(At(id).use == Use::kPrivate);
  At(id) = {};
  --counts_.private_blocks;
  free_.push_back(id);
}

Status BlockCache::CheckInvariants(std::span<const Lease* const> leases) const {
  std::vector<int32_t> pins(blocks_.size()), children(blocks_.size()), places(blocks_.size());
  for (const BlockId id : free_) ++places[Index(id)];
  for (const Lease* lease : leases) {
    for (size_t i = 0; i < lease->blocks_.size(); ++i) {
      const BlockId id = lease->blocks_[i];
      const Block& block = blocks_[Index(id)];
      const bool published = i < lease->published_;
      if (published != (block.use == Use::kPublished)) {
        return Internal(fmt::format("block {} of a lease is in the wrong state", Index(id)));
      }
      ++(published ? pins : places)[Index(id)];
      const BlockId before = i > 0 ? lease->blocks_[i - 1] : KeyTable::kNone;
      if (published && block.parent != before) {
        return Internal(fmt::format("block {} does not follow its parent", Index(id)));
      }
    }
  }
  int64_t pinned = 0, unpinned = 0, private_blocks = 0;
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const Block& block = blocks_[b];
    if (block.use != Use::kPublished) {
      private_blocks += block.use == Use::kPrivate ? 1 : 0;
      if (places[b] != 1) return Internal(fmt::format("block {} is in {} places", b, places[b]));
      continue;
    }
    if (places[b] != 0) return Internal(fmt::format("published block {} is free or private", b));
    if (pins[b] != block.pins) {
      return Internal(fmt::format("block {} has {} pins for {} leases", b, block.pins, pins[b]));
    }
    ++(block.pins > 0 ? pinned : unpinned);
    if (table_.Find(keys_[b]) != static_cast<BlockId>(b)) {
      return Internal(fmt::format("block {} cannot be found by its key", b));
    }
    if (block.parent == KeyTable::kNone) continue;
    const Block& parent = blocks_[Index(block.parent)];
    if (parent.use != Use::kPublished || parent.pins < (block.pins > 0 ? 1 : 0)) {
      return Internal(fmt::format("the parent of block {} is not held as long as it", b));
    }
    ++children[Index(block.parent)];
  }
  for (size_t b = 0; b < blocks_.size(); ++b) {
    if (children[b] != blocks_[b].children) return Internal("children do not add up");
  }
  const bool adds_up = pinned == counts_.pinned && unpinned == unpinned_ &&
                       private_blocks == counts_.private_blocks &&
                       static_cast<size_t>(pinned + unpinned) == table_.count();
  return adds_up ? Status() : Internal("counts do not add up");
}

}  // namespace kuruma::kv
