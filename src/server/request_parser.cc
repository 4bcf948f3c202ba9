#include "server/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <cctype>
#include <cstdint>
#include <utility>

#include "server/http_text.h"

namespace kuruma::server {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using BoostView = boost::beast::string_view;

std::string_view View(BoostView text) { return {text.data(), text.size()}; }

// Room for a body whose length was announced, before any of it came.
constexpr uint64_t kTrustedBytes = 1 << 20;

// Whether the request line at the front of `data` names an HTTP version other than ours.
bool NamesOtherVersion(std::string_view data) {
  const std::string_view line = data.substr(0, data.find_first_of("\r\n"));
  const size_t space = line.rfind(' ');
  if (space == std::string_view::npos) return false;
  const std::string_view version = line.substr(space + 1);
  return version.size() == 8 && version != "HTTP/1.0" && version != "HTTP/1.1" &&
         version.substr(0, 5) == "HTTP/" && std::isdigit(version[5]) != 0 && version[6] == '.' &&
         std::isdigit(version[7]) != 0;
}

}  // namespace

class RequestParser::Syntax : public http::basic_parser<true> {
 public:
  Syntax(size_t max_header_bytes, size_t max_body_bytes)
      : max_header_bytes_(max_header_bytes), max_body_bytes_(max_body_bytes) {
    // One more than allowed, so that the total is judged here and not per line.
    header_limit(static_cast<uint32_t>(max_header_bytes + 1));
    body_limit(max_body_bytes);
  }

  size_t Feed(std::string_view data) {
    size_t used = 0;
    if (!got_start_) used = std::min(data.find_first_not_of("\r\n"), data.size());
    header_bytes_ += used;
    data.remove_prefix(used);
    while (!data.empty() && !error && !is_done()) {
      const bool in_header = !is_header_done();
      error_code ec;
      const size_t n = put(boost::asio::buffer(data.data(), data.size()), ec);
      if (in_header) header_bytes_ += n;
      if (ec && ec != http::error::need_more && !error) Refuse(ec, data);
      data.remove_prefix(n);
      used += n;
      CheckRoom(data, n == 0);
      if (n == 0 || ec) break;
    }
    return used;
  }

  ParsedRequest parsed;
  std::optional<HttpError> error;
  bool has_header = false;

 private:
  // What cannot be read for want of its end must stay small; so must the header as a whole.
  void CheckRoom(std::string_view unread, bool reads_nothing) {
    if (error) return;
    const size_t header = header_bytes_ + (has_header ? 0 : unread.size());
    if (header > max_header_bytes_) {
      const bool in_first_line = !got_start_;
      Fail(in_first_line ? 414 : 431,
           fmt::format("the {} longer than {} bytes",
                       in_first_line ? "request line is" : "request headers are",
                       max_header_bytes_));
    } else if (reads_nothing && unread.size() > max_header_bytes_) {
      Fail(400, "a chunk header or trailer is too long");
    }
  }

  void Refuse(const error_code& ec, std::string_view data) {
    if (ec == http::error::body_limit) {
      Fail(413, fmt::format("the request body is longer than {} bytes", max_body_bytes_));
    } else if (ec == http::error::header_limit) {
      Fail(got_start_ ? 431 : 414,
           fmt::format("the request line or headers are longer than {} bytes", max_header_bytes_));
    } else if (ec == http::error::bad_version && NamesOtherVersion(data)) {
      Fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    } else {
      Fail(400, "malformed request: " + ec.message());
    }
  }

  // The first one counts.
  void Fail(int status, std::string message) {
    if (!error) error = HttpError{status, std::move(message)};
  }

  void on_request_impl(http::verb, BoostView method, BoostView target, int version,
                       error_code& ec) override {
    got_start_ = true;
    HttpRequest& request = parsed.request;
    request.method = View(method);
    request.minor_version = version - 10;
    std::string_view rest = View(target);
    // The absolute form, as proxies get it: the authority is dropped.
    if (const size_t scheme = rest.find("://");
        scheme != std::string_view::npos &&
        rest.substr(0, scheme).find_first_of("/?") == std::string_view::npos) {
      const size_t path = rest.find('/', scheme + 3);
      rest = path == std::string_view::npos ? "/" : rest.substr(path);
    }
    rest = rest.substr(0, rest.find('#'));
    const size_t mark = rest.find('?');
    request.path = rest.substr(0, mark);
    if (mark != std::string_view::npos) request.query = rest.substr(mark + 1);
    const bool asterisk = request.path == "*" && request.method == "OPTIONS";
    if (!asterisk && (request.path.empty() || request.path[0] != '/')) {
      Fail(400, "the request target is no path");
    } else if (!HasWellFormedEscapes(request.path)) {
      Fail(400, "the path has a malformed percent escape");
    }
    if (error) ec = http::error::bad_target;
  }

