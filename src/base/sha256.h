// SHA-256 of data that comes in pieces.
#ifndef KURUMA_BASE_SHA256_H_
#define KURUMA_BASE_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace kuruma {

using Digest256 = std::array<uint8_t, 32>;

// One digest after the other; one thread at a time. Source: FIPS 180-4, computed by OpenSSL.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Add(const void* data, size_t size);

  // The digest of what was added since the last Finish; then it is as new.
  Digest256 Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// 64 lower-case digits.
std::string Hex(const Digest256& digest);

}  // namespace kuruma

#endif  // KURUMA_BASE_SHA256_H_
