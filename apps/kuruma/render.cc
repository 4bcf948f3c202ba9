// kuruma render: Chat Completions bodies to prompts, JSON Lines in and out.
#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/chat.h"
#include "api/error.h"
#include "commands.h"
#include "model_directory.h"
#include "report.h"
#include "text/prompt.h"
#include "text/tokenizer.h"

namespace kuruma {
namespace {

struct RenderFlags {
  std::string tokenizer;
  bool whole_string = false;
  bool no_thinking = false;
  bool reference = false;
};

Result<nlohmann::ordered_json> RenderBody(const text::Tokenizer& tokenizer, std::string_view body,
                                          const RenderFlags& flags) {
  api::ChatOptions options;
  options.default_thinking = !flags.no_thinking;
  options.reference_prompts = flags.reference;
  KURUMA_ASSIGN_OR_RETURN(const api::ChatRequest request, api::ParseChatRequest(body, options));
  const text::RenderedPrompt prompt = text::RenderPrompt(request.conversation);
  KURUMA_ASSIGN_OR_RETURN(
      const std::vector<int32_t> ids,
      flags.whole_string ? tokenizer.Encode(prompt.text) : text::EncodePrompt(prompt, tokenizer));
  auto ranges = nlohmann::ordered_json::array();
  for (const text::SpecialRange& range : prompt.specials) {
    ranges.push_back({range.begin, range.end});
  }
  return nlohmann::ordered_json{
      {"prompt", prompt.text}, {"ids", ids}, {"special_ranges", std::move(ranges)}};
}

int RunRender(const RenderFlags& flags) {
  const Result<std::string> path = TokenizerFile(flags.tokenizer);
  if (!path.ok()) return Fail("render", path.status());
  const auto tokenizer = text::Tokenizer::Load(*path);
  if (!tokenizer.ok()) return Fail("render", tokenizer.status());
  for (std::string body; std::getline(std::cin, body);) {
    if (body.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto output = RenderBody(**tokenizer, body, flags);
    if (!output.ok()) {
      const api::ApiError error = api::ToApiError(output.status());
      output =
          nlohmann::ordered_json{{"error", {{"status", error.status}, {"message", error.message}}}};
    }
    std::cout << output->dump() << std::endl;
    if (!std::cout) return kExitBadInput;  // nobody reads any more
  }
  return kExitOk;
}

}  // namespace

void RegisterRender(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<RenderFlags>();
  CLI::App* command = app.add_subcommand(
      "render", "Show the prompt of Chat Completions requests; JSON Lines on stdin and stdout");
  command
      ->add_option("--tokenizer", flags->tokenizer,
                   "tokenizer.json of the checkpoint (default: the bundled model's)")
      ->type_name("FILE");
  command->add_flag("--whole-string", flags->whole_string,
                    "Tokenize the prompt as one string, so that control tokens spelled by users "
                    "count, as chat templates of other servers do");
  command->add_flag("--no-thinking", flags->no_thinking,
                    "Requests that do not say whether to think do not think");
  command->add_flag(
      "--reference", flags->reference,
      "Render tool choices and old reasoning exactly as DeepSeek's reference library");
  command->footer(
      "Examples:\n"
      "  echo '{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}' |\n"
      "    kuruma render --tokenizer tokenizer.json\n"
      "Writes {\"prompt\", \"ids\", \"special_ranges\"} per line, or {\"error\": {\"status\", "
      "\"message\"}}\nfor a body that is refused. Blank lines are skipped.");
  command->callback([flags, exit_code] { *exit_code = RunRender(*flags); });
}

}  // namespace kuruma
