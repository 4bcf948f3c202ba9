// kuruma: one program, one subcommand per task (see commands.h).
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "base/log.h"
#include "commands.h"
#include "report.h"

namespace kuruma {
namespace {

// The last line of defence, also for exceptions on compute threads (which must not throw, but may
// run out of memory): one line instead of a core dump.
[[noreturn]] void OnTerminate() {
  const char* reason = "internal error: unhandled exception";
  if (const std::exception_ptr current = std::current_exception()) {
    try {
      std::rethrow_exception(current);
    } catch (const std::bad_alloc&) {
      reason = "out of memory";
    } catch (...) {
    }
  }
  std::fprintf(stderr, "kuruma: %s\n", reason);
  std::_Exit(kExitOurFault);
}

// Reading a mapped model file failed: it was shortened, or its disk or network went away.
void OnBusError(int) {
  constexpr std::string_view kLine =
      "kuruma: a model file cannot be read any more (shortened, or its disk failed)\n";
  const auto written = write(STDERR_FILENO, kLine.data(), kLine.size());
  std::_Exit(written < 0 ? kExitOurFault : kExitBadInput);
}

int OurFault(std::string_view what) { return Fail("error", Internal(std::string(what))); }

int Run(int argc, char** argv) {
  CLI::App app(
      "Kuruma runs DeepSeek-V4.1-Flash: chat, inspect a checkpoint, generate, score, measure.\n"
      "Exit status: 0 success, 1 internal error or out of memory, 2 wrong flags, files or input.",
      "kuruma");
  app.set_version_flag("--version", std::string("kuruma ") + KURUMA_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option_function<std::string>(
         "--log-level",
         [](const std::string& name) {
           const Status status = SetLogLevel(name);
           if (!status.ok()) throw CLI::ValidationError("--log-level", status.message());
         },
         "What is logged on stderr: debug, info, warn, error, off (default: warn)")
      ->type_name("LEVEL");
  app.footer(
      "Examples:\n"
      "  kuruma chat                                             talk with the bundled model\n"
      "  kuruma serve                                            the HTTP API, and a page\n"
      "  kuruma inspect DIR                                      what is in a checkpoint\n"
      "  kuruma generate --model DIR --prompt 'Once upon a time'  continue a text\n"
      "  kuruma score --model DIR < texts.jsonl                  log-probabilities\n"
      "  kuruma bench --model DIR                                how fast it is here\n"
      "  kuruma generate --help                                  flags of one command");
  int exit_code = kExitOk;
  RegisterChat(app, &exit_code);
  RegisterInspect(app, &exit_code);
  RegisterServe(app, &exit_code);
  RegisterGenerate(app, &exit_code);
  RegisterScore(app, &exit_code);
  RegisterEval(app, &exit_code);
  RegisterBench(app, &exit_code);
  RegisterTokenize(app, &exit_code);
  RegisterRender(app, &exit_code);
  RegisterParse(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    const auto chosen = app.get_subcommands();
    std::string command;  // " bench engine"
    for (auto deeper = chosen; !deeper.empty(); deeper = deeper[0]->get_subcommands()) {
      command += " " + deeper[0]->get_name();
    }
    // A misspelled subcommand is found as a missing one.
    const auto extras = app.remaining();
    const std::string reason = chosen.empty() && !extras.empty()
                                   ? fmt::format("unknown subcommand or flag \"{}\"", extras[0])
                                   : e.what();
    const std::string line = fmt::format("kuruma{}: {} (see kuruma{} --help)\n", command,
                                         EscapeControls(reason), command);
    std::fwrite(line.data(), 1, line.size(), stderr);
    return kExitBadInput;
  }
  return exit_code;
}

}  // namespace
}  // namespace kuruma

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is a failed write, not the end of us
  std::signal(SIGBUS, kuruma::OnBusError);
  std::set_terminate(kuruma::OnTerminate);
  try {
    return kuruma::Run(argc, argv);
  } catch (const std::bad_alloc&) {
    return kuruma::Fail("error", kuruma::ResourceExhausted("out of memory"));
  } catch (const std::exception& e) {
    return kuruma::OurFault(std::string("internal error: ") + e.what());
  }
}
