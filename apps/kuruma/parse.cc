// kuruma parse: tokens or text of an answer to what a client would get, JSON Lines in and out.
#include <fmt/format.h>

#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/answer.h"
#include "api/error.h"
#include "commands.h"
#include "model_directory.h"
#include "parse_request.h"
#include "report.h"
#include "text/json.h"
#include "text/tokenizer.h"

namespace kuruma {
namespace {

using Json = nlohmann::ordered_json;

struct ParseFlags {
  std::string tokenizer;
};

// What one line asks for.
struct ParseInput {
  AnswerPlan plan;
  std::vector<int32_t> tokens;
  std::vector<std::string> chunks;
  api::FinishReason finish = api::FinishReason::kStop;
};

Result<api::FinishReason> ReadFinish(const Json& line) {
  static const std::map<std::string, api::FinishReason> kReasons = {
      {"stop", api::FinishReason::kStop},           {"none", api::FinishReason::kStop},
      {"length", api::FinishReason::kLength},       {"deadline", api::FinishReason::kDeadline},
      {"cancelled", api::FinishReason::kCancelled}, {"failed", api::FinishReason::kFailed}};
  const Json finish = line.value("finish", Json("stop"));
  const auto found = finish.is_string() ? kReasons.find(finish) : kReasons.end();
  if (found != kReasons.end()) return found->second;
  return InvalidArgument("'finish' must be stop, none, length, deadline, cancelled or failed");
}

Result<ParseInput> ReadInput(const text::Tokenizer& tokenizer, const std::string& bytes) {
  // Refuses what is nested too deep, so that nothing below can exhaust the stack.
  KURUMA_RETURN_IF_ERROR(text::ParseJson(bytes).status());
  const Json line = Json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return InvalidArgument("the line is not a JSON object");
  const Json protocol = line.value("protocol", Json("chat"));
  const Json request = line.value("request", Json());
  if (!protocol.is_string()) return InvalidArgument("'protocol' must be a string");
  if (!request.is_object()) return InvalidArgument("'request' must be an object");
  ParseInput input;
  KURUMA_ASSIGN_OR_RETURN(input.plan, PlanAnswer(tokenizer, protocol, request));
  KURUMA_ASSIGN_OR_RETURN(input.finish, ReadFinish(line));
  const Json tokens = line.value("token_ids", Json::array());
  const Json chunks = line.value("chunks", Json::array());
  if (line.contains("token_ids") == line.contains("chunks") || !tokens.is_array() ||
      !chunks.is_array()) {
    return InvalidArgument("there must be either 'token_ids' or 'chunks', a list");
  }
  for (const Json& token : tokens) {
    if (!token.is_number_integer() || token < INT32_MIN || token > INT32_MAX) {
      return InvalidArgument("'token_ids' must hold token ids");
    }
    input.tokens.push_back(token);
  }
  for (const Json& chunk : chunks) {
    if (!chunk.is_string()) return InvalidArgument("'chunks' must hold strings");
    input.chunks.push_back(chunk);
  }
  return input;
}

Result<std::vector<std::string>> Answer(const text::Tokenizer& tokenizer, const ParseInput& input,
                                        bool stream) {
  api::AnswerOptions options = input.plan.answer;
  options.stream = stream;
  KURUMA_ASSIGN_OR_RETURN(const auto answer,
                          api::AnswerBuilder::Create(tokenizer, input.plan.parser, options));
  answer->Start({});
  for (const int32_t token : input.tokens) answer->Push(0, {.token = token, .top = {}});
  for (const std::string& chunk : input.chunks) answer->PushText(0, chunk);
  answer->Finish(0, input.finish, "the answer was not finished");
  return answer->Take();
}

// The JSON of a server-sent event; [DONE] as a string.
Json EventData(const std::string& frame) {
  const size_t begin = frame.find("data: ") + 6;
  const std::string data = frame.substr(begin, frame.size() - 2 - begin);
  return data == "[DONE]" ? Json(data) : Json::parse(data);
}

// Appends to a text that is null until there is something of it.
void Append(const Json& text, Json* to) {
  *to = (to->is_null() ? std::string() : to->get<std::string>()) + text.get<std::string>();
}

// Reasoning, content and calls of a whole answer; a call is [name, arguments], in Responses [type,
// namespace, name, arguments].
Json Merged(api::Protocol protocol, const Json& body) {
  Json merged = {{"reasoning", nullptr}, {"content", ""}, {"calls", Json::array()}};
  if (body.contains("choices")) {
    const Json& choice = body["choices"][0];
    merged["finish"] = choice["finish_reason"];
    if (protocol == api::Protocol::kCompletions) {
      merged["content"] = choice["text"];
      return merged;
    }
    const Json& message = choice["message"];
    merged["content"] = message["content"];
    merged["reasoning"] = message.value("reasoning_content", Json());
    for (const Json& call : message.value("tool_calls", Json::array())) {
      merged["calls"].push_back({call["function"]["name"], call["function"]["arguments"]});
    }
    return merged;
  }
  const bool is_message = protocol == api::Protocol::kMessages;
  for (const Json& item : body[is_message ? "content" : "output"]) {
    const std::string type = item["type"];
    if (type == "thinking") Append(item["thinking"], &merged["reasoning"]);
    if (type == "text") Append(item["text"], &merged["content"]);
    if (type == "tool_use") merged["calls"].push_back({item["name"], item["input"]});
    if (type == "reasoning") Append(item["content"][0]["text"], &merged["reasoning"]);
    if (type == "message") Append(item["content"][0]["text"], &merged["content"]);
    if (item.contains("call_id")) {
      merged["calls"].push_back({type, item.value("namespace", Json()), item["name"],
                                 item[item.contains("input") ? "input" : "arguments"]});
    }
  }
  if (is_message) {
    merged["finish"] = body["stop_reason"];
    merged["stop_sequence"] = body["stop_sequence"];
  } else {
    const Json& details = body["incomplete_details"];
    merged["finish"] = body["status"];
    if (!details.is_null()) Append(":" + details["reason"].get<std::string>(), &merged["finish"]);
  }
  return merged;
}

Result<Json> ParseLine(const text::Tokenizer& tokenizer, const std::string& line) {
  KURUMA_ASSIGN_OR_RETURN(const ParseInput input, ReadInput(tokenizer, line));
  KURUMA_ASSIGN_OR_RETURN(const auto frames, Answer(tokenizer, input, /*stream=*/true));
  KURUMA_ASSIGN_OR_RETURN(const auto bodies, Answer(tokenizer, input, /*stream=*/false));
  Json events = Json::array();
  for (const std::string& frame : frames) events.push_back(EventData(frame));
  const Json body = Json::parse(bodies.at(0));
  const bool is_error = body.contains("error") && !body["error"].is_null();
  return Json{{"merged", is_error ? Json() : Merged(input.plan.answer.protocol, body)},
              {"final", body},
              {"events", std::move(events)}};
}

int RunParse(const ParseFlags& flags) {
  const Result<std::string> path = TokenizerFile(flags.tokenizer);
  if (!path.ok()) return Fail("parse", path.status());
  const auto tokenizer = text::Tokenizer::Load(*path);
  if (!tokenizer.ok()) return Fail("parse", tokenizer.status());
  for (std::string line; std::getline(std::cin, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto output = ParseLine(**tokenizer, line);
    if (!output.ok()) {
      const api::ApiError error = api::ToApiError(output.status());
      output = Json{{"error", {{"status", error.status}, {"message", error.message}}}};
    }
    std::cout << output->dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
    if (!std::cout) return kExitBadInput;  // nobody reads any more
  }
  return kExitOk;
}

}  // namespace

void RegisterParse(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<ParseFlags>();
  CLI::App* command = app.add_subcommand(
      "parse", "Show what clients get for an answer of the model; JSON Lines on stdin and stdout");
  command
      ->add_option("--tokenizer", flags->tokenizer,
                   "tokenizer.json of the checkpoint (default: the bundled model's)")
      ->type_name("FILE");
  command->footer(
      "Examples:\n"
      "  echo '{\"protocol\":\"messages\",\"request\":{},\"chunks\":[\"why</think>so\"]}' |\n"
      "    kuruma parse --tokenizer tokenizer.json\n"
      "A line holds protocol (chat, completions, messages, responses), request, token_ids or "
      "chunks\n(of text), and finish (stop, length, deadline, cancelled, failed). Writes "
      "{\"merged\", \"final\",\n\"events\"} per line, or {\"error\": {\"status\", \"message\"}}. "
      "Blank lines are skipped.");
  command->callback([flags, exit_code] { *exit_code = RunParse(*flags); });
}

}  // namespace kuruma
