#include "server/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "api/budget.h"
#include "api/completions.h"
#include "api/describe.h"
#include "api/messages.h"
#include "api/responses.h"
#include "text/prompt.h"

namespace kuruma::server {
namespace {

using api::ApiError;
using api::Protocol;

constexpr int kSeedBits = 53;  // of drawn seeds: JSON numbers of every client hold them

std::string NewId(Protocol protocol, uint64_t seed) {
  return fmt::format("{}{:016x}{:016x}", IdPrefix(protocol), seed, engine::DrawSeed());
}

// The parts that all protocols share: what is left to fill in are prompts, parser and echoes.
class Maker {
 public:
  Maker(const ServedModel& model, Protocol protocol) : model_(model), protocol_(protocol) {}

  std::optional<ApiError> Make(std::string_view body) {
    switch (protocol_) {
      case Protocol::kCompletions:
        return Completions(body);
      case Protocol::kResponses:
        return Responses(body);
      default:
        return Chat(body);
    }
  }

  Job Take() { return std::move(job_); }

 private:
  std::optional<ApiError> CheckModel(const std::string& name) const {
    if (IsServed(model_, protocol_, name)) return std::nullopt;
    return NoSuchModel(model_, name);
  }

  std::optional<ApiError> Chat(std::string_view body) {
    const Result<api::ChatRequest> request = protocol_ == Protocol::kMessages
                                                 ? api::ParseMessagesRequest(body, model_.chat)
                                                 : api::ParseChatRequest(body, model_.chat);
    if (!request.ok()) return api::ToApiError(request.status());
    return Conversation(*request);
  }

  std::optional<ApiError> Responses(std::string_view body) {
    const Result<api::ResponsesRequest> request = api::ParseResponsesRequest(body, model_.chat);
    if (!request.ok()) return api::ToApiError(request.status());
    job_.answer.response_fields = api::EchoText(request->echo);
    job_.answer.custom_tools = request->custom_tools;
    return Conversation(request->chat);
  }

  std::optional<ApiError> Conversation(const api::ChatRequest& request) {
    if (auto error = CheckModel(request.model)) return error;
    Status status = api::CheckNoImages(request);
    if (status.ok() && !model_.lets_constraints_pass) status = api::CheckEnforceable(request);
    if (!status.ok()) return api::ToApiError(status);
    const text::RenderedPrompt prompt = text::RenderPrompt(request.conversation);
    Result<std::vector<int32_t>> ids = text::EncodePrompt(prompt, *model_.tokenizer);
    if (!ids.ok()) return api::ToApiError(ids.status());
    job_.parser = text::ParserOptionsFor(request.conversation);
    job_.parser.stops = request.sampling.stop;
    job_.answer.parallel_tool_calls = request.parallel_tool_calls;
    FillAnswer(request);
    return AddRequest(*std::move(ids), request);
  }

  std::optional<ApiError> Completions(std::string_view body) {
    const Result<api::CompletionRequest> request =
        api::ParseCompletionRequest(body, model_.chat.sampling);
    if (!request.ok()) return api::ToApiError(request.status());
    if (auto error = CheckModel(request->model)) return error;
    job_.parser = {.start = text::ParserOptions::Start::kContent,
                   .has_tools = false,
                   .continues_content = true,
                   .stops = request->sampling.stop};
    FillAnswer(*request);
    job_.answer.n = request->sampling.n * static_cast<int>(request->prompts.size());
    for (size_t i = 0; i < request->prompts.size(); ++i) {
      Result<std::vector<int32_t>> ids =
          api::EncodeCompletionPrompt(*request, i, *model_.tokenizer);
      if (!ids.ok()) return api::ToApiError(ids.status());
      if (request->echo) {
        const std::string text = EchoOf(request->prompts[i]);
        for (int k = 0; k < request->sampling.n; ++k) job_.answer.echo.push_back(text);
      }
      if (auto error = AddRequest(*std::move(ids), *request)) return error;
    }
    return std::nullopt;
  }

  std::string EchoOf(const api::CompletionPrompt& prompt) const {
    if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
    const auto text = model_.tokenizer->Decode(std::get<std::vector<int32_t>>(prompt));
    return text.ok() ? *text : "";
  }

