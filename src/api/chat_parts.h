// The larger parts of a chat request; private to the api module.
#ifndef KURUMA_API_CHAT_PARTS_H_
#define KURUMA_API_CHAT_PARTS_H_

#include <string>
#include <vector>

#include "api/chat.h"
#include "api/fields.h"
#include "base/status.h"
#include "text/json.h"
#include "text/prompt.h"

namespace kuruma::api {

struct ChatMessages {
  std::vector<text::Message> messages;
  // Index of an assistant message after the last user message that has no reasoning; -1: none.
  int missing_reasoning = -1;
};

// Checks and converts `messages`: a non-empty array.
Result<ChatMessages> ParseMessages(const text::JsonValue& messages);

// Checks and converts an array of {"type": "function", "function": {...}}; `path` names it.
Result<std::vector<text::Tool>> ParseTools(const text::JsonValue& tools, const std::string& path);

// Reads temperature, penalties, limits, stop strings and log-probability options of the body.
Result<SamplingOptions> ParseSampling(const Fields& body);

}  // namespace kuruma::api

#endif  // KURUMA_API_CHAT_PARTS_H_
