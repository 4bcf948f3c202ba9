// What a client is told when its request cannot be served.
#ifndef KURUMA_API_ERROR_H_
#define KURUMA_API_ERROR_H_

#include <string>

#include "base/status.h"

namespace kuruma::api {

struct ApiError {
  int status = 400;  // HTTP
  std::string message;
};

// `status` must not be ok. Wrong input is the client's fault (400), a missing name 404, a full
// queue 429, everything else ours (500). Any thread.
inline ApiError ToApiError(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return {400, status.message()};
    case StatusCode::kNotFound:
      return {404, status.message()};
    case StatusCode::kResourceExhausted:
      return {429, status.message()};
    default:
      return {500, status.message()};
  }
}

}  // namespace kuruma::api

#endif  // KURUMA_API_ERROR_H_
