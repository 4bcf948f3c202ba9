#include "text/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "text/json.h"

namespace kuruma::text {
namespace {

constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
constexpr std::string_view kSystem = "<｜System｜>";
constexpr std::string_view kUser = "<｜User｜>";
constexpr std::string_view kAssistant = "<｜Assistant｜>";
constexpr std::string_view kReminder = "<｜latest_reminder｜>";
constexpr std::string_view kThink = "<think>";
constexpr std::string_view kEndThink = "</think>";
constexpr std::string_view kDsml = "｜DSML｜";

// Special inside the template's own text.
constexpr std::array kTemplateTokens = {kThink, kEndThink, kDsml};

// Special inside what the model said earlier: it points at places in images with them.
constexpr std::array<std::string_view, 8> kGroundingTokens = {
    "<｜ref｜>",   "<｜/ref｜>",   "<｜box｜>",     "<｜/box｜>",
    "<｜point｜>", "<｜/point｜>", "<｜polygon｜>", "<｜/polygon｜>"};

constexpr std::string_view kToolsIntro =
    R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)";
constexpr std::string_view kToolsOutro =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool "
    "calls.\n";
constexpr std::string_view kFormatIntro =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

// Builds the prompt text and notes which parts are special.
class Writer {
 public:
  void Special(std::string_view spelling) {
    prompt_.specials.push_back({prompt_.text.size(), prompt_.text.size() + spelling.size()});
    prompt_.text += spelling;
  }

  void Plain(std::string_view text) { prompt_.text += text; }

  // Text in which the given spellings are special.
  void WithTokens(std::string_view text, std::span<const std::string_view> tokens) {
    size_t written = 0;
    for (size_t pos = 0; pos < text.size(); ++pos) {
      // All spellings begin with '<' or with the first byte of '｜'.
      if (text[pos] != '<' && text[pos] != kDsml[0]) continue;
      for (const std::string_view token : tokens) {
        if (!text.substr(pos).starts_with(token)) continue;
        Plain(text.substr(written, pos - written));
        Special(token);
        written = pos + token.size();
        pos = written - 1;
        break;
      }
    }
    Plain(text.substr(written));
  }
  void Template(std::string_view text) { WithTokens(text, kTemplateTokens); }

  void Content(const Message& message, std::string_view image_token) {
    size_t written = 0;
    for (const ImageRef& image : message.images) {
      KURUMA_CHECK(image.offset >= written && image.offset <= message.content.size());
      Plain(std::string_view(message.content).substr(written, image.offset - written));
      Special(image_token);
      ++prompt_.num_images;
      written = image.offset;
    }
    Plain(std::string_view(message.content).substr(written));
  }

  RenderedPrompt Take() { return std::move(prompt_); }

