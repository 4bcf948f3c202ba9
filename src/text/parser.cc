#include "text/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/check.h"
#include "text/call_reader.h"
#include "text/prompt.h"
#include "text/utf8.h"

namespace kuruma::text {
namespace {

// Finds one pattern in a stream, each byte in constant time on average (Knuth, Morris and Pratt).
class Matcher {
 public:
  explicit Matcher(std::string_view pattern) : pattern_(pattern), border_(pattern.size(), 0) {
    for (size_t i = 1, length = 0; i < pattern.size(); ++i) {
      while (length > 0 && pattern[i] != pattern[length]) length = border_[length - 1];
      if (pattern[i] == pattern[length]) ++length;
      border_[i] = length;
    }
  }

  // Whether `c` completes the pattern. Then Reset before the next Step.
  bool Step(char c) {
    while (matched_ > 0 && pattern_[matched_] != c) matched_ = border_[matched_ - 1];
    if (pattern_[matched_] == c) ++matched_;
    return matched_ == pattern_.size();
  }

  void Reset() { matched_ = 0; }

  // Bytes at the end of the stream that may be the beginning of the pattern.
  size_t matched() const { return matched_; }
  const std::string& pattern() const { return pattern_; }

 private:
  std::string pattern_;
  std::vector<size_t> border_;  // [i]: longest proper prefix that also ends pattern_[0..i]
  size_t matched_ = 0;
};

// Text that is not released yet: appended at the end, taken from the front or the end.
class Held {
 public:
  void Append(char c) { text_ += c; }
  void DropBack(size_t count) { text_.resize(text_.size() - count); }

  // The first bytes, all but `keep` of them; valid until the next call. Constant time on average.
  std::string_view TakeAllBut(size_t keep) {
    if (begin_ > 64 && begin_ > text_.size() / 2) {
      text_.erase(0, begin_);
      begin_ = 0;
    }
    const size_t begin = begin_;
    begin_ = text_.size() - keep;
    return std::string_view(text_).substr(begin, begin_ - begin);
  }

 private:
  std::string text_;
  size_t begin_ = 0;  // released up to here
};

// Reasoning and content: releases bytes unless they may belong to a marker or a stop string.
class Prose {
 public:
  Prose(const std::vector<std::string>& stops, EventList* events) : events_(events) {
    for (const std::string& stop : stops) stops_.emplace_back(stop);
  }

  // Starts a text of this kind; what was held back is released first. `holds_opener`: newlines and
  // "<" may belong to the opening of a block of calls.
  void Begin(ParserEvent::Kind kind, bool holds_opener, bool skips_newlines) {
    Release();
    kind_ = kind;
    holds_opener_ = holds_opener;
    skips_newlines_ = skips_newlines;
  }

  // One byte of text. False if it completes a stop string: then the text is over.
  bool Push(char c) {
    if (skips_newlines_ && c == '\n') return true;
    skips_newlines_ = false;
    if (!Append(c)) return false;
    if (c == '\n') {
      newlines_ = (has_angle_ ? 0 : newlines_) + 1;
      has_angle_ = false;
    } else {
      const bool is_angle = c == '<' && holds_opener_;
      if (!is_angle || has_angle_) newlines_ = 0;
      has_angle_ = is_angle;
    }
    size_t keep = HoldsNewlines() ? newlines_ + (has_angle_ ? 1 : 0) : 0;
    if (IsContent()) {
      for (const Matcher& stop : stops_) keep = std::max(keep, stop.matched());
    }
    Emit(keep);
    return true;
  }

  // Whether a stop string ends within `spelling`, which is a marker unless it does. If so, the text
  // is over.
  bool StopsWithin(std::string_view spelling) {
    size_t appended = 0;
    for (const char c : spelling) {
      if (!Append(c)) return true;
      ++appended;
    }
    held_.DropBack(appended);
    return false;
  }

  bool has_angle() const { return has_angle_; }

  // What completed the text; empty if nothing did.
  const std::string& stop_string() const { return stop_string_; }

