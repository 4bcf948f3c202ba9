#include "api/message_blocks.h"

#include <fmt/format.h>

#include <utility>

namespace kuruma::api {
namespace {

using text::JsonValue;
using text::Message;
using text::Role;

constexpr std::string_view kJoint = "\n\n";

// {"type": "base64", "media_type", "data"} or {"type": "url", "url"}.
Result<text::ImageRef> ReadImage(const Fields& block) {
  KURUMA_ASSIGN_OR_RETURN(const Fields source, RequiredObject(block, "source"));
  KURUMA_ASSIGN_OR_RETURN(const std::string type, RequiredString(source, "type"));
  text::ImageRef image{0, "", "auto"};
  if (type == "url") {
    KURUMA_ASSIGN_OR_RETURN(image.url, RequiredString(source, "url"));
    KURUMA_RETURN_IF_ERROR(CheckImageUrl(image.url, source.Name("url")));
    return image;
  }
  if (type != "base64") {
    return InvalidArgument(source.Name("type") + " must be base64 or url");
  }
  KURUMA_ASSIGN_OR_RETURN(std::string media, RequiredString(source, "media_type"));
  KURUMA_ASSIGN_OR_RETURN(const std::string data, RequiredString(source, "data"));
  if (media == "image/jpg") media = "image/jpeg";  // a common mistake
  if (media != "image/png" && media != "image/jpeg" && media != "image/gif" &&
      media != "image/webp") {
    return InvalidArgument(source.Name("media_type") +
                           " must be image/jpeg, image/png, image/gif or image/webp");
  }
  image.url = "data:" + media + ";base64," + data;
  KURUMA_RETURN_IF_ERROR(CheckDataUrl(image.url, source.Name("data")));
  return image;
}

// Documents are not read; the model is told that there was one.
Result<std::string> ReadDocument(const Fields& block) {
  KURUMA_ASSIGN_OR_RETURN(const auto source, block.Object("source"));
  std::optional<std::string> media;
  if (source) {
    KURUMA_ASSIGN_OR_RETURN(media, source->String("media_type"));
  }
  return "[Unsupported document type: " + std::move(media).value_or("unknown") + "]";
}

Status WrongPlace(const Fields& block, const std::string& type, const char* role) {
  return InvalidArgument(
      fmt::format("{}: {} blocks belong in {} messages", block.Name("type"), type, role));
}

Status UnknownBlock(const Fields& block, const std::string& type) {
  return InvalidArgument(fmt::format("{}: unknown block type \"{}\"", block.Name("type"), type));
}

// What servers with tools of their own wrote into the history.
bool IsServerToolBlock(std::string_view type) {
  return type == "server_tool_use" || type == "mcp_tool_use" ||
         (type.ends_with("_tool_result") && type != "tool_result");
}

// The fields of each block in turn.
template <typename F>
Status ForEachBlock(const Fields& owner, std::string_view key, const JsonValue::Array& blocks,
                    const F& read) {
  const std::string path = PathOf(owner, key);
  for (size_t i = 0; i < blocks.size(); ++i) {
    KURUMA_ASSIGN_OR_RETURN(const Fields block,
                            Fields::Of(blocks[i], fmt::format("{}[{}]", path, i)));
    KURUMA_ASSIGN_OR_RETURN(const std::string type, RequiredString(block, "type"));
    KURUMA_RETURN_IF_ERROR(read(block, type));
  }
  return {};
}

}  // namespace

Status BlockReader::ReadSystem(const Fields& body) {
  const JsonValue* value = body.Find("system");
  if (value == nullptr) return {};
  Message message;
  message.role = Role::kSystem;
  if (const auto* text = value->If<std::string>()) {
    message.content = *text;
    StripBillingHeader(&message.content);
    Add(std::move(message));
    return {};
  }
  const auto* blocks = value->If<JsonValue::Array>();
  if (blocks == nullptr) return InvalidArgument("'system' must be a string or an array of blocks");
  bool is_first = true;
  bool has_text = false;
  KURUMA_RETURN_IF_ERROR(ForEachBlock(
      body, "system", *blocks, [&](const Fields& block, const std::string& type) -> Status {
        if (type != "text") return InvalidArgument(block.Name("type") + " must be text");
        KURUMA_ASSIGN_OR_RETURN(const std::string text, RequiredString(block, "text"));
        const bool is_accounting =
            std::exchange(is_first, false) && text.starts_with(kBillingHeader);
        if (is_accounting) return {};
        if (std::exchange(has_text, true)) message.content += kJoint;
        message.content += text;
        return {};
      }));
  Add(std::move(message));
  return {};
}

Status BlockReader::ReadMessages(const Fields& body) {
  KURUMA_ASSIGN_OR_RETURN(const auto* list, ArrayAt(body, "messages"));
  if (list == nullptr) return InvalidArgument("'messages' is required");
  if (list->empty()) return InvalidArgument("'messages' must not be empty");
  for (size_t i = 0; i < list->size(); ++i) {
    KURUMA_RETURN_IF_ERROR(ReadMessage((*list)[i], fmt::format("messages[{}]", i)));
  }
  return {};
}

Status BlockReader::ReadMessage(const JsonValue& value, std::string path) {
  KURUMA_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(value, std::move(path)));
  KURUMA_ASSIGN_OR_RETURN(const std::string role, RequiredString(fields, "role"));
  if (role != "user" && role != "assistant" && role != "system") {
    return InvalidArgument(fields.Name("role") + " must be user, assistant or system");
  }
  const JsonValue* content = fields.Find("content");
  if (content == nullptr) return InvalidArgument(fields.Name("content") + " is required");
  JsonValue::Array text_block;
  const auto* blocks = content->If<JsonValue::Array>();
  if (content->If<std::string>() != nullptr) {
    text_block.push_back({JsonValue::Object{{"type", {std::string("text")}}, {"text", *content}}});
    blocks = &text_block;
  }
  if (blocks == nullptr) {
    return InvalidArgument(fields.Name("content") + " must be a string or an array of blocks");
  }
  if (blocks->empty()) return InvalidArgument(fields.Name("content") + " must not be empty");
  if (role == "user") return ReadUser(fields, *blocks);
  if (role == "assistant") return ReadAssistant(fields, *blocks);
  return ReadSystemMessage(fields, *blocks);
}

