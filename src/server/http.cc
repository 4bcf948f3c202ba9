// Connections and threads. The one file that sees Boost.Asio: it is slow to compile.
//
// Each network thread has an io_context and the connections given to it; a connection is touched by
// its thread only. Other threads reach it through ReplyState. Timeouts are looked after by one
// sweep per thread, which runs a few times per shortest timeout and costs nothing per request.
#include "server/http.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "base/log.h"
#include "server/http_text.h"
#include "server/listen.h"
#include "server/reply.h"
#include "server/request_parser.h"
#include "server/tls.h"

namespace kuruma::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Socket = asio::generic::stream_protocol::socket;
using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

constexpr size_t kReadBytes = 8 << 10;        // of one read; every connection has such a buffer
constexpr size_t kBodyReadBytes = 64 << 10;   // while a body comes
constexpr size_t kReadAheadBytes = 64 << 10;  // of following requests while one is answered
constexpr size_t kRefusals = 64;  // connections beyond the limit that are told so at a time
constexpr int kAcceptBatch = 64;
constexpr auto kLingerTime = std::chrono::seconds(2);
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr int kStatusClientGone = 499;  // in the access log only

// What all connections of a server share.
struct Shared {
  HttpOptions options;
  std::shared_ptr<const MakeErrorBody> error_body;  // replies outlive the server
  Handler handler;
  std::optional<asio::ssl::context> tls;
  std::atomic<bool> draining{false};

  std::mutex mutex;
  std::condition_variable none_left;
  std::atomic<size_t> connections{0};

  void Leave() {
    const std::lock_guard lock(mutex);
    if (--connections == 0) none_left.notify_all();
  }
};

class Connection;

// One network thread.
struct Loop {
  explicit Loop(Shared* shared);

  void Add(const std::shared_ptr<Connection>& connection);
  void Remove(Connection* connection);
  void ForEach(void (*what)(Connection*));
  void ArmSweep();
  void Run();

  Shared* shared;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  asio::steady_timer sweep{io};
  Clock::duration sweep_period;
  bool sweeping = false;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;
  std::thread thread;
};

struct Incoming {
  UniqueFd socket;
  std::string remote;
  int family = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Loop* loop, Incoming incoming);

  void Start();
  void Refuse();  // one connection too many
  void Sweep(TimePoint now);
  void CloseIfIdle();
  void Close();

 private:
  enum class Phase {
    kHandshake,
    kReading,    // waits for a request or reads one
    kAnswering,  // the handler has it
    kLeaving,    // the last bytes are sent; what still comes is thrown away
    kClosed,
  };

  void BeginRequest(Clock::duration patience);
  void Read();
  void OnRead(const error_code& ec, size_t n);
  void OnReadEnd(const error_code& ec);
  void Parse();
  bool FeedParser();
  void Handle();
  std::shared_ptr<ReplyState> MakeReply(const ParsedRequest& parsed, HttpHeaders cors);
  void Fail(int status, const std::string& message);
  void Flush();
  void Write();
  void OnWritten(const error_code& ec, size_t n);
  void OnWake(bool cut);
  void FinishRequest(bool keep_alive);
  void Leave();
  void Linger();
  void LogAccess(int status);
  void SweepAnswering(TimePoint now);
  const HttpOptions& options() const { return shared_->options; }

  Loop* loop_;
  Shared* shared_;
  Socket socket_;
  std::optional<asio::ssl::stream<Socket&>> tls_;
  Phase phase_ = Phase::kReading;
  TimePoint deadline_ = TimePoint::max();  // of the phase
  std::string remote_;

  // Reading. `in_` holds what the parser has not taken.
  std::vector<char> read_buffer_;
  std::string in_;
  std::optional<RequestParser> parser_;
  bool reading_ = false;
  bool input_ended_ = false;
  bool request_began_ = false;
  bool header_seen_ = false;
  TimePoint body_began_;

  // Answering and writing.
  std::shared_ptr<ReplyState> reply_;
  std::string out_;
  std::string next_out_;
  size_t out_sent_ = 0;
  size_t newly_sent_ = 0;  // not yet told to reply_
  bool writing_ = false;
  bool reply_complete_ = false;
  bool wants_comments_ = false;
  int reply_status_ = 0;
  TimePoint write_deadline_;
  TimePoint last_write_;

  AccessRecord record_;
  TimePoint received_;
};

// ------------------------------------------------------------------------------------------- Loop

