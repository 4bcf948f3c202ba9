// The answer to one request: tokens in, text ready to send out.
//
// The engine side pushes every token it generates; the parser (text/parser.h) cuts them into
// reasoning, content and tool calls, and a writer puts those into the form of the client's
// protocol: server-sent events while the answer grows, or one JSON body at its end. Sources:
// OpenAI's Chat Completions, Completions and Responses APIs, Anthropic's Messages API, DeepSeek's
// additions (reasoning_content, cache hit counts).
#ifndef KURUMA_API_ANSWER_H_
#define KURUMA_API_ANSWER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/protocol.h"
#include "base/status.h"
#include "text/parser.h"
#include "text/tokenizer.h"

namespace kuruma::api {

struct AnswerOptions {
  Protocol protocol = Protocol::kChat;
  std::string id;       // of the answer, with its prefix: chatcmpl-, cmpl-, msg_, resp_
  std::string model;    // as the client named it
  int64_t created = 0;  // seconds since 1970
  bool stream = false;
  bool include_usage = false;       // chat, completions: a chunk with the usage ends the stream
  bool continuous_usage = false;    // and every chunk has the usage so far
  int n = 1;                        // answers; for Completions answers of all prompts together
  bool logprobs = false;            // chat, completions, responses; not for reasoning of the latter
  int top_logprobs = 0;             // at most so many alternatives of each token
  bool reasoning_alias = false;     // chat: `reasoning` beside `reasoning_content`
  bool parallel_tool_calls = true;  // false: the answer ends with its first call
  // Completions: what answer i begins with (echo of its prompt); empty or n texts.
  std::vector<std::string> echo;
  // Responses: a JSON object of the members that repeat the request (instructions, tools, ...).
  std::string response_fields = "{}";
  // Responses: tools of type "custom"; their calls have the text of the parameter `input`.
  std::vector<std::string> custom_tools;
  uint64_t id_seed = 0;  // ids of calls and items are drawn from it: random, or fixed for tests
};

struct TopToken {
  int32_t token = 0;
  double logprob = 0;
};

// One generated token. `top`: best first, valid during the call.
struct TokenPiece {
  int32_t token = 0;
  bool ends_answer = false;  // the end-of-sentence token: counted, but no text
  double logprob = 0;        // natural; minus infinity is written as -9999
  std::span<const TopToken> top;
};

struct PromptUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of those, not computed again
};

// How the engine ended an answer.
enum class FinishReason {
  kStop,       // end of sentence, or the model stopped by itself
  kLength,     // token limit or end of the window
  kCancelled,  // by the server; to a client that went away nothing need be sent
  kDeadline,   // time limit
  kFailed,     // our fault
};

// One request's answer. Not thread-safe; the tokenizer must outlive it.
//
// Order: Start, then for each choice Push... and Finish; Take at any time. A stop string, and the
// first call when parallel calls are not allowed, finish a choice by themselves: then done() is
// true, and what is still pushed is neither counted nor shown. Tokens count with the end of
// sentence; reasoning tokens are those before </think> or the first call. Added tokens of the
// vocabulary are no text, except those of grounding (<｜ref｜>, <｜box｜>, <｜point｜>,
// <｜polygon｜>) and, in Completions, <think>, </think> and ｜DSML｜; inside arguments of a call
// all are text, since a file about them must not change silently. Source: docs/parser.md for calls
// that are cut.
class AnswerBuilder {
 public:
  // kInvalidArgument: a bad stop string, fewer than one answer, `echo` of another size, or
  // `response_fields` that is no JSON object; kDataLoss: the tokenizer lacks the markers.
  // For Completions `parser` should start in content and continue it. Any thread.
  static Result<std::unique_ptr<AnswerBuilder>> Create(const text::Tokenizer& tokenizer,
                                                       const text::ParserOptions& parser,
                                                       const AnswerOptions& options);
  ~AnswerBuilder();
  AnswerBuilder(const AnswerBuilder&) = delete;
  AnswerBuilder& operator=(const AnswerBuilder&) = delete;

  // The request runs: a stream begins. Once.
  void Start(const PromptUsage& prompt);

  // The next token of answer `choice` in [0, n).
  void Push(int choice, const TokenPiece& piece);

  // The same for text whose tokens are unknown: counts as one token, has no log-probabilities, and
  // spellings of markers count as markers. For tools that show what the parser does.
  void PushText(int choice, std::string_view text);

  // No more tokens for `choice`. The last choice ends the answer. After kCancelled, kDeadline and
  // kFailed the whole answer ends with an error that tells the client `message`; before Start it
  // is a JSON body even for a stream, as the status can still be sent.
  void Finish(int choice, FinishReason reason, std::string_view message = "");

  // Whether the engine may stop generating for `choice`.
  bool done(int choice) const;

  // HTTP status of a body: 200, or that of the error it holds.
  int status() const;

  // What is to be sent next, in order: whole server-sent events, or one body. UTF-8.
  std::vector<std::string> Take();

 private:
  class Impl;
  explicit AnswerBuilder(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace kuruma::api

#endif  // KURUMA_API_ANSWER_H_
