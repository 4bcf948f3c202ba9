#include "server/http_text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <random>

#include "text/json.h"
#include "text/utf8.h"

namespace kuruma::server {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool IsHex(char c) { return (c >= '0' && c <= '9') || (Lower(c) >= 'a' && Lower(c) <= 'f'); }

bool IsAlphanumeric(char c) {
  return (c >= '0' && c <= '9') || (Lower(c) >= 'a' && Lower(c) <= 'z');
}

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return IsAlphanumeric(c) ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

bool IsFieldValue(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
  });
}

bool BelongsToFrame(std::string_view name) {
  return SameName(name, "content-length") || SameName(name, "transfer-encoding") ||
         SameName(name, "connection");
}

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// RFC 9110 section 5.6.7, made once a second and thread.
const std::string& DateNow() {
  thread_local std::time_t made = 0;
  thread_local std::string text;
  const std::time_t now = std::time(nullptr);
  if (now != made) {
    made = now;
    text = fmt::format("{:%a, %d %b %Y %H:%M:%S GMT}", fmt::gmtime(now));
  }
  return text;
}

struct Phrase {
  int status;
  std::string_view text;
};

// RFC 9110 section 15; the codes this server and its handlers use.
constexpr Phrase kPhrases[] = {
    {100, "Continue"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {402, "Payment Required"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

void AppendJson(std::string_view text, std::string* out) {
  std::string valid;
  text::AppendLossyUtf8(text, /*final=*/true, &valid);
  text::AppendJsonString(valid, out);
}

}  // namespace

bool SameName(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return Lower(x) == Lower(y); });
}

bool HasToken(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (SameName(Trim(list.substr(0, comma)), token)) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

std::string_view ReasonPhrase(int status) {
  for (const Phrase& phrase : kPhrases) {
    if (phrase.status == status) return phrase.text;
  }
  return "Status";
}

bool HasNoBody(int status) { return status / 100 == 1 || status == 204 || status == 304; }

std::string ReplyHead(int status, std::string_view content_type, const ReplyFrame& frame,
                      const HttpHeaders& headers) {
  std::string head;
  head.reserve(320);
  fmt::format_to(std::back_inserter(head), "HTTP/1.1 {} {}\r\nDate: {}\r\n", status,
                 ReasonPhrase(status), DateNow());
  const auto add = [&](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  if (!content_type.empty() && !HasNoBody(status) && IsFieldValue(content_type)) {
    add("Content-Type", content_type);
  }
  if (!HasNoBody(status)) {
    if (frame.body == ReplyFrame::Body::kLength) {
      add("Content-Length", fmt::format_int(frame.length).c_str());
    } else if (frame.body == ReplyFrame::Body::kChunked) {
      add("Transfer-Encoding", "chunked");
    }
  }
  if (!frame.keep_alive) {
    add("Connection", "close");
  } else if (frame.says_keep_alive) {
    add("Connection", "keep-alive");
  }
  for (const auto& [name, value] : headers) {
    if (IsToken(name) && IsFieldValue(value) && !BelongsToFrame(name)) add(name, value);
  }
  head.append("\r\n");
  return head;
}

bool IsFitRequestId(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](char c) {
    return IsAlphanumeric(c) || std::string_view("-_.:/=+").find(c) != std::string_view::npos;
  });
}

std::string DrawRequestId() {
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return fmt::format("req_{:016x}{:08x}", random(), random() >> 32);
}

bool HasWellFormedEscapes(std::string_view path) {
  for (size_t i = path.find('%'); i != std::string_view::npos; i = path.find('%', i + 1)) {
    if (i + 2 >= path.size() || !IsHex(path[i + 1]) || !IsHex(path[i + 2])) return false;
  }
  return true;
}

CorsAnswer AnswerCors(const std::vector<std::string>& origins, const HttpRequest& request) {
  CorsAnswer answer;
  if (origins.empty()) return answer;
  const std::string_view origin = request.Header("origin");
  if (origin.empty()) return answer;
  const std::string_view method = request.Header("access-control-request-method");
  const bool preflight = request.method == "OPTIONS" && !method.empty();
  const bool any = std::find(origins.begin(), origins.end(), "*") != origins.end();
  const bool allowed = any || std::find(origins.begin(), origins.end(), origin) != origins.end();
  if (!any) answer.headers.emplace_back("Vary", "Origin");
  if (preflight) {
    answer.preflight = allowed ? CorsAnswer::Preflight::kAllowed : CorsAnswer::Preflight::kRefused;
  }
  if (!allowed) return answer;
  answer.headers.emplace_back("Access-Control-Allow-Origin", any ? "*" : std::string(origin));
  if (preflight) {
    const std::string_view wanted = request.Header("access-control-request-headers");
    answer.headers.emplace_back("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS");
    // Named one by one: "*" would not cover Authorization (Fetch standard, section 4.8).
    if (!wanted.empty()) answer.headers.emplace_back("Access-Control-Allow-Headers", wanted);
    answer.headers.emplace_back("Access-Control-Max-Age", "86400");
  } else {
    answer.headers.emplace_back("Access-Control-Expose-Headers",
                                "X-Request-Id, X-Kuruma-Seed, Retry-After");
  }
  return answer;
}

std::string ErrorBody(int status, std::string_view message) {
  std::string_view type = status >= 500 ? "server_error" : "invalid_request_error";
  if (status == 401) type = "authentication_error";
  if (status == 403) type = "permission_error";
  if (status == 404) type = "not_found_error";
  if (status == 429) type = "rate_limit_error";
  std::string body = R"({"error":{"message":)";
  AppendJson(message, &body);
  fmt::format_to(std::back_inserter(body), R"(,"type":"{}","param":null,"code":null}}}})", type);
  return body;
}

std::string AccessLine(const AccessRecord& record) {
  const auto now = std::chrono::system_clock::now();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  std::string line =
      fmt::format(R"({{"time":"{:%Y-%m-%dT%H:%M:%S}.{:03}Z")",
                  fmt::gmtime(std::chrono::system_clock::to_time_t(now)), ms.count() % 1000);
  const auto add = [&](std::string_view name, std::string_view value) {
    line.append(",\"").append(name).append("\":");
    AppendJson(value, &line);
  };
  add("id", record.id);
  add("remote", record.remote);
  add("method", record.method);
  add("path", record.path);
  fmt::format_to(std::back_inserter(line),
                 R"(,"status":{},"bytes_in":{},"bytes_out":{},"ms":{:.3f})", record.status,
                 record.bytes_in, record.bytes_out, record.ms);
  add("user_agent", record.user_agent);
  line.push_back('}');
  return line;
}

}  // namespace kuruma::server
