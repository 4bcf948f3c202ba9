// Finds blocks by key: an open-addressing table of block numbers, whose memory is taken once.
#ifndef KURUMA_KV_KEY_TABLE_H_
#define KURUMA_KV_KEY_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "kv/block_key.h"

namespace kuruma::kv {

// Linear probing at a load of at most one half; removal shifts the cluster back, so there are no
// tombstones and lookups stay short for ever. Keys live in the table's owner. One thread.
class KeyTable {
 public:
  // For block numbers 0..blocks-1; `keys[b]` is the key of block b while it is in the table and
  // must outlive it.
  KeyTable(size_t blocks, const std::vector<BlockKey>* keys) : keys_(keys) {
    size_t size = 4;
    while (size < 2 * blocks) size *= 2;
    slots_.assign(size, kNone);
  }

  // The block of `key`, or kNone.
  BlockId Find(const BlockKey& key) const {
    for (size_t at = Home(key); slots_[at] != kNone; at = Next(at)) {
      if ((*keys_)[Index(slots_[at])] == key) return slots_[at];
    }
    return kNone;
  }

  // Adds block `block`, whose key is not in the table.
  void Insert(BlockId block) {
    size_t at = Home((*keys_)[Index(block)]);
    while (slots_[at] != kNone) at = Next(at);
    slots_[at] = block;
    ++count_;
  }

  // Removes block `block`, which is in the table.
  void Erase(BlockId block) {
    size_t hole = Home((*keys_)[Index(block)]);
    while (slots_[hole] != block) hole = Next(hole);
    for (size_t at = Next(hole); slots_[at] != kNone; at = Next(at)) {
      const size_t home = Home((*keys_)[Index(slots_[at])]);
      // What lies behind the hole moves into it, unless its home is behind the hole as well.
      const bool stays = Distance(home, at) < Distance(hole, at);
      if (stays) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = kNone;
    --count_;
  }

  size_t count() const { return count_; }

  static constexpr BlockId kNone = static_cast<BlockId>(-1);

 private:
  size_t Home(const BlockKey& key) const { return BlockKeyHash()(key) & (slots_.size() - 1); }
  size_t Next(size_t at) const { return (at + 1) & (slots_.size() - 1); }
  size_t Distance(size_t from, size_t to) const { return (to - from) & (slots_.size() - 1); }

  const std::vector<BlockKey>* keys_;
  std::vector<BlockId> slots_;
  size_t count_ = 0;
};

}  // namespace kuruma::kv

#endif  // KURUMA_KV_KEY_TABLE_H_
