#include "text/parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/golden_test_util.h"
#include "text/json.h"
#include "text/prompt.h"
#include "text/utf8.h"

namespace kuruma::text {
namespace {

using Json = nlohmann::ordered_json;
using Events = std::vector<ParserEvent>;
using Kind = ParserEvent::Kind;
using Start = ParserOptions::Start;

// A parser and all it has said.
class Session {
 public:
  explicit Session(ParserOptions options) {
    auto created = OutputParser::Create(*GoldenTokenizer(), std::move(options));
    EXPECT_TRUE(created.ok());
    parser_ = std::move(*created);
  }

  // Each returns the events of this call.
  Events Token(int32_t id) { return Note(parser_->Push(id)); }
  Events Text(std::string_view text) { return Note(parser_->PushText(text)); }
  Events Finish() { return Note(parser_->Finish()); }
  bool stopped() const { return parser_->stopped(); }

  // Neighbouring pieces of one text joined: what must not depend on chunking.
  const Events& events() const { return events_; }
  ParsedAnswer Answer() const {
    ParsedAnswer answer;
    answer.Add(events_);
    return answer;
  }

 private:
  Events Note(Events events) {
    for (const ParserEvent& event : events) {
      const bool joins = !events_.empty() && event.kind != Kind::kCallBegin &&
                         event.kind != Kind::kCallEnd && events_.back().kind == event.kind &&
                         events_.back().call == event.call;
      if (joins) {
        events_.back().text += event.text;
      } else {
        events_.push_back(event);
      }
    }
    return events;
  }

