#include "chat_printer.h"

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "report.h"

namespace kuruma {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kPlain = "\x1b[0m";

}  // namespace

bool WantsColours() {
  const char* refusal = std::getenv("NO_COLOR");
  return refusal == nullptr || *refusal == '\0';
}

std::string ForTerminal(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\n\t"), text.size());
    out += EscapeControls(text.substr(0, end));
    if (end < text.size()) out += text[end];
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

ChatPrinter::ChatPrinter(bool terminal)
    : terminal_(terminal), colours_(terminal && WantsColours()) {}

bool ChatPrinter::Write(std::string_view text) {
  if (text.empty()) return true;
  line_open_ = text.back() != '\n';
  return WriteOut(terminal_ ? ForTerminal(text) : std::string(text));
}

bool ChatPrinter::Begin(Part part) {
  if (part == part_ && part != Part::kCall) return true;
  bool read = true;
  if (part_ == Part::kReasoning && colours_) read = WriteOut(kPlain);
  if (line_open_) read = Write("\n") && read;
  part_ = part;
  if (part == Part::kReasoning && colours_) read = WriteOut(kDim) && read;
  return read;
}

bool ChatPrinter::Show(const text::ParserEvent& event) {
  switch (event.kind) {
    case text::ParserEvent::Kind::kReasoning:
      return Begin(Part::kReasoning) && Write(event.text);
    case text::ParserEvent::Kind::kContent:
      return Begin(Part::kContent) && Write(event.text);
    case text::ParserEvent::Kind::kCallBegin:
      return Begin(Part::kCall) && Write(event.text + "(");
    case text::ParserEvent::Kind::kCallDelta:
      return Write(event.text);
    case text::ParserEvent::Kind::kCallEnd:
      return Write(")");
  }
  return true;
}

bool ChatPrinter::Finish() { return Begin(Part::kNothing); }

}  // namespace kuruma
