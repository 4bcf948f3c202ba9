#include "kv/block_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>

namespace kuruma::kv {
namespace {

// Keys without hashing: child number `choice` of `parent`.
BlockKey Child(const BlockKey& parent, int choice) {
  BlockKey key = parent;
  uint64_t word;
  std::memcpy(&word, key.data(), sizeof word);
  word = (word ^ static_cast<uint64_t>(choice + 1)) * 0x9E3779B97F4A7C15u;
  std::memcpy(key.data(), &word, sizeof word);
  ++key[31];  // depth
  return key;
}

std::vector<BlockKey> Chain(const std::vector<int>& choices) {
  std::vector<BlockKey> keys;
  BlockKey key{};
  for (const int choice : choices) keys.push_back(key = Child(key, choice));
  return keys;
}

constexpr int64_t Tokens(size_t blocks) { return static_cast<int64_t>(blocks) * kBlockTokens; }

struct Fixture {
  explicit Fixture(int64_t blocks, int64_t snapshot_bytes = 0)
      : cache({.blocks = blocks, .snapshot_bytes = snapshot_bytes, .records_moves = true}) {}

  // A lease that computed and published `keys`.
  Lease Filled(const std::vector<BlockKey>& keys) {
    Lease lease = cache.Match(keys, Tokens(keys.size()) + 1);
    EXPECT_TRUE(cache.Reserve(Tokens(keys.size()), &lease));
    cache.Publish(keys, &lease, &replacements);
    return lease;
  }

