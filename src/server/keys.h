// API keys: who may use the server.
#ifndef KURUMA_SERVER_KEYS_H_
#define KURUMA_SERVER_KEYS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "base/status.h"
#include "server/http.h"

namespace kuruma::server {

// Keeps digests, not keys. Immutable; any thread.
class ApiKeys {
 public:
  // InvalidArgument: a key is empty or holds other characters than a header may (spaces, controls).
  static Result<ApiKeys> Create(const std::vector<std::string>& keys);

  // Without keys everyone may use the server.
  bool empty() const { return digests_.empty(); }

  // Whether `key` is one of them. Takes equal time for every key of a length, so that answers tell
  // nothing of how much was right: digests are compared, each of them, in constant time.
  bool Contains(std::string_view key) const;

  // Whether a request brings a key: "Authorization: Bearer KEY" or, as Anthropic's clients send it,
  // "x-api-key: KEY"; the former wins. True without keys.
  bool Allows(const HttpRequest& request) const;

 private:
  std::vector<Digest256> digests_;
};

// The key that a request brings; nothing if it brings none.
std::optional<std::string_view> KeyOf(const HttpRequest& request);

// Refuses to serve a network without keys: InvalidArgument, unless there are keys or only programs
// of this machine can connect (a unix socket, "localhost", 127.0.0.0/8, ::1).
Status CheckExposure(const std::string& host, bool unix_socket, bool has_keys);

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_KEYS_H_
