// Tasks of an evaluation and the rules by which an answer passes.
#ifndef KURUMA_APPS_EVAL_TASK_H_
#define KURUMA_APPS_EVAL_TASK_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/parser.h"
#include "text/prompt.h"

namespace kuruma {

// How an answer is judged.
struct Check {
  enum class Kind {
    kExact,     // content is the text, but for space around it
    kContains,  // content holds the text, or every text of a list
    kJson,      // content is JSON of equal value: order of members and spelling do not count
    kToolCall,  // exactly these calls in this order, arguments compared as JSON values
  };
  Kind kind = Kind::kExact;
  nlohmann::json value;
};

struct Verdict {
  bool passed = false;
  bool valid =
      false;  // kJson: the content is JSON; kToolCall: there are calls and all are complete
};

Verdict Judge(const Check& check, const text::ParsedAnswer& answer);

struct Task {
  std::string id;
  std::string family;
  text::Conversation conversation;
  std::optional<int64_t> max_tokens;  // nothing: what the context leaves
  Check check;
};

// Parses JSON Lines, one task each:
//   {"id", "family", "messages": [...], "tools": [...], "thinking": bool, "max_tokens",
//    "check": {"kind": "exact" | "contains" | "json" | "tool_call", "value"}}
// messages, tools and whatever else shapes the prompt are those of a Chat Completions body. Blank
// lines are skipped. InvalidArgument, naming `name`, the line and the field: anything wrong, an id
// that came before, no task at all.
Result<std::vector<Task>> ParseTasks(std::string_view text, const std::string& name);

}  // namespace kuruma

#endif  // KURUMA_APPS_EVAL_TASK_H_
