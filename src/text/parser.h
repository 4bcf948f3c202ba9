// Output parser: cuts what the model writes, token by token, into reasoning, content and tool
// calls.
//
// States: reasoning (when the prompt ended with <think>), content, tool calls. `</think>` and
// ｜DSML｜ count as markup only when they arrive as their own token ids; the same characters
// spelled in ordinary tokens are text. What comes out does not depend on how tokens are grouped,
// and text is held back only while it may still become a marker, a stop string or one UTF-8
// character. Source: DeepSeek's public recipe library (tests/golden/frontend, stream_cases.jsonl)
// with the departures named in docs/parser.md: what is no call is content, arguments are always
// JSON.
#ifndef KURUMA_TEXT_PARSER_H_
#define KURUMA_TEXT_PARSER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace kuruma::text {

struct Conversation;

struct ParserOptions {
  enum class Start { kReasoning, kContent, kCalls };
  Start start = Start::kContent;   // kCalls: the prompt already opened the block of calls
  bool has_tools = false;          // without tools <｜DSML｜ is text
  bool continues_content = false;  // the prompt ends inside a text: leading newlines belong to it
  std::vector<std::string> stops;  // end the answer, in content only; UTF-8, none empty
};

// The options that belong to the prompt RenderPrompt makes of `conversation`; `stops` is left
// empty. Calls are read if the conversation or one of its messages declares tools, unless
// tool_choice is none. Pure; any thread.
ParserOptions ParserOptionsFor(const Conversation& conversation);

// A piece of the answer, in order. Texts are UTF-8 and never split a character.
struct ParserEvent {
  enum class Kind {
    kReasoning,  // text: more reasoning
    kContent,    // text: more content
    kCallBegin,  // text: name of call number `call`, counted from 0
    kCallDelta,  // text: more of its arguments (JSON text)
    kCallEnd,    // its arguments are complete
  };
  Kind kind = Kind::kContent;
  int call = -1;
  std::string text;
  bool operator==(const ParserEvent&) const = default;
};

// One answer. Not thread-safe; keeps a reference to the tokenizer, which must outlive it.
//
// A call begins with its first parameter, or with its end if it has none; its arguments, once
// kCallEnd was sent, are one JSON object. A call without kCallEnd was cut inside a parameter: the
// answer is not complete, however it ended, and its arguments are the beginning of an object. What
// looked like a call but is none comes as content. Source: docs/parser.md.
class OutputParser {
 public:
  // kDataLoss if the tokenizer lacks </think> or ｜DSML｜; kInvalidArgument if a stop string is
  // empty or not UTF-8. Any thread.
  static Result<std::unique_ptr<OutputParser>> Create(const Tokenizer& tokenizer,
                                                      ParserOptions options);
  ~OutputParser();
  OutputParser(const OutputParser&) = delete;
  OutputParser& operator=(const OutputParser&) = delete;

  // What became certain with this token; the end-of-sentence token must not be passed. Other added
  // tokens are text, an id without a token is nothing. Empty once stopped() or after Finish.
  // Time is linear in the text, times the number of stop strings; the same for PushText.
  std::vector<ParserEvent> Push(int32_t token);

  // The same for text of unknown tokens, cut anywhere: every spelling of a marker counts. Bytes
  // that are not UTF-8 become U+FFFD, one for each maximal broken sequence. A stop string that ends
  // within a spelled marker wins over it, once the spelling is known to be whole.
  std::vector<ParserEvent> PushText(std::string_view text);

  // The answer is over: what was held back. Call once, last.
  std::vector<ParserEvent> Finish();

  // A stop string was met: it and everything after it are dropped. May become true in Finish.
  bool stopped() const;

  // The stop string that was met, the longest of those that end together; empty unless stopped().
  const std::string& stop_string() const;

 private:
  class Machine;
  explicit OutputParser(std::unique_ptr<Machine> machine);

  std::unique_ptr<Machine> machine_;
};

// An answer put together from events.
struct ParsedCall {
  std::string name;
  std::string arguments;  // JSON text if `complete`; "{}" when there were none
  bool complete = false;
};
struct ParsedAnswer {
  std::string reasoning;
  std::string content;
  std::vector<ParsedCall> calls;

  // Appends `events`, all events of one parser in their order. One thread at a time.
  void Add(const std::vector<ParserEvent>& events);
};

}  // namespace kuruma::text

#endif  // KURUMA_TEXT_PARSER_H_
