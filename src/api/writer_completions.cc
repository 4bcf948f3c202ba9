// Completions: the older API of plain texts. Reasoning and calls do not occur: its parser starts in
// content and knows no tools.
#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <vector>

#include "api/json_text.h"
#include "api/writer.h"

namespace kuruma::api {
namespace {

// Characters (code points) of UTF-8 text.
int64_t CountCharacters(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

// Parallel lists, as this API has them.
class LogprobLists {
 public:
  // `text` begins at character `offset` of the answer.
  void Add(std::span<const LogprobEntry> entries, int64_t offset) {
    for (const LogprobEntry& entry : entries) {
      const std::string spelling = TokenSpelling(entry.chosen.bytes);
      Append(Quoted(spelling), &tokens_);
      Append(LogprobNumber(entry.chosen.logprob), &logprobs_);
      JsonObject top;
      for (const TokenScore& score : entry.top) {
        std::string key;
        AppendEscaped(TokenSpelling(score.bytes), &key);
        top.Raw(key, LogprobNumber(score.logprob));
      }
      Append(top.Take(), &top_);
      Append(fmt::format_int(offset).str(), &offsets_);
      offset += CountCharacters(entry.chosen.bytes);
    }
  }

  std::string Json() const {
    return JsonObject()
        .Raw("tokens", JsonArray(tokens_))
        .Raw("token_logprobs", JsonArray(logprobs_))
        .Raw("top_logprobs", JsonArray(top_))
        .Raw("text_offset", JsonArray(offsets_))
        .Take();
  }

 private:
  static void Append(std::string_view json, std::string* list) {
    if (!list->empty()) *list += ',';
    *list += json;
  }

  std::string tokens_;
  std::string logprobs_;
  std::string top_;
  std::string offsets_;
};

class CompletionsWriter : public Writer {
 public:
  explicit CompletionsWriter(const WriterContext& context)
      : options_(context.options),
        usage_(context.usage),
        output_(context.output),
        choices_(static_cast<size_t>(context.options.n)) {
    head_ = "{\"id\":" + Quoted(options_.id) + ",\"object\":\"text_completion\",\"created\":" +
            fmt::format_int(options_.created).str() + ",\"model\":" + Quoted(options_.model) +
            ",\"choices\":[";
  }

  void Start() override {
    if (options_.echo.empty()) return;
    for (int choice = 0; choice < options_.n; ++choice) {
      const std::string& prompt = options_.echo[static_cast<size_t>(choice)];
      Text({.choice = choice, .is_reasoning = false, .text = prompt, .entries = {}});
    }
  }

  void Text(const TextDelta& delta) override {
    Choice& choice = choices_[static_cast<size_t>(delta.choice)];
    if (options_.stream) {
      LogprobLists lists;
      lists.Add(delta.entries, choice.characters);
      SendChunk(delta.choice, delta.text, delta.entries.empty() ? "null" : lists.Json(), "null");
    } else {
      choice.text += delta.text;
      choice.lists.Add(delta.entries, choice.characters);
    }
    choice.characters += CountCharacters(delta.text);
  }

  void BeginCall(int, std::string_view) override {}
  void AddArguments(int, std::string_view) override {}
  void EndCall(int) override {}

  void EndChoice(int choice, const ChoiceEnd& end) override {
    const bool is_cut = end.reason == ChoiceEnd::Reason::kLength;
    const std::string_view finish = is_cut ? "\"length\"" : "\"stop\"";
    if (options_.stream) {
      SendChunk(choice, "", "null", finish);
    } else {
      choices_[static_cast<size_t>(choice)].finish = finish;
    }
  }

  void End() override {
    if (options_.stream) {
      if (options_.include_usage) {
        output_.push_back("data: " + head_ + "],\"usage\":" + UsageJson(usage_) + "}\n\n");
      }
      output_.emplace_back("data: [DONE]\n\n");
      return;
    }
    std::string body = head_;
    for (size_t i = 0; i < choices_.size(); ++i) {
      const Choice& choice = choices_[i];
      if (i > 0) body += ',';
      body += ChoiceJson(static_cast<int>(i), choice.text,
                         options_.logprobs ? choice.lists.Json() : "null", choice.finish);
    }
    output_.push_back(body + "],\"usage\":" + UsageJson(usage_) + "}");
  }

  void Fail(const ApiError& error) override {
    const std::string body = ErrorBody(Protocol::kCompletions, error);
    output_.push_back(options_.stream ? "data: " + body + "\n\n" : body);
  }

 private:
  struct Choice {
    std::string text;
    int64_t characters = 0;  // of the text so far
    LogprobLists lists;
    std::string finish;  // JSON
  };

  static std::string ChoiceJson(int index, std::string_view text, std::string_view logprobs,
                                std::string_view finish) {
    return JsonObject()
        .Number("index", index)
        .Text("text", text)
        .Raw("logprobs", logprobs)
        .Raw("finish_reason", finish)
        .Take();
  }

  void SendChunk(int index, std::string_view text, std::string_view logprobs,
                 std::string_view finish) {
    std::string chunk = "data: " + head_ + ChoiceJson(index, text, logprobs, finish) + "]";
    if (options_.continuous_usage) {
      chunk += ",\"usage\":" + UsageJson(usage_);
    } else if (options_.include_usage) {
      chunk += ",\"usage\":null";
    }
    output_.push_back(chunk + "}\n\n");
  }

  const AnswerOptions& options_;
  const Usage& usage_;
  std::vector<std::string>& output_;
  std::string head_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<Writer> MakeCompletionsWriter(const WriterContext& context) {
  return std::make_unique<CompletionsWriter>(context);
}

}  // namespace kuruma::api
