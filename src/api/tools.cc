#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/request_parts.h"

namespace kuruma::api {
namespace {

using text::JsonValue;
using text::ToolChoice;

constexpr size_t kMaxToolName = 128;

// The outer shape of a schema for arguments; its inside is checked where the grammar is compiled.
Status CheckSchema(const JsonValue& schema, const std::string& field) {
  const JsonValue* type = schema.Find("type");
  const auto* text = type == nullptr ? nullptr : type->If<std::string>();
  if (text == nullptr || *text != "object") {
    return InvalidArgument(field + " must be a JSON Schema of type \"object\"");
  }
  const JsonValue* properties = schema.Find("properties");
  if (properties != nullptr && properties->If<JsonValue::Object>() == nullptr) {
    return InvalidArgument(field + ": 'properties' must be an object");
  }
  const JsonValue* required = schema.Find("required");
  if (required != nullptr && required->If<JsonValue::Array>() == nullptr) {
    return InvalidArgument(field + ": 'required' must be an array");
  }
  return {};
}

}  // namespace

Status CheckToolName(std::string_view name, const std::string& field) {
  const bool fits = !name.empty() && name.size() <= kMaxToolName &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                             (c >= '0' && c <= '9') || c == '_' || c == '-';
                    });
  if (fits) return {};
  return InvalidArgument(fmt::format("{} must match ^[a-zA-Z0-9_-]{{1,{}}}$", field, kMaxToolName));
}

Status ToolList::Add(text::Tool tool, const std::string& field) {
  if (!names_.insert(tool.name).second) {
    return InvalidArgument(fmt::format("{}: the name \"{}\" is there twice", field, tool.name));
  }
  tools_.push_back(std::move(tool));
  return {};
}

const text::Tool* ToolList::Find(std::string_view name) const {
  const auto found = std::find_if(tools_.begin(), tools_.end(),
                                  [&](const text::Tool& tool) { return tool.name == name; });
  return found == tools_.end() ? nullptr : &*found;
}

Result<Fields> FunctionOf(const Fields& owner) {
  KURUMA_ASSIGN_OR_RETURN(const std::string type, RequiredString(owner, "type"));
  if (type != "function") return InvalidArgument(owner.Name("type") + " must be \"function\"");
  return RequiredObject(owner, "function");
}

Result<text::Tool> ReadTool(const Fields& fields, std::string_view schema_key) {
  text::Tool tool;
  KURUMA_ASSIGN_OR_RETURN(tool.name, RequiredString(fields, "name"));
  KURUMA_RETURN_IF_ERROR(CheckToolName(tool.name, fields.Name("name")));
  KURUMA_ASSIGN_OR_RETURN(auto description, fields.String("description"));
  KURUMA_ASSIGN_OR_RETURN(const auto strict, fields.Bool("strict"));
  KURUMA_ASSIGN_OR_RETURN(const auto defer_loading, fields.Bool("defer_loading"));
  tool.description = std::move(description).value_or("");
  tool.strict = strict.value_or(false);
  tool.defer_loading = defer_loading.value_or(false);
  if (const JsonValue* schema = fields.Find(schema_key)) {
    KURUMA_RETURN_IF_ERROR(CheckSchema(*schema, fields.Name(schema_key)));
    tool.parameters = text::DumpJson(*schema);
  }
  return tool;
}

Result<std::vector<text::Tool>> ParseTools(const JsonValue& tools, const std::string& path) {
  const auto* list = tools.If<JsonValue::Array>();
  if (list == nullptr) return InvalidArgument(fmt::format("'{}' must be an array", path));
  ToolList result;
  for (size_t i = 0; i < list->size(); ++i) {
    KURUMA_ASSIGN_OR_RETURN(const Fields fields,
                            Fields::Of((*list)[i], fmt::format("{}[{}]", path, i)));
    KURUMA_ASSIGN_OR_RETURN(const Fields function, FunctionOf(fields));
    KURUMA_ASSIGN_OR_RETURN(text::Tool tool, ReadTool(function, "parameters"));
    KURUMA_ASSIGN_OR_RETURN(const auto defer_loading, fields.Bool("defer_loading"));
    tool.defer_loading = defer_loading.value_or(tool.defer_loading);
    KURUMA_RETURN_IF_ERROR(result.Add(std::move(tool), function.Name("name")));
  }
  return result.Take();
}

Result<bool> ReadToolChoiceWord(const JsonValue& value, std::string_view other,
                                ChatRequest* request) {
  const auto* name = value.If<std::string>();
  if (name == nullptr) return false;
  if (*name == "none") request->tool_choice = ToolChoice::kNone;
  if (*name == "required") request->tool_choice = ToolChoice::kRequired;
  if (*name == "none" || *name == "auto" || *name == "required") return true;
  return InvalidArgument(fmt::format("'tool_choice' must be none, auto, required or {}", other));
}

Status RequireTool(std::string name, const std::string& field, ChatRequest* request) {
  const auto& tools = request->conversation.tools;
  if (std::none_of(tools.begin(), tools.end(),
                   [&](const text::Tool& tool) { return tool.name == name; })) {
    return InvalidArgument(fmt::format("{}: 'tools' has no function \"{}\"", field, name));
  }
  request->tool_choice = ToolChoice::kRequired;
  request->named_tool = std::move(name);
  return {};
}

void ShowToolChoice(const ChatOptions& options, ChatRequest* request) {
  text::Conversation& conversation = request->conversation;
  // Without tools there is nothing to require.
  if (conversation.tools.empty() && request->tool_choice == ToolChoice::kRequired) {
    request->tool_choice = ToolChoice::kAuto;
  }
  conversation.tool_choice = request->tool_choice;
  conversation.keeps_loop_reasoning = !options.reference_prompts;
  if (options.reference_prompts) {
    if (!request->named_tool.empty()) {
      std::erase_if(conversation.tools,
                    [&](const text::Tool& tool) { return tool.name != request->named_tool; });
    }
  } else if (request->tool_choice == ToolChoice::kRequired && conversation.thinking) {
    conversation.tool_choice = ToolChoice::kAuto;
  }
}

}  // namespace kuruma::api
