// Answers from a script instead of a model, behind the real scheduler, cache and server: for tests
// of protocols and clients, and for load.
#ifndef KURUMA_SERVER_SCRIPTED_H_
#define KURUMA_SERVER_SCRIPTED_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/runner.h"
#include "text/tokenizer.h"

namespace kuruma::server {

// What a prompt that holds `match` is answered. The first line that fits counts.
struct ScriptLine {
  std::string match;            // empty: every prompt
  std::vector<int32_t> tokens;  // then the end of sentence
  bool repeats = false;         // they come again and again instead
  double delay_ms = 0;          // before each token
  double first_delay_ms = 0;    // before the first one, besides
  std::string error;            // not empty: after the tokens the request fails with this
};

// Reads JSON Lines: {"match", "text" or "tokens", "repeat", "delay_ms", "first_delay_ms", "error"};
// markers spelled in `text` are their tokens. InvalidArgument names file, line and member.
Result<std::vector<ScriptLine>> LoadScript(const std::string& path,
                                           const text::Tokenizer& tokenizer);
// The same of text; `name` stands for the file in errors.
Result<std::vector<ScriptLine>> ParseScript(std::string_view text, const std::string& name,
                                            const text::Tokenizer& tokenizer);

// A step lasts as long as the longest delay of its rows asks. A prompt that no line fits ends at
// once. The tokenizer must outlive it.
class ScriptedRunner : public engine::Runner {
 public:
  ScriptedRunner(std::vector<ScriptLine> script, const text::Tokenizer& tokenizer,
                 int32_t eos_token);

  Status Run(const std::vector<engine::SlotStep>& steps,
             std::vector<engine::SlotResult>* results) override;

 private:
  struct Slot {
    const ScriptLine* line = nullptr;
    size_t drawn = 0;
  };

  void Start(const engine::SlotStart& start, Slot* slot) const;
  void Draw(Slot* slot, engine::SlotResult* result, double* delay_ms) const;

  const std::vector<ScriptLine> script_;
  const text::Tokenizer& tokenizer_;
  const int32_t eos_token_;
  std::vector<Slot> slots_;
};

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_SCRIPTED_H_
