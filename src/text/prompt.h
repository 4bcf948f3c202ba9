// Prompt encoding of DeepSeek-V4.1: a conversation becomes prompt text in which exactly the
// template's own control tokens, placeholders of real images and grounding tokens of earlier
// answers are special. Whatever users, tools and schemas spell stays ordinary text.
// Source: DeepSeek's V4.1 encoding as its public recipe renders it; tests/golden/frontend.
#ifndef KURUMA_TEXT_PROMPT_H_
#define KURUMA_TEXT_PROMPT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace kuruma::text {

enum class Role { kSystem, kUser, kAssistant, kTool, kLatestReminder };

// An image inside a message's content.
struct ImageRef {
  size_t offset = 0;  // bytes into Message::content where the placeholder goes
  std::string url;    // http(s) or data URL, as the client sent it
  std::string detail;
};

// A function the model may call.
struct Tool {
  std::string name;
  std::string description;
  std::string parameters = "{}";  // JSON Schema as prompt text: text/json.h, DumpJson
  bool strict = false;
  bool defer_loading = false;  // not in the tools prompt; a later message declares it
};

// A call the model made in an earlier turn.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text as the model wrote it; need not be valid
};

struct Message {
  Role role = Role::kUser;
  std::string content;           // without image placeholders
  std::vector<ImageRef> images;  // by increasing offset
  std::vector<Tool> tools;       // system messages: tools declared from here on
  std::string tool_call_id;      // tool messages; empty: none given
  std::string reasoning;         // assistant messages
  std::vector<ToolCall> tool_calls;
  bool prefix = false;  // last assistant message: to be continued
};

enum class ToolChoice { kAuto, kNone, kRequired };

struct ResponseFormat {
  enum class Kind { kText, kJsonObject, kJsonSchema, kRegex };
  Kind kind = Kind::kText;
  std::string schema;  // kJsonSchema: as prompt text; kRegex: the pattern (not shown to the model)
};

// Everything that influences a prompt.
struct Conversation {
  std::vector<Message> messages;
  bool thinking = true;
  int effort = 75;  // 1..100, see EffortOfLabel
  std::vector<Tool> tools;
  ToolChoice tool_choice = ToolChoice::kAuto;
  ResponseFormat response_format;
  // Whether the prompt ends with the header of the answer, unless the last message is continued.
  bool adds_answer_header = true;
  // Keep the reasoning of assistant messages after the last user message when calls follow it but
  // the request declares no tools. The reference library drops it, which makes a model forget its
  // thoughts inside a running tool loop.
  bool keeps_loop_reasoning = false;
};

// Bytes [begin, end) of a prompt that are one added token.
struct SpecialRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const SpecialRange&) const = default;
};

struct RenderedPrompt {
  std::string text;
  std::vector<SpecialRange> specials;  // increasing, disjoint
  int num_images = 0;
};

inline constexpr std::string_view kDefaultImageToken = "<｜deepseek_image｜>";

// Renders `conversation`. `image_token` is the spelling of the image placeholder, that of the
// config's image_token_id in the tokenizer. Pure; any thread.
RenderedPrompt RenderPrompt(const Conversation& conversation,
                            std::string_view image_token = kDefaultImageToken);

// Ids of a prompt: one per special range, and the plain text between two of them encoded as one
// string (pieces merge across what the template joined). Each image is one id here.
// kDataLoss if the tokenizer lacks a special token, kInvalidArgument if the text is not UTF-8.
Result<std::vector<int32_t>> EncodePrompt(const RenderedPrompt& prompt, const Tokenizer& tokenizer);

// Effort number of a label (minimal 50, low 50, medium 75, high 75, xhigh 75, ultra 100, max 100);
// nothing for other labels. "none" is no effort: it turns thinking off.
std::optional<int> EffortOfLabel(std::string_view label);

}  // namespace kuruma::text

#endif  // KURUMA_TEXT_PROMPT_H_
