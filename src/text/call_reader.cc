#include "text/call_reader.h"

#include <cstdint>
#include <optional>

#include "text/json.h"

namespace kuruma::text {
namespace {

// Longer ones are no tags; nothing may grow without bound before text is released.
constexpr size_t kMaxTagSymbols = 64;
constexpr size_t kMaxNameBytes = 128;
constexpr size_t kMaxKeyBytes = 256;

bool IsBlank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

bool IsNameCharacter(char c) {
  return IsLetter(c) || (c >= '0' && c <= '9') || c == '-' || c == ':';
}

// `name` consists of name characters; colons must come in pairs (a namespace, "ns::name").
bool IsName(std::string_view name) {
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] != ':') continue;
    if (i + 1 == name.size() || name[i + 1] != ':') return false;
    ++i;
  }
  return !name.empty();
}

// Removes `suffix` from the end of `text`; false if it is not there.
bool RemoveSuffix(std::string_view suffix, std::string_view* text) {
  if (!text->ends_with(suffix)) return false;
  text->remove_suffix(suffix.size());
  return true;
}

struct Parameter {
  std::string_view key;
  bool is_string;
};

// Reads `KEY" string="true`, `KEY" string="false"` or `KEY"`: a parameter tag between its first
// quote and ">". The key itself may hold quotes if the attribute follows. Without the attribute the
// value is taken as JSON if it is JSON.
std::optional<Parameter> ReadParameter(std::string_view tag) {
  while (!tag.empty() && IsBlank(tag.back())) tag.remove_suffix(1);
  std::string_view key = tag;
  const bool is_string = RemoveSuffix("string=\"true\"", &key);
  if (is_string || RemoveSuffix("string=\"false\"", &key)) {
    const size_t attribute = key.size();
    while (!key.empty() && IsBlank(key.back())) key.remove_suffix(1);
    if (key.size() == attribute || !RemoveSuffix("\"", &key)) return std::nullopt;
    return Parameter{key, is_string};
  }
  if (!RemoveSuffix("\"", &key) || key.find('"') != std::string_view::npos) return std::nullopt;
  return Parameter{key, false};
}

}  // namespace

std::string_view Spelling(const char& symbol) {
  if (symbol == kDsmlSymbol) return kDsmlSpelling;
  if (symbol == kEndThinkSymbol) return kEndThinkSpelling;
  return {&symbol, 1};
}

void EventList::Add(ParserEvent::Kind kind, int call, std::string_view text) {
  const bool is_text = kind != ParserEvent::Kind::kCallBegin && kind != ParserEvent::Kind::kCallEnd;
  if (is_text && text.empty()) return;
  if (is_text && !events_.empty() && events_.back().kind == kind && events_.back().call == call) {
    events_.back().text += text;
  } else {
    events_.push_back({kind, call, std::string(text)});
  }
}

void CallReader::Begin(std::string_view opening) {
  block_has_calls_ = false;
  lead_.clear();
  tag_.clear();
  text_ = opening;
  if (opening.empty()) {
    state_ = State::kBetween;
  } else {
    state_ = State::kOpenTag;
    tag_begin_ = text_.size() - 2;
  }
}

CallReader::Outcome CallReader::Push(char symbol) {
  switch (state_) {
    case State::kBetween:
      return Between(symbol);
    case State::kOpenTag:
      return OpenTag(symbol);
    case State::kName:
      return Name(symbol);
    case State::kNameEnd:
      return NameEnd(symbol);
    case State::kKey:
      return Key(symbol);
    case State::kValue:
      return Value(symbol);
    case State::kCloseTag:
      return CloseTag(symbol);
  }
  return Outcome::kReading;
}

