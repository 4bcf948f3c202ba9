// kuruma render: bodies of requests to prompts, JSON Lines in and out.
#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "api/budget.h"
#include "api/chat.h"
#include "api/completions.h"
#include "api/describe.h"
#include "api/error.h"
#include "api/messages.h"
#include "api/protocol.h"
#include "api/responses.h"
#include "commands.h"
#include "model_directory.h"
#include "report.h"
#include "text/json.h"
#include "text/prompt.h"
#include "text/tokenizer.h"

namespace kuruma {
namespace {

using Json = nlohmann::ordered_json;

struct RenderFlags {
  std::string tokenizer;
  int64_t context_tokens = 1048576;  // of the released model
  bool strict = false;
  bool whole_string = false;
  bool no_thinking = false;
  bool reference = false;
  bool hosted_sampling = false;
};

// A line of input: a body and whom it is meant for.
struct Request {
  api::Protocol protocol = api::Protocol::kChat;
  std::string body;
};

// {"protocol", "body"} with the body as an object or as text, or the body of a chat request alone.
Result<Request> ReadRequest(const std::string& line) {
  const auto root = text::ParseJson(line);
  const text::JsonValue* name = root.ok() ? root->Find("protocol") : nullptr;
  const text::JsonValue* body = root.ok() ? root->Find("body") : nullptr;
  if (name == nullptr || body == nullptr) return Request{api::Protocol::kChat, line};
  const auto* spelling = name->If<std::string>();
  const auto protocol = spelling ? api::ProtocolOfName(*spelling) : std::nullopt;
  if (!protocol) {
    return InvalidArgument("'protocol' must be chat, completions, messages or responses");
  }
  const auto* raw = body->If<std::string>();
  return Request{*protocol, raw != nullptr ? *raw : text::DumpJson(*body)};
}

struct Rendering {
  const text::Tokenizer& tokenizer;
  const RenderFlags& flags;
};

// Adds the number of tokens the answer may have, or says why there is no room.
std::optional<api::ApiError> AddBudget(const Rendering& rendering, const std::vector<int32_t>& ids,
                                       const api::SamplingOptions& sampling, Json* output) {
  api::BudgetPolicy policy;
  policy.context_tokens = rendering.flags.context_tokens;
  policy.strict = rendering.flags.strict;
  const api::TokenBudget budget =
      api::ResolveBudget(static_cast<int64_t>(ids.size()), sampling.max_tokens, policy);
  if (!budget.error) (*output)["max_tokens"] = budget.max_tokens;
  return budget.error;
}

Result<api::ChatRequest> ParseConversation(const Request& request, const RenderFlags& flags) {
  api::ChatOptions options;
  options.default_thinking = !flags.no_thinking;
  options.reference_prompts = flags.reference;
  options.hosted_sampling = flags.hosted_sampling;
  if (request.protocol == api::Protocol::kChat) {
    return api::ParseChatRequest(request.body, options);
  }
  if (request.protocol == api::Protocol::kMessages) {
    return api::ParseMessagesRequest(request.body, options);
  }
  KURUMA_ASSIGN_OR_RETURN(api::ResponsesRequest responses,
                          api::ParseResponsesRequest(request.body, options));
  return std::move(responses.chat);
}

// The output for a conversation, or why there is none.
std::optional<api::ApiError> RenderConversation(const Rendering& rendering, const Request& request,
                                                Json* output) {
  const auto chat = ParseConversation(request, rendering.flags);
  if (!chat.ok()) return api::ToApiError(chat.status());
  const text::RenderedPrompt prompt = text::RenderPrompt(chat->conversation);
  const auto ids = rendering.flags.whole_string ? rendering.tokenizer.Encode(prompt.text)
                                                : text::EncodePrompt(prompt, rendering.tokenizer);
  if (!ids.ok()) return api::ToApiError(ids.status());
  Json ranges = Json::array();
  for (const text::SpecialRange& range : prompt.specials)
    ranges.push_back({range.begin, range.end});
  *output = {{"prompt", prompt.text},
             {"ids", *ids},
             {"special_ranges", std::move(ranges)},
             {"conversation", api::DescribeConversation(chat->conversation)},
             {"sampling", api::DescribeSampling(chat->sampling)}};
  return AddBudget(rendering, *ids, chat->sampling, output);
}

// The same for a Completions request, which may hold several prompts.
std::optional<api::ApiError> RenderCompletions(const Rendering& rendering, const Request& request,
                                               Json* output) {
  const auto completions = api::ParseCompletionRequest(request.body);
  if (!completions.ok()) return api::ToApiError(completions.status());
  Json prompts = Json::array();
  for (size_t i = 0; i < completions->prompts.size(); ++i) {
    const auto ids = api::EncodeCompletionPrompt(*completions, i, rendering.tokenizer);
    if (!ids.ok()) return api::ToApiError(ids.status());
    const auto* text = std::get_if<std::string>(&completions->prompts[i]);
    Json entry = {{"prompt", text != nullptr ? Json(*text) : Json()}, {"ids", *ids}};
    if (completions->suffix) {
      entry["prompt"] = api::RenderFill(*text, *completions->suffix).text;
    }
    if (auto error = AddBudget(rendering, *ids, completions->sampling, &entry)) return error;
    prompts.push_back(std::move(entry));
  }
  *output = {{"prompts", std::move(prompts)},
             {"sampling", api::DescribeSampling(completions->sampling)}};
  return std::nullopt;
}

Json RenderLine(const Rendering& rendering, const std::string& line) {
  const auto request = ReadRequest(line);
  std::optional<api::ApiError> error;
  Json output;
  if (!request.ok()) {
    error = api::ToApiError(request.status());
  } else if (request->protocol == api::Protocol::kCompletions) {
    error = RenderCompletions(rendering, *request, &output);
  } else {
    error = RenderConversation(rendering, *request, &output);
  }
  if (!error) return output;
  const api::Protocol protocol = request.ok() ? request->protocol : api::Protocol::kChat;
  return {{"error",
           {{"status", error->status},
            {"message", error->message},
            {"body", Json::parse(api::ErrorBody(protocol, *error))}}}};
}

int RunRender(const RenderFlags& flags) {
  const Result<std::string> path = TokenizerFile(flags.tokenizer);
  if (!path.ok()) return Fail("render", path.status());
  const auto tokenizer = text::Tokenizer::Load(*path);
  if (!tokenizer.ok()) return Fail("render", tokenizer.status());
  const Rendering rendering{**tokenizer, flags};
  for (std::string line; std::getline(std::cin, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    // Messages may quote what the client sent, whatever bytes that were.
    std::cout << RenderLine(rendering, line).dump(-1, ' ', false, Json::error_handler_t::replace)
              << std::endl;
    if (!std::cout) return kExitBadInput;  // nobody reads any more
  }
  return kExitOk;
}

}  // namespace

void RegisterRender(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<RenderFlags>();
  CLI::App* command = app.add_subcommand(
      "render", "Show the prompt of requests, of any protocol; JSON Lines on stdin and stdout");
  command
      ->add_option("--tokenizer", flags->tokenizer,
                   "tokenizer.json of the checkpoint (default: the bundled model's)")
      ->type_name("FILE");
  command->add_flag("--whole-string", flags->whole_string,
                    "Tokenize the prompt as one string, so that control tokens spelled by users "
                    "count, as chat templates of other servers do");
  command->add_flag("--no-thinking", flags->no_thinking,
                    "Requests that do not say whether to think do not think");
  command->add_flag(
      "--reference", flags->reference,
      "Render tool choices and old reasoning exactly as DeepSeek's reference library");
  command->add_flag("--hosted-sampling", flags->hosted_sampling,
                    "Temperature, top-p and penalties as DeepSeek's service sets them, whatever "
                    "the request says");
  command
      ->add_option("--context", flags->context_tokens,
                   "Tokens that prompt and answer may have together")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_flag("--strict", flags->strict,
                    "Refuse a number of tokens that does not fit, instead of lowering it");
  command->footer(
      "Examples:\n"
      "  echo '{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}' |\n"
      "    kuruma render --tokenizer tokenizer.json\n"
      "  echo '{\"protocol\":\"responses\",\"body\":{\"input\":\"Hi\"}}' | kuruma render\n"
      "A line is a Chat Completions body, or {\"protocol\": chat, completions, messages or "
      "responses, \"body\"}.\n"
      "Writes {\"prompt\", \"ids\", \"special_ranges\", \"conversation\", \"sampling\", "
      "\"max_tokens\"} per line\n"
      "({\"prompts\", \"sampling\"} for completions), or {\"error\": {\"status\", \"message\", "
      "\"body\"}} for\na body that is refused. Blank lines are skipped.");
  command->callback([flags, exit_code] { *exit_code = RunRender(*flags); });
}

}  // namespace kuruma