Loop::Loop(Shared* shared_in) : shared(shared_in) {
  const HttpOptions& o = shared->options;
  auto shortest = std::min({o.header_timeout, o.body_timeout, o.idle_timeout, o.write_timeout});
  if (o.sse_keep_alive.count() > 0) shortest = std::min(shortest, o.sse_keep_alive);
  sweep_period = std::clamp(shortest / 8, HttpOptions::Time(5), HttpOptions::Time(500));
}

void Loop::Add(const std::shared_ptr<Connection>& connection) {
  connections.emplace(connection.get(), connection);
  ArmSweep();
}

void Loop::Remove(Connection* connection) {
  if (connections.erase(connection) > 0) shared->Leave();
}

// Connections may leave on the way.
void Loop::ForEach(void (*what)(Connection*)) {
  std::vector<std::shared_ptr<Connection>> all;
  all.reserve(connections.size());
  for (const auto& entry : connections) all.push_back(entry.second);
  for (const auto& connection : all) what(connection.get());
}

// Sleeps on without connections.
void Loop::ArmSweep() {
  if (sweeping || connections.empty()) return;
  sweeping = true;
  sweep.expires_after(sweep_period);
  sweep.async_wait([this](const error_code& ec) {
    sweeping = false;
    if (ec) return;
    ForEach([](Connection* connection) { connection->Sweep(Clock::now()); });
    ArmSweep();
  });
}

void Loop::Run() {
  for (;;) {
    try {
      io.run();
      return;
    } catch (const std::exception& e) {
      LogWarn("network thread: {}", e.what());  // memory ran out; the others go on
    }
  }
}

// ------------------------------------------------------------------------------------- Connection

Connection::Connection(Loop* loop, Incoming incoming)
    : loop_(loop), shared_(loop->shared), socket_(loop->io), remote_(std::move(incoming.remote)) {
  error_code ec;
  socket_.assign(asio::generic::stream_protocol(incoming.family, 0), incoming.socket.get(), ec);
  if (!ec) {
    incoming.socket.Release();
    socket_.native_non_blocking(true, ec);
  }
  if (shared_->tls) tls_.emplace(socket_, *shared_->tls);
}

void Connection::Start() {
  if (!tls_) {
    BeginRequest(options().header_timeout);
    Read();
    return;
  }
  phase_ = Phase::kHandshake;
  deadline_ = Clock::now() + options().header_timeout;
  tls_->async_handshake(asio::ssl::stream_base::server,
                        [self = shared_from_this()](const error_code& ec) {
                          if (self->phase_ != Phase::kHandshake) return;
                          if (ec) return self->Close();
                          self->BeginRequest(self->options().header_timeout);
                          self->Read();
                        });
}

void Connection::Refuse() {
  if (tls_) return Close();  // a handshake is too dear to say so
  received_ = Clock::now();
  Fail(503, fmt::format("the server has its {} connections", options().max_connections));
}

void Connection::BeginRequest(Clock::duration patience) {
  phase_ = Phase::kReading;
  deadline_ = Clock::now() + patience;
  parser_.emplace(options().max_header_bytes, options().max_body_bytes);
  request_began_ = false;
  header_seen_ = false;
  record_ = AccessRecord{};
}

void Connection::Read() {
  if (reading_ || input_ended_ || phase_ == Phase::kClosed) return;
  reading_ = true;
  const size_t size = header_seen_ && phase_ == Phase::kReading ? kBodyReadBytes : kReadBytes;
  if (read_buffer_.size() != size) {
    read_buffer_.resize(size);
    read_buffer_.shrink_to_fit();
  }
  const auto buffer = asio::buffer(read_buffer_);
  auto done = [self = shared_from_this()](const error_code& ec, size_t n) { self->OnRead(ec, n); };
  if (tls_) {
    tls_->async_read_some(buffer, std::move(done));
  } else {
    socket_.async_read_some(buffer, std::move(done));
  }
}

void Connection::OnRead(const error_code& ec, size_t n) {
  reading_ = false;
  if (phase_ == Phase::kClosed) return;
  if (ec) return OnReadEnd(ec);
  if (phase_ != Phase::kLeaving) in_.append(read_buffer_.data(), n);
  if (phase_ == Phase::kReading) {
    Parse();
  } else if (phase_ == Phase::kLeaving || in_.size() < kReadAheadBytes) {
    Read();
  }
}

