// kuruma chat: a conversation in the terminal.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "answer.h"
#include "chat_printer.h"
#include "chat_session.h"
#include "commands.h"
#include "line_editor.h"
#include "model_loader.h"
#include "report.h"

namespace kuruma {
namespace {

struct ChatFlags {
  ModelFlags model;
  std::optional<std::string> prompt;
  std::string system;
  std::string tools_path;
  std::string think = "off";
  std::optional<double> temperature, top_p;
  std::optional<uint64_t> seed;
  std::optional<int64_t> max_tokens;
  bool quiet = false;
};

// One run of the command.
class Chat {
 public:
  Chat(const LoadedModel& loaded, const ChatFlags& flags, ChatSession session)
      : loaded_(loaded), flags_(flags), session_(std::move(session)), answerer_(loaded) {}

  // Until the input ends; the exit status. On a terminal errors are shown and the chat goes on,
  // otherwise the first one ends it.
  int Run() {
    if (editor_.interactive()) Greet();
    if (flags_.prompt) {
      if (editor_.interactive()) WriteOut(fmt::format("> {}\n", ForTerminal(*flags_.prompt)));
      if (!Handle(*flags_.prompt)) return status_;
    }
    while (!session_.view().ended) {
      const LineEditor::Line line = ReadMessage();
      if (line.outcome == LineEditor::Outcome::kInterrupted) continue;
      if (line.outcome == LineEditor::Outcome::kEnd) break;
      if (!Handle(line.text)) return status_;
    }
    if (editor_.interactive()) WriteOut("\n");
    return kExitOk;
  }

 private:
  void Greet() const {
    const std::string random = loaded_.random_weights
                                   ? "note: this checkpoint has random weights; answers are noise\n"
                                   : "";
    fmt::print(stderr, "Kuruma {}, context {} tokens. /help lists commands, Ctrl-D leaves.\n{}",
               KURUMA_VERSION, loaded_.model->config().max_positions, random);
  }

  // A line, and those after it while each ends with a backslash.
  LineEditor::Line ReadMessage() {
    const std::string waiting = session_.view().waiting;
    LineEditor::Line line = editor_.Read(waiting.empty() ? "> " : "result of " + waiting + "> ");
    while (line.outcome == LineEditor::Outcome::kLine && line.text.ends_with('\\')) {
      line.text.back() = '\n';
      const LineEditor::Line next = editor_.Read(". ");
      if (next.outcome == LineEditor::Outcome::kInterrupted) return next;
      if (next.outcome == LineEditor::Outcome::kEnd) break;
      line.text += next.text;
    }
    return line;
  }

  // False: the chat is over with status_.
  bool Handle(const std::string& text) {
    const bool escaped = text.starts_with("//");
    if (text.starts_with('/') && !escaped) {
      const Result<std::string> shown = session_.Command(text);
      if (!shown.ok()) return Report(shown.status());
      return WriteOut(*shown) || Stop(kExitBadInput);
    }
    return !session_.AddLine(escaped ? text.substr(1) : text) || AnswerNow();
  }

  bool AnswerNow() {
    AnswerOptions options;
    options.sampling = DefaultSampling(loaded_.sampling);
    options.max_tokens = flags_.max_tokens;
    if (flags_.temperature) options.sampling.temperature = *flags_.temperature;
    if (flags_.top_p) options.sampling.top_p = *flags_.top_p;
    if (session_.view().seed) options.sampling.seed = *session_.view().seed;
    ChatPrinter printer(editor_.interactive());
    const Result<Answer> answer =
        answerer_.Run(session_.view().conversation, options,
                      [&](const text::ParserEvent& event) { return printer.Show(event); });
    const bool read = printer.Finish();
    if (!answer.ok()) {
      session_.AddAnswer(std::nullopt);
      return Report(answer.status());
    }
    session_.AddAnswer(answer->parsed);
    if (!flags_.quiet) {
      const std::string numbers = Statistics(answer->input, answer->generation);
      const bool dim = editor_.interactive() && WantsColours();
      fmt::print(stderr, "{}[{}]{}\n", dim ? "\x1b[2m" : "", numbers, dim ? "\x1b[0m" : "");
    }
    if (!read) return Stop(kExitBadInput);
    const bool stopped = answer->generation.finish_reason == "interrupted";
    return !stopped || editor_.interactive() || Stop(kExitInterrupted);
  }

  bool Report(const Status& error) {
    const int status = Fail("chat", error);
    return editor_.interactive() || Stop(status);
  }

  bool Stop(int status) {
    status_ = status;
    return false;
  }

  const LoadedModel& loaded_;
  const ChatFlags& flags_;
  ChatSession session_;
  Answerer answerer_;
  LineEditor editor_;
  int status_ = kExitOk;
};

Result<ChatSession> MakeSession(const ChatFlags& flags) {
  ChatSession session;
  session.SetSystem(flags.system);
  session.SetSeed(flags.seed);
  KURUMA_RETURN_IF_ERROR(session.SetThinking(flags.think));
  KURUMA_RETURN_IF_ERROR(session.LoadTools(flags.tools_path));
  return session;
}

int RunChat(const ChatFlags& flags) {
  const Result<ChatSession> session = MakeSession(flags);
  if (!session.ok()) return Fail("chat", session.status());
  const auto loaded = LoadModel(flags.model, TokenizerUse::kRequired);
  if (!loaded.ok()) return Fail("chat", loaded.status());
  return Chat(*loaded, flags, *session).Run();
}

}  // namespace

void RegisterChat(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* command = app.add_subcommand("chat", "Talk with a model in the terminal");
  AddModelFlags(command, &flags->model);
  command->add_option("--prompt", flags->prompt, "First message; the chat goes on after its answer")
      ->type_name("TEXT");
  command->add_option("--system", flags->system, "System message of the conversation")
      ->type_name("TEXT");
  command
      ->add_option("--tools", flags->tools_path,
                   "Tools the model may call: a JSON list as in Chat Completions")
      ->type_name("FILE");
  command
      ->add_option("--think", flags->think,
                   "Reasoning before each answer, shown dim: off, low, high, max")
      ->capture_default_str()
      ->type_name("MODE");
  command->add_option("--temperature", flags->temperature,
                      "0: always the best token (default: the model's own)");
  command->add_option("--top-p", flags->top_p,
                      "Smallest set of tokens with this mass (default: the model's own)");
  command->add_option("--seed", flags->seed,
                      "Equal seeds give equal answers (default: drawn and reported)");
  command
      ->add_option("--max-tokens", flags->max_tokens,
                   "Longest answer (default: what the context leaves)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_flag("--quiet", flags->quiet, "No statistics on stderr");
  command->footer(
      "Examples:\n"
      "  kuruma chat\n"
      "  kuruma chat --prompt 'What does inspect do?'\n"
      "  kuruma chat --model DIR --think high --tools tools.json\n"
      "  printf '12+30\\nSort: 9 4 7\\n' | kuruma chat --quiet\n"
      "Type /help inside. On a terminal lines are edited (arrows, Ctrl-R) and remembered in\n"
      "~/.local/state/kuruma/history; otherwise every line of stdin is a message. A tool call is\n"
      "shown as name(arguments); the next line is its result, an empty one gives none. Ctrl-C "
      "stops\n"
      "an answer.");
  command->callback([flags, exit_code] { *exit_code = RunChat(*flags); });
}

}  // namespace kuruma
