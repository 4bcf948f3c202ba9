// Reads lines from the user: with editing and history on a terminal, plainly otherwise.
#ifndef KURUMA_APPS_LINE_EDITOR_H_
#define KURUMA_APPS_LINE_EDITOR_H_

#include <memory>
#include <string>

namespace kuruma {

// One at a time in a program. One thread.
class LineEditor {
 public:
  enum class Outcome { kLine, kEnd, kInterrupted };
  struct Line {
    Outcome outcome = Outcome::kEnd;
    std::string text;  // without the line feed
  };

  // Editing is on when stdin and stdout are terminals. Then history is read from and kept in
  // $XDG_STATE_HOME/kuruma/history (~/.local/state by default), readable by the user alone; without
  // a home directory it is forgotten at the end.
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  bool interactive() const { return terminal_ != nullptr; }

  // Ctrl-C gives kInterrupted, the end of the input or Ctrl-D on an empty line kEnd. `prompt` is
  // shown on a terminal only.
  Line Read(const std::string& prompt);

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;  // null: plain lines
};

}  // namespace kuruma

#endif  // KURUMA_APPS_LINE_EDITOR_H_