  void on_field_impl(http::field, BoostView name, BoostView value, error_code&) override {
    if (has_header) return;  // a trailer
    parsed.request.headers.emplace_back(View(name), View(value));
  }

  void on_header_impl(error_code& ec) override {
    has_header = true;
    CheckHeaders();
    if (error) ec = http::error::bad_field;
  }

  void CheckHeaders() {
    const HttpRequest& request = parsed.request;
    int hosts = 0;
    int codings = 0;
    int lengths = 0;
    std::string_view coding, connection;
    for (const auto& [name, value] : request.headers) {
      if (SameName(name, "host")) ++hosts;
      if (SameName(name, "content-length")) ++lengths;
      if (SameName(name, "transfer-encoding")) ++codings, coding = value;
      if (SameName(name, "connection") && !connection_close_) {
        connection_close_ = HasToken(value, "close");
        connection_keep_ = connection_keep_ || HasToken(value, "keep-alive");
      }
    }
    const bool new_client = request.minor_version >= 1;
    parsed.keep_alive = !connection_close_ && (new_client || connection_keep_);
    const std::string_view expect = request.Header("expect");
    parsed.expects_continue = new_client && SameName(expect, "100-continue");
    if (codings > 0 && lengths > 0) {
      Fail(400, "both Content-Length and Transfer-Encoding");
    } else if (codings > 0 && !new_client) {
      Fail(400, "Transfer-Encoding in an HTTP/1.0 request");
    } else if (codings > 1 || (codings == 1 && !SameName(coding, "chunked"))) {
      Fail(501, "the only Transfer-Encoding supported is \"chunked\"");
    } else if (lengths > 1) {
      Fail(400, "several Content-Length headers");
    } else if (hosts > 1 || (hosts == 0 && new_client)) {
      Fail(400, hosts > 1 ? "several Host headers" : "no Host header");
    } else if (!expect.empty() && new_client && !parsed.expects_continue) {
      Fail(417, "the only expectation supported is \"100-continue\"");
    }
  }

  void on_body_init_impl(const boost::optional<std::uint64_t>& length, error_code&) override {
    if (length) parsed.request.body.reserve(static_cast<size_t>(std::min(*length, kTrustedBytes)));
  }

  size_t on_body_impl(BoostView body, error_code&) override {
    parsed.request.body.append(body.data(), body.size());
    return body.size();
  }

  void on_chunk_header_impl(std::uint64_t, BoostView, error_code&) override {}

  size_t on_chunk_body_impl(std::uint64_t, BoostView body, error_code&) override {
    parsed.request.body.append(body.data(), body.size());
    return body.size();
  }

  void on_response_impl(int, BoostView, int, error_code&) override {}
  void on_finish_impl(error_code&) override {}

  size_t max_header_bytes_;
  size_t max_body_bytes_;
  size_t header_bytes_ = 0;  // read so far
  bool got_start_ = false;
  bool connection_close_ = false;
  bool connection_keep_ = false;
};

RequestParser::RequestParser(size_t max_header_bytes, size_t max_body_bytes)
    : syntax_(std::make_unique<Syntax>(max_header_bytes, max_body_bytes)) {}
RequestParser::~RequestParser() = default;

size_t RequestParser::Feed(std::string_view data) { return syntax_->Feed(data); }
bool RequestParser::has_header() const { return syntax_->has_header; }
bool RequestParser::complete() const { return syntax_->is_done() && !syntax_->error; }
size_t RequestParser::body_bytes() const { return syntax_->parsed.request.body.size(); }
const std::optional<HttpError>& RequestParser::error() const { return syntax_->error; }
ParsedRequest& RequestParser::parsed() { return syntax_->parsed; }

}  // namespace kuruma::server
