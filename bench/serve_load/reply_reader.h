// Reads HTTP/1.1 replies of a server that is known to be well-behaved, as cheaply as possible.
#ifndef BENCH_SERVE_LOAD_REPLY_READER_H_
#define BENCH_SERVE_LOAD_REPLY_READER_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace kuruma::load {

struct ReplyHead {
  int status = 0;
  bool has_retry_after = false;
  bool closes = false;  // the server ends the connection afterwards
};

class ReplyReader {
 public:
  enum class State { kHead, kBody, kComplete, kBroken };

  // Takes the next bytes of the connection. `body` gets what they hold of the body, without the
  // framing of chunks. Bytes behind a complete reply are an error: nothing is pipelined.
  State Feed(std::string_view bytes, const std::function<void(std::string_view)>& body);

  // Makes ready for the next reply.
  void Reset() { *this = ReplyReader(); }

  State state() const { return state_; }
  const ReplyHead& head() const { return head_; }

 private:
  bool TakeHead();
  void TakePlain(const std::function<void(std::string_view)>& body);
  void TakeChunks(const std::function<void(std::string_view)>& body);

  State state_ = State::kHead;
  ReplyHead head_;
  std::string in_;  // not taken yet
  bool chunked_ = false;
  size_t left_ = 0;  // of a plain body
};

}  // namespace kuruma::load

#endif  // BENCH_SERVE_LOAD_REPLY_READER_H_
