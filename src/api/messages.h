// The Messages request, of Anthropic's API: JSON in, the same checked value as a chat request out.
//
// User blocks become messages of their own, tool results first come first; thinking blocks are the
// reasoning; server tools, cache_control and other members without a meaning here are ignored. A
// last assistant message without calls is continued.
// Source: Anthropic's Messages API, as DeepSeek's service reads it.
#ifndef KURUMA_API_MESSAGES_H_
#define KURUMA_API_MESSAGES_H_

#include <string_view>

#include "api/chat.h"
#include "base/status.h"

namespace kuruma::api {

// Parses and checks the body of a request to /v1/messages or /v1/messages/count_tokens;
// `max_tokens` may be absent in both. Errors as ParseChatRequest. Any thread.
Result<ChatRequest> ParseMessagesRequest(std::string_view body, const ChatOptions& options);

}  // namespace kuruma::api

#endif  // KURUMA_API_MESSAGES_H_
