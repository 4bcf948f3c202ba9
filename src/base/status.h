// Errors as values. A function that can fail for a reason outside the program returns Status or
// Result<T>; broken promises inside the program are KURUMA_CHECK failures (base/check.h).
// Source: Kuruma design, "Errors carry what the operator needs".
#ifndef KURUMA_BASE_STATUS_H_
#define KURUMA_BASE_STATUS_H_

#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace kuruma {

// What kind of failure; the front ends map these to exit codes and HTTP statuses.
enum class StatusCode {
  kOk,
  kInvalidArgument,    // the caller's input is wrong: flags, requests, config values
  kNotFound,           // a named file, tensor or token does not exist
  kDataLoss,           // a file is there but damaged or inconsistent
  kResourceExhausted,  // memory, slots, queue places
  kInternal,           // our own fault, or numbers gone wrong (NaN logits)
};

// Short name of a code for logs, e.g. "invalid argument".
std::string_view StatusCodeName(StatusCode code);

// Success, or a code with one clear sentence naming what and where. Value type; any thread.
class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
inline Status NotFound(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
inline Status DataLoss(std::string message) { return {StatusCode::kDataLoss, std::move(message)}; }
inline Status ResourceExhausted(std::string message) {
  return {StatusCode::kResourceExhausted, std::move(message)};
}
inline Status Internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

// A T or the Status that says why there is none. `value()` of a failed result is a programming
// error (std::bad_variant_access).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::move(value)) {}         // NOLINT: implicit on purpose
  Result(Status status) : content_(std::move(status)) {}  // NOLINT: implicit on purpose

  bool ok() const { return std::holds_alternative<T>(content_); }
  Status status() const { return ok() ? Status() : std::get<Status>(content_); }
  T& value() { return std::get<T>(content_); }
  const T& value() const { return std::get<T>(content_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> content_;
};

}  // namespace kuruma

#define KURUMA_STATUS_CONCAT_INNER(a, b) a##b
#define KURUMA_STATUS_CONCAT(a, b) KURUMA_STATUS_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expr` (a Status) failed.
#define KURUMA_RETURN_IF_ERROR(expr)               \
  do {                                             \
    ::kuruma::Status kuruma_status = (expr);       \
    if (!kuruma_status.ok()) return kuruma_status; \
  } while (false)

// KURUMA_ASSIGN_OR_RETURN(auto x, F()): unwraps a Result or returns its Status.
#define KURUMA_ASSIGN_OR_RETURN(lhs, expr) \
  KURUMA_ASSIGN_OR_RETURN_IMPL(KURUMA_STATUS_CONCAT(kuruma_result_, __LINE__), lhs, expr)
#define KURUMA_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                 \
  if (!result.ok()) return result.status();             \
  lhs = std::move(result.value())

#endif  // KURUMA_BASE_STATUS_H_
