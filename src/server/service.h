// The endpoints of `kuruma serve`: what is behind each path. HTTP is below (http.h), protocols are
// beside (api), requests are run by the engine.
#ifndef KURUMA_SERVER_SERVICE_H_
#define KURUMA_SERVER_SERVICE_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/metrics.h"
#include "engine/engine.h"
#include "server/answering.h"
#include "server/http.h"
#include "server/job.h"
#include "server/keys.h"
#include "server/routes.h"
#include "server/work_pool.h"

namespace kuruma::server {

// Who sends a request. Every request has one; without keys all are the same.
struct Identity {
  std::string tenant;  // requests of different tenants share no cached blocks
};

struct ServiceOptions {
  ServedModel model;
  ApiKeys keys;
  std::string version;
  int work_threads = 2;  // that read requests: a long prompt does not hold up the others
  // Generating requests that may be open; more are answered 429 at once, before any work is done
  // for them.
  int64_t max_requests = 4096;
  bool log_prompts = false;
  std::function<int64_t()> resident_bytes = [] { return int64_t{0}; };  // of this process
};

// HttpOptions::error_body: Anthropic's form for the paths of Messages, else OpenAI's. Any thread.
std::string ErrorBodyOfPath(int status, std::string_view path, std::string_view message);

// Thread safe. Destroy it before the engine, and after both the HTTP server and Engine::Stop.
class Service {
 public:
  // `engine` and `metrics` must outlive it.
  Service(ServiceOptions options, engine::Engine* engine, MetricsRegistry* metrics);
  ~Service();

  // For HttpServer: answers every request.
  void Serve(HttpRequest request, std::shared_ptr<HttpReply> reply);

  // From now on new work is answered 503 and /ready says so; what runs goes on.
  void StartDraining() { draining_ = true; }

 private:
  using Reply = std::shared_ptr<HttpReply>;
  using Body = std::function<void(const HttpRequest& request, HttpReply* reply)>;

  void AddRoutes();
  void AddGenerations();
  void AddModels();
  void AddOperations();
  void AddPage();
  // The same reply, counted as an open request while anybody holds it; null: there are too many.
  Reply Count(Reply reply);
  // A path whose body is read by the work pool; refusals have the form of `protocol`.
  void AddPost(std::string_view path, api::Protocol protocol, Body body);
  bool Admits(const HttpRequest& request, api::Protocol protocol, HttpReply* reply) const;
  void Generate(api::Protocol protocol, HttpRequest request, Reply reply);
  void CountPrompt(const HttpRequest& request, HttpReply* reply) const;
  void Tokenize(const HttpRequest& request, HttpReply* reply) const;
  void Detokenize(const HttpRequest& request, HttpReply* reply) const;
  std::string ModelJson(const std::string& name) const;
  std::string StatsJson() const;
  Identity Identify(const HttpRequest& request) const;

  const ServiceOptions options_;
  engine::Engine* engine_;
  MetricsRegistry* metrics_;
  AnswerMetrics answer_metrics_;
  std::map<std::string, Counter*, std::less<>> requests_by_method_;
  std::shared_ptr<std::atomic<int64_t>> open_requests_;  // replies may outlive the service
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  const int64_t created_;
  std::atomic<bool> draining_ = false;
  Routes routes_;
  // Last: their tasks use the rest, those of `requests_work_` the other pool too. Answers have a
  // thread of their own, so that no stream waits while long prompts are read.
  WorkPool answers_work_;
  WorkPool requests_work_;
};

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_SERVICE_H_
