#include "api/request_parts.h"

namespace kuruma::api {

using text::JsonValue;

Result<std::optional<Effort>> ReadEffort(const Fields& fields, std::string_view key) {
  const JsonValue* value = fields.Find(key);
  if (value == nullptr) return std::optional<Effort>();
  if (const auto* label = value->If<std::string>()) {
    if (*label == "none") return std::optional<Effort>({true, std::nullopt});
    if (const auto number = text::EffortOfLabel(*label)) {
      return std::optional<Effort>({false, number});
    }
  } else if (const auto number = AsInteger(*value); number && *number >= 1 && *number <= 100) {
    return std::optional<Effort>({false, static_cast<int>(*number)});
  }
  return InvalidArgument(
      fields.Name(key) +
      " must be none, minimal, low, medium, high, xhigh, max, ultra, or an integer in [1, 100]");
}

Result<ThinkingField> ReadThinking(const Fields& body) {
  const JsonValue* value = body.Find("thinking");
  if (value == nullptr) return ThinkingField();
  if (const auto* flag = value->If<bool>()) return ThinkingField{*flag, std::nullopt};
  KURUMA_ASSIGN_OR_RETURN(const auto thinking, body.Object("thinking"));
  KURUMA_ASSIGN_OR_RETURN(const std::string type, RequiredString(*thinking, "type"));
  KURUMA_ASSIGN_OR_RETURN(const auto budget, thinking->Integer("budget_tokens", 0, INT64_MAX));
  if (type == "enabled" || type == "adaptive") return ThinkingField{true, budget};
  if (type == "disabled") return ThinkingField{false, std::nullopt};
  return InvalidArgument(thinking->Name("type") + " must be enabled, adaptive or disabled");
}

void SetThinking(std::optional<bool> on, const std::optional<Effort>& effort, bool default_on,
                 text::Conversation* conversation) {
  if (effort && effort->number) conversation->effort = *effort->number;
  conversation->thinking = on ? *on : effort ? !effort->is_none : default_on;
}

}  // namespace kuruma::api
