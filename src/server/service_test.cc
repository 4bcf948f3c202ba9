// The whole server in one process: raw HTTP on one side, a script in place of the model on the
// other.
#include "server/service.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "server/scripted.h"
#include "server/test_client.h"
#include "text/golden_test_util.h"

namespace kuruma::server {
namespace {

using nlohmann::json;

constexpr const char* kScript = R"(
{"match":"endless","text":" word","repeat":true,"delay_ms":1}
{"match":"fails","text":"Some","error":"planned"}
{"match":"","text":"Yes, I am."}
)";
constexpr int kEndOfSentence = 1;

struct ServerSetup {
  std::vector<std::string> keys = {};
  int64_t max_sequences = 8;
  int64_t max_queue = 8;
  int64_t max_requests = 100;
};

class ServiceTest : public testing::Test {
 protected:
  void Start(const ServerSetup& setup = {}) {
    const text::Tokenizer& tokenizer = *text::GoldenTokenizer();
    auto script = ParseScript(kScript, "script", tokenizer);
    ASSERT_TRUE(script.ok()) << script.status().message();
    engine::EngineOptions engine_options;
    engine_options.max_sequences = setup.max_sequences;
    engine_options.max_queue = setup.max_queue;
    engine_options.kv_bytes = 1 << 20;
    engine_options.metrics = &metrics_;
    const engine::RunnerTraits traits{.digest = "scripted",
                                      .vocab = tokenizer.vocab_size(),
                                      .context = 1 << 16,
                                      .block_bytes = 128,
                                      .replay_from = {}};
    auto engine = engine::Engine::Create(
        std::make_unique<ScriptedRunner>(*std::move(script), tokenizer, kEndOfSentence), traits,
        engine_options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(*engine);
    ServiceOptions options;
    options.model.name = "scripted";
    options.model.tokenizer = &tokenizer;
    options.model.context = traits.context;
    options.model.eos_token = kEndOfSentence;
    options.max_requests = setup.max_requests;
    auto keys = ApiKeys::Create(setup.keys);
    ASSERT_TRUE(keys.ok());
    options.keys = std::move(*keys);
    service_ = std::make_unique<Service>(std::move(options), engine_.get(), &metrics_);
    auto server = HttpServer::Create({}, [this](HttpRequest request, auto reply) {
      service_->Serve(std::move(request), std::move(reply));
    });
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
  }

  void TearDown() override {
    if (server_) server_->Stop();
    if (engine_) engine_->Stop();
  }

  int port() const { return server_->port(); }

  static void Post(TestClient* client, const std::string& path, const json& body,
                   const std::string& headers = "") {
    const std::string text = body.dump();
    client->Send(fmt::format("POST {} HTTP/1.1\r\nHost: t\r\n{}Content-Length: {}\r\n\r\n{}", path,
                             headers, text.size(), text));
  }

  TestReply Ask(const std::string& path, const json& body, const std::string& headers = "") {
    TestClient client(port());
    Post(&client, path, body, headers);
    return client.Read();
  }

  // Waits for what must come sooner or later.
  template <typename Condition>
  void Await(const Condition& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "it never came";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void AwaitIdle() {
    Await([this] {
      const engine::EngineCounts counts = engine_->counts();
      return counts.running == 0 && counts.waiting == 0;
    });
  }

  MetricsRegistry metrics_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<HttpServer> server_;
};

constexpr const char* kChat = "/v1/chat/completions";

json Chat(const std::string& text, const json& more = json::object()) {
  json body{{"messages", {{{"role", "user"}, {"content", text}}}},
            {"thinking", {{"type", "disabled"}}}};
  body.update(more);
  return body;
}

// The data of all events of a stream but [DONE], which must end it.
std::vector<json> Events(const std::string& body) {
  std::vector<json> events;
  constexpr std::string_view kData = "data: ";
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "an unfinished event";
      break;
    }
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    EXPECT_TRUE(event.starts_with(kData)) << event;
    if (event == "data: [DONE]") {
      EXPECT_EQ(at, body.size());
      break;
    }
    events.push_back(json::parse(event.substr(kData.size())));
  }
  return events;
}

TEST_F(ServiceTest, AnswersAChat) {
  Start();
  const TestReply reply = Ask(kChat, Chat("Are you there?"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json answer = json::parse(reply.body);
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "Yes, I am.");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["model"], "scripted");
}

TEST_F(ServiceTest, StreamsAChat) {
  Start();
  const TestReply reply = Ask(kChat, Chat("Are you there?", {{"stream", true}}));
  ASSERT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.Has("Content-Type: text/event-stream"));
  EXPECT_TRUE(reply.body.ends_with("data: [DONE]\n\n"));
  std::string text;
  std::string reason;
  for (const json& event : Events(reply.body)) {
    const json& choice = event["choices"][0];
    text += choice["delta"].value("content", "");
    if (!choice["finish_reason"].is_null()) reason = choice["finish_reason"];
  }
  EXPECT_EQ(text, "Yes, I am.");
  EXPECT_EQ(reason, "stop");
}

TEST_F(ServiceTest, GivesEveryChoiceItsAnswer) {
  Start();
  const TestReply reply = Ask(kChat, Chat("Are you there?", {{"n", 2}}));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json choices = json::parse(reply.body)["choices"];
  ASSERT_EQ(choices.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(choices[i]["index"], i);
    EXPECT_EQ(choices[i]["message"]["content"], "Yes, I am.");
  }
}

