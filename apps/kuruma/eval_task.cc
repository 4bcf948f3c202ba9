#include "eval_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "api/chat.h"
#include "inputs.h"

namespace kuruma {
namespace {

using Json = nlohmann::json;

bool ContainsAll(const Json& wanted, const std::string& content) {
  const auto holds = [&](const Json& text) {
    return content.find(text.get_ref<const std::string&>()) != std::string::npos;
  };
  return wanted.is_array() ? std::all_of(wanted.begin(), wanted.end(), holds) : holds(wanted);
}

Verdict JudgeJson(const Json& wanted, const std::string& content) {
  const Json got = Json::parse(content, nullptr, /*allow_exceptions=*/false);
  return {.passed = got == wanted, .valid = !got.is_discarded()};
}

Verdict JudgeCalls(const Json& wanted, const std::vector<text::ParsedCall>& calls) {
  Verdict verdict = {.passed = wanted.size() == calls.size(), .valid = !calls.empty()};
  for (size_t i = 0; i < calls.size(); ++i) {
    const Json arguments = Json::parse(calls[i].arguments, nullptr, /*allow_exceptions=*/false);
    if (!calls[i].complete || arguments.is_discarded()) return {};
    verdict.passed =
        verdict.passed && wanted[i]["name"] == calls[i].name && wanted[i]["arguments"] == arguments;
  }
  return verdict;
}

bool IsText(const Json& value) { return value.is_string(); }

bool IsCall(const Json& value) {
  return value.is_object() && value.contains("name") && value["name"].is_string() &&
         value.contains("arguments") && value["arguments"].is_object();
}

Result<std::string> TextField(const Json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_string() || found->get_ref<const std::string&>().empty()) {
    return InvalidArgument(fmt::format("{}: expected a text that is not empty", key));
  }
  return found->get<std::string>();
}

Result<Check> ParseCheck(const Json& line) {
  const auto found = line.find("check");
  if (found == line.end() || !found->is_object())
    return InvalidArgument("check: expected an object");
  const Result<std::string> named = TextField(*found, "kind");
  if (!named.ok()) return InvalidArgument("check." + named.status().message());
  const std::string& kind = *named;
  if (!found->contains("value")) return InvalidArgument("check.value is missing");
  Check check;
  check.value = (*found)["value"];
  Json& value = check.value;
  if (kind == "exact") {
    if (!IsText(value)) return InvalidArgument("check.value: expected a text");
  } else if (kind == "contains") {
    check.kind = Check::Kind::kContains;
    const bool list = value.is_array() && std::all_of(value.begin(), value.end(), IsText);
    if (!IsText(value) && !list) {
      return InvalidArgument("check.value: expected a text or a list of texts");
    }
  } else if (kind == "json") {
    check.kind = Check::Kind::kJson;
  } else if (kind == "tool_call") {
    check.kind = Check::Kind::kToolCall;
    if (value.is_object()) value = Json::array({value});
    if (!value.is_array() || !std::all_of(value.begin(), value.end(), IsCall)) {
      return InvalidArgument(
          "check.value: expected a list of {\"name\": text, \"arguments\": object}");
    }
  } else {
    return InvalidArgument(
        fmt::format("check.kind: expected exact, contains, json or tool_call, got \"{}\"", kind));
  }
  return check;
}

Result<Task> ParseTask(const std::string& text) {
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return InvalidArgument("expected one JSON object");
  Task task;
  KURUMA_ASSIGN_OR_RETURN(task.id, TextField(line, "id"));
  KURUMA_ASSIGN_OR_RETURN(task.family, TextField(line, "family"));
  KURUMA_ASSIGN_OR_RETURN(task.check, ParseCheck(line));
  api::ChatOptions options;
  options.default_thinking = false;
  KURUMA_ASSIGN_OR_RETURN(api::ChatRequest request, api::ParseChatRequest(text, options));
  task.conversation = std::move(request.conversation);
  task.max_tokens = request.sampling.max_tokens;
  return task;
}

}  // namespace

Verdict Judge(const Check& check, const text::ParsedAnswer& answer) {
  switch (check.kind) {
    case Check::Kind::kExact: {
      const auto& wanted = check.value.get_ref<const std::string&>();
      const bool equal = answer.calls.empty() && Strip(answer.content) == Strip(wanted);
      return {.passed = equal, .valid = true};
    }
    case Check::Kind::kContains:
      return {.passed = ContainsAll(check.value, answer.content), .valid = true};
    case Check::Kind::kJson:
      return JudgeJson(check.value, answer.content);
    case Check::Kind::kToolCall:
      break;
  }
  return JudgeCalls(check.value, answer.calls);
}

Result<std::vector<Task>> ParseTasks(std::string_view text, const std::string& name) {
  std::vector<Task> tasks;
  std::set<std::string> ids;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string line(Strip(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const auto named = [&](const std::string& message) {
      return InvalidArgument(fmt::format("{}: line {}: {}", name, number, message));
    };
    Result<Task> task = ParseTask(line);
    if (!task.ok()) return named(task.status().message());
    if (!ids.insert(task->id).second) {
      return named(fmt::format("id: \"{}\" came before", task->id));
    }
    tasks.push_back(*std::move(task));
  }
  if (tasks.empty()) return InvalidArgument(name + ": no task");
  return tasks;
}

}  // namespace kuruma