  // Ends the text before a marker: drops "<" if it begins the marker, and the newlines directly
  // before. Returns what was dropped.
  std::string CutMarker() {
    const size_t newlines = HoldsNewlines() ? newlines_ : 0;
    std::string marker(newlines, '\n');
    if (has_angle_) marker += '<';
    held_.DropBack(marker.size());
    Release();
    return marker;
  }

  // As CutMarker for a marker without "<".
  void CutNewlines() {
    if (!has_angle_) held_.DropBack(newlines_);
    Release();
  }

  // Releases everything; no stop string reaches across this place.
  void Release() {
    Emit(0);
    newlines_ = 0;
    has_angle_ = false;
    for (Matcher& stop : stops_) stop.Reset();
  }

 private:
  bool IsContent() const { return kind_ == ParserEvent::Kind::kContent; }
  bool HoldsNewlines() const { return holds_opener_ || !IsContent(); }

  // False if `c` completes a stop string; what came before it is released.
  bool Append(char c) {
    held_.Append(c);
    if (!IsContent()) return true;
    for (Matcher& stop : stops_) {
      if (stop.Step(c) && stop.pattern().size() > stop_string_.size()) {
        stop_string_ = stop.pattern();
      }
    }
    if (stop_string_.empty()) return true;
    held_.DropBack(stop_string_.size());
    Release();
    return false;
  }

  void Emit(size_t keep) { events_->Add(kind_, -1, held_.TakeAllBut(keep)); }

  EventList* events_;
  ParserEvent::Kind kind_ = ParserEvent::Kind::kContent;
  bool holds_opener_ = false;
  bool skips_newlines_ = false;
  std::vector<Matcher> stops_;
  std::string stop_string_;
  Held held_;
  size_t newlines_ = 0;  // at the end of the held text, before the angle if there is one
  bool has_angle_ = false;
};

}  // namespace

// Two stages. The first turns tokens and text into symbols (text/call_reader.h): whole UTF-8
// characters and the two marks. The second hands each symbol to the text or the calls it is in.
class OutputParser::Machine {
 public:
  struct Marks {
    int32_t dsml;
    int32_t end_think;
  };

  Machine(const Tokenizer& tokenizer, Marks marks, ParserOptions options)
      : tokenizer_(tokenizer),
        marks_(marks),
        has_tools_(options.has_tools),
        prose_(options.stops, &events_),
        calls_(&events_) {
    const bool skips = !options.continues_content;
    switch (options.start) {
      case ParserOptions::Start::kReasoning:
        stage_ = Stage::kReasoning;
        prose_.Begin(ParserEvent::Kind::kReasoning, has_tools_, skips);
        break;
      case ParserOptions::Start::kContent:
        BeginContent(skips);
        break;
      case ParserOptions::Start::kCalls:
        has_tools_ = true;
        BeginContent(skips);
        stage_ = Stage::kCalls;
        calls_.Begin("");
        break;
    }
  }

  std::vector<ParserEvent> Push(int32_t token) {
    if (token < 0 || token >= tokenizer_.vocab_size()) return {};
    ReleaseSpelling();
    if (token == marks_.dsml || token == marks_.end_think) {
      Decode("", /*final=*/true, /*recognises_marks=*/false);
      Mark(token == marks_.dsml ? kDsmlSymbol : kEndThinkSymbol, /*is_spelled=*/false);
    } else {
      Decode(tokenizer_.TokenBytes(token), /*final=*/false, /*recognises_marks=*/false);
    }
    return events_.Take();
  }

  std::vector<ParserEvent> PushText(std::string_view text) {
    Decode(text, /*final=*/false, /*recognises_marks=*/true);
    return events_.Take();
  }

  std::vector<ParserEvent> Finish() {
    Decode("", /*final=*/true, /*recognises_marks=*/true);
    ReleaseSpelling();
    if (stage_ == Stage::kCalls) Continue(calls_.Finish());
    if (stage_ != Stage::kOver) prose_.Release();
    stage_ = Stage::kOver;
    return events_.Take();
  }

