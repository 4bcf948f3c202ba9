// The text of HTTP messages: heads of replies, header checks, CORS, the access log. Pure functions;
// any thread.
#ifndef KURUMA_SERVER_HTTP_TEXT_H_
#define KURUMA_SERVER_HTTP_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace kuruma::server {

// Whether two header names are the same: ASCII case does not count.
bool SameName(std::string_view a, std::string_view b);

// Whether `list`, a comma-separated header value, holds `token` (in any case).
bool HasToken(std::string_view list, std::string_view token);

// "OK", "Not Found"; "Status" for codes without a name here.
std::string_view ReasonPhrase(int status);

// How a reply is framed.
struct ReplyFrame {
  enum class Body { kLength, kChunked, kUntilClose };
  Body body = Body::kLength;
  size_t length = 0;             // kLength
  bool keep_alive = true;        // else "Connection: close"
  bool says_keep_alive = false;  // "Connection: keep-alive", for HTTP/1.0 clients
};

// Status line and headers up to the empty line. Headers that hold control characters, name no token
// or would contradict the frame (Content-Length, Transfer-Encoding, Connection) are left out.
std::string ReplyHead(int status, std::string_view content_type, const ReplyFrame& frame,
                      const HttpHeaders& headers);

// Whether replies with this status never have a body (1xx, 204, 304).
bool HasNoBody(int status);

// Whether a client's x-request-id is used: 1 to 128 letters, digits and "-_.:/=+".
bool IsFitRequestId(std::string_view id);

// "req_" and 24 random hex digits.
std::string DrawRequestId();

// Whether every '%' is followed by two hex digits.
bool HasWellFormedEscapes(std::string_view path);

// CORS for one request: headers to add to its reply, and whether the server answers itself.
struct CorsAnswer {
  enum class Preflight { kNone, kAllowed, kRefused };
  Preflight preflight = Preflight::kNone;
  HttpHeaders headers;
};
CorsAnswer AnswerCors(const std::vector<std::string>& origins, const HttpRequest& request);

struct AccessRecord {
  std::string id, remote, method, path, user_agent;
  int status = 0;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  double ms = 0;
};

// One JSON line, time in UTC with milliseconds.
std::string AccessLine(const AccessRecord& record);

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_HTTP_TEXT_H_
