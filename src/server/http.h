// An HTTP/1.1 server: connections, requests, replies and streams. It knows nothing of models or of
// what bodies mean; a Handler gets whole requests and answers them from any thread.
//
// Every request gets one answer: a handler that drops its HttpReply unanswered sends status 500.
// Bad, slow and vanishing clients are the server's business: limits and timeouts are in
// HttpOptions, and every error has a JSON body (HttpOptions::error_body). Source: RFC 9110, RFC
// 9112; CORS: the Fetch standard, section 3.2.
#ifndef KURUMA_SERVER_HTTP_H_
#define KURUMA_SERVER_HTTP_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace kuruma::server {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;     // as sent: "GET"
  std::string path;       // begins with '/', percent escapes well-formed but not decoded
  std::string query;      // behind '?', without it
  int minor_version = 1;  // of HTTP/1.x
  HttpHeaders headers;    // as sent, in order; trailers of chunked bodies are dropped
  std::string body;
  std::string remote;  // "127.0.0.1:5000", "[::1]:5000" or "unix"
  std::string id;      // the client's x-request-id if it is a fit one, else drawn; sent back
  std::chrono::steady_clock::time_point received;  // its first byte

  // The first header of that name, in any case; empty if there is none.
  std::string_view Header(std::string_view name) const;
};

// `{"error":{"message","type","param":null,"code":null}}`, the type by status as OpenAI names them.
std::string ErrorBody(int status, std::string_view message);

// The JSON body of an error for clients of `path`; empty: not known. Any thread.
using MakeErrorBody =
    std::function<std::string(int status, std::string_view path, std::string_view message)>;

struct StreamStart {
  int status = 200;
  std::string content_type = "text/event-stream; charset=utf-8";
  HttpHeaders headers = {};
  // Sends the comment ": keep-alive" when nothing was written for HttpOptions::sse_keep_alive.
  // Each Write must then be whole events.
  bool keep_alive_comments = false;
};

class ReplyState;

// The answer to one request; any thread. Nothing blocks: what the client has not taken yet waits in
// a bounded buffer. Calls out of order (a second Send, Write before BeginStream) do nothing.
class HttpReply {
 public:
  explicit HttpReply(std::shared_ptr<ReplyState> state);
  // Not answered: sends status 500. A stream not ended: the connection is cut, so that the client
  // sees that the end is missing.
  ~HttpReply();
  HttpReply(const HttpReply&) = delete;
  HttpReply& operator=(const HttpReply&) = delete;

  // The whole answer. Headers with control characters are left out.
  void Send(int status, std::string_view content_type, std::string_view body,
            const HttpHeaders& headers = {});

  // Sends the body that HttpOptions::error_body makes of it.
  void SendError(int status, std::string_view message, const HttpHeaders& headers = {});

  // The beginning of an answer in pieces: chunked, or up to the end of the connection for HTTP/1.0.
  // False: the client is gone.
  bool BeginStream(const StreamStart& start);

  // One piece. False: the client is gone, or so slow that HttpOptions::max_buffer_bytes would be
  // exceeded; then its connection is cut.
  bool Write(std::string_view piece);

  void EndStream();

  // `gone` is called once, on a network thread, when the client leaves (or is cut off) before the
  // answer is complete; at once and here if it already has. A client that closes only its sending
  // side counts as gone: it looks the same. Replaces an earlier one; released when the answer is
  // complete. Must not block.
  void OnGone(std::function<void()> gone);

 private:
  std::shared_ptr<ReplyState> state_;
};

// Called on a network thread for every request; must not block.
using Handler = std::function<void(HttpRequest request, std::shared_ptr<HttpReply> reply)>;

struct HttpOptions {
  std::string host = "127.0.0.1";  // name or address; every address of a name is listened on
  int port = 0;                    // 0: chosen by the system
  std::string unix_path = {};      // not empty: listens on this socket instead of host and port
  std::string tls_cert_file = {};  // PEM chain; with tls_key_file: HTTPS
  std::string tls_key_file = {};
  int threads = 1;
  size_t max_connections = 4096;  // more are answered 503 (with TLS: closed)
  size_t max_header_bytes = 32 << 10;
  size_t max_body_bytes = 64 << 20;
  size_t max_buffer_bytes = 1 << 20;  // of a stream, not yet taken by the client

  using Time = std::chrono::milliseconds;
  Time header_timeout{10'000};  // for TLS, and from a request's first byte to the end of headers
  Time body_timeout{30'000};    // between two pieces of a body
  size_t min_body_rate = 256;   // bytes per second, once a body has taken body_timeout
  Time idle_timeout{75'000};    // between requests
  Time write_timeout{30'000};   // a client that takes no byte for so long is dropped
  Time sse_keep_alive{15'000};  // 0: no comments
  std::vector<std::string> cors_origins = {};  // empty: no CORS; "*": any origin

  // Of errors that this layer finds and of HttpReply::SendError. Absent: ErrorBody for every path.
  MakeErrorBody error_body = {};

  // One JSON line (no newline) per request, when its answer is through: time, id, remote, method,
  // path, status, bytes_in, bytes_out, ms, user_agent. Status 499: the client left before there was
  // one. Called on network threads.
  std::function<void(std::string_view line)> access_log = {};
};

// Owns the network threads. Methods must not be called on one of them.
class HttpServer {
 public:
  // Listens and starts the threads. InvalidArgument, NotFound or ResourceExhausted name the
  // address or file and the reason.
  static Result<std::unique_ptr<HttpServer>> Create(const HttpOptions& options, Handler handler);

  ~HttpServer();  // Stop
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The TCP port; 0 for a unix socket.
  int port() const;

  size_t connections() const;

  // Accepts nothing more, closes idle connections, waits until the running requests are answered
  // (with "Connection: close") or `limit` is over, then Stop. True: all were answered.
  bool Drain(std::chrono::milliseconds limit);

  // Cuts every connection (OnGone is called), joins the threads. Replies may outlive the server.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_HTTP_H_
