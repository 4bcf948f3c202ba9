// Parsed requests as JSON again, for people, tools and tests: what was understood.
#ifndef KURUMA_API_DESCRIBE_H_
#define KURUMA_API_DESCRIBE_H_

#include <nlohmann/json.hpp>
#include <string>

#include "api/chat.h"
#include "api/responses.h"
#include "text/prompt.h"

namespace kuruma::api {

// {"messages": [{"role", "content", "images", "tools", "tool_call_id", "reasoning_content",
// "tool_calls", "prefix"}], "thinking", "effort", "tools", "tool_choice", "response_format",
// "response_schema"}. Members of messages only where they say something. A content holds
// `text::kDefaultImageToken` where an image goes. Any thread.
nlohmann::ordered_json DescribeConversation(const text::Conversation& conversation);

// The members of a response object that repeat its request, as a JSON object. Any thread.
std::string EchoText(const ResponsesEcho& echo);

// The members of SamplingOptions by their names; what was left to the server is null. Any thread.
nlohmann::ordered_json DescribeSampling(const SamplingOptions& sampling);

}  // namespace kuruma::api

#endif  // KURUMA_API_DESCRIBE_H_
