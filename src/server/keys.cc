#include "server/keys.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>

#include "server/http_text.h"

namespace kuruma::server {
namespace {

Digest256 DigestOf(std::string_view key) {
  Sha256 sha;
  sha.Add(key.data(), key.size());
  return sha.Finish();
}

bool IsLoopback(const std::string& host) {
  if (SameName(host, "localhost")) return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace

Result<ApiKeys> ApiKeys::Create(const std::vector<std::string>& keys) {
  ApiKeys result;
  for (const std::string& key : keys) {
    const bool fit = !key.empty() && std::all_of(key.begin(), key.end(),
                                                 [](char c) { return c > ' ' && c < '\x7f'; });
    // The key itself stays out of the message.
    if (!fit) {
      return InvalidArgument(
          fmt::format("API key {}: keys are visible ASCII characters without spaces, at least one",
                      result.digests_.size() + 1));
    }
    result.digests_.push_back(DigestOf(key));
  }
  return result;
}

bool ApiKeys::Contains(std::string_view key) const {
  const Digest256 digest = DigestOf(key);
  bool found = false;
  for (const Digest256& known : digests_) {
    const bool same = CRYPTO_memcmp(known.data(), digest.data(), digest.size()) == 0;
    found = found | same;
  }
  return found;
}

bool ApiKeys::Allows(const HttpRequest& request) const {
  if (empty()) return true;
  const auto key = KeyOf(request);
  return key && Contains(*key);
}

std::optional<std::string_view> KeyOf(const HttpRequest& request) {
  constexpr std::string_view kScheme = "bearer ";
  std::string_view sent = request.Header("authorization");
  if (sent.size() > kScheme.size() && SameName(sent.substr(0, kScheme.size()), kScheme)) {
    sent.remove_prefix(kScheme.size());
    sent.remove_prefix(std::min(sent.find_first_not_of(' '), sent.size()));
    return sent;
  }
  const std::string_view key = request.Header("x-api-key");
  if (key.empty()) return std::nullopt;
  return key;
}

Status CheckExposure(const std::string& host, bool unix_socket, bool has_keys) {
  if (has_keys || unix_socket || IsLoopback(host)) return Status();
  return InvalidArgument(fmt::format(
      "refusing to listen on \"{}\" without API keys: everyone who reaches it could use "
      "the model; give --api-key, or listen on 127.0.0.1",
      host));
}

}  // namespace kuruma::server