Status BlockReader::ReadUser(const Fields& message, const JsonValue::Array& blocks) {
  KURUMA_RETURN_IF_ERROR(ForEachBlock(message, "content", blocks,
                                      [&](const Fields& block, const std::string& type) -> Status {
                                        if (type == "tool_result") return ReadToolResult(block);
                                        AddReferences();
                                        return ReadUserBlock(block, type);
                                      }));
  AddReferences();
  return {};
}

Status BlockReader::ReadUserBlock(const Fields& block, const std::string& type) {
  Message message;
  message.role = Role::kUser;
  if (type == "text") {
    KURUMA_ASSIGN_OR_RETURN(message.content, RequiredString(block, "text"));
  } else if (type == "image") {
    KURUMA_ASSIGN_OR_RETURN(text::ImageRef image, ReadImage(block));
    message.images.push_back(std::move(image));
  } else if (type == "document") {
    KURUMA_ASSIGN_OR_RETURN(message.content, ReadDocument(block));
  } else if (type == "tool_addition") {
    return WrongPlace(block, type, "system");
  } else if (type == "thinking" || type == "redacted_thinking" || type == "tool_use" ||
             IsServerToolBlock(type)) {
    return WrongPlace(block, type, "assistant");
  } else {
    return UnknownBlock(block, type);
  }
  Add(std::move(message));
  return {};
}

Status BlockReader::ReadToolResult(const Fields& block) {
  Message message;
  message.role = Role::kTool;
  KURUMA_ASSIGN_OR_RETURN(message.tool_call_id, RequiredString(block, "tool_use_id"));
  if (!has_calls_) {
    return InvalidArgument(block.Name("tool_use_id") +
                           ": a tool_result must follow an assistant message with tool_use");
  }
  const JsonValue* content = block.Find("content");
  if (content != nullptr && content->If<JsonValue::Array>() != nullptr) {
    bool is_first = true;
    KURUMA_RETURN_IF_ERROR(ForEachBlock(block, "content", *content->If<JsonValue::Array>(),
                                        [&](const Fields& part, const std::string&) -> Status {
                                          if (!std::exchange(is_first, false))
                                            message.content += kJoint;
                                          return ReadToolResultPart(part, &message);
                                        }));
  } else {
    KURUMA_ASSIGN_OR_RETURN(auto text, block.String("content"));
    message.content = std::move(text).value_or("");
  }
  Add(std::move(message));
  return {};
}

Status BlockReader::ReadToolResultPart(const Fields& part, Message* message) {
  KURUMA_ASSIGN_OR_RETURN(const std::string type, RequiredString(part, "type"));
  if (type == "text") {
    KURUMA_ASSIGN_OR_RETURN(const std::string text, RequiredString(part, "text"));
    message->content += text;
    return {};
  }
  if (type == "image") {
    KURUMA_ASSIGN_OR_RETURN(text::ImageRef image, ReadImage(part));
    image.offset = message->content.size();
    message->images.push_back(std::move(image));
    return {};
  }
  if (type == "document") {
    KURUMA_ASSIGN_OR_RETURN(const std::string note, ReadDocument(part));
    message->content += note;
    return {};
  }
  if (type != "tool_reference") return UnknownBlock(part, type);
  KURUMA_ASSIGN_OR_RETURN(const std::string name, RequiredString(part, "tool_name"));
  KURUMA_ASSIGN_OR_RETURN(text::Tool tool, Declared(name, part.Name("tool_name")));
  message->content += name;
  references_.push_back(std::move(tool));
  return {};
}

