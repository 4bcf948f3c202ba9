#include "server/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kuruma::server {
namespace {

// Why the last call of OpenSSL failed.
std::string Reason() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason != nullptr ? reason : "not understood";
}

// Agrees to "http/1.1" if the client offers it; without a common protocol TLS goes on without one.
void AnswerAlpn(SSL_CTX* context) {
  SSL_CTX_set_alpn_select_cb(
      context,
      [](SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* offered,
         unsigned int offered_size, void*) {
        static constexpr unsigned char kOurs[] = "\x08http/1.1";
        unsigned char* chosen = nullptr;
        const int found = SSL_select_next_proto(&chosen, out_size, kOurs, sizeof(kOurs) - 1,
                                                offered, offered_size);
        *out = chosen;
        return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
      },
      nullptr);
}

}  // namespace

Status LoadTls(const std::string& cert_file, const std::string& key_file, SSL_CTX* context) {
  if (cert_file.empty() || key_file.empty()) {
    return InvalidArgument("TLS needs both a certificate file and a key file");
  }
  for (const std::string& file : {cert_file, key_file}) {
    if (access(file.c_str(), R_OK) != 0) {
      return NotFound(fmt::format("TLS file {}: {}", file, std::strerror(errno)));
    }
  }
  ERR_clear_error();
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
  AnswerAlpn(context);
  if (SSL_CTX_use_certificate_chain_file(context, cert_file.c_str()) != 1) {
    return InvalidArgument(fmt::format("TLS certificate {}: {}", cert_file, Reason()));
  }
  if (SSL_CTX_use_PrivateKey_file(context, key_file.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return InvalidArgument(
        fmt::format("TLS key {} (of certificate {}): {}", key_file, cert_file, Reason()));
  }
  return Status();
}

}  // namespace kuruma::server