TEST_F(ServiceTest, AnswersEveryPromptInItsPlace) {
  Start();
  const TestReply reply =
      Ask("/v1/completions", {{"prompt", {"first", "endless"}}, {"max_tokens", 3}, {"model", ""}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json choices = json::parse(reply.body)["choices"];
  ASSERT_EQ(choices.size(), 2U);
  EXPECT_EQ(choices[0]["index"], 0);
  EXPECT_TRUE(std::string(choices[0]["text"]).starts_with("Yes"));
  EXPECT_EQ(choices[1]["index"], 1);
  EXPECT_EQ(choices[1]["text"], " word word word");
}

TEST_F(ServiceTest, AStopStringEndsTheWork) {
  Start();
  const TestReply reply = Ask(kChat, Chat("endless", {{"stop", "word word word"}}));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json choice = json::parse(reply.body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["message"]["content"], " ");
  AwaitIdle();
}

TEST_F(ServiceTest, ADisconnectEndsTheWork) {
  Start();
  for (const bool stream : {true, false}) {
    TestClient client(port());
    Post(&client, kChat, Chat("endless", {{"stream", stream}}));
    if (stream) {
      EXPECT_TRUE(client.ReadUntil("\"content\":\" word\""));
    }
    Await([this] { return engine_->counts().running == 1; });
    client.Abort();
    AwaitIdle();
  }
  EXPECT_NE(metrics_.Text().find("kuruma_client_disconnects_total 2"), std::string::npos);
}

TEST_F(ServiceTest, AFullQueueRefusesAtOnce) {
  Start({.max_sequences = 1, .max_queue = 1});
  TestClient running(port());
  Post(&running, kChat, Chat("endless", {{"stream", true}}));
  EXPECT_TRUE(running.ReadUntil("\"content\":\" word\""));
  TestClient waiting(port());
  Post(&waiting, kChat, Chat("Are you there?"));
  Await([this] { return engine_->counts().waiting == 1; });
  for (const bool stream : {false, true}) {
    const TestReply refused = Ask(kChat, Chat("Are you there?", {{"stream", stream}}));
    EXPECT_EQ(refused.status, 429);
    EXPECT_TRUE(refused.Has("Retry-After: 1\r\n"));
    EXPECT_EQ(json::parse(refused.body)["error"]["type"], "rate_limit_error");
  }
  running.Abort();
  EXPECT_EQ(waiting.Read().status, 200);
}

TEST_F(ServiceTest, TooManyOpenRequestsAreRefusedUntilOneEnds) {
  Start({.max_requests = 1});
  {
    TestClient running(port());
    Post(&running, kChat, Chat("endless", {{"stream", true}}));
    EXPECT_TRUE(running.ReadUntil("\"content\":\" word\""));
    const TestReply refused = Ask("/v1/messages", Chat("Are you there?"));
    EXPECT_EQ(refused.status, 429);
    EXPECT_TRUE(refused.Has("Retry-After: 1\r\n"));
    EXPECT_EQ(json::parse(refused.body)["type"], "error");
    EXPECT_EQ(Ask("/tokenize", {{"prompt", "a"}}).status, 200);
    running.Abort();
  }
  Await([this] { return Ask(kChat, Chat("Are you there?")).status == 200; });
}

TEST_F(ServiceTest, DrainingFinishesWhatRuns) {
  Start();
  TestClient running(port());
  Post(&running, kChat, Chat("endless", {{"stream", true}, {"max_tokens", 50}}));
  EXPECT_TRUE(running.ReadUntil("\"content\":\" word\""));
  EXPECT_EQ(TestClient(port()).Get("/ready").status, 200);
  service_->StartDraining();
  EXPECT_EQ(TestClient(port()).Get("/ready").status, 503);
  EXPECT_EQ(Ask(kChat, Chat("Are you there?")).status, 503);
  EXPECT_TRUE(running.ReadUntil("data: [DONE]"));
}

TEST_F(ServiceTest, AsksForKeys) {
  Start({.keys = {"right"}});
  EXPECT_EQ(Ask(kChat, Chat("Are you there?")).status, 401);
  EXPECT_EQ(Ask(kChat, Chat("Are you there?"), "Authorization: Bearer wrong\r\n").status, 401);
  EXPECT_EQ(Ask(kChat, Chat("Are you there?"), "Authorization: Bearer right\r\n").status, 200);
  EXPECT_EQ(Ask("/tokenize", {{"prompt", "a"}}).status, 401);
  EXPECT_EQ(TestClient(port()).Get("/v1/models").status, 401);
  EXPECT_EQ(TestClient(port()).Get("/health").status, 200);
}

TEST_F(ServiceTest, KnowsNoOtherModel) {
  Start();
  const TestReply reply = Ask(kChat, Chat("Are you there?", {{"model", "other"}}));
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(json::parse(reply.body)["error"]["code"], "model_not_found");
}

TEST_F(ServiceTest, TellsOfFailures) {
  Start();
  const TestReply whole = Ask(kChat, Chat("fails"));
  EXPECT_EQ(whole.status, 500);
  EXPECT_TRUE(json::parse(whole.body).contains("error"));
  const TestReply stream = Ask(kChat, Chat("fails", {{"stream", true}}));
  EXPECT_EQ(stream.status, 200);
  const std::vector<json> events = Events(stream.body);
  ASSERT_FALSE(events.empty());
  EXPECT_TRUE(events.back().contains("error")) << events.back();
  AwaitIdle();
}

TEST_F(ServiceTest, ClientsCannotAddMetrics) {
  Start();
  for (const char* method : {"FIRST", "SECOND"}) {
    TestClient client(port());
    client.Send(fmt::format("{} /health HTTP/1.1\r\nHost: t\r\n\r\n", method));
    client.Read();
  }
  const std::string text = metrics_.Text();
  EXPECT_EQ(text.find("FIRST"), std::string::npos);
  EXPECT_NE(text.find("kuruma_http_requests_total{method=\"other\"} 2"), std::string::npos);
}

}  // namespace
}  // namespace kuruma::server