  bool stopped() const { return stopped_; }
  const std::string& stop_string() const { return prose_.stop_string(); }

 private:
  enum class Stage { kReasoning, kContent, kCalls, kOver };

  // Hands on the whole characters of what is pending and `bytes`.
  void Decode(std::string_view bytes, bool final, bool recognises_marks) {
    pending_ += bytes;
    std::string text;
    pending_.erase(0, AppendLossyUtf8(pending_, final, &text));
    for (const char c : text) {
      if (recognises_marks) {
        Spell(c);
      } else {
        Byte(c);
      }
    }
  }

  // A byte of text in which spellings of marks count.
  void Spell(char c) {
    spelling_ += c;
    const bool is_dsml = dsml_.Step(c);
    const bool is_end_think = end_think_.Step(c);
    const bool is_mark = is_dsml || is_end_think;
    const size_t keep = is_mark ? (is_dsml ? dsml_.pattern() : end_think_.pattern()).size()
                                : std::max(dsml_.matched(), end_think_.matched());
    const size_t released = spelling_.size() - keep;
    for (size_t i = 0; i < released; ++i) Byte(spelling_[i]);
    spelling_.erase(0, released);
    if (!is_mark) return;
    spelling_.clear();
    dsml_.Reset();
    end_think_.Reset();
    Mark(is_dsml ? kDsmlSymbol : kEndThinkSymbol, /*is_spelled=*/true);
  }

  void ReleaseSpelling() {
    for (const char c : std::exchange(spelling_, {})) Byte(c);
    dsml_.Reset();
    end_think_.Reset();
  }

  void Byte(char c) {
    if (stage_ == Stage::kOver) return;
    if (stage_ == Stage::kCalls) {
      Continue(calls_.Push(c));
    } else if (!prose_.Push(c)) {
      Stop();
    }
  }

  void Mark(char symbol, bool is_spelled) {
    if (stage_ == Stage::kOver) return;
    if (stage_ == Stage::kCalls) {
      Continue(calls_.Push(symbol));
      return;
    }
    const bool is_dsml = symbol == kDsmlSymbol;
    if (is_dsml && !(has_tools_ && prose_.has_angle())) {
      for (const char c : kDsmlSpelling) Byte(c);
    } else if (is_spelled && prose_.StopsWithin(Spelling(symbol))) {
      Stop();
    } else if (is_dsml) {
      const bool was_reasoning = stage_ == Stage::kReasoning;
      const std::string opening = prose_.CutMarker() + symbol;
      // Where text goes on if this is no block of calls.
      if (was_reasoning) BeginContent(/*skips_newlines=*/true);
      stage_ = Stage::kCalls;
      calls_.Begin(opening);
    } else if (stage_ == Stage::kReasoning) {
      prose_.CutNewlines();
      BeginContent(/*skips_newlines=*/true);
    } else {
      prose_.Release();
    }
  }

  void Continue(CallReader::Outcome outcome) {
    if (outcome == CallReader::Outcome::kReading) return;
    stage_ = outcome == CallReader::Outcome::kFinished ? Stage::kOver : Stage::kContent;
    if (stage_ == Stage::kOver) return;
    for (const char& symbol : calls_.TakeText()) {
      if (symbol == kEndThinkSymbol) {
        prose_.Release();
        continue;
      }
      for (const char c : Spelling(symbol)) Byte(c);
    }
  }

  void BeginContent(bool skips_newlines) {
    stage_ = Stage::kContent;
    prose_.Begin(ParserEvent::Kind::kContent, has_tools_, skips_newlines);
  }

  void Stop() {
    stage_ = Stage::kOver;
    stopped_ = true;
  }

