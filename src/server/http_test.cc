// The server as clients see it, well-behaved ones and others: raw bytes against a scripted handler.
#include "server/http.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include "server/test_client.h"

namespace kuruma::server {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShort{150};
constexpr milliseconds kLong{60'000};

// A server whose handler echoes, but keeps requests to /hold... for the test to answer.
class Http : public testing::Test {
 protected:
  void Start(HttpOptions options = {}) {
    options.access_log = [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      log_.emplace_back(line);
      changed_.notify_all();
    };
    auto server =
        HttpServer::Create(options, [this](HttpRequest request, std::shared_ptr<HttpReply> reply) {
          Handle(std::move(request), std::move(reply));
        });
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
  }

  void Handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
    if (request.path.starts_with("/hold")) {
      const std::lock_guard lock(mutex_);
      held_.push_back(std::move(reply));
      changed_.notify_all();
    } else if (request.path == "/drop") {
      // unanswered
    } else if (request.path == "/throw") {
      throw std::runtime_error("planned");
    } else if (request.path == "/large") {
      reply->Send(200, "text/plain", std::string(32 << 20, 'x'));
    } else {
      reply->Send(200, "text/plain",
                  request.method + " " + request.path + " " + request.query + " " + request.body,
                  {{"X-Seen", std::string(request.Header("x-SENT"))}});
    }
  }

  // The next request to /hold.
  std::shared_ptr<HttpReply> NextHeld() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kLong, [this] { return !held_.empty(); })) {
      ADD_FAILURE() << "no request came";
      return nullptr;
    }
    auto reply = std::move(held_.front());
    held_.pop_front();
    return reply;
  }

  std::string LogLine(size_t index) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kLong, [&] { return log_.size() > index; })) return "(none)";
    return log_[index];
  }

  // Becomes ready when the client of `reply` is gone.
  static std::future<void> Gone(const std::shared_ptr<HttpReply>& reply) {
    auto gone = std::make_shared<std::promise<void>>();
    auto future = gone->get_future();
    reply->OnGone([gone] { gone->set_value(); });
    return future;
  }

  static testing::AssertionResult Comes(const std::future<void>& future) {
    return future.wait_for(kLong) == std::future_status::ready
               ? testing::AssertionSuccess()
               : testing::AssertionFailure() << "it never came";
  }

  void ExpectWorks() {
    TestClient client(server_->port());
    EXPECT_EQ(client.Get("/still").body, "GET /still  ");
  }

  void ExpectAnswer(const std::string& sent, int status) {
    TestClient client(server_->port());
    client.Send(sent);
    const TestReply reply = client.Read();
    EXPECT_EQ(reply.status, status) << sent.substr(0, 200);
    if (status >= 400) {
      EXPECT_TRUE(reply.body.starts_with(R"({"error":{"message":")")) << reply.body;
      EXPECT_TRUE(reply.Has("Content-Type: application/json"));
      EXPECT_TRUE(reply.Has("Connection: close"));
      EXPECT_EQ(client.ReadToEnd(), "");
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<HttpReply>> held_;
  std::vector<std::string> log_;
  std::unique_ptr<HttpServer> server_;  // ends before what its threads use
};

TEST_F(Http, KeepsConnectionsAndEchoes) {
  Start();
  TestClient client(server_->port());
  const TestReply first = client.Get("/a%20b?x=1&y", "X-Sent: hello\r\nX-Request-Id: my-id\r\n");
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.body, "GET /a%20b x=1&y ");
  EXPECT_TRUE(first.Has("X-Seen: hello\r\n"));
  EXPECT_TRUE(first.Has("X-Request-Id: my-id\r\n"));
  EXPECT_TRUE(first.Has("\r\nDate: "));
  EXPECT_FALSE(first.Has("Connection: close"));
  client.Send("POST /p HTTP/1.1\r\nhost: t\r\ncontent-length: 5\r\n\r\nhello");
  EXPECT_EQ(client.Read().body, "POST /p  hello");
  client.Send(
      "POST /c HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: dropped\r\n\r\n");
  EXPECT_EQ(client.Read().body, "POST /c  abcde");
  const TestReply drawn = client.Get("http://host/abs?q", "X-Request-Id: not fit\r\n");
  EXPECT_EQ(drawn.body, "GET /abs q ");
  EXPECT_TRUE(drawn.Has("X-Request-Id: req_"));
  EXPECT_TRUE(client.Get("/end", "Connection: close\r\n").Has("Connection: close\r\n"));
  EXPECT_EQ(client.ReadToEnd(), "");
}

TEST_F(Http, PipelinedRepliesComeInOrder) {
  Start();
  TestClient client(server_->port());
  std::string all = "GET /hold HTTP/1.1\r\nHost: t\r\n\r\n";
  for (int i = 0; i < 300; ++i) {
    all += "POST /n HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\n" + std::to_string(100 + i);
  }
  client.Send(all);
  NextHeld()->Send(200, "text/plain", "first");
  EXPECT_EQ(client.Read().body, "first");
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(client.Read().body, "POST /n  " + std::to_string(100 + i));
  }
}

