#include "kv/block_key.h"

#include <array>

#include "base/check.h"

namespace kuruma::kv {
namespace {

constexpr uint64_t kFormatVersion = 1;  // of keys and of the bytes of a block

// As eight bytes, little-endian.
void AddNumber(uint64_t value, Sha256* hash) {
  std::array<uint8_t, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
  hash->Add(bytes.data(), bytes.size());
}

void AddText(std::string_view text, Sha256* hash) {
  AddNumber(text.size(), hash);
  hash->Add(text.data(), text.size());
}

}  // namespace

BlockKey RootKey(std::string_view model_digest, std::string_view tenant_salt) {
  Sha256 hash;
  AddNumber(kFormatVersion, &hash);
  AddText(model_digest, &hash);
  AddText(tenant_salt, &hash);
  return hash.Finish();
}

BlockKey ChildKey(const BlockKey& parent, std::span<const int32_t> tokens,
                  std::span<const ImageMark> images) {
  KURUMA_CHECK(static_cast<int64_t>(tokens.size()) == kBlockTokens);
  std::array<uint8_t, 4 * kBlockTokens> words;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto word = static_cast<uint32_t>(tokens[i]);
    for (size_t b = 0; b < 4; ++b) words[4 * i + b] = static_cast<uint8_t>(word >> (8 * b));
  }
  thread_local Sha256 hash;  // a sequence that decodes must not allocate
  hash.Add(parent.data(), parent.size());
  hash.Add(words.data(), words.size());
  for (const ImageMark& image : images) {
    AddNumber(static_cast<uint64_t>(image.position), &hash);
    hash.Add(image.digest.data(), image.digest.size());
  }
  return hash.Finish();
}

std::vector<BlockKey> ChainKeys(const BlockKey& root, std::span<const int32_t> tokens) {
  std::vector<BlockKey> keys;
  keys.reserve(tokens.size() / kBlockTokens);
  ExtendChain(root, tokens, tokens.size() / kBlockTokens, &keys);
  return keys;
}

void ExtendChain(const BlockKey& root, std::span<const int32_t> tokens, size_t blocks,
                 std::vector<BlockKey>* keys) {
  while (keys->size() < blocks) {
    const BlockKey& parent = keys->empty() ? root : keys->back();
    const auto block = tokens.subspan(keys->size() * kBlockTokens, kBlockTokens);
    keys->push_back(ChildKey(parent, block));
  }
}

}  // namespace kuruma::kv
