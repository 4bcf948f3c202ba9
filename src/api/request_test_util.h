// Short ways to parse requests of any protocol; for the tests of the api module.
#ifndef KURUMA_API_REQUEST_TEST_UTIL_H_
#define KURUMA_API_REQUEST_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "api/chat.h"
#include "api/completions.h"
#include "api/error.h"
#include "api/messages.h"
#include "api/responses.h"
#include "text/prompt.h"

namespace kuruma::api {

// Protocols of conversations as types for MustParse<> and ErrorOf<>.
struct Chat {
  static auto Parse(const std::string& body, const ChatOptions& options) {
    return ParseChatRequest(body, options);
  }
};
struct Messages {
  static auto Parse(const std::string& body, const ChatOptions& options) {
    return ParseMessagesRequest(body, options);
  }
};
struct Responses {
  static Result<ChatRequest> Parse(const std::string& body, const ChatOptions& options) {
    KURUMA_ASSIGN_OR_RETURN(ResponsesRequest request, ParseResponsesRequest(body, options));
    return std::move(request.chat);
  }
};
struct Completions {
  static auto Parse(const std::string& body, const ChatOptions&) {
    return ParseCompletionRequest(body);
  }
};

// The request, which must be accepted; an empty one and a failure otherwise.
template <typename P>
auto MustParse(const std::string& body, const ChatOptions& options = {}) {
  auto request = P::Parse(body, options);
  EXPECT_TRUE(request.ok()) << request.status().message() << "\n" << body;
  return request.ok() ? *std::move(request) : std::decay_t<decltype(*request)>();
}

// Its prompt.
template <typename P>
std::string PromptOf(const std::string& body, const ChatOptions& options = {}) {
  return text::RenderPrompt(MustParse<P>(body, options).conversation).text;
}

// The message for a request that must be refused with 400.
template <typename P>
std::string ErrorOf(const std::string& body, const ChatOptions& options = {}) {
  const auto request = P::Parse(body, options);
  EXPECT_FALSE(request.ok()) << body;
  if (request.ok()) return "";
  EXPECT_EQ(ToApiError(request.status()).status, 400);
  return request.status().message();
}

// {"messages": [user "hi"], MEMBERS}: a Chat and a Messages body.
inline std::string Hi(const std::string& members = "") {
  return R"({"messages":[{"role":"user","content":"hi"}])" +
         std::string(members.empty() ? "" : ",") + members + "}";
}

// {"input": "hi", MEMBERS}: a Responses body.
inline std::string Input(const std::string& members = "") {
  return R"({"input":"hi")" + std::string(members.empty() ? "" : ",") + members + "}";
}

inline bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace kuruma::api

#endif  // KURUMA_API_REQUEST_TEST_UTIL_H_
