#include "api/response_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace kuruma::api {
namespace {

using text::JsonValue;
using text::Message;
using text::Role;

constexpr std::string_view kJoint = "\n\n";
constexpr const char* kPatchTool = "apply_patch";
constexpr const char* kSearchTool = "tool_search";

// JSON without spaces.
std::string Compact(const JsonValue& value) {
  return nlohmann::ordered_json::parse(text::DumpJson(value)).dump();
}

// A tool as a search lists it to the model: its known members, absent ones as null.
std::string ListedTool(const Fields& tool) {
  std::string out = "{\"type\":\"function\"";
  for (const char* key : {"name", "description", "parameters", "strict"}) {
    const JsonValue* member = tool.Find(key);
    out += fmt::format(",\"{}\":{}", key, member == nullptr ? "null" : Compact(*member));
  }
  return out + "}";
}

// A tool that takes a text. The model sees a function with one argument.
Status AddCustomTool(const Fields& fields, ResponseTools* tools) {
  text::Tool tool;
  KURUMA_ASSIGN_OR_RETURN(tool.name, RequiredString(fields, "name"));
  if (tool.name != kPatchTool) {
    return InvalidArgument(
        fmt::format("{}: of custom tools only {} is supported", fields.Name("name"), kPatchTool));
  }
  KURUMA_ASSIGN_OR_RETURN(auto description, fields.String("description"));
  tool.description = std::move(description).value_or("");
  KURUMA_ASSIGN_OR_RETURN(const auto format, fields.Object("format"));
  if (format) {
    KURUMA_ASSIGN_OR_RETURN(const auto definition, format->String("definition"));
    if (definition) tool.description += "\n\nGrammar of the input:\n" + *definition;
  }
  tool.parameters =
      R"({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]})";
  tools->custom.push_back(tool.name);
  return tools->list.Add(std::move(tool), fields.Name("name"));
}

Status AddNamespace(const Fields& fields, bool deferred, ResponseTools* tools) {
  KURUMA_ASSIGN_OR_RETURN(const std::string name_space, RequiredString(fields, "name"));
  KURUMA_RETURN_IF_ERROR(CheckToolName(name_space, fields.Name("name")));
  KURUMA_ASSIGN_OR_RETURN(const auto description, fields.String("description"));
  KURUMA_ASSIGN_OR_RETURN(const auto* list, ArrayAt(fields, "tools"));
  if (list == nullptr) return InvalidArgument(fields.Name("tools") + " is required");
  for (size_t i = 0; i < list->size(); ++i) {
    KURUMA_ASSIGN_OR_RETURN(
        const Fields member,
        Fields::Of((*list)[i], fmt::format("{}[{}]", PathOf(fields, "tools"), i)));
    KURUMA_ASSIGN_OR_RETURN(const std::string type, RequiredString(member, "type"));
    if (type != "function") {
      return InvalidArgument(member.Name("type") + ": a namespace holds functions only");
    }
    KURUMA_ASSIGN_OR_RETURN(text::Tool tool, ReadTool(member, "parameters"));
    NamespacedTool entry{FullName(name_space, tool.name), name_space, tool.name};
    tool.name = entry.full_name;
    if (description) tool.description = *description + "\n" + tool.description;
    tool.defer_loading = tool.defer_loading || deferred;
    KURUMA_RETURN_IF_ERROR(tools->list.Add(std::move(tool), member.Name("name")));
    tools->namespaced.push_back(std::move(entry));
  }
  return {};
}

std::optional<Role> RoleOf(std::string_view name) {
  if (name == "user") return Role::kUser;
  if (name == "assistant") return Role::kAssistant;
  if (name == "system" || name == "developer") return Role::kSystem;
  return std::nullopt;
}

}  // namespace

std::string FullName(const std::string& name_space, const std::string& name) {
  return fmt::format("{}::{}", name_space, name);
}

