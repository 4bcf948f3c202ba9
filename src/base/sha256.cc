#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace kuruma {

struct Sha256::Context {
  EVP_MD_CTX* openssl = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(openssl); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  KURUMA_CHECK(context_->openssl != nullptr &&
               EVP_DigestInit_ex(context_->openssl, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

void Sha256::Add(const void* data, size_t size) {
  KURUMA_CHECK(EVP_DigestUpdate(context_->openssl, data, size) == 1);
}

Digest256 Sha256::Finish() {
  Digest256 digest;
  KURUMA_CHECK(EVP_DigestFinal_ex(context_->openssl, digest.data(), nullptr) == 1);
  KURUMA_CHECK(EVP_DigestInit_ex(context_->openssl, nullptr, nullptr) == 1);  // the same again
  return digest;
}

std::string Hex(const Digest256& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const uint8_t byte : digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace kuruma
