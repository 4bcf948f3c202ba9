#include "kv/block_key.h"

#include <openssl/evp.h>

#include <memory>

#include "base/check.h"

namespace kuruma::kv {
namespace {

constexpr uint64_t kFormatVersion = 1;  // of keys and of the bytes of a block

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    KURUMA_CHECK(context_ != nullptr &&
                 EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }

  void Add(const void* data, size_t size) {
    KURUMA_CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1);
  }

  // As eight bytes, little-endian.
  void AddNumber(uint64_t value) {
    std::array<uint8_t, 8> bytes;
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
    Add(bytes.data(), bytes.size());
  }

  void AddText(std::string_view text) {
    AddNumber(text.size());
    Add(text.data(), text.size());
  }

  BlockKey Finish() {
    BlockKey key;
    unsigned size = 0;
    KURUMA_CHECK(EVP_DigestFinal_ex(context_.get(), key.data(), &size) == 1 && size == key.size());
    return key;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

BlockKey RootKey(std::string_view model_digest, std::string_view tenant_salt) {
  Sha256 hash;
  hash.AddNumber(kFormatVersion);
  hash.AddText(model_digest);
  hash.AddText(tenant_salt);
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
  Sha256 hash;
  hash.Add(parent.data(), parent.size());
  hash.Add(words.data(), words.size());
  for (const ImageMark& image : images) {
    hash.AddNumber(static_cast<uint64_t>(image.position));
    hash.Add(image.digest.data(), image.digest.size());
  }
  return hash.Finish();
}

std::vector<BlockKey> ChainKeys(const BlockKey& root, std::span<const int32_t> tokens) {
  std::vector<BlockKey> keys;
  keys.reserve(tokens.size() / kBlockTokens);
  const BlockKey* parent = &root;
  for (size_t begin = 0; begin + kBlockTokens <= tokens.size(); begin += kBlockTokens) {
    keys.push_back(ChildKey(*parent, tokens.subspan(begin, kBlockTokens)));
    parent = &keys.back();
  }
  return keys;
}

}  // namespace kuruma::kv
