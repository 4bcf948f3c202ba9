// The request protocols that the server speaks.
#ifndef KURUMA_API_PROTOCOL_H_
#define KURUMA_API_PROTOCOL_H_

#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace kuruma::api {

enum class Protocol {
  kChat,         // POST /v1/chat/completions (OpenAI)
  kCompletions,  // POST /v1/completions (OpenAI)
  kMessages,     // POST /v1/messages and /v1/messages/count_tokens (Anthropic)
  kResponses,    // POST /v1/responses (OpenAI)
};

// The protocol called `name`: chat, completions, messages or responses; nothing for others.
inline std::optional<Protocol> ProtocolOfName(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Protocol>, 4> kNames = {
      {{"chat", Protocol::kChat},
       {"completions", Protocol::kCompletions},
       {"messages", Protocol::kMessages},
       {"responses", Protocol::kResponses}}};
  for (const auto& [known, protocol] : kNames) {
    if (known == name) return protocol;
  }
  return std::nullopt;
}

}  // namespace kuruma::api

#endif  // KURUMA_API_PROTOCOL_H_