  std::unique_ptr<OutputParser> parser_;
  Events events_;
};

std::vector<int32_t> Ids(std::string_view text) { return *GoldenTokenizer()->Encode(text); }

Session ParseTokens(const ParserOptions& options, const std::vector<int32_t>& ids) {
  Session run(options);
  for (const int32_t id : ids) run.Token(id);
  run.Finish();
  return run;
}

Session ParseChunks(const ParserOptions& options, const std::vector<std::string>& chunks) {
  Session run(options);
  for (const std::string& chunk : chunks) run.Text(chunk);
  run.Finish();
  return run;
}

// An answer as text, calls with their state: short to write in tables and clear when it differs.
std::string Show(const ParsedAnswer& answer) {
  std::string text;
  if (!answer.reasoning.empty()) text += "R:" + answer.reasoning + "|";
  if (!answer.content.empty()) text += "C:" + answer.content + "|";
  for (const ParsedCall& call : answer.calls) {
    text += (call.complete ? "T:" : "cut:") + call.name + " " + call.arguments + "|";
  }
  return text;
}

std::string Parse(const ParserOptions& options, std::string_view text) {
  const std::string by_tokens = Show(ParseTokens(options, Ids(text)).Answer());
  const std::string by_text = Show(ParseChunks(options, {std::string(text)}).Answer());
  EXPECT_EQ(by_tokens, by_text) << text;
  return by_tokens;
}

const ParserOptions kTools = {.start = Start::kContent, .has_tools = true, .stops = {}};

// ------------------------------------------------------------------------------ reference answers

// The library's answer in the form of Show. Messages gives arguments as values, Responses splits
// namespaces from names and takes the text of custom tools out of the arguments: `ours` is then put
// into the same form.
std::string ShowMerged(const Json& merged) {
  ParsedAnswer answer;
  if (merged["reasoning"].is_string()) answer.reasoning = merged["reasoning"];
  answer.content = merged["content"];
  for (const Json& call : merged["calls"]) {
    const bool is_response = call.size() == 4;
    std::string name = call[is_response ? 2 : 0];
    if (is_response && call[1].is_string()) name = call[1].get<std::string>() + "::" + name;
    const Json& arguments = call[is_response ? 3 : 1];
    answer.calls.push_back(
        {name, arguments.is_string() ? arguments.get<std::string>() : arguments.dump(), true});
  }
  return Show(answer);
}

std::string ShowLike(const Json& merged, ParsedAnswer answer) {
  for (size_t i = 0; i < answer.calls.size() && i < merged["calls"].size(); ++i) {
    const Json& call = merged["calls"][i];
    std::string& arguments = answer.calls[i].arguments;
    const bool is_custom = call[0] == "custom_tool_call";
    if (!answer.calls[i].complete || !(is_custom || call[1].is_object())) continue;
    const Json value = Json::parse(arguments);
    arguments = is_custom ? value["input"].get<std::string>() : value.dump();
  }
  return Show(answer);
}

// Rows, and runs of a row, where Kuruma answers differently on purpose, with its answer. "p": only
// the run in which the markers are spelled by ordinary tokens.
struct Departure {
  const char* ids;
  const char* reason;
  const char* answer;
};
constexpr const char* kJsonMode = "JSON mode: the library blanks what is not JSON";
constexpr const char* kNoCall = "a block without a call is content; the library drops it";
constexpr const char* kCut = "cut inside a parameter: left open, the library counts it as a call";
constexpr const char* kBadName = "no name of a function: the block is content";
constexpr const char* kBadJson = "the library's arguments are not JSON";
constexpr Departure kDepartures[] = {
    {"0008 0009", kJsonMode, "R:Need a shelf.|C:Second shelf.|"},
    {"0020 0021", kJsonMode, "C:Second shelf.|"},
    {"0029", kJsonMode, "R:Need a shelf.|C:Second shelf.\n|"},
    {"0035", kJsonMode, "C:Second shelf.\n\nx\n|"},
    {"0200", kJsonMode, "C:Sure: {\"a\": [1, 2]} ok|"},
    {"0203", kJsonMode, "C:Text before\n```json\n{\"a\": 1}\n```\nafter|"},
    {"0204", kJsonMode, "C:```\n[1,\n2]\n```|"},
    {"0205", kJsonMode, "C:```json\n{\"a\": \"``` not the end\"}|"},
    {"0206", kJsonMode, "C:no structure at all|"},
    {"0209", kJsonMode,
     "R:Need a shelf.|C:{\"a\": 1}\n```|"
     "T:lookup_book {\"title\": \"Sea & <b>\", \"year\": 1999}|T:set_alarm {}|"},
    {"0226", "JSON mode: the library looks for stop strings inside JSON only", ""},
    {"0107 0108 0109 0110", kNoCall, "C:Second shelf.\n\n<｜DSML｜ ca|"},
    {"0117 0118 0119 0120", kNoCall, "C:<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"look|"},
    {"0121 0122 0123 0124", "cut before the first value: no call yet; the library sends half a key",
     "C:<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"lookup_book\">\n<｜DSML｜ parameter name=\"ti|"},
    {"0125 0126 0127 0128 0129 0130", kCut, "cut:lookup_book {\"t\": \"half \\\"va|"},
    {"0135 0136 0137 0138", kCut, "cut:lookup_book {\"n\": [1, 2|"},
    {"0131 0132 0133 0134", "cut between parameters: closed", "T:lookup_book {\"t\": \"v\"}|"},
    {"0143 0144 0145", kBadJson, "T:lookup_book {\"n\": \"12abc\"}|"},
    {"0146 0147 0148", kBadJson, "T:lookup_book {\"a\": \"\", \"b\": \"\"}|"},
    {"0149 0150 0151", kBadJson, "T:lookup_book {\"t\": \"v\"}|"},
    {"0158 0159 0160", kBadJson, "T:lookup_book {\"a b\": \"v\", \"c\": \"w\"}|"},
    {"0161 0162 0163", kBadJson, "T:lookup_book {\"a\\\"b\": \"v\"}|"},
    {"0152 0153 0154", kNoCall,
     "C:<｜DSML｜ calls>\n<｜DSML｜ invoke name='lookup_book'>\n"
     "</｜DSML｜ invoke>\n</｜DSML｜ calls>|"},
    {"0155 0156 0157", "more blanks than needed: still a call; the library drops it",
     "T:lookup_book {\"a\": \"x\"}|"},
    {"0167 0168 0169", kBadName,
     "C:<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"bad {\nname\">\n"
     "</｜DSML｜ invoke>\n</｜DSML｜ calls>|"},
    {"0170 0171 0172", kBadName,
     "C:<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"\">\n"
     "<｜DSML｜ parameter name=\"x\" string=\"true\">y</｜DSML｜ parameter>\n"
     "</｜DSML｜ invoke>\n</｜DSML｜ calls>|"},
    {"0176 0177 0178", "two calls; the library drops the second name and joins the arguments",
     "T:lookup_book {\"a\": \"1\"}|T:set_alarm {\"b\": \"2\"}|"},
    {"0179 0181 0182", kNoCall, "C:Second shelf.\n\n<｜DSML｜ calls>\n</｜DSML｜ calls>|"},
    {"0180", kNoCall, "R:Second shelf.|C:<｜DSML｜ calls>\n</｜DSML｜ calls>|"},
    {"0198", kNoCall, "C:Sorry, no.|"},
    {"0197p", "spelled markers are text, also in a block that the prompt opened",
     "C:<｜DSML｜ invoke name=\"lookup_book\">\n"
     "<｜DSML｜ parameter name=\"t\" string=\"true\">v1</｜DSML｜ parameter>\n"
     "</｜DSML｜ invoke>\n</｜DSML｜ calls>|"},
    {"0199p", "spelled markers are text, also in a block that the prompt opened",
     "C:<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"set_alarm\">\n\n"
     "</｜DSML｜ invoke>\n</｜DSML｜ calls>x|"},
    {"0228", "the library drops newlines at the start of a continuation without thinking",
     "C:\n upon a time|"},
};

std::map<std::string, const Departure*> DeparturesById() {
  std::map<std::string, const Departure*> by_id;
  for (const Departure& departure : kDepartures) {
    std::istringstream ids(departure.ids);
    for (std::string id; ids >> id;) by_id["str-" + id] = &departure;
  }
  return by_id;
}

TEST(ParserGolden, AnswersAreTheLibrarys) {
  const Json settings = ReadSettings();
  const auto departures = DeparturesById();
  std::set<std::string> departed;
  int runs = 0;
  for (const Json& row : ReadGoldenRows("stream_cases.jsonl")) {
    const std::string id = row["id"];
    const ParserOptions options = SettingOptions(
        settings[row["protocol"].get<std::string>()][row["setting"].get<std::string>()]);
    for (const Json& run : row["runs"]) {
      const bool is_plain = run["chunking"] == "plain_tokens";
      const Session session =
          run.contains("token_ids")
              ? ParseTokens(options, run["token_ids"].get<std::vector<int32_t>>())
              : ParseChunks(options, run["chunks"].get<std::vector<std::string>>());
      const ParsedAnswer answer = session.Answer();
      const Json& merged = run.contains("merged") ? run["merged"] : row["merged"];
      const auto departure = departures.find(id + (is_plain ? "p" : ""));
      ++runs;
      if (departure == departures.end()) {
        EXPECT_EQ(ShowLike(merged, answer), ShowMerged(merged)) << id << " " << run["chunking"];
      } else {
        EXPECT_EQ(Show(answer), departure->second->answer) << id << " " << run["chunking"];
        if (ShowLike(merged, answer) != ShowMerged(merged)) departed.insert(departure->first);
      }
    }
  }
  // A row that agrees has no place in the list.
  for (const auto& [id, departure] : departures) EXPECT_TRUE(departed.contains(id)) << id;
  EXPECT_GT(runs, 800);
}

TEST(ParserGolden, RunsEndAtTheSameStopString) {
  const Json settings = ReadSettings();
  int ended = 0;
  for (const Json& row : ReadGoldenRows("stream_cases.jsonl")) {
    if (row["setting"] == "stop_json") continue;  // departs
    const ParserOptions options = SettingOptions(
        settings[row["protocol"].get<std::string>()][row["setting"].get<std::string>()]);
    for (const Json& run : row["runs"]) {
      Session session(options);
      size_t consumed = 0;
      const Json& pieces = run.contains("chunks") ? run["chunks"] : run["token_ids"];
      for (const Json& piece : pieces) {
        if (session.stopped()) break;
        piece.is_string() ? session.Text(piece.get<std::string>()) : session.Token(piece);
        ++consumed;
      }
      ended += session.stopped() && consumed < pieces.size() ? 1 : 0;
      if (run["chunking"] == "plain_tokens") continue;  // says nothing about its end
      // In text the spelling of a marker is decided before a stop string within it.
      if (run.contains("chunks") && row["setting"] == "stop_tools") continue;
      EXPECT_EQ(consumed, run.value("chunks_consumed", pieces.size())) << row["id"] << run;
    }
  }
  EXPECT_GT(ended, 15);
}

TEST(ParserGolden, ChunkingDoesNotMatter) {
  const Json settings = ReadSettings();
  std::set<std::string> seen;
  for (const Json& row : ReadGoldenRows("stream_cases.jsonl")) {
    const Json& setting =
        settings[row["protocol"].get<std::string>()][row["setting"].get<std::string>()];
    const std::string text = row["text"];
    if (!seen.insert(setting.dump() + text).second) continue;
    const ParserOptions options = SettingOptions(setting);
    const Session whole = ParseChunks(options, {text});
    std::vector<std::string> bytes;
    for (size_t i = 0; i < text.size(); ++i) {
      ASSERT_EQ(ParseChunks(options, {text.substr(0, i), text.substr(i)}).events(), whole.events())
          << row["id"] << " cut at " << i;
      bytes.push_back(text.substr(i, 1));
    }
    EXPECT_EQ(ParseChunks(options, bytes).events(), whole.events()) << row["id"];
    // Tokens and their spelling mean the same, except that "</" stops within "</think>".
    if (row["id"] == "str-0217") continue;
    EXPECT_EQ(ParseTokens(options, Ids(text)).events(), whole.events()) << row["id"];
  }
  EXPECT_GT(seen.size(), 80u);
}

// ------------------------------------------------------------------------------------------ calls

// A block with the given inside.
std::string Block(const std::string& inside) {
  return "<｜DSML｜ calls>\n" + inside + "\n</｜DSML｜ calls>";
}
std::string Invoke(const std::string& name, const std::string& parameters) {
  return "<｜DSML｜ invoke name=\"" + name + "\">\n" + parameters + "\n</｜DSML｜ invoke>";
}
std::string Parameter(const std::string& attributes, const std::string& value) {
  return "<｜DSML｜ parameter " + attributes + ">" + value + "</｜DSML｜ parameter>";
}

TEST(Parser, NamesAreThoseOfFunctions) {
  for (const char* name : {"f", "get_weather-2", "desk::lookup", "A::b::c", "::"}) {
    EXPECT_EQ(Parse(kTools, Block(Invoke(name, ""))), std::string("T:") + name + " {}|");
  }
  for (const char* name :
       {"", "a b", "a\nb", "a:b", "a:::b", "a.b", "naïve", "a<b", "a</think>b"}) {
    const std::string text = Block(Invoke(name, Parameter("name=\"x\" string=\"true\"", "1")));
    // Of the text only </think> is markup in content.
    std::string content = text;
    if (const size_t mark = content.find("</think>"); mark != std::string::npos) {
      content.erase(mark, 8);
    }
    EXPECT_EQ(Parse(kTools, text), "C:" + content + "|");
  }
  const std::string longest(128, 'n');
  EXPECT_EQ(Parse(kTools, Block(Invoke(longest, ""))), "T:" + longest + " {}|");
  EXPECT_EQ(Parse(kTools, Block(Invoke(longest + "n", ""))),
            "C:" + Block(Invoke(longest + "n", "")) + "|");
}

TEST(Parser, KeysAreEscaped) {
  for (const char* key : {"a b", "a\"b", "a\\b", "a\nb", "a>b", "\" string=\"true\" ", "", "键"}) {
    const std::string parameter =
        Parameter("name=\"" + std::string(key) + "\" string=\"true\"", "v");
    std::string quoted;
    AppendJsonString(key, &quoted);
    EXPECT_EQ(Parse(kTools, Block(Invoke("f", parameter))), "T:f {" + quoted + ": \"v\"}|");
  }
}

TEST(Parser, ValuesAreJson) {
  const std::pair<const char*, const char*> cases[] = {
      {"3", "3"},
      {" [1,\n2] ", " [1,\n2] "},
      {"{\"a\": \"<b>\"}", "{\"a\": \"<b>\"}"},
      {"null", "null"},
      {"", "\"\""},
      {"True", "\"True\""},
      {"[1, 2", "\"[1, 2\""},
      {"1 2", "\"1 2\""},
      {"\"open", "\"\\\"open\""},
      {"1e999", "\"1e999\""},
      {"\"\\ud800\"", "\"\\\"\\\\ud800\\\"\""},
      {"\uFEFF1", "\"\uFEFF1\""},
      {"</think>", "\"</think>\""},
      {"<｜DSML｜", "\"<｜DSML｜\""},
  };
  for (const auto& [value, expected] : cases) {
    for (const char* attributes : {"name=\"k\" string=\"false\"", "name=\"k\""}) {
      EXPECT_EQ(Parse(kTools, Block(Invoke("f", Parameter(attributes, value)))),
                std::string("T:f {\"k\": ") + expected + "}|");
    }
  }
  const std::string deep = std::string(200, '[') + std::string(200, ']');
  EXPECT_EQ(Parse(kTools, Block(Invoke("f", Parameter("name=\"k\" string=\"false\"", deep)))),
            "T:f {\"k\": \"" + deep + "\"}|");
}

TEST(Parser, StringsMayHoldAnythingButTheClosingTag) {
  for (const char* value : {"", "ls 2>&1", "</", "<</", "</think>", "<｜DSML｜ invoke name=\"g\">",
                            "｜DSML｜", "\x01\x7F", "</ ｜DSML｜", "STOP"}) {
    ParserOptions options = kTools;
    options.stops = {"STOP"};
    std::string quoted;
    AppendJsonString(value, &quoted);
    EXPECT_EQ(Parse(options, Block(Invoke("f", Parameter("name=\"k\" string=\"true\"", value)))),
              "T:f {\"k\": " + quoted + "}|");
  }
}

TEST(Parser, TagsMayBeMisspelledWhereTheMeaningIsClear) {
  const std::string parameter = Parameter("name=\"k\" string=\"true\"", "v");
  const std::string call = "T:f {\"k\": \"v\"}|";
  // Without "parameter" in the closing tag, without closing tags of the call or the block.
  EXPECT_EQ(Parse(kTools,
                  "<｜DSML｜ calls><｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"k\" "
                  "string=\"true\">v</｜DSML｜></｜DSML｜ invoke></｜DSML｜ calls>"),
            call);
  EXPECT_EQ(Parse(kTools,
                  "<｜DSML｜ calls><｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"k\" "
                  "string=\"true\">v</｜DSML｜ invoke></｜DSML｜ calls>"),
            call);
  EXPECT_EQ(Parse(kTools, "<｜DSML｜ calls><｜DSML｜ invoke name=\"f\">" + parameter +
                              "</｜DSML｜ parameter></｜DSML｜ calls>after"),
            call);
  EXPECT_EQ(Parse(kTools, "<｜DSML｜ invoke name=\"f\">" + parameter + "</｜DSML｜ invoke>"), call);
  // Text between parameters.
  EXPECT_EQ(Parse(kTools, Block(Invoke("f", parameter + ",\n< </ and"))), call);
}

TEST(Parser, WhatIsNoCallIsContent) {
  for (const std::string& text : {
           std::string("<｜DSML｜ is the mark of a call"),
           Block(""),
           Block("<｜DSML｜ invoke name=\"f\">{\"a\": 1}</｜DSML｜ invoke>"),
           Block("<｜DSML｜ parameter name=\"k\" string=\"true\">v</｜DSML｜ parameter>"),
           Block("<｜DSML｜ invoke name=\"f\" id=\"3\"></｜DSML｜ invoke>"),
           Block(Invoke("f", Parameter("name=\"k\" type=\"int\"", "1"))),
           Block(Invoke("f", Parameter("name=\"" + std::string(257, 'k') + "\"", "1"))),
           "<｜DSML｜ " + std::string(100, 'c') + "alls>",
       }) {
    EXPECT_EQ(Parse(kTools, text), "C:" + text + "|");
    ParserOptions thinks = kTools;
    thinks.start = Start::kReasoning;
    EXPECT_EQ(Parse(thinks, "idea\n\n" + text), "R:idea|C:" + text + "|");
  }
}

TEST(Parser, ABrokenCallDoesNotHideItsNeighbours) {
  const std::string good = Invoke("f", Parameter("name=\"k\" string=\"true\"", "v"));
  const std::string bad = "<｜DSML｜ invoke name=\"no name\">";
  EXPECT_EQ(Parse(kTools, Block(good + "\n" + bad)),
            "C:" + bad + "\n</｜DSML｜ calls>|T:f {\"k\": \"v\"}|");
  EXPECT_EQ(Parse(kTools, Block(bad + "\n" + good) + "\nafter"),
            "C:<｜DSML｜ calls>\n" + bad + "|T:f {\"k\": \"v\"}|");
  // A parameter that makes no sense leaves its call open; the next call has the next number.
  const std::string open = "<｜DSML｜ parameter name='x'>y</｜DSML｜ parameter>\n";
  EXPECT_EQ(Parse(kTools, Block("<｜DSML｜ invoke name=\"f\">" +
                                Parameter("name=\"k\" string=\"true\"", "v") + "\n" + open + good)),
            "C:" + open.substr(0, open.size() - 1) + "|cut:f {\"k\": \"v\"|T:f {\"k\": \"v\"}|");
  // A call that is closed by a bad one.
  EXPECT_EQ(Parse(kTools, "<｜DSML｜ calls><｜DSML｜ invoke name=\"f\">" + bad),
            "C:" + bad + "|T:f {}|");
  // What is no call does not begin one with what follows.
  const std::string rest = "｜DSML｜ invoke name=\"f\"></｜DSML｜ invoke>";
  EXPECT_EQ(Parse(kTools, "<｜DSML｜ calls>\n<</think>" + rest),
            "C:<｜DSML｜ calls>\n<" + rest + "|");
}

// Ends a text with two calls after every token.
TEST(Parser, CutCallsAreClosedLeftOpenOrContent) {
  const std::string text =
      "ok\n\n" + Block(Invoke("f", Parameter("name=\"a\" string=\"true\"", "x<y\n") + "\n" +
                                       Parameter("name=\"b\" string=\"false\"", "[1, {}]")) +
                       "\n" + Invoke("g", ""));
  const std::vector<int32_t> ids = Ids(text);
  std::set<std::string> answers;
  for (size_t count = 0; count <= ids.size(); ++count) {
    const std::vector<int32_t> begin(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
    const ParsedAnswer answer = ParseTokens(kTools, begin).Answer();
    answers.insert(Show(answer));
    if (answer.calls.empty()) {
      EXPECT_EQ(answer.content, *GoldenTokenizer()->Decode(begin));
    }
    for (size_t i = 0; i < answer.calls.size(); ++i) {
      const ParsedCall& call = answer.calls[i];
      EXPECT_EQ(call.complete, ParseJson(call.arguments).ok()) << Show(answer);
      EXPECT_TRUE(call.complete || i + 1 == answer.calls.size());
    }
  }
  const std::string a = "C:ok|T:f {\"a\": \"x<y\\n\"}|";
  const std::string both = "T:f {\"a\": \"x<y\\n\", \"b\": [1, {}]}|";
  for (const std::string& expected :
       {a, std::string("C:ok|cut:f {\"a\": \"x|"),
        std::string("C:ok|cut:f {\"a\": \"x<y\\n\", \"b\": [|"), "C:ok|" + both,
        "C:ok<｜DSML｜ invoke name=\"|" + both, "C:ok|" + both + "T:g {}|"}) {
    EXPECT_TRUE(answers.contains(expected)) << expected;
  }
  const std::string begin = "<｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"k\"";
  EXPECT_EQ(Parse(kTools, begin + " string=\"true\">x</"), "cut:f {\"k\": \"x</|");
  EXPECT_EQ(Parse(kTools, begin + ">[1, <"), "cut:f {\"k\": [1, <|");
  EXPECT_EQ(Parse(kTools, begin + ">[1]</｜DSML｜"), "T:f {\"k\": [1]}|");
}

// --------------------------------------------------------------------------- text, stops, holding

TEST(Parser, TextIsReleasedAtOnce) {
  const auto release_from = [](Session* session, const char* piece) {
    std::string released;
    for (const int32_t id : Ids(piece)) {
      for (const ParserEvent& event : session->Token(id)) released += event.text;
    }
    return released;
  };
  // Without tools nothing but an unfinished character waits; with tools only what may open a call.
  Session plain({});
  for (const char* piece : {"a", " <", "\n\n", "</", "｜", "DS"}) {
    EXPECT_EQ(release_from(&plain, piece), piece);
  }
  Session tools(kTools);
  const auto release = [&](const char* piece) { return release_from(&tools, piece); };
  EXPECT_EQ(release("a"), "a");
  EXPECT_EQ(release("\n\n"), "");
  EXPECT_EQ(release("<"), "");
  EXPECT_EQ(release("b"), "\n\n<b");
  EXPECT_EQ(release(" </"), " </");
  EXPECT_EQ(release("｜DSML｜"), "｜DSML｜");
  EXPECT_EQ(release("<｜DSML｜"), "");
  EXPECT_EQ(release(" is"), "");
  EXPECT_EQ(release("."), "<｜DSML｜ is.");
}

TEST(Parser, OnlyNewlinesDirectlyBeforeAMarkerGo) {
  ParserOptions options = kTools;
  options.start = Start::kReasoning;
  const std::string call = Block(Invoke("f", ""));
  EXPECT_EQ(Parse(options, "a\n\n</think>\n\nb"), "R:a|C:b|");
  EXPECT_EQ(Parse(options, "a\n<</think>b\n<" + call), "R:a\n<|C:b\n<|T:f {}|");
  EXPECT_EQ(Parse(options, "a\n< \n" + call), "R:a\n< |T:f {}|");
  EXPECT_EQ(Parse(options, "a</think>b\n</think>" + call), "R:a|C:b\n|T:f {}|");
  EXPECT_EQ(Parse(options, "a</think>b<</think>｜DSML｜"), "R:a|C:b<｜DSML｜|");
}

TEST(Parser, ArgumentsAreStreamed) {
  Session session(kTools);
  const std::string value = "one two three four five six seven eight nine ten";
  size_t deltas = 0;
  for (const int32_t id : Ids(Block(Invoke("f", Parameter("name=\"k\" string=\"true\"", value))))) {
    for (const ParserEvent& event : session.Token(id)) deltas += event.kind == Kind::kCallDelta;
  }
  EXPECT_GE(deltas, 10u);
}

TEST(Parser, CharactersAreNeverSplit) {
  const std::string text = "👋🏽是é</think>👋🏽\n👋🏽";
  const ParserOptions options = {.start = Start::kReasoning, .stops = {"🏾"}};
  Session session(options);
  for (const char c : text) {
    for (const ParserEvent& event : session.Text({&c, 1})) {
      EXPECT_FALSE(FindInvalidUtf8(event.text)) << event.text;
    }
  }
  for (const ParserEvent& event : session.Finish()) EXPECT_FALSE(FindInvalidUtf8(event.text));
  EXPECT_EQ(Show(session.Answer()), "R:👋🏽是é|C:👋🏽\n👋🏽|");
}

TEST(Parser, BrokenUtf8IsReplaced) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\xFF\xFE"
       "b",
       "C:a\uFFFD\uFFFDb|"},                      // the codes of the marks are no way in
      {"\xE4\xBD", "C:\uFFFD|"},                  // unfinished at the end
      {"\xE4\xBDx", "C:\uFFFDx|"},                // a maximal subpart is one
      {"\xED\xA0\x80", "C:\uFFFD\uFFFD\uFFFD|"},  // a surrogate is three
      {"\xE4</think>x", "C:\uFFFDx|"},            // a mark ends a character
      {"<\xFE calls>", "C:<\uFFFD calls>|"},
      {"\xEF\xBD\x9C"
       "DSM\xEF\xBD",
       "C:｜DSM\uFFFD|"},
  };
  for (const auto& [bytes, expected] : cases) {
    std::vector<std::string> pieces;
    for (const char* c = bytes; *c != '\0'; ++c) pieces.emplace_back(1, *c);
    EXPECT_EQ(Show(ParseChunks(kTools, {bytes}).Answer()), expected);
    EXPECT_EQ(Show(ParseChunks(kTools, pieces).Answer()), expected);
  }
}

TEST(Parser, StopStringsEndContent) {
  const auto parse = [](std::vector<std::string> stops, std::string_view text) {
    ParserOptions options = kTools;
    options.stops = std::move(stops);
    return Parse(options, text);
  };
  EXPECT_EQ(parse({"bcd", "cd"}, "abcde"), "C:a|");    // of two that end together the longer
  EXPECT_EQ(parse({"bcde", "cd"}, "abcde"), "C:ab|");  // the first that ends
  EXPECT_EQ(parse({"aab"}, "aaab c"), "C:a|");
  EXPECT_EQ(parse({"\n"}, "\n\na\nb"), "C:a|");  // newlines that are skipped are not content
  EXPECT_EQ(parse({"\n\n<"}, "a\n\n" + Block(Invoke("f", ""))), "C:a|");
  EXPECT_EQ(parse({"no name"}, "a " + Block(Invoke("no name", ""))),
            "C:a <｜DSML｜ calls>\n<｜DSML｜ invoke name=\"|");  // also in what is no call
  EXPECT_EQ(parse({"assistantX"}, "pleas"), "C:pleas|");
  EXPECT_EQ(parse({"ab"}, "a</think>b"), "C:ab|");  // not across a marker

  Session session({.start = Start::kContent, .stops = {"DEFGHIJ"}});
  for (const char* piece : {"DEF", "G", "HI", "J", "more"}) {
    EXPECT_TRUE(session.Text(piece).empty());
  }
  EXPECT_TRUE(session.stopped());
  EXPECT_TRUE(session.Finish().empty());
  EXPECT_EQ(Show(session.Answer()), "");
}

TEST(Parser, NothingComesAfterFinish) {
  Session session({});
  session.Text("a");
  session.Finish();
  EXPECT_TRUE(session.Text("b").empty());
  EXPECT_TRUE(session.Token(Ids("c")[0]).empty());
  EXPECT_TRUE(session.Finish().empty());
  EXPECT_FALSE(session.stopped());
}

TEST(Parser, TextAndTokensMayMix) {
  Session session({.start = Start::kReasoning, .has_tools = true, .stops = {}});
  session.Text("idea</thi");
  session.Token(Ids("nk")[0]);  // the spelling is not continued by tokens
  session.Text(">");
  session.Token(Ids("</think>")[0]);
  session.Text("<");
  session.Token(Ids("｜DSML｜")[0]);
  session.Text(" calls>");
  session.Token(-1);
  session.Token(1 << 30);
  session.Finish();
  EXPECT_EQ(Show(session.Answer()), "R:idea</think>|C:<｜DSML｜ calls>|");
}

TEST(Parser, LongInputsTakeLinearTime) {
  // A quadratic step anywhere would take hours.
  constexpr size_t kLength = 2000000;
  const std::string newlines(kLength, '\n');
  ParserOptions options = kTools;
  options.stops = {std::string(100000, 'a') + "b"};
  EXPECT_EQ(ParseChunks(options, {"x" + newlines}).Answer().content.size(), kLength + 1);
  const std::string letters(kLength, 'a');
  EXPECT_EQ(ParseChunks(options, {letters}).Answer().content.size(), kLength);
  std::string opened;
  while (opened.size() < kLength) opened += "<｜DSML｜ calls>\n";
  EXPECT_EQ(ParseChunks(kTools, {opened}).Answer().content.size(), opened.size());
  std::string keys;
  while (keys.size() < kLength) {
    keys += "<｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"a\"b\">\">\">\">\">";
  }
  EXPECT_EQ(ParseChunks(kTools, {keys}).Answer().content.size(), keys.size());
}

// ---------------------------------------------------------------------------------------- options

TEST(Parser, CreateNamesWhatIsMissing) {
  std::ifstream file(KURUMA_SOURCE_DIR "/build/data/tokenizer.json");
  std::stringstream json;
  json << file.rdbuf();
  for (const std::string mark : {"</think>", "｜DSML｜"}) {
    std::string text = json.str();
    const size_t place = text.find("\"" + mark + "\"");
    ASSERT_NE(place, std::string::npos);
    text.replace(place + 1, mark.size(), "another token");
    const auto tokenizer = ParseTokenizer(text, "changed.json");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    const auto parser = OutputParser::Create(**tokenizer, {});
    ASSERT_FALSE(parser.ok());
    EXPECT_EQ(parser.status().code(), StatusCode::kDataLoss);
    EXPECT_NE(parser.status().message().find(mark), std::string::npos);
  }
  for (const char* stop : {"", "\xE4"}) {
    const auto parser =
        OutputParser::Create(*GoldenTokenizer(), {.start = Start::kContent, .stops = {stop}});
    ASSERT_FALSE(parser.ok());
    EXPECT_EQ(parser.status().code(), StatusCode::kInvalidArgument);
  }
}

// Where the text of a prompt ends, read from its special tokens.
Start StartAfter(const RenderedPrompt& prompt) {
  const std::string_view text = prompt.text;
  if (text.ends_with("<｜DSML｜ calls>\n")) return Start::kCalls;
  for (auto range = prompt.specials.rbegin(); range != prompt.specials.rend(); ++range) {
    const std::string_view token = text.substr(range->begin, range->end - range->begin);
    if (token == "<think>") return Start::kReasoning;
    if (token == "</think>") return Start::kContent;
  }
  return Start::kContent;
}

// Every kind of last message in every kind of conversation.
TEST(Parser, OptionsFollowThePrompt) {
  std::map<Start, int> starts;
  for (int bits = 0; bits < 512; ++bits) {
    const auto bit = [&](int i) { return (bits >> i & 1) != 0; };
    Conversation conversation;
    conversation.thinking = bit(0);
    if (bit(1)) conversation.tools.resize(1);
    if (bit(2)) conversation.tool_choice = bit(3) ? ToolChoice::kNone : ToolChoice::kRequired;
    if (bit(4)) conversation.response_format.kind = ResponseFormat::Kind::kJsonObject;
    if (bit(5)) conversation.messages.resize(1);
    Message last;
    last.role = Role::kAssistant;
    last.prefix = bit(6);
    if (bit(7)) last.content = "Once";
    if (bit(8)) last.reasoning = "see <｜ref｜>x<｜/ref｜>";
    conversation.messages.push_back(last);
    const ParserOptions options = ParserOptionsFor(conversation);
    const RenderedPrompt prompt = RenderPrompt(conversation);
    EXPECT_EQ(options.start, StartAfter(prompt)) << bits << ": " << prompt.text;
    EXPECT_EQ(options.continues_content,
              prompt.text.ends_with("Once") || prompt.text.ends_with("x<｜/ref｜>"))
        << bits << ": " << prompt.text;
    EXPECT_EQ(options.has_tools, bit(1) && !(bit(2) && bit(3)));
    ++starts[options.start];
  }
  EXPECT_EQ(starts.size(), 3u);
}

TEST(Parser, ToolsOfMessagesCount) {
  Conversation conversation;
  conversation.messages.resize(2);
  EXPECT_FALSE(ParserOptionsFor(conversation).has_tools);
  conversation.messages[1].role = Role::kSystem;
  conversation.messages[1].tools.resize(1);
  EXPECT_TRUE(ParserOptionsFor(conversation).has_tools);
  conversation.tool_choice = ToolChoice::kNone;
  EXPECT_FALSE(ParserOptionsFor(conversation).has_tools);
}

}  // namespace
}  // namespace kuruma::text
