// kuruma tokenize: text to ids and back, JSON Lines in and out.
#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.h"
#include "model_directory.h"
#include "report.h"
#include "text/tokenizer.h"

namespace kuruma {
namespace {

struct TokenizeFlags {
  std::string tokenizer;
  bool decode = false;
  bool skip_special = false;
  bool plain = false;
};

Result<std::string> EncodeLine(const text::Tokenizer& tokenizer, const nlohmann::json& line,
                               bool plain) {
  const auto text = line.find("text");
  if (text == line.end() || !text->is_string()) {
    return InvalidArgument("expected {\"text\": a string}");
  }
  const auto& value = text->get_ref<const std::string&>();
  KURUMA_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                          plain ? tokenizer.EncodePlain(value) : tokenizer.Encode(value));
  return nlohmann::json{{"ids", ids}}.dump();
}

Result<std::string> DecodeLine(const text::Tokenizer& tokenizer, const nlohmann::json& line,
                               bool skip_special) {
  const auto list = line.find("ids");
  if (list == line.end() || !list->is_array()) {
    return InvalidArgument("expected {\"ids\": an array of integers}");
  }
  std::vector<int32_t> ids;
  for (const nlohmann::json& item : *list) {
    // Compared before narrowing, so that no huge number wraps into a valid id.
    if (!item.is_number_integer() || item < 0 || item >= tokenizer.vocab_size()) {
      return InvalidArgument(fmt::format("ids[{}] must be an integer in 0..{}", ids.size(),
                                         tokenizer.vocab_size() - 1));
    }
    ids.push_back(item.get<int32_t>());
  }
  KURUMA_ASSIGN_OR_RETURN(const std::string text, tokenizer.Decode(ids, skip_special));
  return nlohmann::json{{"text", text}}.dump();
}

int RunTokenize(const TokenizeFlags& flags) {
  const Result<std::string> path = TokenizerFile(flags.tokenizer);
  if (!path.ok()) return Fail("tokenize", path.status());
  const auto tokenizer = text::Tokenizer::Load(*path);
  if (!tokenizer.ok()) return Fail("tokenize", tokenizer.status());
  size_t number = 0;
  for (std::string input; std::getline(std::cin, input);) {
    ++number;
    if (input.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto line = nlohmann::json::parse(input, nullptr, /*allow_exceptions=*/false);
    const Result<std::string> output =
        line.is_discarded() || !line.is_object() ? InvalidArgument("expected one JSON object")
        : flags.decode                           ? DecodeLine(**tokenizer, line, flags.skip_special)
                                                 : EncodeLine(**tokenizer, line, flags.plain);
    if (!output.ok()) {
      return Fail("tokenize",
                  InvalidArgument(fmt::format("line {}: {}", number, output.status().message())));
    }
    std::cout << *output << std::endl;
    if (!std::cout) return kExitBadInput;  // nobody reads any more
  }
  return kExitOk;
}

}  // namespace

void RegisterTokenize(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = app.add_subcommand(
      "tokenize", "Turn text into token ids, or ids into text; JSON Lines on stdin and stdout");
  command
      ->add_option("--tokenizer", flags->tokenizer,
                   "tokenizer.json of the checkpoint (default: the bundled model's)")
      ->type_name("FILE");
  auto* decode = command->add_flag(
      "--decode", flags->decode, "Read {\"ids\": [...]}, write {\"text\": ...} (default: reverse)");
  command
      ->add_flag("--skip-special", flags->skip_special,
                 "With --decode: leave out tokens the file marks special")
      ->needs(decode);
  command
      ->add_flag("--plain", flags->plain,
                 "Encode spellings of added tokens as ordinary text, as prompts do with user text")
      ->excludes(decode);
  command->footer(
      "Examples:\n"
      "  echo '{\"text\":\"What is 2+2?\"}' | kuruma tokenize --tokenizer tokenizer.json\n"
      "  echo '{\"ids\":[3085,344]}' | kuruma tokenize --tokenizer tokenizer.json --decode\n"
      "Blank lines are skipped. A line that cannot be handled ends the program with status 2.");
  command->callback([flags, exit_code] { *exit_code = RunTokenize(*flags); });
}

}  // namespace kuruma
