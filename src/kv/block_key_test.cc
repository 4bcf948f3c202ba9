#include "kv/block_key.h"

#include <gtest/gtest.h>

#include <numeric>

namespace kuruma::kv {
namespace {

std::vector<int32_t> Tokens(int64_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(BlockKey, NamesContentAndEverythingBefore) {
  const BlockKey root = RootKey("model", "tenant");
  const auto keys = ChainKeys(root, Tokens(3 * kBlockTokens + 7));
  ASSERT_EQ(keys.size(), 3u);
  EXPECT_EQ(keys, ChainKeys(root, Tokens(3 * kBlockTokens)));
  EXPECT_EQ(keys[1], ChildKey(keys[0], Tokens(kBlockTokens, kBlockTokens)));
  auto changed = Tokens(3 * kBlockTokens);
  changed[kBlockTokens] ^= 1 << 20;
  const auto others = ChainKeys(root, changed);
  EXPECT_EQ(others[0], keys[0]);
  EXPECT_NE(others[1], keys[1]);
  EXPECT_NE(others[2], keys[2]) << "equal tokens behind different ones are other content";
}

TEST(BlockKey, ModelsTenantsAndImagesDoNotMix) {
  EXPECT_NE(RootKey("model", "a"), RootKey("model", "b"));
  EXPECT_NE(RootKey("model", "a"), RootKey("other", "a"));
  EXPECT_NE(RootKey("ab", "c"), RootKey("a", "bc")) << "the lengths belong to the key";
  const BlockKey root = RootKey("m", "");
  const auto tokens = Tokens(kBlockTokens);
  const std::vector<ImageMark> one{{5, root}}, moved{{6, root}}, other{{5, RootKey("x", "")}};
  EXPECT_NE(ChildKey(root, tokens), ChildKey(root, tokens, one));
  EXPECT_NE(ChildKey(root, tokens, one), ChildKey(root, tokens, moved));
  EXPECT_NE(ChildKey(root, tokens, one), ChildKey(root, tokens, other));
}

// Fixed for ever: keys leave the process.
TEST(BlockKey, KnownAnswer) {
  const BlockKey key = ChildKey(RootKey("model", "salt"), Tokens(kBlockTokens));
  const std::vector<uint8_t> first(key.begin(), key.begin() + 4);
  EXPECT_EQ(first, (std::vector<uint8_t>{0x94, 0x67, 0xC8, 0xD1})) << "SHA-256 by another program";
}

}  // namespace
}  // namespace kuruma::kv