CallReader::Outcome CallReader::Finish() {
  const bool is_closing = state_ == State::kCloseTag;
  if (in_call_ && (is_closing || (state_ == State::kBetween && announced_))) {
    EndCall();
    return Outcome::kFinished;
  }
  if (announced_) {
    if (state_ == State::kValue) {
      AddToValue(lead_);
      AddArguments(value_);
    }
    return Outcome::kFinished;
  }
  const bool block_is_over =
      block_has_calls_ && !in_call_ && (is_closing || state_ == State::kBetween);
  return block_is_over || text_.empty() ? Outcome::kFinished : NotCalls();
}

CallReader::Outcome CallReader::Between(char symbol) {
  text_ += symbol;
  if (symbol == kDsmlSymbol && !lead_.empty()) {
    StartTag(lead_ == "<" ? State::kOpenTag : State::kCloseTag);
    return Outcome::kReading;
  }
  const bool extends_lead = (symbol == '<' && lead_.empty()) || (symbol == '/' && lead_ == "<");
  if (extends_lead) {
    lead_ += symbol;
    return Outcome::kReading;
  }
  if (lead_.empty() && IsBlank(symbol)) return Outcome::kReading;
  if (!MaySkip()) return NotCalls();
  lead_.clear();
  if (symbol == '<') lead_ += symbol;
  text_ = lead_;
  return Outcome::kReading;
}

void CallReader::StartTag(State state) {
  const size_t length = lead_.size() + 1;
  if (MaySkip()) text_.erase(0, text_.size() - length);
  tag_begin_ = text_.size() - length;
  lead_.clear();
  tag_.clear();
  in_value_ = false;
  state_ = state;
}

CallReader::Outcome CallReader::OpenTag(char symbol) {
  text_ += symbol;
  if (text_.size() - tag_begin_ > kMaxTagSymbols) return NotCalls();
  if (IsBlank(symbol)) {
    if (!tag_.empty() && tag_.back() != ' ') tag_ += ' ';
    return Outcome::kReading;
  }
  if (IsLetter(symbol) || symbol == '=') {
    tag_ += symbol;
    return Outcome::kReading;
  }
  if (symbol == '"' && tag_ == "invoke name=") {
    if (in_call_) EndCall();  // its closing tag is missing
    name_.clear();
    state_ = State::kName;
    return Outcome::kReading;
  }
  if (symbol == '"' && tag_ == "parameter name=" && in_call_) {
    key_.clear();
    state_ = State::kKey;
    return Outcome::kReading;
  }
  // The tag that opens a block is known by ｜DSML｜ alone: models have misspelled its name.
  const std::string_view word = Trim(tag_);
  const bool is_word = !word.empty() && word.find_first_of(" =") == std::string_view::npos;
  if (symbol != '>' || !is_word || in_call_) return NotCalls();
  state_ = State::kBetween;
  return Outcome::kReading;
}

CallReader::Outcome CallReader::Name(char symbol) {
  text_ += symbol;
  if (symbol == '"') {
    if (!IsName(name_)) return NotCalls();
    in_call_ = true;
    state_ = State::kNameEnd;
    return Outcome::kReading;
  }
  if (!IsNameCharacter(symbol) || name_.size() == kMaxNameBytes) return NotCalls();
  name_ += symbol;
  return Outcome::kReading;
}

CallReader::Outcome CallReader::NameEnd(char symbol) {
  text_ += symbol;
  if (symbol == '>') {
    state_ = State::kBetween;
    return Outcome::kReading;
  }
  return IsBlank(symbol) ? Outcome::kReading : NotCalls();
}

CallReader::Outcome CallReader::Key(char symbol) {
  text_ += symbol;
  if (symbol == '>') {
    if (const auto parameter = ReadParameter(key_)) {
      StartValue(parameter->key, parameter->is_string);
      return Outcome::kReading;
    }
  }
  const bool is_mark = symbol == kDsmlSymbol || symbol == kEndThinkSymbol;
  if (is_mark || key_.size() == kMaxKeyBytes) return NotCalls();
  key_ += symbol;
  return Outcome::kReading;
}