Status AddResponseTool(const JsonValue& value, const std::string& path, bool deferred,
                       ResponseTools* tools) {
  KURUMA_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(value, path));
  KURUMA_ASSIGN_OR_RETURN(const std::string type, RequiredString(fields, "type"));
  if (type == "custom") return AddCustomTool(fields, tools);
  if (type == "namespace") return AddNamespace(fields, deferred, tools);
  if (type == "tool_search") {
    KURUMA_ASSIGN_OR_RETURN(const auto execution, fields.String("execution"));
    if (execution.value_or("") != "client") return {};
    text::Tool tool;
    tool.name = kSearchTool;
    KURUMA_ASSIGN_OR_RETURN(auto description, fields.String("description"));
    tool.description = std::move(description).value_or("");
    if (const JsonValue* schema = fields.Find("parameters")) {
      tool.parameters = text::DumpJson(*schema);
    }
    return tools->list.Add(std::move(tool), fields.Name("type"));
  }
  if (type != "function") return {};
  KURUMA_ASSIGN_OR_RETURN(text::Tool tool, ReadTool(fields, "parameters"));
  tool.defer_loading = tool.defer_loading || deferred;
  return tools->list.Add(std::move(tool), fields.Name("name"));
}

Status ItemReader::Read(const Fields& body) {
  KURUMA_ASSIGN_OR_RETURN(auto instructions, body.String("instructions"));
  if (instructions && !instructions->empty()) {
    Message message;
    message.role = Role::kSystem;
    message.content = *instructions;
    AddClosed(std::move(message));
  }
  const JsonValue* input = body.Find("input");
  if (input == nullptr) {
    if (instructions) return {};
    return InvalidArgument("'input' or 'instructions' is required");
  }
  if (const auto* text = input->If<std::string>()) {
    Message message;
    message.content = *text;
    AddClosed(std::move(message));
    return {};
  }
  const auto* items = input->If<JsonValue::Array>();
  if (items == nullptr) return InvalidArgument("'input' must be a string or an array of items");
  if (items->empty()) return InvalidArgument("'input' must not be empty");
  for (size_t i = 0; i < items->size(); ++i) {
    KURUMA_RETURN_IF_ERROR(ReadItem((*items)[i], fmt::format("input[{}]", i)));
  }
  return {};
}

Status ItemReader::ReadItem(const JsonValue& value, const std::string& path) {
  KURUMA_ASSIGN_OR_RETURN(const Fields item, Fields::Of(value, path));
  KURUMA_ASSIGN_OR_RETURN(const auto type, item.String("type"));
  if (!type && item.Find("role") == nullptr) {
    return InvalidArgument(item.Name("type") + " is required");
  }
  if (!type || *type == "message") return ReadMessage(item);
  if (*type == "reasoning") return ReadReasoning(item);
  if (*type == "function_call" || *type == "custom_tool_call" || *type == "tool_search_call") {
    return ReadCall(item, *type);
  }
  if (*type == "function_call_output" || *type == "custom_tool_call_output") {
    return ReadOutput(item);
  }
  if (*type == "tool_search_output") return ReadSearchOutput(item);
  if (*type == "item_reference") {
    return InvalidArgument(item.Name("type") +
                           ": this server keeps no items; send the item itself");
  }
  return {};  // the work of tools that other servers run
}

Status ItemReader::ReadMessage(const Fields& item) {
  KURUMA_ASSIGN_OR_RETURN(const std::string name, RequiredString(item, "role"));
  const std::optional<Role> role = RoleOf(name);
  if (!role) {
    return InvalidArgument(item.Name("role") + " must be user, assistant, system or developer");
  }
  Message message;
  message.role = *role;
  KURUMA_RETURN_IF_ERROR(ReadContent(item, "content", &message));
  if (*role != Role::kAssistant) {
    AddClosed(std::move(message));
    return {};
  }
  Message& open = OpenAssistant();
  if (std::exchange(has_text_, true)) open.content += kJoint;
  open.content += message.content;
  return {};
}

