// What an HttpReply and its connection share: the bytes on their way from any thread to the
// network thread.
#ifndef KURUMA_SERVER_REPLY_H_
#define KURUMA_SERVER_REPLY_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "server/http.h"

namespace kuruma::server {

// What of a request its reply depends on.
struct ReplyContext {
  std::string id;
  bool head = false;  // HEAD: no body is sent
  bool http10 = false;
  bool keep_alive = true;  // the connection may serve another request
  HttpHeaders headers;     // of every reply: CORS
  // The server's wish to end connections; valid until the reply is complete or gone.
  const std::atomic<bool>* draining = nullptr;
  size_t max_buffer_bytes = 0;
  std::string path = {};
  std::shared_ptr<const MakeErrorBody> error_body = {};
};

// Two users: HttpReply (any thread) fills, the connection (its network thread) empties. Nothing
// calls out while the lock is held, but `wake`.
class ReplyState {
 public:
  // `wake` makes the network thread call Take, or cut the connection; it is never called after
  // MarkGone returned. The first Take needs no wake: the connection looks when the handler has
  // returned.
  ReplyState(ReplyContext of, std::function<void(bool cut)> wake);

  // Side of the handler, as HttpReply describes.
  void Send(int status, std::string_view content_type, std::string_view body,
            const HttpHeaders& headers);
  bool BeginStream(const StreamStart& start);
  bool Write(std::string_view piece);
  void EndStream();
  void OnGone(std::function<void()> gone);
  void Abandon();  // the last HttpReply is destroyed

  // Side of the connection.
  struct Taken {
    std::string bytes;  // to send
    bool complete = false;
    bool keep_alive = false;  // afterwards
    bool comments = false;    // a stream that wants comments in its pauses
    int status = 0;           // 0: none yet
  };
  // `sent`: how many of the bytes taken before the client has taken since.
  Taken Take(size_t sent);

  // The connection is over: tells the handler, unless the reply is complete.
  void MarkGone();

  const ReplyContext context;

 private:
  enum class Phase { kOpen, kStreaming, kComplete, kCut, kGone };

  HttpHeaders WithContext(const HttpHeaders& headers) const;
  void AppendPiece(std::string_view piece);
  void Wake();
  void Complete(std::unique_lock<std::mutex> lock);

  std::mutex mutex_;
  std::function<void(bool cut)> wake_;
  std::function<void()> gone_;
  Phase phase_ = Phase::kOpen;
  std::string pending_;
  size_t unsent_ = 0;  // taken by the connection, not yet by the client
  int status_ = 0;
  bool chunked_ = false;
  bool keep_alive_;
  bool comments_ = false;
  bool will_take_ = true;  // the connection is about to look: no need to wake it
};

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_REPLY_H_