  BlockCache cache;
  std::vector<Replacement> replacements;
};

TEST(BlockCache, FindsThePublishedPrefix) {
  Fixture f(8);
  const auto keys = Chain({1, 2, 3});
  EXPECT_EQ(f.cache.Match(keys, Tokens(3)).published_tokens(), 0);
  std::vector<BlockId> blocks;
  {
    const Lease lease = f.Filled(keys);
    blocks.assign(lease.blocks().begin(), lease.blocks().end());
  }
  // At least one token is left to compute.
  for (const auto& [tokens, found] : std::map<int64_t, int64_t>{
           {0, 0}, {1, 0}, {128, 0}, {129, 1}, {256, 1}, {257, 2}, {384, 2}, {385, 3}, {5000, 3}}) {
    const Lease lease = f.cache.Match(keys, tokens);
    EXPECT_EQ(lease.published_tokens(), found * kBlockTokens) << tokens;
    EXPECT_TRUE(std::equal(lease.blocks().begin(), lease.blocks().end(), blocks.begin()));
  }
  EXPECT_EQ(f.cache.Match(Chain({1, 2, 4}), 5000).published_tokens(), Tokens(2));
  EXPECT_EQ(f.cache.Match(Chain({2}), 5000).published_tokens(), 0);
}

TEST(BlockCache, NothingIsVisibleBeforeItIsPublished) {
  Fixture f(8);
  const auto keys = Chain({1, 2});
  Lease lease = f.cache.Match(keys, 1000);
  ASSERT_TRUE(f.cache.Reserve(Tokens(2), &lease));
  EXPECT_EQ(f.cache.Match(keys, 1000).published_tokens(), 0);
  f.cache.Publish(std::span(keys).first(1), &lease, &f.replacements);
  EXPECT_EQ(f.cache.Match(keys, 1000).published_tokens(), Tokens(1));
}

TEST(BlockCache, MatchWithRoomTakesAllOrNothing) {
  Fixture f(7);
  const auto keys = Chain({1, 2, 3});
  f.Filled(keys);
  const Lease busy = f.Filled(Chain({7}));
  const auto before = f.cache.counts();
  // 3 found, 2 more of 3 that are free.
  EXPECT_TRUE(f.cache.Match(keys, 1000, {.rows = 130, .left = 2}).blocks().empty());
  EXPECT_TRUE(f.cache.Match(keys, 1000, {.rows = 390}).blocks().empty());
  EXPECT_EQ(f.cache.counts().hits, before.hits);
  EXPECT_EQ(f.cache.counts().lookups, before.lookups) << "what could not begin is not counted";
  const Lease lease = f.cache.Match(keys, 1000, {.rows = 130});
  EXPECT_EQ(lease.blocks().size(), 5u);
  EXPECT_EQ(lease.published_tokens(), Tokens(3));
  EXPECT_EQ(f.cache.counts().hits, before.hits + 3);
  // Blocks that somebody holds cost nothing.
  EXPECT_EQ(f.cache.Match(keys, 386, {.rows = 100'000}).blocks().size(), 4u);
  EXPECT_TRUE(f.cache.Match(keys, 386, {.rows = 100'000, .left = 1}).blocks().empty());
}

TEST(BlockCache, AReservationFailsWhenToldTo) {
  BlockCache cache({.blocks = 4, .fails_reserve = 2});
  Lease lease;
  EXPECT_TRUE(cache.Reserve(1, &lease));
  EXPECT_TRUE(cache.Reserve(128, &lease)) << "needs no block";
  EXPECT_FALSE(cache.Reserve(129, &lease));
  EXPECT_TRUE(cache.Reserve(129, &lease));
}

TEST(BlockCache, EqualContentIsKeptOnce) {
  Fixture f(8);
  const auto keys = Chain({1, 2});
  Lease one = f.cache.Match(keys, 1000), two = f.cache.Match(keys, 1000);
  ASSERT_TRUE(f.cache.Reserve(Tokens(3), &one) && f.cache.Reserve(Tokens(3), &two));
  f.cache.Publish(keys, &one, &f.replacements);
  EXPECT_TRUE(f.replacements.empty());
  f.cache.Publish(keys, &two, &f.replacements);
  ASSERT_EQ(f.replacements.size(), 2u);
  EXPECT_EQ(two.blocks()[0], one.blocks()[0]);
  EXPECT_EQ(two.blocks()[1], one.blocks()[1]);
  EXPECT_NE(two.blocks()[2], one.blocks()[2]);
  EXPECT_EQ(f.cache.counts().free, 4);
  const Lease* leases[] = {&one, &two};
  EXPECT_TRUE(f.cache.CheckInvariants(leases).ok());
}

TEST(BlockCache, GivesUpTheLeastRecentlyUsedFromTheEnd) {
  Fixture f(6);
  const auto a = Chain({1, 1, 1}), b = Chain({2, 1, 1});
  f.Filled(a);
  f.Filled(b);
  f.cache.Match(a, 1000);  // used again: b is older now
  Lease lease;
  ASSERT_TRUE(f.cache.Reserve(Tokens(4), &lease));
  std::vector<Move> moves;
  f.cache.TakeMoves(&moves);
  ASSERT_EQ(moves.size(), 4u);
  EXPECT_EQ(moves[0].key, b[2]);
  EXPECT_EQ(moves[1].key, b[1]);
  EXPECT_EQ(moves[2].key, b[0]);
  EXPECT_EQ(moves[3].key, a[2]);
  EXPECT_EQ(f.cache.Match(a, 1000).published_tokens(), Tokens(2));
}

TEST(BlockCache, ReserveIsAllOrNothing) {
  Fixture f(4);
  Lease held = f.Filled(Chain({1, 2}));
  Lease lease;
  ASSERT_TRUE(f.cache.Reserve(Tokens(1), &lease));
  EXPECT_FALSE(f.cache.Reserve(Tokens(3), &lease));
  EXPECT_EQ(lease.capacity_tokens(), Tokens(1));
  EXPECT_EQ(f.cache.counts().free, 1);
  held.Release();
  EXPECT_TRUE(f.cache.Reserve(Tokens(3), &lease));
  f.cache.Truncate(Tokens(1) + 1, &lease);
  EXPECT_EQ(lease.capacity_tokens(), Tokens(2));
}

TEST(BlockCache, SnapshotsBelongToBlocks) {
  Fixture f(4, 100);
  const auto keys = Chain({1, 2, 3});
  Lease lease = f.Filled(keys);
  SnapshotIndex& snapshots = f.cache.snapshots();
  const auto id = snapshots.Add(lease.blocks()[1], 60);
  ASSERT_TRUE(id.has_value());
  EXPECT_FALSE(snapshots.Add(lease.blocks()[1], 10).has_value()) << "one per block";
  EXPECT_FALSE(snapshots.Find(lease.blocks()[0]).has_value());
  const auto other = snapshots.Add(lease.blocks()[0], 40);
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(snapshots.Find(lease.blocks()[1]), id) << "now the other one is older";
  EXPECT_FALSE(snapshots.Add(lease.blocks()[2], 101).has_value()) << "more than the budget";
  EXPECT_TRUE(snapshots.Add(lease.blocks()[2], 10).has_value());
  std::vector<SnapshotId> dropped;
  snapshots.TakeDropped(&dropped);
  EXPECT_EQ(dropped, std::vector{*other});
  EXPECT_EQ(snapshots.bytes(), 70);
  lease.Release();
  Lease all;
  ASSERT_TRUE(f.cache.Reserve(Tokens(4), &all));
  EXPECT_EQ(snapshots.bytes(), 0) << "blocks take their snapshots with them";
}

// A second implementation, as plain as can be: ordered maps, no block numbers.
class Naive {
 public:
  struct Node {
    BlockKey parent;
    uint64_t last_use;
  };
  struct Hold {
    std::vector<BlockKey> published;
    size_t private_blocks = 0;
  };

  explicit Naive(size_t blocks) : blocks_(blocks) {}

  Hold Match(const std::vector<BlockKey>& keys, int64_t tokens) {
    Hold hold;
    ++clock_;
    for (const BlockKey& key : keys) {
      const bool room = Tokens(hold.published.size() + 1) <= tokens - 1;
      if (!room || !nodes_.contains(key)) break;
      nodes_[key].last_use = clock_;
      hold.published.push_back(key);
    }
    return hold;
  }

  // With `left` blocks left over.
  bool Reserve(size_t blocks, Hold* hold, std::vector<BlockKey>* evicted, size_t left = 0) {
    const size_t has = hold->published.size() + hold->private_blocks;
    if (blocks <= has && left == 0) return true;
    const size_t missing = std::max(blocks, has) - has;
    if (missing + left > free() + Unpinned().size()) return false;
    while (free() < missing) evicted->push_back(EvictOne());
    hold->private_blocks += missing;
    return true;
  }

  void Publish(const std::vector<BlockKey>& keys, Hold* hold) {
    if (keys.size() <= hold->published.size()) return;
    ++clock_;
    while (hold->published.size() < keys.size()) {
      const BlockKey parent = hold->published.empty() ? BlockKey{} : hold->published.back();
      const BlockKey& key = keys[hold->published.size()];
      nodes_[key] = {parent, clock_};
      hold->published.push_back(key);
      --hold->private_blocks;
    }
  }

  size_t free() const {
    size_t used = nodes_.size();
    for (const Hold* hold : holds) used += hold->private_blocks;
    return blocks_ - used;
  }

  std::set<const Hold*> holds;

 private:
  std::set<BlockKey> Unpinned() const {
    std::set<BlockKey> keys;
    for (const auto& [key, node] : nodes_) keys.insert(key);
    for (const Hold* hold : holds) {
      for (const BlockKey& key : hold->published) keys.erase(key);
    }
    return keys;
  }

  BlockKey EvictOne() {
    std::set<BlockKey> leaves = Unpinned();
    for (const auto& [key, node] : nodes_) leaves.erase(node.parent);
    const auto oldest =
        std::min_element(leaves.begin(), leaves.end(), [&](const BlockKey& a, const BlockKey& b) {
          return nodes_[a].last_use < nodes_[b].last_use;
        });
    const BlockKey key = *oldest;
    nodes_.erase(key);
    return key;
  }

  size_t blocks_;
  uint64_t clock_ = 0;
  std::map<BlockKey, Node> nodes_;
};

// Random requests on both; after every operation they hold the same.
class Storm {
 public:
  Storm(uint32_t seed, int64_t blocks)
      : random_(seed), f_(blocks), naive_(static_cast<size_t>(blocks)) {}

  void Run(int operations) {
    for (int i = 0; i < operations; ++i) {
      Step();
      ASSERT_EQ(f_.cache.counts().free, static_cast<int64_t>(naive_.free())) << "operation " << i;
      if (i % 256 == 0 || i + 1 == operations) {
        std::vector<const Lease*> leases;
        for (const auto& run : runs_) leases.push_back(&run->lease);
        const Status status = f_.cache.CheckInvariants(leases);
        ASSERT_TRUE(status.ok()) << status.message() << ", operation " << i;
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  struct Running {
    std::vector<BlockKey> keys;
    Lease lease;
    Naive::Hold hold;
  };

  int Draw(int below) { return static_cast<int>(random_() % static_cast<uint32_t>(below)); }
  size_t Pick(size_t most) { return static_cast<size_t>(Draw(static_cast<int>(most) + 1)); }

  void Step() {
    if (runs_.empty() || (runs_.size() < 6 && Draw(4) == 0)) return Begin();
    Running& run = *runs_[static_cast<size_t>(Draw(static_cast<int>(runs_.size())))];
    const size_t has = run.lease.blocks().size();
    switch (Draw(8)) {
      case 0:
      case 1:
      case 2:
        return Reserve(std::min(run.keys.size(), has + static_cast<size_t>(1 + Draw(3))), &run);
      case 3:
      case 4:
      case 5:
        return Publish(std::min(run.keys.size(), Pick(has)), &run);
      case 6:
        return Truncate(Pick(has), &run);
      default:
        return End(&run);
    }
  }

  void Begin() {
    auto run = std::make_unique<Running>();
    std::vector<int> choices;
    for (int i = 0, n = 1 + Draw(8); i < n; ++i) choices.push_back(Draw(2));
    run->keys = Chain(choices);
    const int64_t tokens = 1 + Draw(static_cast<int>(Tokens(choices.size()) + 1));
    const Room room{.rows = Draw(2) * Draw(500), .left = Draw(3)};
    run->lease = f_.cache.Match(run->keys, tokens, room);
    const Naive before = naive_;
    run->hold = naive_.Match(run->keys, tokens);
    naive_.holds.insert(&run->hold);
    if (room.rows > 0) {
      const int64_t found = Tokens(run->hold.published.size());
      const int64_t end = found + std::min(room.rows, tokens - found);
      std::vector<BlockKey> evicted;
      if (!naive_.Reserve(static_cast<size_t>((end + kBlockTokens - 1) / kBlockTokens), &run->hold,
                          &evicted, static_cast<size_t>(room.left))) {
        ASSERT_TRUE(run->lease.blocks().empty());
        naive_ = before;
        return;
      }
      CheckMoves(evicted);
    }
    ASSERT_EQ(run->lease.published_tokens(), Tokens(run->hold.published.size()));
    ASSERT_EQ(run->lease.blocks().size(), run->hold.published.size() + run->hold.private_blocks);
    runs_.push_back(std::move(run));
  }

  void CheckMoves(const std::vector<BlockKey>& evicted) {
    std::vector<Move> moves;
    f_.cache.TakeMoves(&moves);
    ASSERT_EQ(moves.size(), evicted.size());
    for (size_t i = 0; i < moves.size(); ++i) ASSERT_EQ(moves[i].key, evicted[i]);
  }

  void Reserve(size_t blocks, Running* run) {
    std::vector<BlockKey> evicted;
    const bool expected = naive_.Reserve(blocks, &run->hold, &evicted);
    ASSERT_EQ(f_.cache.Reserve(Tokens(blocks), &run->lease), expected);
    CheckMoves(evicted);
  }

  void Publish(size_t blocks, Running* run) {
    const std::vector<BlockKey> keys(run->keys.begin(),
                                     run->keys.begin() + static_cast<ptrdiff_t>(blocks));
    f_.cache.Publish(keys, &run->lease, &f_.replacements);
    naive_.Publish(keys, &run->hold);
  }

  void Truncate(size_t blocks, Running* run) {
    f_.cache.Truncate(Tokens(blocks), &run->lease);
    const size_t published = run->hold.published.size();
    const size_t kept = std::max(blocks, published) - published;
    run->hold.private_blocks = std::min(run->hold.private_blocks, kept);
  }

  void End(Running* run) {
    naive_.holds.erase(&run->hold);
    std::erase_if(runs_, [&](const auto& r) { return r.get() == run; });
  }

  std::mt19937 random_;
  Fixture f_;
  Naive naive_;
  std::vector<std::unique_ptr<Running>> runs_;
};

TEST(BlockCache, AMillionRandomOperationsEqualTheNaiveModel) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    Storm(seed, 1 + static_cast<int64_t>(seed) % 25).Run(10'000);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace kuruma::kv