TEST_F(Http, OldClientsAndHeadRequests) {
  Start();
  {
    TestClient client(server_->port());
    client.Send("GET /old HTTP/1.0\r\n\r\n");
    const TestReply reply = client.Read();
    EXPECT_EQ(reply.body, "GET /old  ");
    EXPECT_TRUE(reply.Has("Connection: close"));
    EXPECT_EQ(client.ReadToEnd(), "");
  }
  {
    TestClient client(server_->port());
    client.Send("GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_TRUE(client.Read().Has("Connection: keep-alive\r\n"));
    client.Send("GET /hold HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    const auto held = NextHeld();
    EXPECT_TRUE(held->BeginStream({.content_type = "text/plain"}));
    EXPECT_TRUE(held->Write("to the "));
    EXPECT_TRUE(held->Write("end"));
    held->EndStream();
    const TestReply stream = client.Read();
    EXPECT_FALSE(stream.Has("chunked"));
    EXPECT_EQ(stream.body, "to the end");
  }
  TestClient client(server_->port());
  client.Send("HEAD /h HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_TRUE(client.Read(/*head_only=*/true).Has("Content-Length: 9\r\n"));
  client.Send("HEAD /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  const auto held = NextHeld();
  held->BeginStream({});
  EXPECT_TRUE(held->Write("nothing of this"));
  held->EndStream();
  EXPECT_TRUE(client.Read(/*head_only=*/true).Has("text/event-stream"));
  EXPECT_EQ(client.Get("/after").body, "GET /after  ");
}

TEST_F(Http, MalformedRequestsAreRefused) {
  Start();
  const std::string post = "POST / HTTP/1.1\r\nHost: t\r\n";
  ExpectAnswer("\x16\x03\x01\x02\x01hello", 400);
  ExpectAnswer("GET\r\n\r\n", 400);
  ExpectAnswer("GET / HTTP/1.1\nHost: t\n\n", 400);
  ExpectAnswer("GET / HTTP/1.1\r\n\r\n", 400);
  ExpectAnswer("GET / HTTP/1.1\r\nHost: t\r\nHost: u\r\n\r\n", 400);
  ExpectAnswer("GET nopath HTTP/1.1\r\nHost: t\r\n\r\n", 400);
  ExpectAnswer("GET /%zz HTTP/1.1\r\nHost: t\r\n\r\n", 400);
  ExpectAnswer("GET / HTTP/1.1\r\nHost : t\r\n\r\n", 400);
  ExpectAnswer(std::string("GET / HTTP/1.1\r\nHost: t\r\nA: x") + '\0' + "y\r\n\r\n", 400);
  ExpectAnswer(post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400);
  ExpectAnswer(post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400);
  ExpectAnswer(post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400);
  ExpectAnswer(post + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400);
  ExpectAnswer(post + "Content-Length: -3\r\n\r\n", 400);
  ExpectAnswer(post + "Content-Length: 18446744073709551617\r\n\r\n", 400);
  ExpectAnswer(post + "Transfer-Encoding: chunked\r\n\r\nnothex\r\n", 400);
  ExpectAnswer(post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 400);
  ExpectAnswer("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400);
  ExpectAnswer(post + "Transfer-Encoding: gzip\r\n\r\n", 501);
  ExpectAnswer(post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501);
  ExpectAnswer("GET / HTTP/2.0\r\nHost: t\r\n\r\n", 505);
  ExpectAnswer("GET / HTTX/1.1\r\nHost: t\r\n\r\n", 400);
  ExpectAnswer(post + "Expect: miracles\r\n\r\n", 417);
  ExpectWorks();
}

TEST_F(Http, LimitsAreKept) {
  Start({.max_header_bytes = 1000, .max_body_bytes = 100});
  const std::string post = "POST / HTTP/1.1\r\nHost: t\r\n";
  ExpectAnswer(post + "Content-Length: 101\r\nExpect: 100-continue\r\n\r\n", 413);
  ExpectAnswer(post + "Content-Length: 99999999999\r\n\r\n", 413);
  ExpectAnswer(post + "Transfer-Encoding: chunked\r\n\r\n32\r\n" + std::string(50, 'a') +
                   "\r\n33\r\n" + std::string(51, 'b') + "\r\n0\r\n\r\n",
               413);
  ExpectAnswer(post + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(2000, 'x'), 400);
  ExpectAnswer("GET /" + std::string(2000, 'x'), 414);
  ExpectAnswer("GET / HTTP/1.1\r\nHost: t\r\nA: " + std::string(2000, 'x'), 431);
  std::string flood = "GET / HTTP/1.1\r\nHost: t\r\n";
  for (int i = 0; i < 200; ++i) flood += fmt::format("H{}: v\r\n", i);
  ExpectAnswer(flood + "\r\n", 431);
  // The same in small pieces, no one of which is too long.
  TestClient slow(server_->port());
  for (size_t i = 0; i < flood.size() && slow.Send(flood.substr(i, 37)); i += 37) {
  }
  EXPECT_EQ(slow.Read().status, 431);
  ExpectAnswer(post + "Content-Length: 100\r\n\r\n" + std::string(100, 'a'), 200);
}

TEST_F(Http, ContinuesWhenAsked) {
  Start();
  TestClient client(server_->port());
  client.Send("POST /p HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_TRUE(client.ReadUntil("HTTP/1.1 100 Continue\r\n\r\n"));
  client.Send("ok");
  EXPECT_EQ(client.Read().body, "POST /p  ok");
}

TEST_F(Http, SlowHeadersTimeOut) {
  Start({.header_timeout = kShort});
  ExpectAnswer("GET / HTTP/1.1\r\nHos", 408);
  TestClient silent(server_->port());
  EXPECT_EQ(silent.ReadToEnd(), "");
  // One byte now and then keeps nothing alive.
  TestClient loris(server_->port());
  std::thread drip([&] {
    loris.Send("GET / HTTP/1.1\r\nHost: t\r\nX: ");
    while (loris.Send("a")) std::this_thread::sleep_for(milliseconds(10));
  });
  EXPECT_EQ(loris.Read().status, 408);
  loris.EndSending();
  drip.join();
}

TEST_F(Http, IdleConnectionsAreClosed) {
  Start({.idle_timeout = kShort});
  TestClient idle(server_->port());
  EXPECT_EQ(idle.Get("/x").status, 200);
  EXPECT_EQ(idle.ReadToEnd(), "");
}

TEST_F(Http, StalledBodiesTimeOut) {
  Start({.body_timeout = kShort});
  ExpectAnswer("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nabc", 408);
}

TEST_F(Http, SlowBodiesTimeOut) {
  Start({.body_timeout = milliseconds(400), .min_body_rate = 100'000});
  TestClient loris(server_->port());
  std::thread drip([&] {
    loris.Send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n");
    while (loris.Send("a")) std::this_thread::sleep_for(milliseconds(10));
  });
  EXPECT_EQ(loris.Read().status, 408);
  loris.EndSending();
  drip.join();
}

TEST_F(Http, StreamsReachTheClientPieceByPiece) {
  Start({.threads = 2});
  TestClient client(server_->port());
  client.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  const auto held = NextHeld();
  EXPECT_FALSE(held->Write("too early"));
  ASSERT_TRUE(held->BeginStream({.headers = {{"X-A", "b"}, {"X-Bad", "a\r\nX-Injected: 1"}}}));
  EXPECT_FALSE(held->BeginStream({}));
  EXPECT_TRUE(client.ReadUntil("X-A: b\r\n\r\n"));
  for (int i = 0; i < 50; ++i) {
    const std::string piece = fmt::format("data: {}\n\n", i);
    EXPECT_TRUE(held->Write(piece));
    EXPECT_TRUE(client.ReadUntil("\r\n" + piece + "\r\n"));
  }
  held->EndStream();
  EXPECT_TRUE(client.ReadUntil("0\r\n\r\n"));
  EXPECT_FALSE(held->Write("too late"));
  EXPECT_EQ(client.Get("/next").body, "GET /next  ");
}

TEST_F(Http, PausesAreFilledWithComments) {
  Start({.sse_keep_alive = milliseconds(20)});
  TestClient client(server_->port());
  client.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  const auto held = NextHeld();
  held->BeginStream({.keep_alive_comments = true});
  EXPECT_TRUE(client.ReadUntil("e\r\n: keep-alive\n\n\r\n"));
  EXPECT_TRUE(client.ReadUntil("e\r\n: keep-alive\n\n\r\n"));
  held->Write("data: x\n\n");
  held->EndStream();
  EXPECT_TRUE(client.ReadUntil("data: x\n\n\r\n"));
  EXPECT_TRUE(client.ReadUntil("0\r\n\r\n"));
}

TEST_F(Http, TellsWhenTheClientLeaves) {
  Start();
  for (const bool streaming : {false, true}) {
    for (const std::string how : {"half", "close", "reset", "reset with input waiting"}) {
      auto client = std::make_unique<TestClient>(server_->port());
      client->Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
      const auto held = NextHeld();
      auto gone = Gone(held);
      if (streaming) {
        held->BeginStream({});
        ASSERT_TRUE(client->ReadUntil("\r\n\r\n"));
      }
      if (how == "half") client->EndSending();
      if (how == "close") client.reset();
      if (how.starts_with("reset")) {
        if (how != "reset") client->Send(std::string(300'000, 'x'));
        client->Abort();
      }
      EXPECT_TRUE(Comes(gone)) << how;
      EXPECT_FALSE(streaming ? held->Write("x") : held->BeginStream({})) << how;
      bool told = false;
      held->OnGone([&] { told = true; });
      EXPECT_TRUE(told);
    }
  }
  EXPECT_NE(LogLine(0).find(R"("status":499)"), std::string::npos) << LogLine(0);
  ExpectWorks();
}

TEST_F(Http, CompleteAnswersTellNothing) {
  Start();
  std::atomic<bool> gone{false};
  {
    TestClient client(server_->port());
    client.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
    const auto held = NextHeld();
    held->OnGone([&] { gone = true; });
    held->Send(200, "text/plain", "done");
    client.EndSending();
    EXPECT_EQ(client.Read().body, "done");
    EXPECT_EQ(client.ReadToEnd(), "");
  }
  server_->Stop();
  EXPECT_FALSE(gone);
}

TEST_F(Http, UnansweredRequestsGet500) {
  Start();
  TestClient client(server_->port());
  EXPECT_EQ(client.Get("/drop").status, 500);
  EXPECT_EQ(client.Get("/throw").status, 500);
  client.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  auto held = NextHeld();
  held->BeginStream({});
  held->Write("half an ans");
  held.reset();
  EXPECT_EQ(client.Read().status, 0);  // the end is missing
}

TEST_F(Http, SlowReadersAreDroppedAloneAndNeverBlock) {
  Start({.max_buffer_bytes = 100'000});
  TestClient slow(server_->port(), /*receive_buffer=*/4096);
  slow.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  const auto held = NextHeld();
  auto gone = Gone(held);
  held->BeginStream({});
  const std::string piece(10'000, 'x');
  int written = 0;
  while (held->Write(piece) && written < 10'000) {
    // The network thread gets its turn, and serves others.
    if (++written % 5 == 0) ExpectWorks();
  }
  EXPECT_GT(written, 10);  // the buffer of the system comes on top
  EXPECT_LT(written, 10'000);
  EXPECT_TRUE(Comes(gone));
  ExpectWorks();
}

TEST_F(Http, ReadersThatStallAreDropped) {
  Start({.write_timeout = kShort});
  TestClient stalled(server_->port(), /*receive_buffer=*/4096);
  stalled.Send("GET /large HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_NE(LogLine(0).find(R"("path":"/large","status":200)"), std::string::npos);
  EXPECT_EQ(stalled.Read().status, 0);
  Start();
  TestClient reader(server_->port());
  EXPECT_EQ(reader.Get("/large").body.size(), 32u << 20);
}

TEST_F(Http, ManyRequestsOnFewConnections) {
  Start({.threads = 2});
  std::vector<std::thread> clients;
  std::atomic<int> right{0};
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      TestClient client(server_->port());
      for (int i = 0; i < 250; ++i) {
        const std::string path = fmt::format("/{}/{}", c, i);
        if (client.Get(path).body == "GET " + path + "  ") ++right;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 1000);
  server_->Stop();
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(log_.size(), 1000u);
}

TEST_F(Http, TooManyConnectionsAreTurnedAway) {
  Start({.max_connections = 2});
  TestClient a(server_->port()), b(server_->port());
  EXPECT_EQ(a.Get("/").status, 200);
  EXPECT_EQ(b.Get("/").status, 200);
  {
    TestClient c(server_->port());
    EXPECT_EQ(c.Get("/").status, 503);
    EXPECT_EQ(c.ReadToEnd(), "");
  }
  EXPECT_EQ(a.Get("/").status, 200);
  b.Abort();
  while (server_->connections() > 1) std::this_thread::yield();
  ExpectWorks();
}

TEST_F(Http, RunningOutOfDescriptorsIsSurvived) {
  Start();
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  TestClient waiting(server_->port());
  ASSERT_EQ(waiting.Get("/").status, 200);
  const int next = dup(0);  // the descriptors below are taken
  close(next);
  {
    // One more descriptor for the client, none for the server.
    rlimit none = before;
    none.rlim_cur = static_cast<rlim_t>(next) + 1;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    TestClient client(server_->port());
    client.Send("GET /patience HTTP/1.1\r\nHost: t\r\n\r\n");
    EXPECT_EQ(waiting.Get("/still").status, 200);
    setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_EQ(client.Read().status, 200);
  }
}

TEST_F(Http, DrainAnswersWhatRunsAndRefusesTheRest) {
  Start({.threads = 2});
  TestClient idle(server_->port()), busy(server_->port()), streaming(server_->port());
  EXPECT_EQ(idle.Get("/").status, 200);
  busy.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  const auto held = NextHeld();
  streaming.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  const auto stream = NextHeld();
  stream->BeginStream({});
  auto drained = std::async(std::launch::async, [&] { return server_->Drain(kLong); });
  EXPECT_EQ(idle.ReadToEnd(), "");
  held->Send(200, "text/plain", "late but there");
  const TestReply reply = busy.Read();
  EXPECT_EQ(reply.body, "late but there");
  EXPECT_TRUE(reply.Has("Connection: close"));
  EXPECT_TRUE(stream->Write("data: end\n\n"));
  stream->EndStream();
  EXPECT_EQ(streaming.Read().body, "data: end\n\n");
  busy.EndSending();
  streaming.EndSending();
  EXPECT_TRUE(drained.get());
  EXPECT_TRUE(server_->Drain(kLong));  // once more: nothing to do
}

TEST_F(Http, DrainGivesUpAtItsLimit) {
  Start();
  TestClient client(server_->port());
  client.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
  const auto held = NextHeld();
  auto gone = Gone(held);
  EXPECT_FALSE(server_->Drain(milliseconds(20)));
  EXPECT_TRUE(Comes(gone));
  EXPECT_EQ(client.ReadToEnd(), "");
  server_.reset();
  EXPECT_FALSE(held->BeginStream({}));  // a reply may outlive the server
}

TEST_F(Http, Cors) {
  Start();
  const std::string origin = "Origin: https://a.example\r\n";
  {
    TestClient client(server_->port());
    EXPECT_FALSE(client.Get("/", origin).Has("Access-Control"));
  }
  Start({.cors_origins = {"https://a.example", "https://b.example"}});
  TestClient client(server_->port());
  EXPECT_TRUE(client.Get("/", origin).Has("Access-Control-Allow-Origin: https://a.example\r\n"));
  EXPECT_FALSE(client.Get("/", "Origin: https://evil\r\n").Has("Access-Control-Allow-Origin"));
  const std::string asks =
      "OPTIONS /v1 HTTP/1.1\r\nHost: t\r\nAccess-Control-Request-Method: POST\r\n";
  client.Send(asks + "Access-Control-Request-Headers: authorization\r\n" + origin + "\r\n");
  const TestReply allowed = client.Read(/*head_only=*/true);
  EXPECT_EQ(allowed.status, 204);
  EXPECT_TRUE(allowed.Has("Access-Control-Allow-Headers: authorization\r\n"));
  client.Send(asks + "Origin: https://evil\r\n\r\n");
  EXPECT_EQ(client.Read().status, 403);
  EXPECT_EQ(client.Get("/", origin).status, 200);
}

TEST_F(Http, AccessLogSaysWhatHappened) {
  Start();
  TestClient client(server_->port());
  const std::string sent =
      "POST /p?secret=1 HTTP/1.1\r\nHost: t\r\nUser-Agent: \"x\"\xff\r\nX-Request-Id: r1\r\n"
      "Content-Length: 3\r\n\r\nabc";
  client.Send(sent);
  EXPECT_EQ(client.Read().status, 200);
  const std::string line = LogLine(0);
  const std::string parts[] = {
      R"("id":"r1","remote":"127.0.0.1:)", R"("method":"POST","path":"/p","status":200)",
      fmt::format("\"bytes_in\":{},", sent.size()), R"("user_agent":"\"x\")"};
  for (const std::string& part : parts) {
    EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
  }
  EXPECT_EQ(line.find("secret"), std::string::npos) << line;
}

TEST_F(Http, UnixSockets) {
  const std::string path = testing::TempDir() + "/kuruma_http_test.sock";
  std::filesystem::remove(path);
  for (int i = 0; i < 2; ++i) {
    Start({.unix_path = path});
    TestClient client(path);
    EXPECT_EQ(client.Get("/u").body, "GET /u  ");
    EXPECT_NE(LogLine(static_cast<size_t>(i)).find(R"("remote":"unix")"), std::string::npos);
    const auto second = HttpServer::Create({.unix_path = path}, nullptr);
    EXPECT_NE(second.status().message().find("another server answers"), std::string::npos);
    server_->Stop();
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  std::ofstream(path) << "not a socket";
  EXPECT_FALSE(HttpServer::Create({.unix_path = path}, nullptr).ok());
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::remove(path);
}

TEST_F(Http, PortsThatAreTakenAreNamed) {
  Start();
  const auto taken = HttpServer::Create({.port = server_->port()}, nullptr);
  EXPECT_EQ(taken.status().message(),
            fmt::format("cannot listen on 127.0.0.1:{}: Address already in use", server_->port()));
  EXPECT_EQ(HttpServer::Create({.host = "no.such.host.invalid"}, nullptr).status().code(),
            StatusCode::kNotFound);
}

// Random bytes, and random changes of good requests: always an answer or an end, never harm.
TEST_F(Http, GarbageIsSurvived) {
  Start({.max_header_bytes = 2000,
         .max_body_bytes = 2000,
         .header_timeout = kLong,
         .body_timeout = kLong});
  std::mt19937 random(7);
  const std::string good =
      "POST /g?x HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
      "4\r\nabcd\r\n0\r\n\r\nGET /h HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
  for (int i = 0; i < 300; ++i) {
    std::string bytes = good;
    if (i % 3 == 0) {
      bytes.resize(random() % 3000);
      for (char& c : bytes) c = static_cast<char>(random());
    } else {
      for (uint32_t n = random() % 8 + 1; n > 0; --n) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
    }
    TestClient client(server_->port());
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = std::min<size_t>(random() % 200 + 1, bytes.size() - at);
      if (!client.Send(std::string_view(bytes).substr(at, n))) break;
      at += n;
    }
    client.EndSending();
    client.ReadToEnd();
  }
  ExpectWorks();
}

}  // namespace
}  // namespace kuruma::server
