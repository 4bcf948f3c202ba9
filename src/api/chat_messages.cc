#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>
#include <utility>

#include "api/chat_parts.h"

namespace kuruma::api {
namespace {

using text::JsonValue;
using text::Message;
using text::Role;

constexpr size_t kMaxLinkBytes = 8192;
constexpr size_t kMaxToolName = 128;

// Members of `call.function` and tools; "function" is the only type.
Result<Fields> FunctionOf(const Fields& owner) {
  KURUMA_ASSIGN_OR_RETURN(const auto type, owner.String("type"));
  if (!type) return InvalidArgument(owner.Name("type") + " is required");
  if (*type != "function") {
    return InvalidArgument(fmt::format("{} must be \"function\"", owner.Name("type")));
  }
  KURUMA_ASSIGN_OR_RETURN(auto function, owner.Object("function"));
  if (!function) return InvalidArgument(owner.Name("function") + " is required");
  return *std::move(function);
}

bool StartsWithIgnoringCase(std::string_view text, std::string_view prefix) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return text.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), text.begin(),
                    [&](char a, char b) { return lower(a) == lower(b); });
}

// The image is fetched and decoded later; this refuses what can never be an image.
Status CheckImageUrl(std::string_view url, const std::string& name) {
  if (StartsWithIgnoringCase(url, "http://") || StartsWithIgnoringCase(url, "https://")) {
    if (url.size() <= kMaxLinkBytes) return {};
    return InvalidArgument(
        fmt::format("{} is {} bytes long; links may have {}", name, url.size(), kMaxLinkBytes));
  }
  constexpr std::string_view kMark = "base64,";
  const size_t mark = url.find(kMark);
  if (!StartsWithIgnoringCase(url, "data:") || mark == std::string_view::npos) {
    return InvalidArgument(name + " must be an http(s) link or a base64 data URL");
  }
  constexpr std::array<std::string_view, 4> kTypes = {"image/png", "image/jpeg", "image/gif",
                                                      "image/webp"};
  const std::string_view type = url.substr(5);
  if (std::none_of(kTypes.begin(), kTypes.end(),
                   [&](std::string_view known) { return StartsWithIgnoringCase(type, known); })) {
    return InvalidArgument(name + " must be a PNG, JPEG, GIF or WebP image");
  }
  const std::string_view data = url.substr(mark + kMark.size());
  const bool is_base64 = std::all_of(data.begin(), data.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/' || c == '=';
  });
  if (!is_base64) return InvalidArgument(name + " holds invalid base64 data");
  return {};
}

Result<text::ImageRef> ParseImageUrl(const Fields& part) {
  KURUMA_ASSIGN_OR_RETURN(const auto image, part.Object("image_url"));
  if (!image) return InvalidArgument(part.Name("image_url") + " is required");
  KURUMA_ASSIGN_OR_RETURN(auto url, image->String("url"));
  KURUMA_ASSIGN_OR_RETURN(auto detail, image->String("detail"));
  if (!url) return InvalidArgument(image->Name("url") + " is required");
  KURUMA_RETURN_IF_ERROR(CheckImageUrl(*url, image->Name("url")));
  const std::string level = detail.value_or("auto");
  if (level != "auto" && level != "low" && level != "high" && level != "original") {
    return InvalidArgument(image->Name("detail") + " must be auto, low, high or original");
  }
  return text::ImageRef{0, *std::move(url), level};
}

Result<text::ImageRef> ParseFile(const Fields& part) {
  KURUMA_ASSIGN_OR_RETURN(auto data, part.String("file_data"));
  if (part.Find("file_id") != nullptr) {
    return InvalidArgument(part.Name("file_id") +
                           " is not supported; send the image as a base64 data URL");
  }
  if (!data) return InvalidArgument(part.Name("file_data") + " is required");
  if (!StartsWithIgnoringCase(*data, "data:")) {
    return InvalidArgument(part.Name("file_data") + " must be a base64 data URL");
  }
  KURUMA_RETURN_IF_ERROR(CheckImageUrl(*data, part.Name("file_data")));
  return text::ImageRef{0, *std::move(data), "auto"};
}

Status AddPart(const JsonValue& value, const std::string& path, Message* message) {
  KURUMA_ASSIGN_OR_RETURN(const Fields part, Fields::Of(value, path));
  KURUMA_ASSIGN_OR_RETURN(const auto type, part.String("type"));
  if (!type) return InvalidArgument(part.Name("type") + " is required");
  if (*type == "text") {
    KURUMA_ASSIGN_OR_RETURN(const auto text, part.String("text"));
    if (!text) return InvalidArgument(part.Name("text") + " is required");
    message->content += *text;
    return {};
  }
  if (*type != "image_url" && *type != "file") {
    return InvalidArgument(fmt::format("{} must be text, image_url or file", part.Name("type")));
  }
  if (message->role == Role::kAssistant) {
    return InvalidArgument(fmt::format("'{}': assistant messages hold no images", path));
  }
  KURUMA_ASSIGN_OR_RETURN(text::ImageRef image,
                          *type == "file" ? ParseFile(part) : ParseImageUrl(part));
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
  KURUMA_ASSIGN_OR_RETURN(auto name, function.String("name"));
  if (!name) return InvalidArgument(function.Name("name") + " is required");
  text::ToolCall call{id.value_or(""), *std::move(name), "{}"};
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
  const JsonValue* value = fields.Find("tool_calls");
  if (value == nullptr) return calls;
  const auto* list = value->If<JsonValue::Array>();
  if (list == nullptr) return InvalidArgument(fields.Name("tool_calls") + " must be an array");
  for (size_t i = 0; i < list->size(); ++i) {
    KURUMA_ASSIGN_OR_RETURN(text::ToolCall call,
                            ParseCall((*list)[i], fmt::format("{}.tool_calls[{}]", path, i)));
    calls.push_back(std::move(call));
  }
  return calls;
}

