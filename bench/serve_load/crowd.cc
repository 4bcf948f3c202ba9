#include "crowd.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace kuruma::load {
namespace {

constexpr int kBatch = 256;
constexpr uint64_t kTimerEvent = ~uint64_t{0};

int Checked(int fd, const char* what) {
  if (fd < 0) throw std::system_error(errno, std::generic_category(), what);
  return fd;
}

uint64_t Tag(size_t number, uint32_t generation) { return uint64_t{generation} << 32 | number; }

}  // namespace

Crowd::Crowd(uint16_t port, CrowdEvents events)
    : port_(port),
      events_(std::move(events)),
      epoll_(Checked(epoll_create1(EPOLL_CLOEXEC), "epoll")),
      timer_(Checked(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), "timer")) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kTimerEvent}};
  Checked(epoll_ctl(epoll_, EPOLL_CTL_ADD, timer_, &event), "epoll");
}

Crowd::~Crowd() {
  for (Client& client : clients_) Close(&client);
  close(timer_);
  close(epoll_);
}

size_t Crowd::Open() {
  size_t number = clients_.size();
  if (free_.empty()) {
    clients_.emplace_back();
  } else {
    number = free_.front();
    free_.pop_front();
  }
  Connect(number);
  return number;
}

void Crowd::Connect(size_t number) {
  Client& client = clients_[number];
  client.fd = Checked(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket");
  ++client.generation;
  client.waits = false;
  client.wants_room = true;
  client.out.clear();
  client.reader.Reset();
  const int on = 1;
  setsockopt(client.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port_);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // An error shows when the request is sent.
  (void)!connect(client.fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  epoll_event event{.events = EPOLLIN | EPOLLOUT, .data = {.u64 = Tag(number, client.generation)}};
  Checked(epoll_ctl(epoll_, EPOLL_CTL_ADD, client.fd, &event), "epoll");
}

void Crowd::Close(Client* client) {
  if (client->fd >= 0) close(std::exchange(client->fd, -1));
  client->waits = false;
}

void Crowd::Send(size_t number, const std::string& request) {
  Client& client = clients_[number];
  if (client.fd < 0) Connect(number);
  client.reader.Reset();
  client.waits = true;
  client.out = request;
  if (!client.wants_room) Flush(number);
}

void Crowd::Drop(size_t number) {
  Close(&clients_[number]);
  free_.push_back(number);
}

void Crowd::Watch(size_t number, bool wants_room) {
  Client& client = clients_[number];
  if (std::exchange(client.wants_room, wants_room) == wants_room) return;
  epoll_event event{.events = EPOLLIN | (wants_room ? uint32_t{EPOLLOUT} : 0),
                    .data = {.u64 = Tag(number, client.generation)}};
  Checked(epoll_ctl(epoll_, EPOLL_CTL_MOD, client.fd, &event), "epoll");
}

void Crowd::Flush(size_t number) {
  Client& client = clients_[number];
  while (!client.out.empty()) {
    const ssize_t n = send(client.fd, client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) return Watch(number, true);
    if (n < 0) return Break(number);
    client.out.erase(0, static_cast<size_t>(n));
  }
  Watch(number, false);
}

void Crowd::Read(size_t number) {
  static char buffer[64 << 10];
  Client& client = clients_[number];
  const ssize_t n = recv(client.fd, buffer, sizeof(buffer), 0);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0 || !client.waits) return Break(number);
  const ReplyReader::State state =
      client.reader.Feed({buffer, static_cast<size_t>(n)},
                         [&](std::string_view bytes) { events_.on_body(number, bytes); });
  if (state == ReplyReader::State::kBroken) return Break(number);
  if (state != ReplyReader::State::kComplete) return;
  client.waits = false;
  const ReplyHead head = client.reader.head();
  if (head.closes) Close(&client);
  events_.on_answer(number, head);
}

void Crowd::Break(size_t number) {
  Client& client = clients_[number];
  const bool waited = client.waits;
  Close(&client);
  if (waited) events_.on_broken(number);
}

void Crowd::Poll(Clock::time_point until) {
  const auto wait = std::max<Clock::duration>(until - Clock::now(), std::chrono::nanoseconds(1));
  const auto ns = std::chrono::nanoseconds(wait).count();
  const itimerspec spec{.it_interval = {},
                        .it_value = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000}};
  timerfd_settime(timer_, 0, &spec, nullptr);
  epoll_event events[kBatch];
  const int count = epoll_wait(epoll_, events, kBatch, -1);
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = events[i].data.u64;
    if (tag == kTimerEvent) continue;
    const size_t number = tag & 0xffffffff;
    const auto is_same = [&] {
      const Client& client = clients_[number];
      return client.fd >= 0 && client.generation == tag >> 32;
    };
    if (is_same() && (events[i].events & EPOLLOUT) != 0) Flush(number);
    if (is_same() && (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) Read(number);
  }
}

}  // namespace kuruma::load
