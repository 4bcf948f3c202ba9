#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "api/request_parts.h"

namespace kuruma::api {
namespace {

using text::JsonValue;
using text::Message;
using text::Role;

Result<text::ImageRef> ParseImageUrl(const Fields& part) {
  KURUMA_ASSIGN_OR_RETURN(const Fields image, RequiredObject(part, "image_url"));
  KURUMA_ASSIGN_OR_RETURN(std::string url, RequiredString(image, "url"));
  KURUMA_ASSIGN_OR_RETURN(std::string detail, ReadDetail(image));
  KURUMA_RETURN_IF_ERROR(CheckImageUrl(url, image.Name("url")));
  return text::ImageRef{0, std::move(url), std::move(detail)};
}

Result<text::ImageRef> ParseFile(const Fields& part) {
  if (part.Find("file_id") != nullptr) {
    return InvalidArgument(part.Name("file_id") +
                           " is not supported; send the image as a base64 data URL");
  }
  KURUMA_ASSIGN_OR_RETURN(std::string data, RequiredString(part, "file_data"));
  KURUMA_RETURN_IF_ERROR(CheckDataUrl(data, part.Name("file_data")));
  return text::ImageRef{0, std::move(data), "auto"};
}

Status AddPart(const JsonValue& value, const std::string& path, Message* message) {
  KURUMA_ASSIGN_OR_RETURN(const Fields part, Fields::Of(value, path));
  KURUMA_ASSIGN_OR_RETURN(const std::string type, RequiredString(part, "type"));
  if (type == "text") {
    KURUMA_ASSIGN_OR_RETURN(const std::string text, RequiredString(part, "text"));
    message->content += text;
    return {};
  }
  if (type != "image_url" && type != "file") {
    return InvalidArgument(fmt::format("{} must be text, image_url or file", part.Name("type")));
  }
  if (message->role == Role::kAssistant) {
    return InvalidArgument(fmt::format("'{}': assistant messages hold no images", path));
  }
  KURUMA_ASSIGN_OR_RETURN(text::ImageRef image,
                          type == "file" ? ParseFile(part) : ParseImageUrl(part));
  image.offset = message->content.size();
  message->images.push_back(std::move(image));
  return {};
}

// Text, or parts joined by an empty line. Returns whether there was any content.
Result<bool> ParseContent(const Fields& fields, const std::string& path, Message* message) {
  const JsonValue* content = fields.Find("content");
  if (content == nullptr) return false;
  if (const auto* text = content->If<std::string>()) {
    message->content = *text;
    return true;
  }
  const auto* parts = content->If<JsonValue::Array>();
  if (parts == nullptr || message->role == Role::kLatestReminder) {
    return InvalidArgument(
        fmt::format("{} must be a string{}", fields.Name("content"),
                    message->role == Role::kLatestReminder ? "" : " or an array of parts"));
  }
  for (size_t i = 0; i < parts->size(); ++i) {
    if (i > 0) message->content += "\n\n";
    KURUMA_RETURN_IF_ERROR(AddPart((*parts)[i], fmt::format("{}.content[{}]", path, i), message));
  }
  return true;
}

Result<text::ToolCall> ParseCall(const JsonValue& value, std::string path) {
  KURUMA_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(value, std::move(path)));
  KURUMA_ASSIGN_OR_RETURN(auto id, fields.String("id"));
  KURUMA_ASSIGN_OR_RETURN(const Fields function, FunctionOf(fields));
  KURUMA_ASSIGN_OR_RETURN(std::string name, RequiredString(function, "name"));
  text::ToolCall call{std::move(id).value_or(""), std::move(name), "{}"};
  if (const JsonValue* arguments = function.Find("arguments")) {
    // Some clients keep the parsed object in their history.
    if (arguments->If<JsonValue::Object>() != nullptr) {
      call.arguments = text::DumpJson(*arguments);
    } else {
      KURUMA_ASSIGN_OR_RETURN(auto text, function.String("arguments"));
      call.arguments = text.value_or("{}");
    }
  }
  return call;
}

Result<std::vector<text::ToolCall>> ParseCalls(const Fields& fields, const std::string& path) {
  std::vector<text::ToolCall> calls;
  KURUMA_ASSIGN_OR_RETURN(const auto* list, ArrayAt(fields, "tool_calls"));
  if (list == nullptr) return calls;
  for (size_t i = 0; i < list->size(); ++i) {
    KURUMA_ASSIGN_OR_RETURN(text::ToolCall call,
                            ParseCall((*list)[i], fmt::format("{}.tool_calls[{}]", path, i)));
    calls.push_back(std::move(call));
  }
  return calls;
}

std::optional<Role> RoleOf(std::string_view name) {
  if (name == "system" || name == "developer") return Role::kSystem;
  if (name == "user") return Role::kUser;
  if (name == "assistant") return Role::kAssistant;
  if (name == "tool" || name == "function") return Role::kTool;
  if (name == "latest_reminder") return Role::kLatestReminder;
  return std::nullopt;
}

// Reads one message after the other, with what the next one must know.
class MessageReader {
 public:
  Status Read(const JsonValue& value, size_t index, bool is_last);
  ChatMessages Take() { return std::move(result_); }

