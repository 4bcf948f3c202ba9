#include "line_editor.h"

#include <histedit.h>  // libedit: line editing and history under a permissive licence
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "base/log.h"

namespace kuruma {
namespace {

constexpr int kHistoryLength = 1000;

// Where history is kept; empty: nowhere.
std::string HistoryFile() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  if (state != nullptr && *state == '/') {
    folder = state;
  } else if (home != nullptr && *home != '\0') {
    folder = std::filesystem::path(home) / ".local" / "state";
  } else {
    return "";
  }
  return (folder / "kuruma" / "history").string();
}

}  // namespace

struct LineEditor::Terminal {
  EditLine* edit = nullptr;
  History* history = nullptr;
  std::string history_file;
  std::string prompt;
  bool interrupted = false;

  static Terminal* Of(EditLine* edit) {
    void* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return static_cast<Terminal*>(self);
  }

  static char* Prompt(EditLine* edit) { return Of(edit)->prompt.data(); }

  static unsigned char OnInterrupt(EditLine* edit, int) {
    Of(edit)->interrupted = true;
    std::fputs("^C\n", stdout);
    return CC_EOF;
  }

  Terminal() {
    std::setlocale(LC_CTYPE, "");  // libedit counts characters by it
    edit = el_init("kuruma", stdin, stdout, stderr);
    history = history_init();
    if (edit == nullptr || history == nullptr) return;
    HistEvent event;
    ::history(history, &event, H_SETSIZE, kHistoryLength);
    ::history(history, &event, H_SETUNIQUE, 1);
    history_file = HistoryFile();
    if (!history_file.empty()) ::history(history, &event, H_LOAD, history_file.c_str());
    el_set(edit, EL_CLIENTDATA, this);
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_SIGNAL, 1);
    el_set(edit, EL_HIST, ::history, history);
    el_set(edit, EL_PROMPT_ESC, &Prompt, '\1');
    // Ctrl-C is a key like others while a line is edited; one that comes a moment before the editor
    // has taken the terminal over must not end the program.
    std::signal(SIGINT, [](int) {});
    el_set(edit, EL_SETTY, "-d", "-isig", nullptr);
    el_set(edit, EL_ADDFN, "kuruma-interrupt", "Give up this line", &OnInterrupt);
    el_set(edit, EL_BIND, "^C", "kuruma-interrupt", nullptr);
    // A Ctrl-D in that moment ends a line of the terminal driver, which then hands over a NUL;
    // libedit would take the next key literally.
    el_set(edit, EL_BIND, "^@", "em-delete-or-list", nullptr);
    el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_set(edit, EL_BIND, "^W", "ed-delete-prev-word", nullptr);
  }

  ~Terminal() {
    SaveHistory();
    if (history != nullptr) history_end(history);
    if (edit != nullptr) el_end(edit);
  }

  bool works() const { return edit != nullptr && history != nullptr; }

  void Remember(const std::string& line) {
    HistEvent event;
    ::history(history, &event, H_ENTER, line.c_str());
  }

  void SaveHistory() {
    if (!works() || history_file.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(history_file).parent_path(), error);
    const mode_t before = umask(0077);  // what was asked is nobody else's business
    HistEvent event;
    if (::history(history, &event, H_SAVE, history_file.c_str()) < 0) {
      LogDebug("{}: the history could not be written", history_file);
    }
    umask(before);
  }
};

LineEditor::LineEditor() {
  if (isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1) return;
  terminal_ = std::make_unique<Terminal>();
  if (!terminal_->works()) terminal_ = nullptr;
}

LineEditor::~LineEditor() = default;

LineEditor::Line LineEditor::Read(const std::string& prompt) {
  if (terminal_ == nullptr) {
    Line line;
    if (!std::getline(std::cin, line.text)) return line;
    if (line.text.ends_with('\r')) line.text.pop_back();
    line.outcome = Outcome::kLine;
    return line;
  }
  terminal_->prompt = prompt;
  terminal_->interrupted = false;
  int count = 0;
  const char* text = el_gets(terminal_->edit, &count);
  if (terminal_->interrupted) return {Outcome::kInterrupted, ""};
  if (text == nullptr || count <= 0) return {Outcome::kEnd, ""};
  Line line{Outcome::kLine, std::string(text, count)};
  while (line.text.ends_with('\n') || line.text.ends_with('\r')) line.text.pop_back();
  if (line.text.find_first_not_of(" \t") != std::string::npos) terminal_->Remember(line.text);
  return line;
}

}  // namespace kuruma