  const Tokenizer& tokenizer_;
  const Marks marks_;
  bool has_tools_;
  EventList events_;
  Prose prose_;
  CallReader calls_;
  Stage stage_ = Stage::kContent;
  bool stopped_ = false;
  std::string pending_;   // bytes of an unfinished character
  std::string spelling_;  // text that may become the spelling of a mark
  Matcher dsml_{kDsmlSpelling};
  Matcher end_think_{kEndThinkSpelling};
};

Result<std::unique_ptr<OutputParser>> OutputParser::Create(const Tokenizer& tokenizer,
                                                           ParserOptions options) {
  for (const std::string& stop : options.stops) {
    if (stop.empty()) return InvalidArgument("a stop string is empty");
    if (FindInvalidUtf8(stop)) return InvalidArgument("a stop string is not UTF-8");
  }
  const auto id_of = [&](std::string_view spelling) -> Result<int32_t> {
    if (const auto id = tokenizer.AddedTokenId(spelling)) return *id;
    return DataLoss(fmt::format("the tokenizer has no added token \"{}\"", spelling));
  };
  KURUMA_ASSIGN_OR_RETURN(const int32_t dsml, id_of(kDsmlSpelling));
  KURUMA_ASSIGN_OR_RETURN(const int32_t end_think, id_of(kEndThinkSpelling));
  return std::unique_ptr<OutputParser>(new OutputParser(
      std::make_unique<Machine>(tokenizer, Machine::Marks{dsml, end_think}, std::move(options))));
}

OutputParser::OutputParser(std::unique_ptr<Machine> machine) : machine_(std::move(machine)) {}
OutputParser::~OutputParser() = default;

std::vector<ParserEvent> OutputParser::Push(int32_t token) { return machine_->Push(token); }
std::vector<ParserEvent> OutputParser::PushText(std::string_view text) {
  return machine_->PushText(text);
}
std::vector<ParserEvent> OutputParser::Finish() { return machine_->Finish(); }
bool OutputParser::stopped() const { return machine_->stopped(); }
const std::string& OutputParser::stop_string() const { return machine_->stop_string(); }

void ParsedAnswer::Add(const std::vector<ParserEvent>& events) {
  for (const ParserEvent& event : events) {
    if (event.kind == ParserEvent::Kind::kReasoning) {
      reasoning += event.text;
    } else if (event.kind == ParserEvent::Kind::kContent) {
      content += event.text;
    } else if (event.kind == ParserEvent::Kind::kCallBegin) {
      KURUMA_CHECK(event.call == static_cast<int>(calls.size()));
      calls.push_back({event.text, "", false});
    } else {
      KURUMA_CHECK(event.call >= 0 && event.call < static_cast<int>(calls.size()));
      ParsedCall& call = calls[static_cast<size_t>(event.call)];
      call.arguments += event.text;
      call.complete = event.kind == ParserEvent::Kind::kCallEnd;
    }
  }
}

ParserOptions ParserOptionsFor(const Conversation& conversation) {
  using Kind = ResponseFormat::Kind;
  const auto& messages = conversation.messages;
  const bool allows_tools = conversation.tool_choice != ToolChoice::kNone;
  const bool shows_tools = allows_tools && !conversation.tools.empty();
  ParserOptions options;
  options.has_tools =
      shows_tools ||
      (allows_tools && std::any_of(messages.begin(), messages.end(),
                                   [](const Message& message) { return !message.tools.empty(); }));
  const bool continues = !messages.empty() && messages.back().prefix;
  if (!continues) {
    if (shows_tools && conversation.tool_choice == ToolChoice::kRequired) {
      options.start = ParserOptions::Start::kCalls;
    } else if (conversation.thinking) {
      options.start = ParserOptions::Start::kReasoning;
    }
    return options;
  }
  // A first message has no thought; the prompt puts a system message before it for tools and JSON.
  const Message& last = messages.back();
  const Kind format = conversation.response_format.kind;
  const bool is_first = messages.size() == 1 && !shows_tools && format != Kind::kJsonObject &&
                        format != Kind::kJsonSchema;
  if (conversation.thinking && !is_first && last.content.empty() && last.tool_calls.empty()) {
    options.start = ParserOptions::Start::kReasoning;
    options.continues_content = !last.reasoning.empty();
  } else {
    options.continues_content = !last.content.empty();
  }
  return options;
}

}  // namespace kuruma::text