void Connection::OnReadEnd(const error_code& ec) {
  input_ended_ = true;
  if (phase_ == Phase::kAnswering) Flush();  // the answer may be there, not yet looked at
  const bool orderly = ec == asio::error::eof || ec == asio::ssl::error::stream_truncated;
  const bool sending = writing_ && (phase_ == Phase::kLeaving || reply_complete_);
  if (!orderly) {
    Close();
  } else if (phase_ == Phase::kReading && request_began_) {
    Fail(400, "the connection ended within the request");
  } else if (!sending) {
    Close();
  }
}

// Gives what was read to the parser, as long as it makes requests that are answered at once.
void Connection::Parse() {
  try {
    if (FeedParser()) Handle();
  } catch (const std::bad_alloc&) {
    LogWarn("no memory for a request of {}", remote_);
    Close();
  }
}

// True: a request is complete.
bool Connection::FeedParser() {
  if (!in_.empty() && !request_began_) {
    request_began_ = true;
    received_ = Clock::now();
    deadline_ = received_ + options().header_timeout;
  }
  if (!in_.empty()) {
    const size_t before = parser_->body_bytes();
    const size_t used = parser_->Feed(in_);
    in_.erase(0, used);
    record_.bytes_in += used;
    if (parser_->error()) {
      Fail(parser_->error()->status, parser_->error()->message);
      return false;
    }
    const bool header_came = parser_->has_header() && !header_seen_;
    if (header_came) {
      header_seen_ = true;
      body_began_ = Clock::now();
    }
    if (header_came || parser_->body_bytes() > before) {
      deadline_ = Clock::now() + options().body_timeout;
    }
    if (parser_->complete()) return true;
    if (header_came && parser_->parsed().expects_continue && parser_->body_bytes() == 0) {
      out_ = "HTTP/1.1 100 Continue\r\n\r\n";
      Write();
    }
  }
  if (input_ended_) {
    if (!request_began_) {
      Close();
    } else {
      Fail(400, "the connection ended within the request");
    }
  } else if (shared_->draining && !request_began_) {
    Close();
  } else {
    Read();
  }
  return false;
}

std::shared_ptr<ReplyState> Connection::MakeReply(const ParsedRequest& parsed, HttpHeaders cors) {
  const HttpRequest& request = parsed.request;
  ReplyContext context;
  context.id = request.id;
  context.head = request.method == "HEAD";
  context.http10 = request.minor_version == 0;
  context.keep_alive = parsed.keep_alive;
  context.draining = &shared_->draining;
  context.headers = std::move(cors);
  context.max_buffer_bytes = options().max_buffer_bytes;
  context.path = request.path;
  context.error_body = shared_->error_body;
  return std::make_shared<ReplyState>(std::move(context),
                                      [weak = weak_from_this(), loop = loop_](bool cut) {
                                        asio::post(loop->io, [weak, cut] {
                                          if (const auto self = weak.lock()) self->OnWake(cut);
                                        });
                                      });
}

void Connection::Handle() {
  phase_ = Phase::kAnswering;
  deadline_ = TimePoint::max();
  reply_complete_ = wants_comments_ = false;
  reply_status_ = 0;
  newly_sent_ = 0;
  ParsedRequest parsed = std::move(parser_->parsed());
  HttpRequest& request = parsed.request;
  request.remote = remote_;
  request.received = received_;
  const std::string_view id = request.Header("x-request-id");
  request.id = IsFitRequestId(id) ? std::string(id) : DrawRequestId();
  record_.id = request.id;
  record_.method = request.method;
  record_.path = request.path;
  record_.user_agent = request.Header("user-agent");

  CorsAnswer cors = AnswerCors(options().cors_origins, request);
  reply_ = MakeReply(parsed, std::move(cors.headers));
  auto reply = std::make_shared<HttpReply>(reply_);
  if (cors.preflight == CorsAnswer::Preflight::kAllowed) {
    reply->Send(204, "", "");
  } else if (cors.preflight == CorsAnswer::Preflight::kRefused) {
    reply->SendError(403, "this origin is not allowed");
  } else {
    try {
      shared_->handler(std::move(request), std::move(reply));
    } catch (const std::exception& e) {
      LogWarn("request {}: {}", record_.id, e.what());  // answered 500 if it was not
    }
  }
  reply = nullptr;
  Flush();
  if (phase_ == Phase::kAnswering && !reply_complete_) Read();
}