 private:
  RenderedPrompt prompt_;
};

void WriteToolSchemas(const std::vector<Tool>& tools, bool with_deferred, Writer* out) {
  bool first = true;
  for (const Tool& tool : tools) {
    if (tool.defer_loading && !with_deferred) continue;
    std::string line = first ? "{\"name\": " : "\n{\"name\": ";
    first = false;
    AppendJsonString(tool.name, &line);
    line += ", \"description\": ";
    AppendJsonString(tool.description, &line);
    out->Plain(line + ", \"parameters\": " + tool.parameters + "}");
  }
}

void WriteParameter(std::string_view key, std::string_view value, bool is_string, Writer* out) {
  out->Template("<｜DSML｜ parameter name=\"");
  out->Plain(key);
  out->Plain(is_string ? "\" string=\"true\">" : "\" string=\"false\">");
  out->Plain(value);
  out->Template("</｜DSML｜ parameter>");
}

void WriteCall(const ToolCall& call, Writer* out) {
  out->Template("<｜DSML｜ invoke name=\"");
  out->Plain(call.name);
  out->Plain("\">\n");
  const Result<JsonValue> arguments = ParseJson(call.arguments);
  const auto* members = arguments.ok() ? arguments->If<JsonValue::Object>() : nullptr;
  if (members == nullptr) {
    // Not an object: the model sees what it wrote, as one text parameter.
    WriteParameter("arguments", call.arguments, /*is_string=*/true, out);
  } else {
    for (size_t i = 0; i < members->size(); ++i) {
      if (i > 0) out->Plain("\n");
      const auto& [key, value] = (*members)[i];
      const auto* text = value.If<std::string>();
      WriteParameter(key, text != nullptr ? *text : DumpJson(value), text != nullptr, out);
    }
  }
  out->Template("\n</｜DSML｜ invoke>");
}

// Tool results of one user turn, in the order of the calls they answer: the results that carry an
// id are sorted among the places they occupy, everything else stays.
void SortResults(const std::vector<ToolCall>& calls, std::span<const Message*> turn) {
  std::unordered_map<std::string_view, size_t> order;
  for (size_t i = 0; i < calls.size(); ++i) order[calls[i].id] = i;
  const auto rank = [&](const Message* message) {
    const auto found = order.find(message->tool_call_id);
    return found == order.end() ? 0 : found->second;
  };
  const auto is_sorted_kind = [](const Message* message) {
    return message->role == Role::kTool && !message->tool_call_id.empty();
  };
  std::vector<const Message*> results;
  std::copy_if(turn.begin(), turn.end(), std::back_inserter(results), is_sorted_kind);
  std::stable_sort(results.begin(), results.end(),
                   [&](const Message* a, const Message* b) { return rank(a) < rank(b); });
  auto next = results.begin();
  for (const Message*& message : turn) {
    if (is_sorted_kind(message)) message = *next++;
  }
}

bool IsUserTurn(Role role) { return role == Role::kUser || role == Role::kTool; }

// The messages in the order in which they are rendered.
std::vector<const Message*> Arrange(const Conversation& conversation) {
  static const Message kEmptySystem = {.role = Role::kSystem,
                                       .content = "",
                                       .images = {},
                                       .tools = {},
                                       .tool_call_id = "",
                                       .reasoning = "",
                                       .tool_calls = {}};
  std::vector<const Message*> order;
  const auto& messages = conversation.messages;
  const bool needs_system =
      (!conversation.tools.empty() && conversation.tool_choice != ToolChoice::kNone) ||
      conversation.response_format.kind == ResponseFormat::Kind::kJsonObject ||
      conversation.response_format.kind == ResponseFormat::Kind::kJsonSchema;
  if (needs_system && (messages.empty() || messages[0].role != Role::kSystem)) {
    order.push_back(&kEmptySystem);
  }
  for (const Message& message : messages) {
    // Of adjacent reminders only the first counts.
    if (message.role == Role::kLatestReminder && !order.empty() &&
        order.back()->role == Role::kLatestReminder) {
      continue;
    }
    order.push_back(&message);
  }
  static const std::vector<ToolCall> kNoCalls;
  const std::vector<ToolCall>* calls = &kNoCalls;
  for (size_t i = 0; i < order.size();) {
    if (!order[i]->tool_calls.empty()) calls = &order[i]->tool_calls;
    size_t end = i;
    while (end < order.size() && IsUserTurn(order[end]->role)) ++end;
    if (end > i) SortResults(*calls, std::span(order).subspan(i, end - i));
    i = std::max(end, i + 1);
  }
  return order;
}

class Renderer {
 public:
  Renderer(const Conversation& conversation, std::string_view image_token)
      : conversation_(conversation),
        image_token_(image_token),
        messages_(Arrange(conversation)),
        shows_tools_(!conversation.tools.empty() && conversation.tool_choice != ToolChoice::kNone) {
    if (shows_tools_) {
      keeps_reasoning_from_ = 0;
    } else if (conversation.keeps_loop_reasoning && conversation.tools.empty()) {
      keeps_reasoning_from_ = StartOfToolLoop();
    }
  }

  RenderedPrompt Render() {
    out_.Special(kBos);
    for (size_t i = 0; i < messages_.size(); ++i) WriteMessage(i);
    const bool continues = !messages_.empty() && messages_.back()->prefix;
    if (conversation_.adds_answer_header && !continues) {
      out_.Special(kAssistant);
      out_.Special(conversation_.thinking ? kThink : kEndThink);
      if (shows_tools_ && conversation_.tool_choice == ToolChoice::kRequired) {
        out_.Template("\n\n<｜DSML｜ calls>\n");
      }
    }
    return out_.Take();
  }

 private:
  // Index after the last user message if there are calls from there on; else beyond all messages.
  size_t StartOfToolLoop() const {
    size_t start = messages_.size();
    bool has_calls = false;
    while (start > 0 && messages_[start - 1]->role != Role::kUser) {
      --start;
      has_calls = has_calls || !messages_[start]->tool_calls.empty();
    }
    return has_calls ? start : messages_.size();
  }

  void WriteMessage(size_t i) {
    const Message& message = *messages_[i];
    if (i == 0 && (conversation_.thinking || message.role == Role::kSystem)) WriteSystemStart();
    switch (message.role) {
      case Role::kSystem:
        WriteSystem(message, i);
        break;
      case Role::kUser:
        WriteTurnStart(i);
        out_.Content(message, image_token_);
        break;
      case Role::kTool:
        WriteTurnStart(i);
        out_.Plain("<tool_result>");
        out_.Content(message, image_token_);
        out_.Plain("</tool_result>");
        break;
      case Role::kLatestReminder:
        out_.Special(kReminder);
        out_.Content(message, image_token_);
        break;
      case Role::kAssistant:
        WriteAssistant(message, i);
        break;
    }
  }

