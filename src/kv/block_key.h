// Names of blocks by content: equal keys mean equal global KV, across requests and processes.
#ifndef KURUMA_KV_BLOCK_KEY_H_
#define KURUMA_KV_BLOCK_KEY_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/sha256.h"

namespace kuruma::kv {

inline constexpr int64_t kBlockTokens = 128;

using BlockKey = Digest256;

// A SHA-256 is as good a hash as it gets: its first bytes serve hash tables.
struct BlockKeyHash {
  size_t operator()(const BlockKey& key) const {
    size_t hash;
    std::memcpy(&hash, key.data(), sizeof hash);
    return hash;
  }
};

// An image inside a block: where its first placeholder token is, and what it shows.
struct ImageMark {
  int64_t position = 0;
  BlockKey digest = {};
};

// What every chain of keys begins with: SHA-256 over format version, model digest and tenant salt,
// each with its length. Different salts never share a block. Pure; any thread.
BlockKey RootKey(std::string_view model_digest, std::string_view tenant_salt);

// Key of the block that follows `parent`: SHA-256 over the parent key, the kBlockTokens token ids
// as little-endian 32-bit words, and the images that begin or continue in it. Pure; any thread.
BlockKey ChildKey(const BlockKey& parent, std::span<const int32_t> tokens,
                  std::span<const ImageMark> images = {});

// Keys of all full blocks of `tokens`.
std::vector<BlockKey> ChainKeys(const BlockKey& root, std::span<const int32_t> tokens);

// Appends to `*keys`, the keys of the first blocks of `tokens`, until there are `blocks`; `tokens`
// has that many full ones.
void ExtendChain(const BlockKey& root, std::span<const int32_t> tokens, size_t blocks,
                 std::vector<BlockKey>* keys);

}  // namespace kuruma::kv

#endif  // KURUMA_KV_BLOCK_KEY_H_
