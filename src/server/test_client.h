// For tests: a client that sends exactly the bytes it is told to, over TCP or a unix socket.
#ifndef KURUMA_SERVER_TEST_CLIENT_H_
#define KURUMA_SERVER_TEST_CLIENT_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace kuruma::server {

struct TestReply {
  int status = 0;  // 0: the connection ended before a whole reply
  std::string head;
  std::string body;  // chunks joined

  bool Has(std::string_view line) const { return head.find(line) != std::string::npos; }
};

class TestClient {
 public:
  explicit TestClient(int port, int receive_buffer = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Connect(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
  explicit TestClient(const std::string& unix_path) {
    fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, unix_path.c_str(), sizeof(address.sun_path) - 1);
    Connect(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;
  ~TestClient() {
    if (fd_ >= 0) close(fd_);
  }

  // False once the server does not take bytes any more.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  TestReply Get(const std::string& target, const std::string& headers = "") {
    Send("GET " + target + " HTTP/1.1\r\nHost: t\r\n" + headers + "\r\n");
    return Read();
  }

  // The next reply. `head_only`: to a HEAD request.
  TestReply Read(bool head_only = false) {
    TestReply reply;
    size_t end = 0;
    while ((end = in_.find("\r\n\r\n")) == std::string::npos) {
      if (!More()) return reply;
    }
    reply.head = in_.substr(0, end + 2);
    in_.erase(0, end + 4);
    const int status = std::atoi(reply.head.c_str() + 9);
    bool whole = true;
    if (!head_only && reply.Has("Transfer-Encoding: chunked")) {
      whole = ReadChunks(&reply.body);
    } else if (const size_t at = reply.head.find("Content-Length: ");
               !head_only && at != std::string::npos) {
      whole = Take(std::strtoul(reply.head.c_str() + at + 16, nullptr, 10), &reply.body);
    } else if (!head_only && reply.Has("Connection: close") && status != 204) {
      reply.body = ReadToEnd();
    }
    if (whole) reply.status = status;
    return reply;
  }

  // Reads until `text` came; false if the connection ended first.
  bool ReadUntil(std::string_view text) {
    size_t at = 0;
    while ((at = in_.find(text)) == std::string::npos) {
      if (!More()) return false;
    }
    in_.erase(0, at + text.size());
    return true;
  }
  std::string ReadToEnd() {
    while (More()) {
    }
    return std::exchange(in_, "");
  }

  void EndSending() { shutdown(fd_, SHUT_WR); }
  // Closes with a reset.
  void Abort() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(std::exchange(fd_, -1));
  }

 private:
  void Connect(const sockaddr* address, socklen_t size) {
    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(fd_, address, size) != 0) ADD_FAILURE() << "connect: " << std::strerror(errno);
  }
  bool More() {
    char buffer[16384];
    const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) ADD_FAILURE() << "the server hangs";
    if (n <= 0) return false;
    in_.append(buffer, static_cast<size_t>(n));
    return true;
  }
  bool Take(size_t size, std::string* out) {
    while (in_.size() < size) {
      if (!More()) return false;
    }
    out->append(in_, 0, size);
    in_.erase(0, size);
    return true;
  }
  bool ReadChunks(std::string* out) {
    for (;;) {
      size_t end = 0;
      while ((end = in_.find("\r\n")) == std::string::npos) {
        if (!More()) return false;
      }
      const size_t size = std::strtoul(in_.c_str(), nullptr, 16);
      in_.erase(0, end + 2);
      std::string line_end;
      if (!Take(size, out) || !Take(2, &line_end) || line_end != "\r\n") return false;
      if (size == 0) return true;
    }
  }

  int fd_ = -1;
  std::string in_;
};

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_TEST_CLIENT_H_