// A string, or parts joined by an empty line.
Status ItemReader::ReadContent(const Fields& owner, std::string_view key, Message* message) {
  const JsonValue* content = owner.Find(key);
  if (content == nullptr) return InvalidArgument(owner.Name(key) + " is required");
  if (const auto* text = content->If<std::string>()) {
    message->content = *text;
    return {};
  }
  const auto* parts = content->If<JsonValue::Array>();
  if (parts == nullptr) {
    return InvalidArgument(owner.Name(key) + " must be a string or an array of parts");
  }
  const std::string path = PathOf(owner, key);
  for (size_t i = 0; i < parts->size(); ++i) {
    if (i > 0) message->content += kJoint;
    KURUMA_ASSIGN_OR_RETURN(const Fields part,
                            Fields::Of((*parts)[i], fmt::format("{}[{}]", path, i)));
    KURUMA_RETURN_IF_ERROR(ReadPart(part, message));
  }
  return {};
}

Status ItemReader::ReadPart(const Fields& part, Message* message) {
  KURUMA_ASSIGN_OR_RETURN(const std::string type, RequiredString(part, "type"));
  if (type == "input_text" || type == "output_text") {
    KURUMA_ASSIGN_OR_RETURN(const std::string text, RequiredString(part, "text"));
    message->content += text;
    return {};
  }
  if (type == "input_file") {
    message->content += "[Unsupported Document]";
    return {};
  }
  if (type != "input_image") {
    return InvalidArgument(part.Name("type") +
                           " must be input_text, output_text, input_image or input_file");
  }
  if (message->role == Role::kAssistant) {
    return InvalidArgument(part.Name("type") + ": assistant messages hold no images");
  }
  if (part.Find("file_id") != nullptr) {
    return InvalidArgument(part.Name("file_id") +
                           " is not supported; send the image as a base64 data URL");
  }
  text::ImageRef image;
  image.offset = message->content.size();
  KURUMA_ASSIGN_OR_RETURN(image.url, RequiredString(part, "image_url"));
  KURUMA_ASSIGN_OR_RETURN(image.detail, ReadDetail(part));
  KURUMA_RETURN_IF_ERROR(CheckImageUrl(image.url, part.Name("image_url")));
  message->images.push_back(std::move(image));
  return {};
}

Status ItemReader::ReadReasoning(const Fields& item) {
  KURUMA_ASSIGN_OR_RETURN(const auto* parts, ArrayAt(item, "content"));
  std::string reasoning;
  for (size_t i = 0; parts != nullptr && i < parts->size(); ++i) {
    KURUMA_ASSIGN_OR_RETURN(
        const Fields part,
        Fields::Of((*parts)[i], fmt::format("{}[{}]", PathOf(item, "content"), i)));
    KURUMA_ASSIGN_OR_RETURN(const std::string text, RequiredString(part, "text"));
    if (i > 0) reasoning += "\n";
    reasoning += text;
  }
  // A thought after text or calls is the beginning of another turn.
  if (is_open_ && (has_text_ || !messages_.back().tool_calls.empty())) is_open_ = false;
  Message& open = OpenAssistant();
  if (!open.reasoning.empty() && !reasoning.empty()) open.reasoning += "\n";
  open.reasoning += reasoning;
  return {};
}

Status ItemReader::ReadCall(const Fields& item, const std::string& type) {
  text::ToolCall call;
  KURUMA_ASSIGN_OR_RETURN(call.id, RequiredString(item, "call_id"));
  if (call.id.empty()) return InvalidArgument(item.Name("call_id") + " must not be empty");
  if (type == "tool_search_call") {
    call.name = kSearchTool;
    const JsonValue* arguments = item.Find("arguments");
    call.arguments = arguments == nullptr ? "{}" : text::DumpJson(*arguments);
  } else if (type == "custom_tool_call") {
    KURUMA_ASSIGN_OR_RETURN(call.name, RequiredString(item, "name"));
    KURUMA_ASSIGN_OR_RETURN(const std::string input, RequiredString(item, "input"));
    call.arguments = "{\"input\": ";
    text::AppendJsonString(input, &call.arguments);
    call.arguments += "}";
  } else {
    KURUMA_ASSIGN_OR_RETURN(call.name, RequiredString(item, "name"));
    KURUMA_ASSIGN_OR_RETURN(call.arguments, RequiredString(item, "arguments"));
    KURUMA_ASSIGN_OR_RETURN(const auto name_space, item.String("namespace"));
    if (name_space) call.name = FullName(*name_space, call.name);
  }
  OpenAssistant().tool_calls.push_back(std::move(call));
  has_calls_ = true;
  return {};
}