Status BlockReader::ReadAssistant(const Fields& message, const JsonValue::Array& blocks) {
  Message result;
  result.role = Role::kAssistant;
  has_text_ = false;
  has_thinking_ = false;
  KURUMA_RETURN_IF_ERROR(ForEachBlock(
      message, "content", blocks,
      [&](const Fields& block, const std::string&) { return ReadAssistantBlock(block, &result); }));
  has_calls_ = has_calls_ || !result.tool_calls.empty();
  // An id that marks a turn without thought excuses the missing reasoning.
  const bool is_excused =
      !result.tool_calls.empty() && result.tool_calls[0].id.find("_ET_") != std::string::npos;
  lacks_reasoning_ = lacks_reasoning_ || (!has_thinking_ && !is_excused);
  Add(std::move(result));
  return {};
}

Status BlockReader::ReadAssistantBlock(const Fields& block, Message* message) {
  KURUMA_ASSIGN_OR_RETURN(const std::string type, RequiredString(block, "type"));
  if (type == "text") {
    KURUMA_ASSIGN_OR_RETURN(const std::string text, RequiredString(block, "text"));
    if (std::exchange(has_text_, true)) message->content += kJoint;
    message->content += text;
    return {};
  }
  if (type == "thinking") {
    KURUMA_ASSIGN_OR_RETURN(const std::string text, RequiredString(block, "thinking"));
    if (std::exchange(has_thinking_, true)) message->reasoning += kJoint;
    message->reasoning += text;
    return {};
  }
  if (type == "tool_use") {
    text::ToolCall call;
    KURUMA_ASSIGN_OR_RETURN(call.id, RequiredString(block, "id"));
    KURUMA_ASSIGN_OR_RETURN(call.name, RequiredString(block, "name"));
    const JsonValue* input = block.Find("input");
    call.arguments = input == nullptr ? "null" : text::DumpJson(*input);
    message->tool_calls.push_back(std::move(call));
    return {};
  }
  // Thoughts that only their server can read, and work of tools that are not here.
  if (type == "redacted_thinking" || IsServerToolBlock(type)) return {};
  if (type == "tool_addition") return WrongPlace(block, type, "system");
  if (type == "image" || type == "document" || type == "tool_result") {
    return WrongPlace(block, type, "user");
  }
  return UnknownBlock(block, type);
}

Status BlockReader::ReadSystemMessage(const Fields& fields, const JsonValue::Array& blocks) {
  Message message;
  message.role = Role::kSystem;
  bool has_text = false;
  KURUMA_RETURN_IF_ERROR(ForEachBlock(
      fields, "content", blocks, [&](const Fields& block, const std::string& type) -> Status {
        if (type == "text") {
          KURUMA_ASSIGN_OR_RETURN(const std::string text, RequiredString(block, "text"));
          if (std::exchange(has_text, true)) message.content += kJoint;
          message.content += text;
          return {};
        }
        if (type != "tool_addition") return UnknownBlock(block, type);
        KURUMA_ASSIGN_OR_RETURN(const Fields reference, RequiredObject(block, "tool"));
        KURUMA_ASSIGN_OR_RETURN(const std::string name, RequiredString(reference, "name"));
        KURUMA_ASSIGN_OR_RETURN(text::Tool tool, Declared(name, reference.Name("name")));
        message.tools.push_back(std::move(tool));
        return {};
      }));
  Add(std::move(message));
  return {};
}

Result<text::Tool> BlockReader::Declared(const std::string& name, const std::string& field) const {
  const text::Tool* tool = tools_.Find(name);
  if (tool == nullptr) {
    return InvalidArgument(fmt::format("{}: 'tools' has no tool \"{}\"", field, name));
  }
  return *tool;
}

void BlockReader::Add(Message message) {
  if (message.role == Role::kUser) lacks_reasoning_ = false;
  messages_.push_back(std::move(message));
}

// Tools that results referred to are declared behind the results.
void BlockReader::AddReferences() {
  if (references_.empty()) return;
  Message message;
  message.role = Role::kSystem;
  message.tools = std::exchange(references_, {});
  Add(std::move(message));
}

}  // namespace kuruma::api