  // `Request`: ChatRequest or CompletionRequest, whose members have the same names.
  template <typename Request>
  void FillAnswer(const Request& request) {
    api::AnswerOptions& answer = job_.answer;
    answer.protocol = protocol_;
    answer.id_seed = engine::DrawSeed();
    answer.id = NewId(protocol_, answer.id_seed);
    answer.model = request.model.empty() ? model_.name : request.model;
    answer.created = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    answer.stream = request.stream;
    answer.include_usage = request.include_usage;
    answer.continuous_usage = request.continuous_usage_stats;
    answer.n = request.sampling.n;
    answer.logprobs = request.sampling.logprobs;
    answer.top_logprobs = request.sampling.top_logprobs;
    answer.reasoning_alias = model_.reasoning_alias;
    job_.end_tokens = request.sampling.stop_token_ids;
    if (!request.sampling.ignore_eos) job_.end_tokens.push_back(model_.eos_token);
    if (!request.sampling.seed) job_.drawn_seed = engine::DrawSeed() >> (63 - kSeedBits);
  }

  template <typename Request>
  std::optional<ApiError> AddRequest(std::vector<int32_t> ids, const Request& request) {
    const api::TokenBudget budget = api::ResolveBudget(
        static_cast<int64_t>(ids.size()), request.sampling.max_tokens,
        {.context_tokens = model_.context, .strict = false, .default_tokens = {}});
    if (budget.error) return budget.error;
    engine::Request out;
    out.prompt = std::move(ids);
    out.sampling = ToSamplingParams(request.sampling, job_.drawn_seed.value_or(0));
    out.sampling.end_tokens = job_.end_tokens;
    out.max_tokens = budget.max_tokens;
    out.n = request.sampling.n;
    out.priority = request.priority;
    out.tenant = request.cache_salt;
    job_.requests.push_back(std::move(out));
    return std::nullopt;
  }

  const ServedModel& model_;
  Protocol protocol_;
  Job job_;
};

}  // namespace

const char* IdPrefix(Protocol protocol) {
  switch (protocol) {
    case Protocol::kCompletions:
      return "cmpl-";
    case Protocol::kMessages:
      return "msg_";
    case Protocol::kResponses:
      return "resp_";
    default:
      return "chatcmpl-";
  }
}

bool IsServed(const ServedModel& model, Protocol protocol, std::string_view name) {
  if (name.empty() || name == model.name) return true;
  if (protocol == Protocol::kMessages && name.substr(0, 6) == "claude") return true;
  return std::find(model.aliases.begin(), model.aliases.end(), name) != model.aliases.end();
}

ApiError NoSuchModel(const ServedModel& model, std::string_view name) {
  return {.status = 404,
          .message =
              fmt::format("The model `{}` does not exist; this server has `{}`.", name, model.name),
          .type = "invalid_request_error",
          .param = "model",
          .code = "model_not_found"};
}

std::variant<Job, ApiError> MakeJob(const ServedModel& model, Protocol protocol,
                                    std::string_view body) {
  Maker maker(model, protocol);
  if (auto error = maker.Make(body)) return *std::move(error);
  return maker.Take();
}

std::variant<int64_t, ApiError> CountTokens(const ServedModel& model, std::string_view body) {
  const Result<api::ChatRequest> request = api::ParseMessagesRequest(body, model.chat);
  if (!request.ok()) return api::ToApiError(request.status());
  const Result<std::vector<int32_t>> ids =
      text::EncodePrompt(text::RenderPrompt(request->conversation), *model.tokenizer);
  if (!ids.ok()) return api::ToApiError(ids.status());
  return static_cast<int64_t>(ids->size());
}

engine::SamplingParams ToSamplingParams(const api::SamplingOptions& o, uint64_t drawn_seed) {
  engine::SamplingParams s;
  s.temperature = o.temperature;
  s.top_p = o.top_p;
  s.top_k = o.top_k;
  s.min_p = o.min_p;
  s.repetition_penalty = o.repetition_penalty;
  s.presence_penalty = o.presence_penalty;
  s.frequency_penalty = o.frequency_penalty;
  s.logit_bias = o.logit_bias;
  s.min_tokens = o.min_tokens;
  s.seed = o.seed ? static_cast<uint64_t>(*o.seed) : drawn_seed;
  s.top_logprobs = o.logprobs ? o.top_logprobs : 0;
  return s;
}

}  // namespace kuruma::server
