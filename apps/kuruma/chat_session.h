// A conversation and its settings, as the commands of the chat change them.
#ifndef KURUMA_APPS_CHAT_SESSION_H_
#define KURUMA_APPS_CHAT_SESSION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/parser.h"
#include "text/prompt.h"

namespace kuruma {

// Knows nothing of model and terminal. One thread.
class ChatSession {
 public:
  ChatSession() { conversation_.thinking = false; }

  // "off" or "none", "on", or an effort label (low, high, max, ...). InvalidArgument otherwise.
  Status SetThinking(const std::string& mode);

  // The system message; forgets the conversation. Empty: none.
  void SetSystem(const std::string& text);

  // A JSON list of tools as in Chat Completions; an empty path: none. NotFound, InvalidArgument
  // name the file and what is wrong with it.
  Status LoadTools(const std::string& path);

  void SetSeed(std::optional<uint64_t> seed) { seed_ = seed; }

  // Runs a line that begins with a slash; what to show the user comes back. InvalidArgument:
  // unknown command, wrong argument; NotFound: a file.
  Result<std::string> Command(std::string_view line);

  // Adds what the user typed: the result of the first call that waits for one, else a message. True
  // when it is the model's turn. An empty line gives up waiting and is no message.
  bool AddLine(const std::string& line);

  // Adds the model's answer; its calls wait for results. Without one (the answer failed) the last
  // line is taken back.
  void AddAnswer(const std::optional<text::ParsedAnswer>& answer);

  struct View {
    const text::Conversation& conversation;
    std::optional<uint64_t> seed;  // nothing: a new one for each answer
    std::string waiting;           // name of the tool whose result is expected; empty: none
    bool ended = false;            // the user wants to leave
  };
  View view() const;

 private:
  struct CommandEntry;
  static const std::vector<CommandEntry>& Commands();

  Result<std::string> ShowHelp(const std::string& argument);
  Result<std::string> RunReset(const std::string& argument);
  Result<std::string> RunSystem(const std::string& argument);
  Result<std::string> RunThink(const std::string& argument);
  Result<std::string> RunTools(const std::string& argument);
  Result<std::string> RunSave(const std::string& argument);
  Result<std::string> RunSeed(const std::string& argument);
  Result<std::string> RunQuit(const std::string& argument);
  void Forget();
  const text::ToolCall& AwaitedCall() const;

  text::Conversation conversation_;
  std::string system_;
  std::string tools_json_;  // as the file has them
  std::string think_mode_ = "off";
  size_t results_missing_ = 0;  // of the last answer's calls
  std::optional<uint64_t> seed_;
  bool ended_ = false;
};

}  // namespace kuruma

#endif  // KURUMA_APPS_CHAT_SESSION_H_
