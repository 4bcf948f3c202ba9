// The server's side of TLS: what it presents and which versions it speaks.
#ifndef KURUMA_SERVER_TLS_H_
#define KURUMA_SERVER_TLS_H_

#include <string>

#include "base/status.h"

struct ssl_ctx_st;  // SSL_CTX of OpenSSL

namespace kuruma::server {

// Loads a certificate chain and its key (PEM) into `context`; TLS 1.2 and newer, HTTP/1.1 by ALPN.
// NotFound: a file cannot be read; InvalidArgument: it holds nothing of use, or the two do not
// belong together. Both name the file.
Status LoadTls(const std::string& cert_file, const std::string& key_file, ssl_ctx_st* context);

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_TLS_H_
