// The Responses request, of OpenAI's API: JSON in, one checked value out. The server keeps no
// state, so a conversation comes whole in `input`, reasoning items in plain text included.
// Source: OpenAI's Responses API, as DeepSeek's service reads it (namespaces, tool search).
#ifndef KURUMA_API_RESPONSES_H_
#define KURUMA_API_RESPONSES_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat.h"
#include "base/status.h"

namespace kuruma::api {

// A function of a namespace: the model calls it by its full name, the client knows it by two.
struct NamespacedTool {
  std::string full_name;  // "library::lookup"
  std::string name_space;
  std::string name;
};

// What the response object repeats of its request. Members that are JSON are spelled as text, null
// where the request had none.
struct ResponsesEcho {
  std::optional<std::string> instructions;
  std::optional<int64_t> max_output_tokens;
  double temperature = 1.0;
  double top_p = 1.0;
  int top_logprobs = 0;
  bool parallel_tool_calls = true;
  std::optional<std::string> user;
  std::string tools = "[]";
  std::string tool_choice = "\"auto\"";
  std::string text = R"({"format": {"type": "text"}})";
  std::string reasoning = R"({"effort": null, "summary": null})";
  std::string metadata = "{}";
  std::string truncation = "\"disabled\"";
};

struct ResponsesRequest {
  ChatRequest chat;
  ResponsesEcho echo;
  std::vector<NamespacedTool> namespaced_tools;
  // Tools whose calls are custom_tool_call items: the text in their one argument, "input".
  std::vector<std::string> custom_tools;
};

// Parses and checks a request body. Items and tools of unknown kinds are left out; what needs state
// of the server (previous_response_id, item_reference) is refused. Errors as ParseChatRequest. Any
// thread.
Result<ResponsesRequest> ParseResponsesRequest(std::string_view body, const ChatOptions& options);

}  // namespace kuruma::api

#endif  // KURUMA_API_RESPONSES_H_
