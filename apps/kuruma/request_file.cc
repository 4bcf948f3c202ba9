#include "request_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/chat.h"
#include "api/completions.h"
#include "inputs.h"
#include "server/job.h"
#include "text/prompt.h"

namespace kuruma {
namespace {

using Json = nlohmann::ordered_json;

// What both kinds of request come to.
struct Parsed {
  std::vector<int32_t> prompt;
  api::SamplingOptions sampling;
  std::string cache_salt;
  int priority = 0;
};

// What the command's flags say, in the words of a request.
api::SamplingOptions ToOptions(const engine::SamplingParams& s) {
  api::SamplingOptions options;
  options.temperature = s.temperature;
  options.top_p = s.top_p;
  options.top_k = s.top_k;
  options.min_p = s.min_p;
  options.repetition_penalty = s.repetition_penalty;
  options.presence_penalty = s.presence_penalty;
  options.frequency_penalty = s.frequency_penalty;
  return options;
}

Result<Parsed> ParseMessagesLine(const LoadedModel& loaded, const std::string& body,
                                 const api::SamplingOptions& defaults) {
  api::ChatOptions options;
  options.sampling = defaults;
  KURUMA_ASSIGN_OR_RETURN(api::ChatRequest request, api::ParseChatRequest(body, options));
  KURUMA_RETURN_IF_ERROR(api::CheckNoImages(request));
  KURUMA_RETURN_IF_ERROR(api::CheckEnforceable(request));
  Parsed parsed{.prompt = {},
                .sampling = std::move(request.sampling),
                .cache_salt = std::move(request.cache_salt),
                .priority = request.priority};
  KURUMA_ASSIGN_OR_RETURN(
      parsed.prompt,
      text::EncodePrompt(text::RenderPrompt(request.conversation), *loaded.tokenizer));
  return parsed;
}

Result<Parsed> ParsePromptLine(const LoadedModel& loaded, Json line,
                               const api::SamplingOptions& defaults) {
  const model::ModelConfig& config = loaded.model->config();
  Parsed parsed;
  const bool is_text = line.contains("prompt");
  if (is_text) {
    if (!line["prompt"].is_string()) return InvalidArgument("'prompt' must be a string");
    KURUMA_ASSIGN_OR_RETURN(parsed.prompt,
                            EncodeText(*loaded.tokenizer, config.bos_token,
                                       line["prompt"].get<std::string>(), /*raw_special=*/false));
  } else {
    KURUMA_ASSIGN_OR_RETURN(parsed.prompt, ParseTokens(line["tokens"], config.vocab, "'tokens'"));
  }
  line["prompt"] = "-";  // has been read; what is left are the options
  line.erase("stream");
  KURUMA_ASSIGN_OR_RETURN(api::CompletionRequest request,
                          api::ParseCompletionRequest(line.dump(), defaults));
  parsed.sampling = std::move(request.sampling);
  parsed.cache_salt = std::move(request.cache_salt);
  parsed.priority = request.priority;
  return parsed;
}

Result<std::optional<double>> Timeout(const Json& line) {
  if (!line.contains("timeout") || line["timeout"].is_null()) return std::optional<double>();
  const Json& value = line["timeout"];
  constexpr double kLongest = 1e9;
  if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= kLongest)) {
    return InvalidArgument("'timeout' must be a number of seconds in 0..1e9");
  }
  return std::optional<double>(value.get<double>());
}

Result<FileRequest> ParseLine(const LoadedModel& loaded, const std::string& text,
                              const RequestDefaults& defaults) {
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return InvalidArgument("not a JSON object");
  const bool has_messages = line.contains("messages");
  if (has_messages + line.contains("prompt") + line.contains("tokens") != 1) {
    return InvalidArgument("give one of 'prompt', 'messages' and 'tokens'");
  }
  if (!line.contains("tokens") && loaded.tokenizer == nullptr) {
    return InvalidArgument("text needs a tokenizer.json in the checkpoint directory");
  }
  const api::SamplingOptions sampling = ToOptions(defaults.sampling);
  KURUMA_ASSIGN_OR_RETURN(const Parsed parsed, has_messages
                                                   ? ParseMessagesLine(loaded, text, sampling)
                                                   : ParsePromptLine(loaded, line, sampling));
  FileRequest out;
  out.id = line.contains("id") ? line["id"] : Json();
  engine::Request& request = out.request;
  request.prompt = parsed.prompt;
  request.sampling = server::ToSamplingParams(
      parsed.sampling, defaults.draws_seeds ? engine::DrawSeed() : defaults.sampling.seed);
  out.stops = parsed.sampling.stop;
  if (!out.stops.empty() && loaded.tokenizer == nullptr) {
    return InvalidArgument("'stop' needs a tokenizer.json in the checkpoint directory");
  }
  out.stop_tokens = parsed.sampling.stop_token_ids;
  const model::ModelConfig& config = loaded.model->config();
  if (!parsed.sampling.ignore_eos) out.stop_tokens.push_back(config.eos_token);
  request.sampling.end_tokens = out.stop_tokens;
  const int64_t room = config.max_positions - static_cast<int64_t>(request.prompt.size());
  request.max_tokens = std::max<int64_t>(1, std::min(defaults.max_tokens, room));
  const bool says = line.contains("max_tokens") || line.contains("max_completion_tokens");
  if (says && parsed.sampling.max_tokens) request.max_tokens = *parsed.sampling.max_tokens;
  request.n = parsed.sampling.n;
  request.priority = parsed.priority;
  request.tenant = parsed.cache_salt;
  KURUMA_ASSIGN_OR_RETURN(request.timeout_s, Timeout(line));
  return out;
}

}  // namespace

Result<std::vector<FileRequest>> ReadRequests(const LoadedModel& loaded, const std::string& path,
                                              const RequestDefaults& defaults) {
  KURUMA_ASSIGN_OR_RETURN(const std::string text, ReadInput(path));
  const std::string name = path == "-" ? "standard input" : path;
  std::vector<FileRequest> requests;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line(Strip(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
    ++number;
    if (line.empty()) continue;
    Result<FileRequest> request = ParseLine(loaded, line, defaults);
    if (!request.ok()) {
      return Status(request.status().code(),
                    fmt::format("{}:{}: {}", name, number, request.status().message()));
    }
    request->line = number;
    if (request->id.is_null()) request->id = requests.size();
    requests.push_back(*std::move(request));
  }
  if (requests.empty()) return InvalidArgument(name + ": there are no requests");
  return requests;
}

}  // namespace kuruma
