// What a step of the engine will do, and what came of it: values that can be printed, compared and
// replayed.
#ifndef KURUMA_SCHEDULER_PLAN_H_
#define KURUMA_SCHEDULER_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "kv/snapshot_index.h"

namespace kuruma::scheduler {

// Rows of one sequence in a step.
struct SequenceStep {
  SequenceId sequence = {};
  SlotId slot = {};
  int64_t first = 0;       // absolute position of the first row
  int64_t rows = 0;        // consecutive positions from there
  int64_t prompt_end = 0;  // while a prompt is read: where the part of it ends that this step
                           // belongs to, at last its length (prompt, or prompt and answer after a
                           // preemption); 0: decoding
  bool draws = false;      // a token is drawn from the last row
  bool begins = false;     // the slot is taken over, at position `first`
  int64_t stored = 0;      // begins: tokens found in the cache; rows before are replayed
  std::optional<kv::SnapshotId> snapshot = {};  // begins: its windows are those at `first`
  bool saves = false;                           // afterwards windows are complete and worth keeping
  bool operator==(const SequenceStep&) const = default;
};

struct Plan {
  int64_t number = 0;  // counts plans from 1
  std::vector<SequenceStep> steps;
  std::vector<SequenceId> preempted;  // lost their blocks and slot; will begin again
  double predicted_ms = 0;            // how long the step should take; 0: not known yet

  int64_t rows() const;
};

// One line, for logs and traces: "7: 3@0 128+128/300 | 4@1 55+1* | preempted 9" is sequence 3 in
// slot 0, positions 128 to 255 of a prompt of 300; sequence 4 decodes position 55 and draws. A "!"
// behind the slot: it begins there; "0(256)": at position 0, while 256 tokens were found; "s"
// behind the rows: their windows are saved.
std::string ToString(const Plan& plan);

// What the engine reports for a SequenceStep, in the order of the plan.
struct StepResult {
  int32_t token = -1;   // drawn, if the step draws
  bool stops = false;   // the token, or the text it completes, ends the answer
  bool failed = false;  // the rows could not be computed (logits that are not finite)
};

enum class FinishReason { kStop, kLength, kCancelled, kDeadline, kFailed };

const char* Name(FinishReason reason);

struct Finished {
  SequenceId sequence = {};
  FinishReason reason = FinishReason::kStop;
  bool operator==(const Finished&) const = default;
};

}  // namespace kuruma::scheduler

#endif  // KURUMA_SCHEDULER_PLAN_H_
