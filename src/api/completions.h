// The Completions request, of OpenAI's older API: prompts without roles, or a text to be filled in.
// Source: OpenAI's Completions API; `suffix` as DeepSeek's fill-in-the-middle.
#ifndef KURUMA_API_COMPLETIONS_H_
#define KURUMA_API_COMPLETIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/chat.h"
#include "base/status.h"
#include "text/prompt.h"
#include "text/tokenizer.h"

namespace kuruma::api {

// Text, or token ids that are used as they are.
using CompletionPrompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  std::string model;                      // empty: not named
  std::vector<CompletionPrompt> prompts;  // 1..2048; each gets sampling.n answers
  // Text behind the answer: the answer fills the place between prompt and suffix. One text prompt.
  std::optional<std::string> suffix;
  // max_tokens is 16 unless sent, as OpenAI has it. `logprobs`: wanted, top_logprobs of them.
  SamplingOptions sampling;
  bool echo = false;  // the answer begins with the prompt
  // Text prompts: whether spellings of added tokens are these tokens, and whether a begin-of-
  // sentence token comes first.
  bool parse_special = true;
  bool add_bos = true;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage_stats = false;
  std::string user;
  std::string cache_salt;
  int priority = 0;
};

// Parses and checks a request body; `defaults` count where it does not say. Errors as
// ParseChatRequest. Any thread.
Result<CompletionRequest> ParseCompletionRequest(std::string_view body,
                                                 const SamplingOptions& defaults = {});

// The prompt of a request with a suffix: the tokenizer's three fill-in-the-middle tokens around
// plain texts, behind the begin-of-sentence token.
text::RenderedPrompt RenderFill(std::string_view prompt, std::string_view suffix);

// Ids of prompt `index` of the request. kInvalidArgument: an id out of range, text that is not
// UTF-8, or a suffix for a tokenizer without the fill-in-the-middle tokens. Any thread.
Result<std::vector<int32_t>> EncodeCompletionPrompt(const CompletionRequest& request, size_t index,
                                                    const text::Tokenizer& tokenizer);

}  // namespace kuruma::api

#endif  // KURUMA_API_COMPLETIONS_H_
