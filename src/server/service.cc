#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "api/error.h"
#include "api/fields.h"
#include "base/log.h"
#include "server/page.h"
#include "text/json.h"
#include "text/prompt.h"

namespace kuruma::server {
namespace {

using api::ApiError;
using api::Protocol;
using Json = nlohmann::ordered_json;

constexpr const char* kJson = "application/json";
constexpr const char* kOtherMethod = "other";  // in metrics: clients may not add series

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void SendJson(HttpReply* reply, const Json& json) { reply->Send(200, kJson, Dump(json)); }

void Refuse(const Status& status, HttpReply* reply) {
  SendApiError(Protocol::kChat, api::ToApiError(status), reply);
}

// The value below which a share of what was observed lies, in milliseconds; null: nothing was.
Json QuantileMs(const Histogram& histogram, double share) {
  const Histogram::Snapshot s = histogram.snapshot();
  const auto count = static_cast<double>(s.cumulative.back());
  if (count == 0) return nullptr;
  const double rank = share * count;
  double below = 0, lower = 0;
  for (size_t i = 0; i < histogram.bounds().size(); ++i) {
    const auto upto = static_cast<double>(s.cumulative[i]);
    const double upper = histogram.bounds()[i];
    if (upto >= rank) {
      const double inside = upto > below ? (rank - below) / (upto - below) : 1;
      return 1000 * (lower + inside * (upper - lower));
    }
    below = upto;
    lower = upper;
  }
  return 1000 * histogram.bounds().back();
}

}  // namespace

std::string ErrorBodyOfPath(int status, std::string_view path, std::string_view message) {
  if (path.find("messages") != std::string_view::npos) {
    const ApiError error{.status = status, .message = std::string(message)};
    return api::ErrorBody(Protocol::kMessages, error);
  }
  return ErrorBody(status, message);
}

Service::Service(ServiceOptions options, engine::Engine* engine, MetricsRegistry* metrics)
    : options_(std::move(options)),
      engine_(engine),
      metrics_(metrics),
      answer_metrics_(metrics),
      open_requests_(std::make_shared<std::atomic<int64_t>>(0)),
      created_(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())),
      answers_work_(1),
      requests_work_(options_.work_threads) {
  for (const char* method : {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", kOtherMethod}) {
    requests_by_method_[method] = &metrics_->AddCounter(
        "kuruma_http_requests_total", "HTTP requests by method.", {{"method", method}});
  }
  AddRoutes();
}

Service::~Service() = default;

void Service::Serve(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  auto counter = requests_by_method_.find(request.method);
  if (counter == requests_by_method_.end()) counter = requests_by_method_.find(kOtherMethod);
  counter->second->Add();
  routes_.Serve(std::move(request), std::move(reply));
}

void Service::AddRoutes() {
  AddGenerations();
  AddModels();
  AddOperations();
  AddPage();
  const auto count = [this](const HttpRequest& request, HttpReply* reply) {
    CountPrompt(request, reply);
  };
  AddPost("/v1/messages/count_tokens", Protocol::kMessages, count);
  AddPost("/anthropic/v1/messages/count_tokens", Protocol::kMessages, count);
  AddPost("/tokenize", Protocol::kChat,
          [this](const HttpRequest& request, HttpReply* reply) { Tokenize(request, reply); });
  AddPost("/detokenize", Protocol::kChat,
          [this](const HttpRequest& request, HttpReply* reply) { Detokenize(request, reply); });
}

void Service::AddGenerations() {
  const std::pair<const char*, Protocol> paths[] = {{"/v1/chat/completions", Protocol::kChat},
                                                    {"/chat/completions", Protocol::kChat},
                                                    {"/v1/completions", Protocol::kCompletions},
                                                    {"/completions", Protocol::kCompletions},
                                                    {"/beta/completions", Protocol::kCompletions},
                                                    {"/v1/responses", Protocol::kResponses},
                                                    {"/responses", Protocol::kResponses},
                                                    {"/v1/messages", Protocol::kMessages},
                                                    {"/anthropic/v1/messages", Protocol::kMessages},
                                                    {"/anthropic/messages", Protocol::kMessages},
                                                    {"/beta/chat/completions", Protocol::kChat}};
  for (const auto& [path, protocol] : paths) {
    routes_.Add(
        "POST", path,
        [this, protocol = protocol](HttpRequest request, const PathParameters&, Reply reply) {
          Generate(protocol, std::move(request), std::move(reply));
        });
  }
}

void Service::AddModels() {
  const auto list = [this](const HttpRequest& request, const PathParameters&, const Reply& reply) {
    if (!Admits(request, Protocol::kChat, reply.get())) return;
    reply->Send(200, kJson,
                "{\"object\":\"list\",\"data\":[" + ModelJson(options_.model.name) + "]}");
  };
  routes_.Add("GET", "/v1/models", list);
  routes_.Add("GET", "/models", list);
  routes_.Add("GET", "/v1/models/{model...}",
              [this](const HttpRequest& request, const PathParameters& names, const Reply& reply) {
                if (!Admits(request, Protocol::kChat, reply.get())) return;
                if (IsServed(options_.model, Protocol::kChat, names[0])) {
                  return reply->Send(200, kJson, ModelJson(names[0]));
                }
                SendApiError(Protocol::kChat, NoSuchModel(options_.model, names[0]), reply.get());
              });
}

void Service::AddOperations() {
  const auto alive = [](const HttpRequest&, const PathParameters&, const Reply& reply) {
    reply->Send(200, kJson, "{}");
  };
  routes_.Add("GET", "/health", alive);
  routes_.Add("GET", "/ping", alive);
  routes_.Add("POST", "/ping", alive);
  routes_.Add("GET", "/ready", [this](const HttpRequest&, const PathParameters&, Reply reply) {
    if (draining_) return reply->SendError(503, "The server is shutting down");
    SendJson(reply.get(), {{"status", "ready"}});
  });
  routes_.Add("GET", "/version", [this](const HttpRequest&, const PathParameters&, Reply reply) {
    SendJson(reply.get(), {{"version", options_.version}});
  });
  routes_.Add("GET", "/metrics",
              [this](const HttpRequest& request, const PathParameters&, const Reply& reply) {
                if (!Admits(request, Protocol::kChat, reply.get())) return;
                reply->Send(200, "text/plain; version=0.0.4; charset=utf-8", metrics_->Text());
              });
  routes_.Add("GET", "/stats",
              [this](const HttpRequest& request, const PathParameters&, const Reply& reply) {
                if (!Admits(request, Protocol::kChat, reply.get())) return;
                reply->Send(200, kJson, StatsJson());
              });
}

void Service::AddPage() {
  // Nothing but the page's own files: no inline code, no other site.
  static constexpr const char* kPolicy =
      "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; "
      "form-action 'self'";
  for (const Asset& asset : PageAssets()) {
    const auto serve = [&asset](const HttpRequest& request, const PathParameters&,
                                const Reply& reply) {
      const HttpHeaders headers = {{"ETag", std::string(asset.etag)},
                                   {"Cache-Control", "no-cache"},
                                   {"Content-Security-Policy", kPolicy},
                                   {"X-Content-Type-Options", "nosniff"},
                                   {"Referrer-Policy", "no-referrer"}};
      if (request.Header("if-none-match") == asset.etag) {
        return reply->Send(304, asset.content_type, "", headers);
      }
      reply->Send(200, asset.content_type, asset.bytes, headers);
    };
    routes_.Add("GET", asset.path, serve);
  }
}

void Service::AddPost(std::string_view path, Protocol protocol, Body body) {
  routes_.Add("POST", path,
              [this, protocol, body = std::move(body)](HttpRequest request, const PathParameters&,
                                                       Reply reply) {
                if (!Admits(request, protocol, reply.get())) return;
                requests_work_.Post([body, request = std::move(request), reply = std::move(reply)] {
                  body(request, reply.get());
                });
              });
}

// Checks the key; otherwise the client is told in the form it understands.
bool Service::Admits(const HttpRequest& request, Protocol protocol, HttpReply* reply) const {
  if (options_.keys.Allows(request)) return true;
  const bool has_key = KeyOf(request).has_value();
  const ApiError error{
      .status = 401,
      .message = has_key ? "Incorrect API key provided"
                         : "No API key provided: send it as \"Authorization: Bearer KEY\" or "
                           "\"x-api-key: KEY\"",
      .type = "invalid_request_error",
      .param = "",
      .code = "invalid_api_key"};
  reply->Send(401, kJson, api::ErrorBody(protocol, error), {{"WWW-Authenticate", "Bearer"}});
  return false;
}

Identity Service::Identify(const HttpRequest& request) const {
  const auto key = KeyOf(request);
  if (options_.keys.empty() || !key) return {};
  Sha256 hash;
  hash.Add(key->data(), key->size());
  return {.tenant = Hex(hash.Finish())};
}

Service::Reply Service::Count(Reply reply) {
  struct Open {
    Reply reply;
    std::shared_ptr<std::atomic<int64_t>> count;
    ~Open() { --*count; }
  };
  if (open_requests_->fetch_add(1) >= options_.max_requests) {
    --*open_requests_;
    return nullptr;
  }
  const auto open = std::make_shared<Open>(std::move(reply), open_requests_);
  return Reply(open, open->reply.get());
}

void Service::Generate(Protocol protocol, HttpRequest request, Reply reply) {
  if (!Admits(request, protocol, reply.get())) return;
  if (draining_) {
    const ApiError error{.status = 503, .message = "The server is shutting down"};
    return SendApiError(protocol, error, reply.get());
  }
  Reply counted = Count(reply);
  if (counted == nullptr) {
    const Status full = ResourceExhausted(
        fmt::format("The server has its {} requests: try again", options_.max_requests));
    return SendApiError(protocol, api::ToApiError(full), reply.get());
  }
  requests_work_.Post(
      [this, protocol, request = std::move(request), reply = std::move(counted)]() mutable {
        auto made = MakeJob(options_.model, protocol, request.body);
        if (options_.log_prompts) LogInfo("request {}: {}", request.id, request.body);
        if (auto* error = std::get_if<ApiError>(&made)) {
          return SendApiError(protocol, *error, reply.get());
        }
        Job& job = std::get<Job>(made);
        const Identity identity = Identify(request);
        for (engine::Request& r : job.requests) r.tenant = identity.tenant + "\n" + r.tenant;
        const AnswerContext context{.engine = engine_,
                                    .tokenizer = options_.model.tokenizer,
                                    .work = &answers_work_,
                                    .metrics = &answer_metrics_};
        Answering::Start(context, std::move(job), request.received, std::move(reply));
      });
}

void Service::CountPrompt(const HttpRequest& request, HttpReply* reply) const {
  const auto count = CountTokens(options_.model, request.body);
  if (const auto* error = std::get_if<ApiError>(&count)) {
    return SendApiError(Protocol::kMessages, *error, reply);
  }
  SendJson(reply, {{"input_tokens", std::get<int64_t>(count)}});
}

namespace {

struct TokenizeRequest {
  std::vector<int32_t> ids;
  bool wants_strings = false;
};

// {"prompt"} or {"messages", ...} as vLLM takes them.
Result<TokenizeRequest> ParseTokenize(const ServedModel& model, const std::string& text) {
  KURUMA_ASSIGN_OR_RETURN(const text::JsonValue root, text::ParseJson(text));
  KURUMA_ASSIGN_OR_RETURN(const api::Fields body, api::Fields::Of(root, ""));
  TokenizeRequest out;
  KURUMA_ASSIGN_OR_RETURN(const auto strings, body.Bool("return_token_strs"));
  out.wants_strings = strings.value_or(false);
  if (body.Find("messages") != nullptr) {
    KURUMA_ASSIGN_OR_RETURN(const api::ChatRequest chat, api::ParseChatRequest(text, model.chat));
    KURUMA_ASSIGN_OR_RETURN(
        out.ids, text::EncodePrompt(text::RenderPrompt(chat.conversation), *model.tokenizer));
    return out;
  }
  KURUMA_ASSIGN_OR_RETURN(const auto prompt, body.String("prompt"));
  KURUMA_ASSIGN_OR_RETURN(const auto content, body.String("content"));  // as llama.cpp calls it
  if (!prompt && !content) return InvalidArgument("'prompt' or 'messages' is required");
  KURUMA_ASSIGN_OR_RETURN(const auto add_special, body.Bool("add_special_tokens"));
  KURUMA_ASSIGN_OR_RETURN(const auto parse_special, body.Bool("parse_special"));
  const std::string& spelled = prompt ? *prompt : *content;
  if (add_special.value_or(true)) out.ids.push_back(model.bos_token);
  KURUMA_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                          parse_special.value_or(true) ? model.tokenizer->Encode(spelled)
                                                       : model.tokenizer->EncodePlain(spelled));
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  return out;
}

Result<std::vector<int32_t>> ParseDetokenize(const text::Tokenizer& tokenizer,
                                             const std::string& text) {
  KURUMA_ASSIGN_OR_RETURN(const text::JsonValue root, text::ParseJson(text));
  KURUMA_ASSIGN_OR_RETURN(const api::Fields body, api::Fields::Of(root, ""));
  const text::JsonValue* tokens = body.Find("tokens");
  const auto* list = tokens != nullptr ? tokens->If<text::JsonValue::Array>() : nullptr;
  if (list == nullptr) return InvalidArgument("'tokens' must be an array of token ids");
  std::vector<int32_t> ids;
  for (size_t i = 0; i < list->size(); ++i) {
    const auto id = api::AsInteger((*list)[i]);
    if (!id || *id < 0 || *id >= tokenizer.vocab_size()) {
      return InvalidArgument(
          fmt::format("'tokens[{}]' must be a token id, 0 to {}", i, tokenizer.vocab_size() - 1));
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

}  // namespace

void Service::Tokenize(const HttpRequest& request, HttpReply* reply) const {
  const auto parsed = ParseTokenize(options_.model, request.body);
  if (!parsed.ok()) return Refuse(parsed.status(), reply);
  Json out{{"count", parsed->ids.size()},
           {"max_model_len", options_.model.context},
           {"tokens", parsed->ids}};
  if (parsed->wants_strings) {
    out["token_strs"] = Json::array();
    for (const int32_t id : parsed->ids) {
      out["token_strs"].push_back(options_.model.tokenizer->Token(id).text);
    }
  }
  SendJson(reply, out);
}

void Service::Detokenize(const HttpRequest& request, HttpReply* reply) const {
  const auto ids = ParseDetokenize(*options_.model.tokenizer, request.body);
  if (!ids.ok()) return Refuse(ids.status(), reply);
  const auto text = options_.model.tokenizer->Decode(*ids);
  if (!text.ok()) return Refuse(text.status(), reply);
  SendJson(reply, {{"prompt", *text}});
}

std::string Service::ModelJson(const std::string& name) const {
  return Dump({{"id", name},
               {"object", "model"},
               {"created", created_},
               {"owned_by", "kuruma"},
               {"root", options_.model.name},
               {"parent", nullptr},
               {"max_model_len", options_.model.context}});
}

std::string Service::StatsJson() const {
  const engine::EngineCounts c = engine_->counts();
  const auto seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  const double busy_ms = c.run_ms + c.idle_ms;
  const auto quantiles = [](const Histogram& h) {
    return Json{{"p50", QuantileMs(h, 0.5)}, {"p99", QuantileMs(h, 0.99)}};
  };
  return Dump(
      {{"model", options_.model.name},
       {"version", options_.version},
       {"uptime_s", seconds},
       {"requests",
        {{"running", c.running},
         {"waiting", c.waiting},
         {"finished", c.finished},
         {"failed", c.failed}}},
       {"tokens",
        {{"prompt", c.prompt_tokens}, {"cached", c.cached_tokens}, {"generated", c.tokens}}},
       {"steps", c.steps},
       {"rows", c.rows},
       {"blocks", {{"total", c.blocks}, {"in_use", c.blocks_in_use}}},
       {"memory", {{"resident_bytes", options_.resident_bytes()}}},
       {"preemptions", c.preemptions},
       {"idle_share", busy_ms > 0 ? c.idle_ms / busy_ms : 0},
       {"ttft_ms", quantiles(answer_metrics_.ttft_seconds)},
       {"itl_ms", quantiles(answer_metrics_.inter_token_seconds)}});
}

}  // namespace kuruma::server
