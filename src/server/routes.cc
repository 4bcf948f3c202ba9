#include "server/routes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace kuruma::server {
namespace {

// The pieces between slashes; `path` begins with one.
std::vector<std::string> Segments(std::string_view path) {
  std::vector<std::string> segments;
  while (!path.empty()) {
    path.remove_prefix(1);
    const size_t slash = std::min(path.find('/'), path.size());
    segments.emplace_back(path.substr(0, slash));
    path.remove_prefix(slash);
  }
  return segments;
}

bool IsParameter(std::string_view segment) { return segment.starts_with('{'); }
bool IsRest(std::string_view segment) { return segment.ends_with("...}"); }

}  // namespace

std::string DecodePercent(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%' || i + 2 >= text.size()) {
      decoded.push_back(text[i]);
      continue;
    }
    unsigned char byte = 0;
    std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16);
    decoded.push_back(static_cast<char>(byte));
    i += 2;
  }
  return decoded;
}

void Routes::Add(std::string method, std::string_view pattern, RouteHandler handler) {
  KURUMA_CHECK(pattern.starts_with('/'));
  auto route = std::find_if(routes_.begin(), routes_.end(),
                            [&](const Route& r) { return r.pattern == pattern; });
  if (route == routes_.end()) {
    routes_.push_back({std::string(pattern), Segments(pattern), {}});
    route = std::prev(routes_.end());
  }
  route->methods.emplace_back(std::move(method), std::move(handler));
}

std::optional<PathParameters> Routes::Match(const Route& route, std::string_view path) {
  PathParameters parameters;
  for (const std::string& segment : route.segments) {
    if (path.empty()) return std::nullopt;
    path.remove_prefix(1);
    const size_t end = IsRest(segment) ? path.size() : std::min(path.find('/'), path.size());
    const std::string here = DecodePercent(path.substr(0, end));
    if (IsParameter(segment)) {
      if (here.empty()) return std::nullopt;
      parameters.push_back(here);
    } else if (here != segment) {
      return std::nullopt;
    }
    path.remove_prefix(end);
  }
  if (!path.empty()) return std::nullopt;
  return parameters;
}

const RouteHandler* Routes::Find(const Route& route, std::string_view method) {
  for (const auto& [name, handler] : route.methods) {
    if (name == method) return &handler;
  }
  return method == "HEAD" ? Find(route, "GET") : nullptr;
}

void Routes::Serve(HttpRequest request, std::shared_ptr<HttpReply> reply) const {
  for (const Route& route : routes_) {
    const auto parameters = Match(route, request.path);
    if (!parameters) continue;
    if (const RouteHandler* handler = Find(route, request.method)) {
      return (*handler)(std::move(request), *parameters, std::move(reply));
    }
    std::vector<std::string_view> allowed;
    for (const auto& [name, handler] : route.methods) {
      allowed.push_back(name);
      if (name == "GET") allowed.push_back("HEAD");
    }
    const std::string list = fmt::format("{}", fmt::join(allowed, ", "));
    return reply->SendError(
        405, fmt::format("{} {} is not served; allowed: {}", request.method, request.path, list),
        {{"Allow", list}});
  }
  reply->SendError(404, fmt::format("there is no {}", request.path));
}

}  // namespace kuruma::server