void CallReader::StartValue(std::string_view key, bool is_string) {
  std::string start = announced_ ? ", " : "{";
  Announce();
  AppendJsonString(key, &start);
  AddArguments(start + (is_string ? ": \"" : ": "));
  is_string_ = is_string;
  value_.clear();
  text_.clear();
  lead_.clear();
  state_ = State::kValue;
}

CallReader::Outcome CallReader::Value(char symbol) {
  if (symbol == kDsmlSymbol && lead_ == "</") {
    EndValue();
    return Outcome::kReading;
  }
  const bool extends_lead = (symbol == '<' && lead_.empty()) || (symbol == '/' && lead_ == "<");
  if (!extends_lead) {
    AddToValue(lead_);
    lead_.clear();
  }
  if (extends_lead || symbol == '<') {
    lead_ += symbol;
  } else {
    AddToValue({&symbol, 1});
  }
  return Outcome::kReading;
}

void CallReader::AddToValue(std::string_view symbols) {
  std::string text;
  for (const char& symbol : symbols) text += Spelling(symbol);
  if (!is_string_) {
    value_ += text;
    return;
  }
  std::string quoted;
  AppendJsonString(text, &quoted);
  AddArguments(std::string_view(quoted).substr(1, quoted.size() - 2));
}

void CallReader::EndValue() {
  if (is_string_) {
    AddArguments("\"");
  } else if (ParseJson(value_).ok() && !value_.starts_with("\uFEFF")) {
    AddArguments(value_);
  } else {
    std::string quoted;
    AppendJsonString(value_, &quoted);
    AddArguments(quoted);
  }
  value_.clear();
  lead_.clear();
  tag_.clear();
  tag_begin_ = 0;
  in_value_ = true;
  state_ = State::kCloseTag;
}

CallReader::Outcome CallReader::CloseTag(char symbol) {
  text_ += symbol;
  if ((IsLetter(symbol) || IsBlank(symbol)) && tag_.size() < kMaxTagSymbols) {
    tag_ += symbol;
    return Outcome::kReading;
  }
  const Outcome outcome = Closed(Trim(tag_));
  // The tag ended without ">": this symbol belongs to what follows.
  if (symbol != '>' && outcome == Outcome::kReading) {
    if (!text_.empty()) text_.pop_back();
    return Push(symbol);
  }
  return outcome;
}

CallReader::Outcome CallReader::Closed(std::string_view word) {
  const bool ends_block = word.ends_with("calls");
  state_ = State::kBetween;
  if (!in_call_) {
    if (!block_has_calls_) return NotCalls();
    const bool is_stray = word == "invoke" || word == "parameter";
    return is_stray ? Outcome::kReading : Outcome::kFinished;
  }
  // Outside a parameter any closing tag but a repeated one of a parameter ends the call.
  if (ends_block || word == "invoke" || (!in_value_ && word != "parameter")) EndCall();
  if (MaySkip()) text_.clear();
  return ends_block ? Outcome::kFinished : Outcome::kReading;
}

void CallReader::Announce() {
  if (!announced_) events_->Add(ParserEvent::Kind::kCallBegin, call_, name_);
  announced_ = true;
}

void CallReader::AddArguments(std::string_view text) {
  events_->Add(ParserEvent::Kind::kCallDelta, call_, text);
}

void CallReader::EndCall() {
  const bool has_arguments = announced_;
  Announce();
  AddArguments(has_arguments ? "}" : "{}");
  events_->Add(ParserEvent::Kind::kCallEnd, call_, "");
  ++call_;
  in_call_ = false;
  announced_ = false;
  block_has_calls_ = true;
  text_.erase(0, tag_begin_);
  tag_begin_ = 0;
}

CallReader::Outcome CallReader::NotCalls() {
  if (announced_) ++call_;
  in_call_ = false;
  announced_ = false;
  return Outcome::kNotCalls;
}

}  // namespace kuruma::text
