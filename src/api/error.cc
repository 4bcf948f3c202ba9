#include "api/error.h"

#include <fmt/format.h>

#include <string_view>

#include "text/json.h"
#include "text/utf8.h"

namespace kuruma::api {
namespace {

int HttpStatus(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
      return 400;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kResourceExhausted:
      return 429;
    default:
      return 500;
  }
}

// The path in "'a.b[0]' must be ..."; empty if the message does not begin so.
std::string LeadingPath(std::string_view message) {
  if (!message.starts_with('\'')) return "";
  const size_t end = message.find('\'', 1);
  return end == std::string_view::npos ? "" : std::string(message.substr(1, end - 1));
}

std::string_view OpenAiType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string_view AnthropicType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
    case 529:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

std::string Quoted(std::string_view text) {
  std::string valid;
  text::AppendLossyUtf8(text, /*final=*/true, &valid);
  std::string out;
  text::AppendJsonString(valid, &out);
  return out;
}

}  // namespace

ApiError ToApiError(const Status& status) {
  ApiError error{.status = HttpStatus(status.code()), .message = status.message()};
  if (error.status == 400) error.param = LeadingPath(error.message);
  return error;
}

std::string ErrorBody(Protocol protocol, const ApiError& error) {
  if (protocol == Protocol::kMessages) {
    return fmt::format(
        R"({{"type":"error","error":{{"type":{},"message":{}}}}})",
        Quoted(error.anthropic_type.empty() ? AnthropicType(error.status) : error.anthropic_type),
        Quoted(error.message));
  }
  const std::string type = error.type.empty() ? std::string(OpenAiType(error.status)) : error.type;
  return fmt::format(R"({{"error":{{"message":{},"type":{},"param":{},"code":{}}}}})",
                     Quoted(error.message), Quoted(type),
                     error.param.empty() ? "null" : Quoted(error.param),
                     Quoted(error.code.empty() ? type : error.code));
}

}  // namespace kuruma::api
