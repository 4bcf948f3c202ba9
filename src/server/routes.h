// Which handler serves which method and path.
#ifndef KURUMA_SERVER_ROUTES_H_
#define KURUMA_SERVER_ROUTES_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http.h"

namespace kuruma::server {

// What the {names} of a pattern stood for, percent escapes decoded, in the pattern's order.
using PathParameters = std::vector<std::string>;

using RouteHandler = std::function<void(HttpRequest request, const PathParameters& parameters,
                                        std::shared_ptr<HttpReply> reply)>;

// Filled once, then read by any thread.
class Routes {
 public:
  // `pattern` is a path whose segments are literal, or "{name}": one segment, not empty. A last
  // segment "{name...}" stands for one or more, slashes included. The first pattern that fits a
  // path wins, so literal ones go first. Requests with HEAD go to GET if HEAD is not there.
  void Add(std::string method, std::string_view pattern, RouteHandler handler);

  // Hands the request to its handler; answers 404, or 405 with Allow.
  void Serve(HttpRequest request, std::shared_ptr<HttpReply> reply) const;

 private:
  struct Route {
    std::string pattern;
    std::vector<std::string> segments;
    std::vector<std::pair<std::string, RouteHandler>> methods;
  };

  static std::optional<PathParameters> Match(const Route& route, std::string_view path);
  static const RouteHandler* Find(const Route& route, std::string_view method);

  std::vector<Route> routes_;
};

// `text` with percent escapes replaced; they must be well-formed.
std::string DecodePercent(std::string_view text);

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_ROUTES_H_
