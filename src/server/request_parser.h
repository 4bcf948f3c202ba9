// Turns the bytes of a connection into one request. No sockets: bytes in, request or error out.
#ifndef KURUMA_SERVER_REQUEST_PARSER_H_
#define KURUMA_SERVER_REQUEST_PARSER_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http.h"

namespace kuruma::server {

struct HttpError {
  int status = 400;
  std::string message;
};

struct ParsedRequest {
  HttpRequest request;  // without remote, id and time
  bool keep_alive = true;
  bool expects_continue = false;  // "Expect: 100-continue" of an HTTP/1.1 client
};

// One request; one thread. Syntax is Boost.Beast's; added are the rules against requests that two
// servers could read differently (RFC 9112 section 6.3): no Content-Length beside
// Transfer-Encoding, no coding but "chunked", one Host.
class RequestParser {
 public:
  RequestParser(size_t max_header_bytes, size_t max_body_bytes);
  ~RequestParser();

  // Reads from the front of `data` and returns how much of it is done with; the rest must come
  // again, with more behind it. Nothing more is read once complete() or error().
  size_t Feed(std::string_view data);

  bool has_header() const;
  bool complete() const;
  size_t body_bytes() const;  // so far
  const std::optional<HttpError>& error() const;

  // Valid once has_header(); the body once complete().
  ParsedRequest& parsed();

 private:
  class Syntax;
  std::unique_ptr<Syntax> syntax_;
};

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_REQUEST_PARSER_H_
