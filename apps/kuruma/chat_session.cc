#include "chat_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/chat.h"
#include "inputs.h"
#include "report.h"

namespace kuruma {
namespace {

using Json = nlohmann::ordered_json;

text::Message MakeMessage(text::Role role, std::string content) {
  text::Message message;
  message.role = role;
  message.content = std::move(content);
  return message;
}

const char* RoleName(text::Role role) {
  switch (role) {
    case text::Role::kSystem:
      return "system";
    case text::Role::kUser:
      return "user";
    case text::Role::kAssistant:
      return "assistant";
    case text::Role::kTool:
      return "tool";
    case text::Role::kLatestReminder:
      break;
  }
  return "latest_reminder";
}

Json ToJson(const text::Message& message) {
  Json out{{"role", RoleName(message.role)}, {"content", message.content}};
  if (!message.reasoning.empty()) out["reasoning_content"] = message.reasoning;
  if (!message.tool_call_id.empty()) out["tool_call_id"] = message.tool_call_id;
  for (const text::ToolCall& call : message.tool_calls) {
    out["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return out;
}

// Tools of a Chat Completions list, checked as the API checks them.
Result<std::vector<text::Tool>> ParseTools(const std::string& list) {
  const std::string body =
      "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],\"tools\":" + list + "}";
  KURUMA_ASSIGN_OR_RETURN(const api::ChatRequest request,
                          api::ParseChatRequest(body, api::ChatOptions()));
  return request.conversation.tools;
}

}  // namespace

struct ChatSession::CommandEntry {
  const char* name;
  const char* argument;
  const char* help;
  Result<std::string> (ChatSession::*run)(const std::string& argument);
};

const std::vector<ChatSession::CommandEntry>& ChatSession::Commands() {
  static const std::vector<CommandEntry> commands = {
      {"/help", "", "this list", &ChatSession::ShowHelp},
      {"/reset", "", "forget the conversation, keep the settings", &ChatSession::RunReset},
      {"/system", "TEXT", "set the system message and begin anew; \"off\": none",
       &ChatSession::RunSystem},
      {"/think", "MODE", "reasoning before each answer: off, low, high, max",
       &ChatSession::RunThink},
      {"/tools", "FILE", "tools the model may call, a JSON list; \"off\": none",
       &ChatSession::RunTools},
      {"/save", "FILE", "write the conversation as a Chat Completions body", &ChatSession::RunSave},
      {"/seed", "N", "make the next answers repeatable; \"off\": a new seed each time",
       &ChatSession::RunSeed},
      {"/quit", "", "leave, as Ctrl-D does", &ChatSession::RunQuit},
  };
  return commands;
}

Status ChatSession::SetThinking(const std::string& mode) {
  if (mode == "off" || mode == "none") {
    conversation_.thinking = false;
  } else {
    const std::optional<int> effort = text::EffortOfLabel(mode == "on" ? "high" : mode);
    if (!effort) {
      return InvalidArgument(
          fmt::format("thinking: expected off, low, high or max, got \"{}\"", mode));
    }
    conversation_.thinking = true;
    conversation_.effort = *effort;
  }
  think_mode_ = mode;
  return Status();
}

void ChatSession::SetSystem(const std::string& text) {
  system_ = text;
  Forget();
}

Status ChatSession::LoadTools(const std::string& path) {
  if (path.empty()) {
    conversation_.tools.clear();
    tools_json_.clear();
    return Status();
  }
  KURUMA_ASSIGN_OR_RETURN(const std::string text, ReadInput(path));
  const auto json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument(path + ": not valid JSON");
  if (!json.is_array()) return InvalidArgument(path + ": expected a JSON list of tools");
  auto tools = ParseTools(text);
  if (!tools.ok()) return InvalidArgument(path + ": " + tools.status().message());
  conversation_.tools = *std::move(tools);
  tools_json_ = text;
  return Status();
}

Result<std::string> ChatSession::Command(std::string_view line) {
  const std::string text(Strip(line));
  const size_t space = std::min(text.find_first_of(" \t"), text.size());
  const std::string name = text.substr(0, space);
  for (const CommandEntry& command : Commands()) {
    if (name != command.name && !(name == "/exit" && command.run == &ChatSession::RunQuit)) {
      continue;
    }
    const std::string argument(Strip(std::string_view(text).substr(space)));
    if (*command.argument == '\0' && !argument.empty()) {
      return InvalidArgument(fmt::format("{} takes no argument", name));
    }
    return (this->*command.run)(argument);
  }
  return InvalidArgument(fmt::format("unknown command {}; /help lists them", name));
}

bool ChatSession::AddLine(const std::string& line) {
  if (Strip(line).empty()) {
    results_missing_ = 0;
    return false;
  }
  if (results_missing_ == 0) {
    conversation_.messages.push_back(MakeMessage(text::Role::kUser, line));
    return true;
  }
  text::Message result = MakeMessage(text::Role::kTool, line);
  result.tool_call_id = AwaitedCall().id;
  conversation_.messages.push_back(std::move(result));
  return --results_missing_ == 0;
}

void ChatSession::AddAnswer(const std::optional<text::ParsedAnswer>& answer) {
  if (!answer) {
    if (conversation_.messages.back().role == text::Role::kTool) ++results_missing_;
    conversation_.messages.pop_back();
    return;
  }
  text::Message message = MakeMessage(text::Role::kAssistant, answer->content);
  message.reasoning = answer->reasoning;
  for (const text::ParsedCall& call : answer->calls) {
    if (!call.complete) continue;
    const std::string id =
        fmt::format("call_{}_{}", conversation_.messages.size(), message.tool_calls.size());
    message.tool_calls.push_back({id, call.name, call.arguments});
  }
  results_missing_ = message.tool_calls.size();
  conversation_.messages.push_back(std::move(message));
}

ChatSession::View ChatSession::view() const {
  View view{conversation_, seed_, "", ended_};
  if (results_missing_ > 0) view.waiting = AwaitedCall().name;
  return view;
}

// The first call of the last answer that has no result yet; there is one.
const text::ToolCall& ChatSession::AwaitedCall() const {
  const auto& messages = conversation_.messages;
  const auto asks = std::find_if(messages.rbegin(), messages.rend(),
                                 [](const text::Message& m) { return !m.tool_calls.empty(); });
  return asks->tool_calls[asks->tool_calls.size() - results_missing_];
}

void ChatSession::Forget() {
  conversation_.messages.clear();
  results_missing_ = 0;
  if (!system_.empty()) {
    conversation_.messages.push_back(MakeMessage(text::Role::kSystem, system_));
  }
}

Result<std::string> ChatSession::ShowHelp(const std::string&) {
  std::string out;
  for (const CommandEntry& command : Commands()) {
    out += fmt::format("  {:13} {}\n", fmt::format("{} {}", command.name, command.argument),
                       command.help);
  }
  return out +
         "  Ctrl-C stops an answer. A line that ends with \\ goes on in the next one;\n"
         "  a message may begin with // to send a slash.\n";
}

Result<std::string> ChatSession::RunReset(const std::string&) {
  Forget();
  return std::string("The conversation is forgotten.\n");
}

Result<std::string> ChatSession::RunSystem(const std::string& argument) {
  if (argument.empty()) {
    return system_.empty() ? std::string("There is no system message.\n") : system_ + "\n";
  }
  SetSystem(argument == "off" ? "" : argument);
  return std::string(system_.empty() ? "No system message; a new conversation.\n"
                                     : "System message set; a new conversation.\n");
}

Result<std::string> ChatSession::RunThink(const std::string& argument) {
  if (!argument.empty()) KURUMA_RETURN_IF_ERROR(SetThinking(argument));
  return fmt::format("Thinking: {}.\n", think_mode_);
}

Result<std::string> ChatSession::RunTools(const std::string& argument) {
  if (!argument.empty()) KURUMA_RETURN_IF_ERROR(LoadTools(argument == "off" ? "" : argument));
  if (conversation_.tools.empty()) return std::string("No tools.\n");
  std::string names;
  for (const text::Tool& tool : conversation_.tools) {
    names += (names.empty() ? "" : ", ") + tool.name;
  }
  return fmt::format("Tools: {}.\n", names);
}

Result<std::string> ChatSession::RunSave(const std::string& argument) {
  if (argument.empty()) return InvalidArgument("/save needs the name of a file");
  Json body;
  body["messages"] = Json::array();
  for (const text::Message& message : conversation_.messages) {
    body["messages"].push_back(ToJson(message));
  }
  if (!tools_json_.empty()) body["tools"] = Json::parse(tools_json_);
  body["thinking"] = {{"type", conversation_.thinking ? "enabled" : "disabled"}};
  if (conversation_.thinking) body["reasoning_effort"] = think_mode_ == "on" ? "high" : think_mode_;
  if (seed_) body["seed"] = *seed_;
  std::ofstream file(argument, std::ios::binary | std::ios::trunc);
  file << body.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  file.close();
  if (!file) return NotFound(argument + ": cannot be written");
  return fmt::format("Saved {} messages to {}.\n", conversation_.messages.size(), argument);
}

Result<std::string> ChatSession::RunSeed(const std::string& argument) {
  if (argument == "off") {
    seed_ = std::nullopt;
  } else if (!argument.empty()) {
    uint64_t seed = 0;
    const char* end = argument.data() + argument.size();
    const auto parsed = std::from_chars(argument.data(), end, seed);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      return InvalidArgument(
          fmt::format("/seed: expected a whole number from 0 or off, got \"{}\"", argument));
    }
    seed_ = seed;
  }
  return seed_ ? fmt::format("Seed: {}.\n", *seed_)
               : std::string("Seed: a new one for each answer.\n");
}

Result<std::string> ChatSession::RunQuit(const std::string&) {
  ended_ = true;
  return std::string();
}

}  // namespace kuruma
