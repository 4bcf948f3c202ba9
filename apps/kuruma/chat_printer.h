// Shows an answer while it comes.
#ifndef KURUMA_APPS_CHAT_PRINTER_H_
#define KURUMA_APPS_CHAT_PRINTER_H_

#include <string>
#include <string_view>

#include "text/parser.h"

namespace kuruma {

// Content as it is, reasoning dim, each tool call on a line of its own as name(arguments). On a
// terminal control characters of the model are shown, not obeyed. One answer; one thread.
class ChatPrinter {
 public:
  // `terminal`: stdout is one. Colours only there, and not when NO_COLOR is set.
  explicit ChatPrinter(bool terminal);

  // False: nobody reads the answer.
  bool Show(const text::ParserEvent& event);

  // Ends the last line.
  bool Finish();

 private:
  enum class Part { kNothing, kReasoning, kContent, kCall };

  bool Begin(Part part);
  bool Write(std::string_view text);

  bool terminal_;
  bool colours_;
  Part part_ = Part::kNothing;
  bool line_open_ = false;
};

// False when the user set NO_COLOR.
bool WantsColours();

// `text` with control characters other than line feed and tab spelled out, as "\x1b".
std::string ForTerminal(std::string_view text);

}  // namespace kuruma

#endif  // KURUMA_APPS_CHAT_PRINTER_H_