Status ItemReader::ReadOutput(const Fields& item) {
  Message message;
  message.role = Role::kTool;
  KURUMA_ASSIGN_OR_RETURN(auto id, item.String("call_id"));
  message.tool_call_id = std::move(id).value_or("");
  if (!has_calls_ && !message.tool_call_id.empty()) {
    return InvalidArgument(item.Name("call_id") + ": an output must follow a call");
  }
  KURUMA_RETURN_IF_ERROR(ReadContent(item, "output", &message));
  AddClosed(std::move(message));
  return {};
}

// The tools that a search found are listed in its result and declared behind it.
Status ItemReader::ReadSearchOutput(const Fields& item) {
  Message result;
  result.role = Role::kTool;
  KURUMA_ASSIGN_OR_RETURN(auto id, item.String("call_id"));
  result.tool_call_id = std::move(id).value_or("");
  KURUMA_ASSIGN_OR_RETURN(const auto* list, ArrayAt(item, "tools"));
  if (list == nullptr) return InvalidArgument(item.Name("tools") + " is required");
  const std::string path = PathOf(item, "tools");
  ResponseTools found;
  std::string listing(1, '[');
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string place = fmt::format("{}[{}]", path, i);
    KURUMA_ASSIGN_OR_RETURN(const Fields tool, Fields::Of((*list)[i], place));
    KURUMA_ASSIGN_OR_RETURN(const std::string type, RequiredString(tool, "type"));
    if (i > 0) listing += ',';
    listing += type == "function" ? ListedTool(tool) : Compact((*list)[i]);
    KURUMA_RETURN_IF_ERROR(AddResponseTool((*list)[i], place, /*deferred=*/true, &found));
  }
  result.content = listing + ']';
  AddClosed(std::move(result));
  Message declaration;
  declaration.role = Role::kSystem;
  declaration.tools = found.list.tools();
  // Several searches may find the same tool.
  for (const text::Tool& tool : declaration.tools) {
    if (tools_->list.Find(tool.name) != nullptr) continue;
    KURUMA_RETURN_IF_ERROR(tools_->list.Add(tool, item.Name("tools")));
  }
  for (NamespacedTool& tool : found.namespaced) {
    const auto is_same = [&](const NamespacedTool& other) {
      return other.full_name == tool.full_name;
    };
    auto& known = tools_->namespaced;
    if (std::none_of(known.begin(), known.end(), is_same)) known.push_back(std::move(tool));
  }
  if (!declaration.tools.empty()) AddClosed(std::move(declaration));
  return {};
}

Message& ItemReader::OpenAssistant() {
  if (!is_open_) {
    Message message;
    message.role = Role::kAssistant;
    messages_.push_back(std::move(message));
    is_open_ = true;
    has_text_ = false;
  }
  return messages_.back();
}

void ItemReader::AddClosed(Message message) {
  is_open_ = false;
  // An empty system message would render a bare system token outside of thinking mode.
  const bool is_empty_system = message.role == Role::kSystem && message.content.empty() &&
                               message.images.empty() && message.tools.empty();
  if (!is_empty_system) messages_.push_back(std::move(message));
}

bool ItemReader::lacks_reasoning() const {
  for (auto it = messages_.rbegin(); it != messages_.rend() && it->role != Role::kUser; ++it) {
    if (it->role != Role::kAssistant || !it->reasoning.empty()) continue;
    // An id that marks a turn without thought excuses the missing reasoning.
    const bool is_excused =
        !it->tool_calls.empty() && it->tool_calls[0].id.find("_ET_") != std::string::npos;
    if (!is_excused) return true;
  }
  return false;
}

}  // namespace kuruma::api
