// Which blocks hold which tokens: a prefix index over a fixed number of blocks, the leases of
// running sequences, and what is given up when blocks are needed. Decisions only: no bytes, threads
// or clock, so the same class runs in service, in property tests and in the simulator.
//
// A block is free, private (one lease fills it), or published: then it has a key, a parent (the
// published block before it) and may be in any number of leases. Published blocks that no lease
// holds stay until their place is needed; the least recently used one without children goes first,
// so chains shrink from their end. Source: DESIGN.md "Prefix cache".
#ifndef KURUMA_KV_BLOCK_CACHE_H_
#define KURUMA_KV_BLOCK_CACHE_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kv/block_key.h"
#include "kv/key_table.h"
#include "kv/snapshot_index.h"

namespace kuruma::kv {

class BlockCache;

// A sequence's hold on blocks; giving it up is destroying it. Movable; belongs to one cache, which
// must outlive it, and is changed through that cache.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept { *this = std::move(other); }
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { Release(); }

  // Returns everything to the cache.
  void Release();

  // Block i holds tokens [128 i, 128 (i + 1)).
  std::span<const BlockId> blocks() const { return blocks_; }
  int64_t capacity_tokens() const { return static_cast<int64_t>(blocks_.size()) * kBlockTokens; }
  // Tokens in published blocks; those found by Match at first.
  int64_t published_tokens() const { return static_cast<int64_t>(published_) * kBlockTokens; }

 private:
  friend class BlockCache;

  BlockCache* cache_ = nullptr;  // null: holds nothing
  std::vector<BlockId> blocks_;
  size_t published_ = 0;  // leading blocks that are published and pinned by this lease
};

struct BlockCacheOptions {
  int64_t blocks = 0;          // > 0
  int64_t snapshot_bytes = 0;  // budget of window snapshots; 0: none are kept
  bool records_moves = false;  // evictions are kept for TakeMoves
  int64_t fails_reserve = 0;   // for tests: fails though it has blocks to give, counted from 1
};

// A block whose content may be moved to a slower tier before the block is written again.
struct Move {
  BlockKey key = {};
  BlockId block = {};
};

// What Match has to find beside blocks that are published.
struct Room {
  int64_t rows = 0;  // of the tokens that were not found, this many (or all) get blocks as well
  int64_t left = 0;  // blocks that stay free or evictable
};

// Block number `index` of a lease is now `block`: somebody else had published equal content.
struct Replacement {
  size_t index = 0;
  BlockId block = {};
};

struct BlockCacheCounts {
  int64_t free = 0;
  int64_t private_blocks = 0;
  int64_t pinned = 0;     // published, held by a lease
  int64_t evictable = 0;  // published, held by none
  int64_t lookups = 0;    // blocks that leases from Match asked for since the beginning
  int64_t hits = 0;       // of those, found; a Match that found no room counts in neither
  int64_t evictions = 0;
};

// One thread. After construction nothing but the vectors of leases allocates.
class BlockCache {
 public:
  explicit BlockCache(const BlockCacheOptions& options);
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // A lease on the longest chain of published blocks that begins `keys` (ChainKeys of a prompt of
  // `tokens` tokens), at most tokens - 1 tokens long: something is always left to compute. Without
  // `room` for it, a lease on nothing, and nothing is changed or counted; that answer is cheap.
  Lease Match(std::span<const BlockKey> keys, int64_t tokens, const Room& room = {});

  // Makes room in `lease` for `tokens` tokens. False, and nothing changed, when there are not
  // enough blocks that are free or evictable. Blocks it already has are kept.
  bool Reserve(int64_t tokens, Lease* lease);

  // Gives back private blocks behind the one that holds token number `tokens` - 1. Published
  // blocks stay.
  void Truncate(int64_t tokens, Lease* lease);

  // The first keys.size() blocks of `lease` hold committed tokens with these keys: from now on
  // Match finds them. Blocks whose content was published before by others are exchanged for
  // those: appended to `*replacements`.
  void Publish(std::span<const BlockKey> keys, Lease* lease,
               std::vector<Replacement>* replacements);

  SnapshotIndex& snapshots() { return snapshots_; }

  // Evictions since the last call, oldest first; `*moves` is replaced.
  void TakeMoves(std::vector<Move>* moves);

  BlockCacheCounts counts() const;

  // Internal, with what is wrong: counts that do not add up, a block in two places, a chain that
  // cannot be reached, a pin without lease. `leases` are all that exist. Slow: for tests and idle
  // moments.
  Status CheckInvariants(std::span<const Lease* const> leases) const;

 private:
  friend class Lease;

  enum class Use : uint8_t { kFree, kPrivate, kPublished };
  struct Block {
    Use use = Use::kFree;
    BlockId parent = KeyTable::kNone;
    int32_t children = 0;
    int32_t pins = 0;
    uint64_t last_use = 0;
  };
  // An evictable block as the heap saw it; stale when the block was used since.
  struct Candidate {
    uint64_t last_use;
    BlockId block;
  };

  static bool Later(const Candidate& a, const Candidate& b);
  Block& At(BlockId id) { return blocks_[Index(id)]; }
  bool IsEvictable(BlockId id) const;
  size_t Published(std::span<const BlockKey> keys) const;
  bool HasRoom(std::span<const BlockKey> found, int64_t tokens, int64_t left) const;
  void Pin(BlockId id);
  void Unpin(BlockId id);
  void OfferIfEvictable(BlockId id);
  BlockId Take();
  BlockId Evict();
  void Free(BlockId id);
  void PublishNext(const BlockKey& key, Lease* lease, std::vector<Replacement>* replacements);
  void Release(Lease* lease);

  std::vector<Block> blocks_;
  std::vector<BlockKey> keys_;  // of published blocks
  KeyTable table_;
  std::vector<BlockId> free_;
  std::vector<Candidate> heap_;  // least recently used first
  std::vector<Move> moves_;
  SnapshotIndex snapshots_;
  bool records_moves_;
  int64_t until_failure_;  // reservations; 0: none will fail
  uint64_t clock_ = 0;     // counts matches and publications: the order of uses
  int64_t unpinned_ = 0;
  BlockCacheCounts counts_;
};

}  // namespace kuruma::kv

#endif  // KURUMA_KV_BLOCK_CACHE_H_