 private:
  Status ReadAssistant(const Fields& fields, bool has_content, bool is_last, Message* message);
  Status ReadTool(const Fields& fields, Message* message);
  void Keep(Message message);

  ChatMessages result_;
  bool has_calls_ = false;
};

Status MessageReader::Read(const JsonValue& value, size_t index, bool is_last) {
  const std::string path = fmt::format("messages[{}]", index);
  KURUMA_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(value, path));
  KURUMA_ASSIGN_OR_RETURN(const std::string name, RequiredString(fields, "role"));
  const std::optional<Role> role = RoleOf(name);
  if (!role) {
    return InvalidArgument(fields.Name("role") +
                           " must be system, developer, user, assistant, tool or function");
  }
  Message message;
  message.role = *role;
  KURUMA_ASSIGN_OR_RETURN(const bool has_content, ParseContent(fields, path, &message));
  if (*role == Role::kAssistant) {
    KURUMA_ASSIGN_OR_RETURN(message.tool_calls, ParseCalls(fields, path));
    KURUMA_RETURN_IF_ERROR(ReadAssistant(fields, has_content, is_last, &message));
  } else if (value.Find("content") == nullptr) {
    // Null is an empty text; leaving the member out is a mistake.
    return InvalidArgument(fields.Name("content") + " is required");
  }
  if (*role == Role::kTool) KURUMA_RETURN_IF_ERROR(ReadTool(fields, &message));
  if (*role == Role::kSystem) {
    StripBillingHeader(&message.content);
    if (const JsonValue* tools = fields.Find("tools")) {
      KURUMA_ASSIGN_OR_RETURN(message.tools, ParseTools(*tools, path + ".tools"));
    }
  }
  Keep(std::move(message));
  return {};
}

Status MessageReader::ReadAssistant(const Fields& fields, bool has_content, bool is_last,
                                    Message* message) {
  KURUMA_ASSIGN_OR_RETURN(auto reasoning, fields.String("reasoning_content"));
  KURUMA_ASSIGN_OR_RETURN(auto synonym, fields.String("reasoning"));
  KURUMA_ASSIGN_OR_RETURN(const auto prefix, fields.Bool("prefix"));
  if (!reasoning) reasoning = std::move(synonym);
  if (!has_content && message->tool_calls.empty() && !reasoning) {
    return InvalidArgument(fields.Name("content") +
                           " is required in an assistant message without tool_calls");
  }
  message->prefix = prefix.value_or(false);
  if (message->prefix && !is_last) {
    return InvalidArgument(fields.Name("prefix") + " is allowed in the last message only");
  }
  if (message->prefix && !message->tool_calls.empty()) {
    return InvalidArgument(fields.Name("prefix") + " is not allowed with tool_calls");
  }
  // An id that marks a turn without thought excuses the missing reasoning.
  const bool is_excused =
      !message->tool_calls.empty() && message->tool_calls[0].id.find("_ET_") != std::string::npos;
  if (!reasoning && !is_excused && !message->prefix) {
    result_.lacks_reasoning = true;
  }
  message->reasoning = std::move(reasoning).value_or("");
  has_calls_ = has_calls_ || !message->tool_calls.empty();
  return {};
}

Status MessageReader::ReadTool(const Fields& fields, Message* message) {
  KURUMA_ASSIGN_OR_RETURN(auto id, fields.String("tool_call_id"));
  message->tool_call_id = std::move(id).value_or("");
  if (has_calls_) return {};
  return InvalidArgument(fields.Name("role") +
                         ": a tool message must follow an assistant message with 'tool_calls'");
}

void MessageReader::Keep(Message message) {
  if (message.role == Role::kUser) result_.lacks_reasoning = false;
  // An empty system message would render a bare system token outside of thinking mode.
  const bool is_empty_system = message.role == Role::kSystem && message.content.empty() &&
                               message.images.empty() && message.tools.empty();
  if (!is_empty_system) result_.messages.push_back(std::move(message));
}

}  // namespace

void StripBillingHeader(std::string* content) {
  if (!content->starts_with(kBillingHeader)) return;
  const size_t newline = content->find('\n');
  const size_t prompt = content->find("You are");
  const size_t end = std::min(newline == std::string::npos ? newline : newline + 1, prompt);
  content->erase(0, end);
}

Result<ChatMessages> ParseMessages(const JsonValue& messages) {
  const auto* list = messages.If<JsonValue::Array>();
  if (list == nullptr) return InvalidArgument("'messages' must be an array");
  if (list->empty()) return InvalidArgument("'messages' must not be empty");
  MessageReader reader;
  for (size_t i = 0; i < list->size(); ++i) {
    KURUMA_RETURN_IF_ERROR(reader.Read((*list)[i], i, i + 1 == list->size()));
  }
  return reader.Take();
}

}  // namespace kuruma::api
