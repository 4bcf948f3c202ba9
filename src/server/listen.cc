#include "server/listen.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace kuruma::server {
namespace {

// A crowd that comes at once waits here; without room its members would try again seconds later.
constexpr int kBacklog = 4096;

Status ListenError(const std::string& where, int error) {
  std::string message = fmt::format("cannot listen on {}: {}", where, std::strerror(error));
  if (error == EMFILE || error == ENFILE || error == ENOMEM) return ResourceExhausted(message);
  return InvalidArgument(message);
}

std::string AddressText(const sockaddr* address, socklen_t size) {
  if (address->sa_family == AF_UNIX) return "unix";
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getnameinfo(address, size, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  return address->sa_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                        : fmt::format("{}:{}", host, port);
}

// The port of a bound socket, or of an address.
int PortOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void SetPort(sockaddr_storage* address, int port) {
  const auto value = htons(static_cast<uint16_t>(port));
  if (address->ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = value;
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = value;
  }
}

// Leaves the reason of a failure in errno.
UniqueFd TryListen(const sockaddr* address, socklen_t size) {
  UniqueFd fd(socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return fd;
  const int on = 1;
  if (address->sa_family != AF_UNIX) {
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  }
  // An IPv4 socket of its own serves that family.
  if (address->sa_family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  }
  if (bind(fd.get(), address, size) != 0 || listen(fd.get(), kBacklog) != 0) {
    const int error = errno;
    fd = UniqueFd();
    errno = error;
  }
  return fd;
}

}  // namespace

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

Result<TcpListeners> ListenTcp(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return NotFound(fmt::format("cannot listen on \"{}\": {}", host, gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  TcpListeners listeners;
  listeners.port = port;
  Status last = NotFound(fmt::format("cannot listen on \"{}\": it has no address", host));
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    sockaddr_storage address{};
    std::memcpy(&address, info->ai_addr, info->ai_addrlen);
    SetPort(&address, listeners.port);  // a port drawn for one address serves all
    const auto* raw = reinterpret_cast<const sockaddr*>(&address);
    UniqueFd socket = TryListen(raw, info->ai_addrlen);
    if (socket.get() < 0) {
      const int error = errno;
      last = ListenError(AddressText(raw, info->ai_addrlen), error);
      // A name may have addresses that this machine does not: one that works is enough.
      if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) return last;
      continue;
    }
    socklen_t size = sizeof(address);
    getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
    listeners.port = PortOf(address);
    listeners.sockets.push_back(std::move(socket));
  }
  if (listeners.sockets.empty()) return last;
  return listeners;
}

Result<UniqueFd> ListenUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return InvalidArgument(fmt::format("unix socket path \"{}\" has {} bytes; at most {} work",
                                       path, path.size(), sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const auto* raw = reinterpret_cast<const sockaddr*>(&address);
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) {
      return InvalidArgument(fmt::format("cannot listen on \"{}\": it is not a socket", path));
    }
    const UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(probe.get(), raw, sizeof(address)) == 0) {
      return InvalidArgument(
          fmt::format("cannot listen on \"{}\": another server answers there", path));
    }
    if (errno == ECONNREFUSED) unlink(path.c_str());
  }
  UniqueFd fd = TryListen(raw, sizeof(address));
  const int error = errno;
  if (fd.get() < 0) return ListenError(fmt::format("\"{}\"", path), error);
  return fd;
}

Accepted Accept(int listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  Accepted accepted;
  accepted.socket = UniqueFd(accept4(listener, raw, &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (accepted.socket.get() < 0) return accepted;
  accepted.family = address.ss_family;
  accepted.remote = AddressText(raw, size);
  if (accepted.family != AF_UNIX) {
    const int on = 1;
    setsockopt(accepted.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  return accepted;
}

bool PeerHasLeft(int socket) {
  pollfd what{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return poll(&what, 1, 0) > 0 && (what.revents & (POLLRDHUP | POLLERR | POLLHUP)) != 0;
}

}  // namespace kuruma::server
