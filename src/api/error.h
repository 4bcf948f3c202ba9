// What a client is told when its request cannot be served.
// Source: the error objects of OpenAI's and Anthropic's APIs.
#ifndef KURUMA_API_ERROR_H_
#define KURUMA_API_ERROR_H_

#include <string>

#include "api/protocol.h"
#include "base/status.h"

namespace kuruma::api {

struct ApiError {
  int status = 400;  // HTTP
  std::string message = "";
  std::string type = "";            // OpenAI's class of errors; empty: the usual one of the status
  std::string anthropic_type = "";  // the same of Anthropic
  std::string param = "";  // path of the field at fault, e.g. messages[0].role; empty: none
  std::string code = "";   // what programs compare with; empty: as `type`
};

// `status` must not be ok. Wrong input is the client's fault (400), a missing name 404, a full
// queue 429, everything else ours (500). A message that begins with a quoted field path, as those
// of Fields do, gives `param`. Any thread.
ApiError ToApiError(const Status& status);

// The body of an answer with HTTP status `error.status`, as clients of `protocol` expect it:
//   Anthropic: {"type": "error", "error": {"type", "message"}}
//   others:    {"error": {"message", "type", "param", "code"}}
// One line of JSON, whatever bytes the message holds. Any thread.
std::string ErrorBody(Protocol protocol, const ApiError& error);

}  // namespace kuruma::api

#endif  // KURUMA_API_ERROR_H_
