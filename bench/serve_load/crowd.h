// Many clients of one server on the loopback, each with a keep-alive connection; one thread.
#ifndef BENCH_SERVE_LOAD_CROWD_H_
#define BENCH_SERVE_LOAD_CROWD_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "reply_reader.h"

namespace kuruma::load {

using Clock = std::chrono::steady_clock;

// What a crowd tells its user, out of Poll, Send and Open. on_body may call nothing of the crowd.
struct CrowdEvents {
  std::function<void(size_t client, std::string_view bytes)> on_body;
  std::function<void(size_t client, const ReplyHead& head)> on_answer;  // complete
  std::function<void(size_t client)> on_broken;  // the connection ended before the answer did
};

class Crowd {
 public:
  // Throws std::system_error if the system gives no epoll or timer.
  Crowd(uint16_t port, CrowdEvents events);
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // Another client; its number. Dropped ones are used again. Connects without waiting.
  size_t Open();

  // The client's next request; it must have no other on its way. A connection that the server has
  // ended in the meantime is opened anew.
  void Send(size_t client, const std::string& request);

  // Leaves without waiting for the answer.
  void Drop(size_t client);

  // Handles what happens until `until`, but returns after each batch of events.
  void Poll(Clock::time_point until);

 private:
  struct Client {
    int fd = -1;
    bool waits = false;       // for an answer
    bool wants_room = false;  // `out` is not sent yet
    uint32_t generation = 0;  // tells apart connections of a number that is used again
    std::string out;
    ReplyReader reader;
  };

  void Connect(size_t number);
  void Close(Client* client);
  void Flush(size_t number);
  void Read(size_t number);
  void Break(size_t number);
  void Watch(size_t number, bool wants_room);

  const uint16_t port_;
  const CrowdEvents events_;
  int epoll_ = -1;
  int timer_ = -1;
  std::deque<Client> clients_;
  std::deque<size_t> free_;
};

}  // namespace kuruma::load

#endif  // BENCH_SERVE_LOAD_CROWD_H_