  void WriteSystemStart() {
    out_.Special(kSystem);
    if (!conversation_.thinking) return;
    out_.Plain(
        fmt::format("Reasoning Effort: {} (range 1-100, the higher the value, the more "
                    "thorough the reasoning)\n\n",
                    conversation_.effort));
  }

  void WriteTurnStart(size_t i) {
    if (i > 0 && IsUserTurn(messages_[i - 1]->role)) {
      out_.Plain("\n\n");
    } else {
      out_.Special(kUser);
    }
  }

  void WriteSystem(const Message& message, size_t i) {
    if (i > 0) out_.Special(kSystem);
    out_.Content(message, image_token_);
    if (i == 0) {
      if (shows_tools_) {
        out_.Template("\n\n");
        out_.Template(kToolsIntro);
        WriteToolSchemas(conversation_.tools, /*with_deferred=*/false, &out_);
        out_.Plain(kToolsOutro);
      }
      WriteResponseFormat();
    }
    if (!message.tools.empty()) {
      out_.Plain("\n\n### Updated Tool Schemas\n\n");
      WriteToolSchemas(message.tools, /*with_deferred=*/true, &out_);
    }
  }

  void WriteResponseFormat() {
    const ResponseFormat& format = conversation_.response_format;
    if (format.kind == ResponseFormat::Kind::kJsonObject) {
      out_.Plain("\n\n");
      out_.Plain(kFormatIntro);
      out_.Plain("{\"type\": \"json_object\"}");
    } else if (format.kind == ResponseFormat::Kind::kJsonSchema) {
      out_.Plain("\n\n");
      out_.Plain(kFormatIntro);
      out_.Plain(format.schema);
    }
  }

  void WriteAssistant(const Message& message, size_t i) {
    out_.Special(kAssistant);
    const bool keeps = i >= keeps_reasoning_from_ || message.prefix;
    if (conversation_.thinking && i > 0 && keeps) {
      out_.Special(kThink);
      out_.WithTokens(message.reasoning, kGroundingTokens);
      // A prefix of reasoning alone is continued inside the thought.
      if (!(message.prefix && message.content.empty() && message.tool_calls.empty())) {
        out_.Special(kEndThink);
      }
    } else {
      out_.Special(kEndThink);
    }
    out_.WithTokens(message.content, kGroundingTokens);
    if (!message.tool_calls.empty()) {
      out_.Template("\n\n<｜DSML｜ calls>");
      for (const ToolCall& call : message.tool_calls) {
        out_.Plain("\n");
        WriteCall(call, &out_);
      }
      out_.Template("\n</｜DSML｜ calls>");
    }
    if (!message.prefix) out_.Special(kEos);
  }

  const Conversation& conversation_;
  const std::string_view image_token_;
  const std::vector<const Message*> messages_;
  const bool shows_tools_;
  size_t keeps_reasoning_from_ = static_cast<size_t>(-1);  // index of the first such message
  Writer out_;
};

}  // namespace

RenderedPrompt RenderPrompt(const Conversation& conversation, std::string_view image_token) {
  return Renderer(conversation, image_token).Render();
}

Result<std::vector<int32_t>> EncodePrompt(const RenderedPrompt& prompt,
                                          const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  const std::string_view text = prompt.text;
  size_t pos = 0;
  const auto append_plain = [&](size_t end) -> Status {
    KURUMA_ASSIGN_OR_RETURN(const std::vector<int32_t> plain,
                            tokenizer.EncodePlain(text.substr(pos, end - pos)));
    ids.insert(ids.end(), plain.begin(), plain.end());
    return {};
  };
  for (const SpecialRange& range : prompt.specials) {
    KURUMA_RETURN_IF_ERROR(append_plain(range.begin));
    const std::string_view spelling = text.substr(range.begin, range.end - range.begin);
    const std::optional<int32_t> id = tokenizer.AddedTokenId(spelling);
    if (!id) return DataLoss(fmt::format("the tokenizer has no added token \"{}\"", spelling));
    ids.push_back(*id);
    pos = range.end;
  }
  KURUMA_RETURN_IF_ERROR(append_plain(text.size()));
  return ids;
}

std::optional<int> EffortOfLabel(std::string_view label) {
  constexpr std::pair<std::string_view, int> kLabels[] = {
      {"minimal", 50}, {"low", 50},    {"medium", 75}, {"high", 75},
      {"xhigh", 75},   {"ultra", 100}, {"max", 100}};
  for (const auto& [name, effort] : kLabels) {
    if (name == label) return effort;
  }
  return std::nullopt;
}

}  // namespace kuruma::text
