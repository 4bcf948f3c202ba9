// Listening sockets, opened with errors that name the address.
#ifndef KURUMA_SERVER_LISTEN_H_
#define KURUMA_SERVER_LISTEN_H_

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace kuruma::server {

// Closes a descriptor; -1: none.
class UniqueFd {
 public:
  explicit UniqueFd(int fd = -1) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();

  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

struct TcpListeners {
  std::vector<UniqueFd> sockets;  // one per address of the host, not blocking
  int port = 0;
};

// Listens on every address of `host`. NotFound: no such host; InvalidArgument: the port is taken or
// not allowed; ResourceExhausted: no descriptors left. Source: POSIX getaddrinfo, bind, listen.
Result<TcpListeners> ListenTcp(const std::string& host, int port);

// Listens on a unix socket. What another server left behind at `path` is replaced; InvalidArgument
// if one still answers there or the path is something else.
Result<UniqueFd> ListenUnix(const std::string& path);

// One waiting connection, not blocking; -1 with errno.
struct Accepted {
  UniqueFd socket;
  std::string remote;  // "127.0.0.1:5000", "[::1]:5000" or "unix"
  int family = 0;
};
Accepted Accept(int listener);

// Whether the other side has closed its sending side or is gone.
bool PeerHasLeft(int socket);

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_LISTEN_H_
