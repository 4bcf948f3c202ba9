// What requests of several protocols have in common; private to the api module.
// Errors are kInvalidArgument and begin with the path of the field. Any thread.
#ifndef KURUMA_API_REQUEST_PARTS_H_
#define KURUMA_API_REQUEST_PARTS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "api/chat.h"
#include "api/fields.h"
#include "base/status.h"
#include "text/json.h"
#include "text/prompt.h"

namespace kuruma::api {

// --- Messages (chat_messages.cc, images.cc) ---

struct ChatMessages {
  std::vector<text::Message> messages;
  // Whether an assistant message after the last user message has no reasoning.
  bool lacks_reasoning = false;
};

// Checks and converts `messages` of a chat request: a non-empty array.
Result<ChatMessages> ParseMessages(const text::JsonValue& messages);

// Whether `url` can be an image: an http(s) link or a base64 data URL of a known format. The image
// is fetched and decoded later.
Status CheckImageUrl(std::string_view url, const std::string& name);

// The same, but no link.
Status CheckDataUrl(std::string_view url, const std::string& name);

// auto, low, high or original; `auto` if absent.
Result<std::string> ReadDetail(const Fields& image);

// Removes an agent's accounting line from the start of a system prompt: it is no part of the
// prompt, and would defeat the prefix cache.
void StripBillingHeader(std::string* content);
inline constexpr std::string_view kBillingHeader = "x-anthropic-billing-header";

// --- Tools (tools.cc) ---

// Tools declared so far, with unique names.
class ToolList {
 public:
  // Adds `tool`; `field` is where its name stands in the request.
  Status Add(text::Tool tool, const std::string& field);

  // The tool called `name`, or null.
  const text::Tool* Find(std::string_view name) const;

  const std::vector<text::Tool>& tools() const { return tools_; }
  std::vector<text::Tool> Take() { return std::move(tools_); }

 private:
  std::vector<text::Tool> tools_;
  std::unordered_set<std::string> names_;
};

// A name of a tool or a namespace: up to 128 letters, digits, _ and -.
Status CheckToolName(std::string_view name, const std::string& field);

// Checks and converts an array of {"type": "function", "function": {...}}; `path` names it.
Result<std::vector<text::Tool>> ParseTools(const text::JsonValue& tools, const std::string& path);

// `function` of an object whose `type` must be "function".
Result<Fields> FunctionOf(const Fields& owner);

// The flat form {"name", "description", `schema_key`: {...}, "strict", "defer_loading"}. A schema
// is an object schema; without one it is {}.
Result<text::Tool> ReadTool(const Fields& fields, std::string_view schema_key);

// `tool_choice` when it is none, auto or required. False: it is no string; `other` is what it may
// be besides.
Result<bool> ReadToolChoiceWord(const text::JsonValue& value, std::string_view other,
                                ChatRequest* request);

// Makes a call of `name`, which `field` holds, required.
Status RequireTool(std::string name, const std::string& field, ChatRequest* request);

// How the prompt shows the tools that the client wants used; after tools, tool choice and thinking.
void ShowToolChoice(const ChatOptions& options, ChatRequest* request);

// --- Thinking (thinking.cc) ---

struct Effort {
  bool is_none = false;
  std::optional<int> number;  // 1..100
};

// A label or an integer at member `key`.
Result<std::optional<Effort>> ReadEffort(const Fields& fields, std::string_view key);

struct ThinkingField {
  std::optional<bool> on;
  std::optional<int64_t> budget_tokens;
};

// `thinking`: {"type": ..., "budget_tokens": ...}, or true or false as some servers have it.
Result<ThinkingField> ReadThinking(const Fields& body);

// Sets thinking and effort from the first that speaks: the switch, the effort, the default.
void SetThinking(std::optional<bool> on, const std::optional<Effort>& effort, bool default_on,
                 text::Conversation* conversation);

// --- Options of the answer (sampling.cc) ---

// Temperature, filters, penalties, seed, stop tokens, biases: under the same names everywhere.
Status ReadSampling(const Fields& body, SamplingOptions* sampling);

// A string or an array of strings at `key`.
Status ReadStop(const Fields& body, std::string_view key, SamplingOptions* sampling);

// The largest number of tokens, at `key`; overwrites what was read before.
Status ReadMaxTokens(const Fields& body, std::string_view key, SamplingOptions* sampling);
Status CheckMinTokens(const SamplingOptions& sampling);

// logprobs and top_logprobs of Chat Completions.
Status ReadLogprobs(const Fields& body, SamplingOptions* sampling);

// `n`, how many answers are wanted: 1..128.
Result<int> ReadCount(const Fields& body);

struct StreamOptions {
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage_stats = false;
};
Result<StreamOptions> ReadStream(const Fields& body);

struct Routing {
  std::string user;
  std::string cache_salt;
  int priority = 0;
};
// Who asks, and how urgently: user, user_id, cache_salt, priority.
Result<Routing> ReadRouting(const Fields& body);

// Copies both into `request`.
void SetDelivery(const StreamOptions& stream, Routing routing, ChatRequest* request);

// The JSON Schema at `key` of `holder`, as a format of the answer.
Result<text::ResponseFormat> ReadSchemaFormat(const Fields& holder, std::string_view key);

// An error if `body` has one of these members, which would make a promise about the answer that is
// not kept.
Status RefuseConstraints(const Fields& body, std::span<const std::string_view> keys);

// What ChatOptions say about a request that is complete. `reasoning_name` is how the protocol calls
// the reasoning of a message.
Status ApplyOptions(const ChatOptions& options, bool lacks_reasoning,
                    std::string_view reasoning_name, ChatRequest* request);

}  // namespace kuruma::api

#endif  // KURUMA_API_REQUEST_PARTS_H_
