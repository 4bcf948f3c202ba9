#include "api/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace kuruma::api {

TokenBudget ResolveBudget(int64_t prompt_tokens, std::optional<int64_t> requested,
                          const BudgetPolicy& policy) {
  const int64_t left = policy.context_tokens - prompt_tokens;
  const bool fits = left > 0 && !(policy.strict && requested && *requested > left);
  if (fits) {
    return {std::min(left, requested.value_or(policy.default_tokens.value_or(left))), std::nullopt};
  }
  const int64_t answer = requested.value_or(0);
  const int64_t room = std::numeric_limits<int64_t>::max() - prompt_tokens;
  ApiError error;
  error.message = fmt::format(
      "This model's maximum context length is {} tokens. However, you requested {} tokens ({} in "
      "the messages, {} in the completion). Please reduce the length of the messages or "
      "completion.",
      policy.context_tokens, prompt_tokens + std::min(answer, room), prompt_tokens, answer);
  error.code = "context_length_exceeded";
  return {0, std::move(error)};
}

}  // namespace kuruma::api