// Answers without the handler and leaves.
void Connection::Fail(int status, const std::string& message) {
  const std::string path = parser_ ? parser_->parsed().request.path : "";
  const std::string body = (*shared_->error_body)(status, path, message);
  const ReplyFrame frame{.length = body.size(), .keep_alive = false};
  if (record_.id.empty()) record_.id = DrawRequestId();
  if (parser_) {
    const HttpRequest& request = parser_->parsed().request;
    record_.method = request.method;
    record_.path = request.path;
    record_.user_agent = request.Header("user-agent");
  }
  // Behind "100 Continue", if that is on its way.
  std::string& out = writing_ ? next_out_ : out_;
  out = ReplyHead(status, "application/json", frame, {{"X-Request-Id", record_.id}}) + body;
  record_.bytes_out = out.size();
  LogAccess(status);
  phase_ = Phase::kLeaving;
  deadline_ = TimePoint::max();
  Write();
  Read();
}

// Moves what the reply has to the socket; ends the request when all of it went.
void Connection::Flush() {
  if (writing_ || phase_ == Phase::kClosed) return;
  if (!reply_) {
    if (phase_ == Phase::kLeaving) Leave();
    return;
  }
  ReplyState::Taken taken = reply_->Take(std::exchange(newly_sent_, 0));
  reply_complete_ = taken.complete;
  reply_status_ = taken.status;
  wants_comments_ = taken.comments;
  if (!taken.bytes.empty()) {
    out_ = std::move(taken.bytes);
    Write();
  } else if (taken.complete) {
    FinishRequest(taken.keep_alive);
  }
}

void Connection::Write() {
  if (writing_ || out_sent_ == out_.size()) return;
  writing_ = true;
  write_deadline_ = Clock::now() + options().write_timeout;
  const auto buffer = asio::buffer(out_.data() + out_sent_, out_.size() - out_sent_);
  auto done = [self = shared_from_this()](const error_code& ec, size_t n) {
    self->OnWritten(ec, n);
  };
  if (tls_) {
    tls_->async_write_some(buffer, std::move(done));
  } else {
    socket_.async_write_some(buffer, std::move(done));
  }
}

void Connection::OnWritten(const error_code& ec, size_t n) {
  writing_ = false;
  if (phase_ == Phase::kClosed) return;
  if (ec) return Close();
  out_sent_ += n;
  last_write_ = Clock::now();
  if (reply_) {
    newly_sent_ += n;
    record_.bytes_out += n;
  }
  if (out_sent_ < out_.size()) return Write();
  out_.clear();
  out_sent_ = 0;
  if (!next_out_.empty()) {
    out_.swap(next_out_);
    return Write();
  }
  Flush();
}

void Connection::OnWake(bool cut) {
  if (phase_ != Phase::kAnswering) return;
  if (cut) return Close();
  Flush();
}

void Connection::FinishRequest(bool keep_alive) {
  LogAccess(reply_status_);
  const auto reply = std::move(reply_);
  reply_ = nullptr;
  reply->MarkGone();  // nothing wakes this connection for it any more
  if (!keep_alive || shared_->draining) {
    phase_ = Phase::kLeaving;
    return Leave();
  }
  BeginRequest(options().idle_timeout);
  Parse();
}

// Ends the sending side and waits a little for the client to end its own: closing with unread bytes
// would make the system throw away what was just sent.
void Connection::Leave() {
  if (deadline_ != TimePoint::max()) return;  // is about to
  deadline_ = Clock::now() + kLingerTime;
  if (input_ended_) return Close();
  if (tls_) {
    tls_->async_shutdown([self = shared_from_this()](const error_code&) { self->Linger(); });
  } else {
    Linger();
  }
}

void Connection::Linger() {
  if (phase_ != Phase::kLeaving) return;
  error_code ec;
  socket_.shutdown(Socket::shutdown_send, ec);
  if (ec || tls_) return Close();
  in_.clear();
  Read();
}

void Connection::LogAccess(int status) {
  if (!options().access_log) return;
  record_.remote = remote_;
  record_.status = status;
  record_.ms = std::chrono::duration<double, std::milli>(Clock::now() - received_).count();
  options().access_log(AccessLine(record_));
}

void Connection::Close() {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();
  phase_ = Phase::kClosed;
  error_code ec;
  socket_.close(ec);
  if (const auto reply = std::move(reply_)) {
    LogAccess(reply_status_ != 0 ? reply_status_ : kStatusClientGone);
    reply->MarkGone();
  }
  reply_ = nullptr;
  loop_->Remove(this);
}

