// How many tokens an answer may have.
// Source: OpenAI's error for prompts that do not fit, which agents read to shorten them.
#ifndef KURUMA_API_BUDGET_H_
#define KURUMA_API_BUDGET_H_

#include <cstdint>
#include <optional>

#include "api/error.h"

namespace kuruma::api {

struct BudgetPolicy {
  int64_t context_tokens = 0;  // the window: prompt and answer together
  // Whether a requested number that does not fit is an error; otherwise it is lowered, since many
  // agents always ask for the same large number.
  bool strict = false;
  std::optional<int64_t> default_tokens;  // if none are requested; nothing: the rest of the window
};

struct TokenBudget {
  int64_t max_tokens = 0;         // >= 1 without an error
  std::optional<ApiError> error;  // 400, context_length_exceeded
};

// `prompt_tokens` >= 0; `requested` >= 1 if there is one. A prompt that fills the window leaves
// nothing to answer in, so it is an error too. Any thread.
TokenBudget ResolveBudget(int64_t prompt_tokens, std::optional<int64_t> requested,
                          const BudgetPolicy& policy);

}  // namespace kuruma::api

#endif  // KURUMA_API_BUDGET_H_
