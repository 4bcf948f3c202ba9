// What a request of any protocol comes to: prompts to run and the form of the answer.
#ifndef KURUMA_SERVER_JOB_H_
#define KURUMA_SERVER_JOB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/answer.h"
#include "api/chat.h"
#include "api/error.h"
#include "api/protocol.h"
#include "engine/engine.h"
#include "text/parser.h"
#include "text/tokenizer.h"

namespace kuruma::server {

// What is served, as far as requests depend on it.
struct ServedModel {
  std::string name;
  std::vector<std::string> aliases;
  const text::Tokenizer* tokenizer = nullptr;
  int64_t context = 0;
  int32_t bos_token = 0;
  int32_t eos_token = 0;
  api::ChatOptions chat;         // defaults of sampling and thinking
  bool reasoning_alias = false;  // `reasoning` beside `reasoning_content`
  // Accept what a grammar would have to enforce (response formats, forced calls); it is shown to
  // the model and not enforced.
  bool lets_constraints_pass = false;
};

// A checked request, ready to run.
struct Job {
  std::vector<engine::Request> requests;  // one per prompt; without `stops`
  std::vector<int32_t> end_tokens;        // that end an answer and are no text
  std::optional<uint64_t> drawn_seed;     // of all requests, if the client gave none; below 2^53
  text::ParserOptions parser;
  api::AnswerOptions answer;
};

// What the ids of a protocol's answers begin with.
const char* IdPrefix(api::Protocol protocol);

// Whether clients may call the model so. Any `claude*` is fine for Messages, whose clients know no
// other names; an empty name too.
bool IsServed(const ServedModel& model, api::Protocol protocol, std::string_view name);

// What a client is told that names another model.
api::ApiError NoSuchModel(const ServedModel& model, std::string_view name);

// Parses and checks `body`, renders and encodes the prompt. Any thread; takes time linear in the
// body.
std::variant<Job, api::ApiError> MakeJob(const ServedModel& model, api::Protocol protocol,
                                         std::string_view body);

// Tokens of the prompt of a Messages request (count_tokens).
std::variant<int64_t, api::ApiError> CountTokens(const ServedModel& model, std::string_view body);

// What the engine's sampler makes of a client's wishes; `drawn_seed` counts if there is none.
engine::SamplingParams ToSamplingParams(const api::SamplingOptions& options, uint64_t drawn_seed);

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_JOB_H_
