// The calls of an answer, one symbol at a time: the part of the output parser that runs inside a
// block of calls.
//
// An answer reaches it as symbols: the bytes of UTF-8 text, and two codes that UTF-8 never contains
// for the tokens ｜DSML｜ and </think>. So markup can be told from the same characters spelled by
// ordinary tokens, also in text that is kept and looked at again. docs/parser.md has the states.
#ifndef KURUMA_TEXT_CALL_READER_H_
#define KURUMA_TEXT_CALL_READER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/parser.h"

namespace kuruma::text {

inline constexpr char kDsmlSymbol = '\xFE';
inline constexpr char kEndThinkSymbol = '\xFF';
inline constexpr std::string_view kDsmlSpelling = "｜DSML｜";
inline constexpr std::string_view kEndThinkSpelling = "</think>";

// What `symbol` looks like as text; a view of `symbol` itself or of a constant.
std::string_view Spelling(const char& symbol);

// Collects events. Neighbouring pieces of one text become one event, empty pieces none.
class EventList {
 public:
  void Add(ParserEvent::Kind kind, int call, std::string_view text);
  std::vector<ParserEvent> Take() { return std::exchange(events_, {}); }

 private:
  std::vector<ParserEvent> events_;
};

// Reads blocks of calls. Each symbol is looked at once, so time is linear. Not thread-safe;
// `events` must outlive it.
class CallReader {
 public:
  enum class Outcome {
    kReading,
    kFinished,  // the block is closed
    kNotCalls,  // what was read since the last event is no call: TakeText() is content
  };

  explicit CallReader(EventList* events) : events_(events) {}

  // A block begins. `opening`: the symbols already read, ending in "<" and the symbol of ｜DSML｜;
  // empty if the prompt opened the block.
  void Begin(std::string_view opening);

  Outcome Push(char symbol);

  // The answer is over. A call between two parameters is closed, one cut inside a parameter is left
  // open, one whose first value had not begun is no call.
  Outcome Finish();

  // Symbols that turned out to be content. Once after kNotCalls.
  std::string TakeText() { return std::exchange(text_, {}); }

 private:
  enum class State {
    kBetween,   // before, between and after calls, or between the parameters of one
    kOpenTag,   // after "<｜DSML｜"
    kName,      // in the name of a call
    kNameEnd,   // between the name's quote and ">"
    kKey,       // in the name of a parameter, its quote and the attribute after it
    kValue,     // in the value of a parameter
    kCloseTag,  // after "</｜DSML｜"
  };

  Outcome Between(char symbol);
  Outcome OpenTag(char symbol);
  Outcome Name(char symbol);
  Outcome NameEnd(char symbol);
  Outcome Key(char symbol);
  Outcome Value(char symbol);
  Outcome CloseTag(char symbol);
  Outcome Closed(std::string_view word);

  void StartTag(State state);
  void StartValue(std::string_view key, bool is_string);
  void AddToValue(std::string_view symbols);
  void EndValue();
  void Announce();
  void EndCall();
  Outcome NotCalls();

  // Whether text that is no tag may be skipped: something that cannot be taken back went before.
  bool MaySkip() const { return in_call_ ? announced_ : block_has_calls_; }
  void AddArguments(std::string_view text);

  EventList* events_;
  State state_ = State::kBetween;
  int call_ = 0;                  // number of the call being read, or of the next one
  bool block_has_calls_ = false;  // a call of this block has ended
  bool in_call_ = false;          // its name is known
  bool announced_ = false;        // and its events have begun, with its first parameter
  bool in_value_ = false;         // kCloseTag: the tag ends a value
  bool is_string_ = false;        // kValue
  std::string text_;              // symbols that become content if they are no call
  size_t tag_begin_ = 0;          // index into text_ of the last tag
  std::string lead_;              // "<" or "</" that may begin a tag
  std::string tag_;               // letters of the tag, blanks as one space
  std::string name_;
  std::string key_;
  std::string value_;  // of a parameter that is no string: sent when it is complete
};

}  // namespace kuruma::text

#endif  // KURUMA_TEXT_CALL_READER_H_