// An agent's accounting line at the start of a system prompt is no part of the prompt, and would
// defeat the prefix cache.
void StripBillingHeader(std::string* content) {
  if (!content->starts_with("x-anthropic-billing-header")) return;
  const size_t newline = content->find('\n');
  const size_t prompt = content->find("You are");
  const size_t end = std::min(newline == std::string::npos ? newline : newline + 1, prompt);
  content->erase(0, end);
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
  KURUMA_ASSIGN_OR_RETURN(const auto name, fields.String("role"));
  if (!name) return InvalidArgument(fields.Name("role") + " is required");
  const std::optional<Role> role = RoleOf(*name);
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
    result_.missing_reasoning = static_cast<int>(result_.messages.size());
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
  if (message.role == Role::kUser) result_.missing_reasoning = -1;
  // An empty system message would render a bare system token outside of thinking mode.
  const bool is_empty_system = message.role == Role::kSystem && message.content.empty() &&
                               message.images.empty() && message.tools.empty();
  if (!is_empty_system) result_.messages.push_back(std::move(message));
}

Status CheckToolName(const std::string& name, const std::string& field) {
  const bool fits = !name.empty() && name.size() <= kMaxToolName &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                             (c >= '0' && c <= '9') || c == '_' || c == '-';
                    });
  if (fits) return {};
  return InvalidArgument(fmt::format("{} must match ^[a-zA-Z0-9_-]{{1,{}}}$", field, kMaxToolName));
}

// The outer shape of a schema for arguments; its inside is checked where the grammar is compiled.
Status CheckParameters(const JsonValue& parameters, const Fields& function) {
  const std::string name = function.Name("parameters");
  const JsonValue* type = parameters.Find("type");
  const auto* text = type == nullptr ? nullptr : type->If<std::string>();
  if (text == nullptr || *text != "object") {
    return InvalidArgument(name + " must be a JSON Schema of type \"object\"");
  }
  const JsonValue* properties = parameters.Find("properties");
  if (properties != nullptr && properties->If<JsonValue::Object>() == nullptr) {
    return InvalidArgument(name + ": 'properties' must be an object");
  }
  const JsonValue* required = parameters.Find("required");
  if (required != nullptr && required->If<JsonValue::Array>() == nullptr) {
    return InvalidArgument(name + ": 'required' must be an array");
  }
  return {};
}

Result<text::Tool> ParseTool(const JsonValue& value, std::string path) {
  KURUMA_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(value, std::move(path)));
  KURUMA_ASSIGN_OR_RETURN(const Fields function, FunctionOf(fields));
  KURUMA_ASSIGN_OR_RETURN(auto name, function.String("name"));
  KURUMA_ASSIGN_OR_RETURN(auto description, function.String("description"));
  KURUMA_ASSIGN_OR_RETURN(const auto strict, function.Bool("strict"));
  KURUMA_ASSIGN_OR_RETURN(const auto defer_loading, fields.Bool("defer_loading"));
  if (!name) return InvalidArgument(function.Name("name") + " is required");
  KURUMA_RETURN_IF_ERROR(CheckToolName(*name, function.Name("name")));
  text::Tool tool;
  tool.name = *std::move(name);
  tool.description = std::move(description).value_or("");
  tool.strict = strict.value_or(false);
  tool.defer_loading = defer_loading.value_or(false);
  if (const JsonValue* parameters = function.Find("parameters")) {
    KURUMA_RETURN_IF_ERROR(CheckParameters(*parameters, function));
    tool.parameters = text::DumpJson(*parameters);
  }
  return tool;
}

}  // namespace

Result<std::vector<text::Tool>> ParseTools(const JsonValue& tools, const std::string& path) {
  const auto* list = tools.If<JsonValue::Array>();
  if (list == nullptr) return InvalidArgument(fmt::format("'{}' must be an array", path));
  std::vector<text::Tool> result;
  std::unordered_set<std::string> names;
  for (size_t i = 0; i < list->size(); ++i) {
    KURUMA_ASSIGN_OR_RETURN(text::Tool tool, ParseTool((*list)[i], fmt::format("{}[{}]", path, i)));
    if (!names.insert(tool.name).second) {
      return InvalidArgument(fmt::format("'{}': the name \"{}\" is there twice", path, tool.name));
    }
    result.push_back(std::move(tool));
  }
  return result;
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
