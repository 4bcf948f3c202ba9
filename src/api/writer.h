// What an answer consists of, whatever the protocol, and the interface to the protocols' writers.
// Private to the api module.
#ifndef KURUMA_API_WRITER_H_
#define KURUMA_API_WRITER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer.h"
#include "api/error.h"
#include "base/status.h"

namespace kuruma::api {

// Tokens so far, of all choices.
struct Usage {
  PromptUsage prompt;
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;
};

struct TokenScore {
  std::string_view bytes;  // of the token; lives as long as the tokenizer
  double logprob = 0;
};
struct LogprobEntry {
  TokenScore chosen;
  std::vector<TokenScore> top;
};

// More text of one choice; `entries` are the tokens whose text begins in it.
struct TextDelta {
  int choice = 0;
  bool is_reasoning = false;
  std::string_view text;
  std::span<const LogprobEntry> entries;
};

// How a choice ended, after what was parsed.
struct ChoiceEnd {
  enum class Reason { kStop, kStopString, kToolCalls, kLength };
  Reason reason = Reason::kStop;
  std::string stop_string;  // kStopString
};

// Draws ids: letters and digits, 24 of them after the prefix. The same seed, the same ids.
class IdSource {
 public:
  explicit IdSource(uint64_t seed) : seed_(seed) {}
  std::string Next(std::string_view prefix);

 private:
  uint64_t seed_;
  uint32_t drawn_ = 0;
};

// What a writer works with; all of it outlives the writer.
struct WriterContext {
  const AnswerOptions& options;
  bool thinks = false;  // the answer begins with reasoning
  const Usage& usage;   // grows during the answer
  IdSource& ids;
  std::vector<std::string>& output;  // where events and the body go
};

// Puts one answer into the form of a protocol. Calls come in the order of the answer; between
// BeginCall and EndCall of a choice there is nothing else of it, except that a call which is cut
// has no EndCall.
class Writer {
 public:
  virtual ~Writer() = default;
  virtual void Start() = 0;
  virtual void Text(const TextDelta& delta) = 0;
  virtual void BeginCall(int choice, std::string_view name) = 0;
  virtual void AddArguments(int choice, std::string_view json) = 0;
  virtual void EndCall(int choice) = 0;
  virtual void EndChoice(int choice, const ChoiceEnd& end) = 0;
  // Every choice has ended.
  virtual void End() = 0;
  // The answer breaks off after Start.
  virtual void Fail(const ApiError& error) = 0;
};

std::unique_ptr<Writer> MakeChatWriter(const WriterContext& context);
std::unique_ptr<Writer> MakeCompletionsWriter(const WriterContext& context);
std::unique_ptr<Writer> MakeMessagesWriter(const WriterContext& context);
// kInvalidArgument if `response_fields` is no JSON object.
Result<std::unique_ptr<Writer>> MakeResponsesWriter(const WriterContext& context);

// ---------------------------------------------------------------- shared by several writers

// The usage object of Chat Completions and Completions.
std::string UsageJson(const Usage& usage);

// A token as text: its UTF-8, or \xNN for each byte if it is a part of a character.
std::string TokenSpelling(std::string_view bytes);

// A log-probability as a JSON number; -9999.0 for what is no number or minus infinity.
std::string LogprobNumber(double logprob);

// Appends entries {"token", "logprob", "bytes", "top_logprobs"}, separated by commas.
void AppendEntries(std::span<const LogprobEntry> entries, std::string* out);

}  // namespace kuruma::api

#endif  // KURUMA_API_WRITER_H_
