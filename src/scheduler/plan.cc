#include "scheduler/plan.h"

#include <fmt/format.h>

#include <iterator>

namespace kuruma::scheduler {

int64_t Plan::rows() const {
  int64_t rows = 0;
  for (const SequenceStep& step : steps) rows += step.rows;
  return rows;
}

namespace {

// "(256)": more was found than the position where the step begins.
std::string Found(const SequenceStep& step) {
  return step.begins && step.stored != step.first ? fmt::format("({})", step.stored) : "";
}

}  // namespace

std::string ToString(const Plan& plan) {
  std::string line = fmt::format("{}:", plan.number);
  const char* separator = " ";
  for (const SequenceStep& step : plan.steps) {
    fmt::format_to(std::back_inserter(line), "{}{}@{}{} {}{}+{}", separator,
                   static_cast<uint64_t>(step.sequence), Index(step.slot), step.begins ? "!" : "",
                   step.first, Found(step), step.rows);
    if (step.prompt_end > 0) fmt::format_to(std::back_inserter(line), "/{}", step.prompt_end);
    if (step.draws) line += "*";
    if (step.saves) line += "s";
    separator = " | ";
  }
  if (plan.preempted.empty()) return line;
  line += fmt::format("{}preempted", separator);
  for (const SequenceId id : plan.preempted) {
    fmt::format_to(std::back_inserter(line), " {}", static_cast<uint64_t>(id));
  }
  return line;
}

const char* Name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kDeadline:
      return "deadline";
    case FinishReason::kFailed:
      break;
  }
  return "failed";
}

}  // namespace kuruma::scheduler
