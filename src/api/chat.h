// The Chat Completions request: JSON in, one checked value out. JSON goes no further. The value is
// also what requests of the other protocols for conversations become.
// Source: OpenAI's Chat Completions API, DeepSeek's additions (thinking, prefix,
// reasoning_content), and the chat_template_kwargs of other servers.
#ifndef KURUMA_API_CHAT_H_
#define KURUMA_API_CHAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/prompt.h"

namespace kuruma::api {

// What the client wants of the answer, defaults filled in.
struct SamplingOptions {
  double temperature = 1.0;         // [0, 2]; 0 is greedy
  double top_p = 1.0;               // (0, 1]
  int64_t top_k = 0;                // 0: all
  double min_p = 0.0;               // [0, 1]
  double presence_penalty = 0.0;    // [-2, 2]
  double frequency_penalty = 0.0;   // [-2, 2]
  double repetition_penalty = 1.0;  // (0, 100]
  // `seed`, or `seq_seed` modulo 2^64 as DeepInfer calls it; nothing: the server draws one.
  std::optional<int64_t> seed;
  std::optional<int64_t> max_tokens;  // >= 1; nothing: up to the end of the window
  int64_t min_tokens = 0;             // no stop before; at most max_tokens
  int n = 1;                          // 1..128 answers
  std::vector<std::string> stop;      // at most 16, none empty
  std::vector<int32_t> stop_token_ids;
  bool include_stop = false;  // the stop string that ended the answer is part of it
  bool ignore_eos = false;
  bool logprobs = false;
  int top_logprobs = 0;                                // 0..20
  std::vector<std::pair<int32_t, double>> logit_bias;  // token id, [-100, 100]
};

// A request of any protocol for an answer in a conversation.
struct ChatRequest {
  std::string model;                // empty: not named; whether it exists is the server's matter
  text::Conversation conversation;  // what the prompt shows
  SamplingOptions sampling;
  // What the answer must do, to be enforced by a grammar. In thinking mode the prompt shows a
  // required call as auto: the thought comes first.
  text::ToolChoice tool_choice = text::ToolChoice::kAuto;
  std::string named_tool;  // kRequired: only this tool may be called; empty: any
  bool parallel_tool_calls = true;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage_stats = false;  // usage so far in every chunk
  std::string user;                     // who asks, as the client calls them; empty: not said
  std::string cache_salt;               // requests share cached prefixes only with the same salt
  int priority = 0;                     // higher ones go first
};

// Settings of the server.
struct ChatOptions {
  SamplingOptions sampling = {};  // what counts where the request does not say
  bool default_thinking = true;   // when the request does not say
  // 400 when thinking with tools and an assistant message after the last user message has no
  // reasoning_content; otherwise an empty thought is rendered.
  bool reject_missing_reasoning = false;
  // Prompts exactly as DeepSeek's reference library renders them: a named tool is the only one
  // listed, a required call is opened in the prompt even before a thought, and without declared
  // tools old reasoning is dropped even inside a running tool loop.
  // An assistant message at the end of a Messages request is closed, not continued.
  bool reference_prompts = false;
  // Sample as DeepSeek's hosted service does whatever was sent: temperature 1 and top_p of at least
  // 0.95 when thinking, top_p 1 when not, no penalties. Otherwise requests are honoured.
  bool hosted_sampling = false;
};

// Parses and checks a request body. Every failure is kInvalidArgument (HTTP 400) with a message
// for the client; unknown members are ignored. Any thread.
Result<ChatRequest> ParseChatRequest(std::string_view body, const ChatOptions& options);

// kInvalidArgument if the answer would have to follow a grammar (a response format other than text,
// a required or named tool) and so cannot be promised yet. Any thread.
Status CheckEnforceable(const ChatRequest& request);

// kInvalidArgument if the conversation holds images, for a server without a vision model. Any
// thread.
Status CheckNoImages(const ChatRequest& request);

}  // namespace kuruma::api

#endif  // KURUMA_API_CHAT_H_