void Connection::CloseIfIdle() {
  if (phase_ == Phase::kHandshake || (phase_ == Phase::kReading && !request_began_)) Close();
}

void Connection::Sweep(TimePoint now) {
  if (writing_ && now > write_deadline_) return Close();
  if (phase_ == Phase::kAnswering) return SweepAnswering(now);
  if (shared_->draining) CloseIfIdle();
  if (phase_ == Phase::kReading && header_seen_) {
    const std::chrono::duration<double> late = now - body_began_ - options().body_timeout;
    const double due = late.count() * static_cast<double>(options().min_body_rate);
    if (due > static_cast<double>(parser_->body_bytes())) {
      return Fail(408, fmt::format("the request body came slower than {} bytes per second",
                                   options().min_body_rate));
    }
  }
  if (now <= deadline_ || phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kReading && request_began_) {
    Fail(408, "the request did not come in time");
  } else {
    Close();
  }
}

void Connection::SweepAnswering(TimePoint now) {
  if (wants_comments_ && !writing_ && options().sse_keep_alive.count() > 0 &&
      now - last_write_ >= options().sse_keep_alive) {
    reply_->Write(": keep-alive\n\n");
    Flush();
  }
  // Too much was read ahead to read on, so the end of the input must be asked for.
  if (phase_ == Phase::kAnswering && !reading_ && !reply_complete_ &&
      PeerHasLeft(socket_.native_handle())) {
    Close();
  }
}

}  // namespace

// ------------------------------------------------------------------------------------- HttpServer

class HttpServer::Impl {
 public:
  Impl(const HttpOptions& options, Handler handler) {
    shared_.options = options;
    MakeErrorBody make = std::move(shared_.options.error_body);
    if (!make) make = [](int status, auto, auto message) { return ErrorBody(status, message); };
    shared_.error_body = std::make_shared<const MakeErrorBody>(std::move(make));
    shared_.handler = std::move(handler);
  }

  Status Start();
  bool Drain(std::chrono::milliseconds limit);
  void Stop();
  int port() const { return port_; }
  size_t connections() const { return shared_.connections; }

 private:
  struct Listener {
    Listener(asio::io_context& io, UniqueFd fd) : descriptor(io), pause(io) {
      descriptor.assign(fd.Release());
    }
    asio::posix::stream_descriptor descriptor;
    asio::steady_timer pause;
  };

  void WaitForClients(Listener* listener);
  void AcceptClients(Listener* listener);
  void Admit(Accepted accepted);
  void CloseListeners();
  static void RunOn(Loop* loop, std::function<void()> what);  // and waits

  Shared shared_;
  int port_ = 0;
  bool running_ = false;
  std::string socket_path_;  // to be removed
  std::vector<std::unique_ptr<Loop>> loops_;
  std::vector<std::unique_ptr<Listener>> listeners_;  // of the first loop
  size_t next_loop_ = 0;
  std::mutex stop_mutex_;
};

Status HttpServer::Impl::Start() {
  const HttpOptions& o = shared_.options;
  if (o.threads < 1 || o.threads > 256) return InvalidArgument("HTTP threads: 1 to 256");
  if (o.port < 0 || o.port > 65535) return InvalidArgument("port: 0 to 65535");
  if (!o.tls_cert_file.empty() || !o.tls_key_file.empty()) {
    if (!o.unix_path.empty()) return InvalidArgument("TLS does not go with a unix socket");
    shared_.tls.emplace(asio::ssl::context::tls_server);
    KURUMA_RETURN_IF_ERROR(LoadTls(o.tls_cert_file, o.tls_key_file, shared_.tls->native_handle()));
  }
  std::vector<UniqueFd> sockets;
  if (o.unix_path.empty()) {
    KURUMA_ASSIGN_OR_RETURN(TcpListeners tcp, ListenTcp(o.host, o.port));
    port_ = tcp.port;
    sockets = std::move(tcp.sockets);
  } else {
    KURUMA_ASSIGN_OR_RETURN(UniqueFd socket, ListenUnix(o.unix_path));
    sockets.push_back(std::move(socket));
    socket_path_ = o.unix_path;
  }
  for (int i = 0; i < o.threads; ++i) loops_.push_back(std::make_unique<Loop>(&shared_));
  for (UniqueFd& socket : sockets) {
    listeners_.push_back(std::make_unique<Listener>(loops_[0]->io, std::move(socket)));
    WaitForClients(listeners_.back().get());
  }
  for (const auto& loop : loops_) loop->thread = std::thread([raw = loop.get()] { raw->Run(); });
  running_ = true;
  return Status();
}

void HttpServer::Impl::WaitForClients(Listener* listener) {
  listener->descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                                  [this, listener](const error_code& ec) {
                                    if (!ec) AcceptClients(listener);
                                  });
}

void HttpServer::Impl::AcceptClients(Listener* listener) {
  for (int i = 0; i < kAcceptBatch; ++i) {
    Accepted accepted = Accept(listener->descriptor.native_handle());
    if (accepted.socket.get() >= 0) {
      Admit(std::move(accepted));
      continue;
    }
    const int error = errno;
    if (error == EAGAIN || error == EWOULDBLOCK) break;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
      // The waiting client stays in the queue of the system; asking again at once would spin.
      LogWarn("cannot accept connections for now: {}", std::strerror(error));
      listener->pause.expires_after(kAcceptPause);
      listener->pause.async_wait([this, listener](const error_code& ec) {
        if (!ec) WaitForClients(listener);
      });
      return;
    }
    if (error == EBADF || error == EINVAL || error == ENOTSOCK) return;  // closed
  }
  WaitForClients(listener);
}

void HttpServer::Impl::Admit(Accepted accepted) {
  const size_t limit = shared_.options.max_connections;
  const size_t before = shared_.connections.fetch_add(1);
  if (before >= limit + kRefusals) return shared_.Leave();
  Loop* loop = loops_[next_loop_++ % loops_.size()].get();
  auto incoming = std::make_shared<Incoming>();
  incoming->socket = std::move(accepted.socket);
  incoming->remote = std::move(accepted.remote);
  incoming->family = accepted.family;
  asio::post(loop->io, [loop, incoming, refused = before >= limit] {
    const auto connection = std::make_shared<Connection>(loop, std::move(*incoming));
    loop->Add(connection);
    if (refused) {
      connection->Refuse();
    } else {
      connection->Start();
    }
  });
}

// On the first loop's thread. The objects stay: a wait that is already over still calls back.
void HttpServer::Impl::CloseListeners() {
  for (const auto& listener : listeners_) {
    error_code ec;
    listener->pause.cancel();
    listener->descriptor.close(ec);
  }
  if (!std::exchange(socket_path_, "").empty()) unlink(shared_.options.unix_path.c_str());
}

void HttpServer::Impl::RunOn(Loop* loop, std::function<void()> what) {
  std::promise<void> done;
  asio::post(loop->io, [&] {
    what();
    done.set_value();
  });
  done.get_future().wait();
}

bool HttpServer::Impl::Drain(std::chrono::milliseconds limit) {
  const TimePoint end = Clock::now() + limit;
  {
    const std::lock_guard lock(stop_mutex_);
    if (!running_) return true;
    shared_.draining = true;
    RunOn(loops_[0].get(), [this] { CloseListeners(); });
    for (const auto& loop : loops_) {
      asio::post(loop->io, [raw = loop.get()] {
        raw->ForEach([](Connection* connection) { connection->CloseIfIdle(); });
      });
    }
  }
  bool all = false;
  {
    std::unique_lock lock(shared_.mutex);
    all = shared_.none_left.wait_until(lock, end, [this] { return shared_.connections == 0; });
  }
  Stop();
  return all;
}

void HttpServer::Impl::Stop() {
  const std::lock_guard lock(stop_mutex_);
  if (!running_) return;
  running_ = false;
  shared_.draining = true;
  // From here on no connection is added: those accepted before are posted before what follows.
  RunOn(loops_[0].get(), [this] { CloseListeners(); });
  for (const auto& loop : loops_) {
    asio::post(loop->io, [raw = loop.get()] {
      raw->ForEach([](Connection* connection) { connection->Close(); });
      raw->sweep.cancel();
      raw->work.reset();
    });
  }
  for (const auto& loop : loops_) loop->thread.join();
}

Result<std::unique_ptr<HttpServer>> HttpServer::Create(const HttpOptions& options,
                                                       Handler handler) {
  auto impl = std::make_unique<Impl>(options, std::move(handler));
  KURUMA_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { impl_->Stop(); }
int HttpServer::port() const { return impl_->port(); }
size_t HttpServer::connections() const { return impl_->connections(); }
bool HttpServer::Drain(std::chrono::milliseconds limit) { return impl_->Drain(limit); }
void HttpServer::Stop() { impl_->Stop(); }

}  // namespace kuruma::server
