// Routes and keys, through a server: handlers see what the wire carried.
#include "server/routes.h"

#include <gtest/gtest.h>

#include "server/keys.h"
#include "server/test_client.h"

namespace kuruma::server {
namespace {

RouteHandler Says(const std::string& what) {
  return [what](const HttpRequest&, const PathParameters& parameters,
                std::shared_ptr<HttpReply> reply) {
    std::string text = what;
    for (const std::string& parameter : parameters) text += "|" + parameter;
    reply->Send(200, "text/plain", text);
  };
}

TEST(Routes, FirstFittingPatternServes) {
  Routes routes;
  routes.Add("GET", "/v1/models", Says("list"));
  routes.Add("POST", "/v1/models", Says("add"));
  routes.Add("GET", "/v1/models/special", Says("special"));
  routes.Add("GET", "/v1/models/{id...}", Says("model"));
  routes.Add("GET", "/v1/{kind}/of/{id}", Says("two"));
  routes.Add("GET", "/", Says("root"));
  auto server = HttpServer::Create({}, [&](HttpRequest request, std::shared_ptr<HttpReply> reply) {
    routes.Serve(std::move(request), std::move(reply));
  });
  ASSERT_TRUE(server.ok());
  TestClient client((*server)->port());
  EXPECT_EQ(client.Get("/v1/models?x").body, "list");
  EXPECT_EQ(client.Get("/").body, "root");
  EXPECT_EQ(client.Get("/v1/models/special").body, "special");
  EXPECT_EQ(client.Get("/v1/models/a%20b%2Fc").body, "model|a b/c");
  EXPECT_EQ(client.Get("/v1/models/org/name").body, "model|org/name");
  EXPECT_EQ(client.Get("/v1/x/of/y").body, "two|x|y");
  for (const std::string path : {"/v1/models/", "/v1", "/v1/x/of/", "/v1/x/of/y/z", "/v1/Models"}) {
    const TestReply reply = client.Get(path);
    EXPECT_EQ(reply.status, 404) << path;
    EXPECT_EQ(reply.body, R"({"error":{"message":"there is no )" + path +
                              R"(","type":"not_found_error","param":null,"code":null}})");
  }
  client.Send("HEAD /v1/models HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(client.Read(/*head_only=*/true).status, 200);
  client.Send("DELETE /v1/models HTTP/1.1\r\nHost: t\r\n\r\n");
  const TestReply refused = client.Read();
  EXPECT_EQ(refused.status, 405);
  EXPECT_TRUE(refused.Has("Allow: GET, HEAD, POST\r\n"));
}

HttpRequest With(const std::string& name, const std::string& value) {
  HttpRequest request;
  request.headers = {{name, value}};
  return request;
}

TEST(ApiKeys, OnlyTheirHoldersPass) {
  const auto keys = ApiKeys::Create({"sk-one", "sk-two"});
  ASSERT_TRUE(keys.ok());
  EXPECT_TRUE(keys->Allows(With("authorization", "Bearer sk-one")));
  EXPECT_TRUE(keys->Allows(With("Authorization", "bearer  sk-two")));
  EXPECT_TRUE(keys->Allows(With("X-API-Key", "sk-two")));
  for (const std::string wrong : {"Bearer sk-on", "Bearer sk-one2", "Bearer ", "Bearer", "sk-one",
                                  "Basic sk-one", "Bearer SK-ONE"}) {
    EXPECT_FALSE(keys->Allows(With("Authorization", wrong))) << wrong;
  }
  EXPECT_FALSE(keys->Allows(HttpRequest{}));
  HttpRequest both = With("Authorization", "Bearer wrong");
  both.headers.emplace_back("x-api-key", "sk-one");
  EXPECT_FALSE(keys->Allows(both));
  EXPECT_TRUE(ApiKeys::Create({})->Allows(HttpRequest{}));
  EXPECT_EQ(ApiKeys::Create({"good", "with space"}).status().message(),
            "API key 2: keys are visible ASCII characters without spaces, at least one");
  EXPECT_FALSE(ApiKeys::Create({""}).ok());
}

TEST(ApiKeys, NetworksAreNotServedWithoutKeys) {
  for (const std::string host : {"localhost", "127.0.0.1", "127.8.8.8", "::1"}) {
    EXPECT_TRUE(CheckExposure(host, false, false).ok()) << host;
  }
  for (const std::string host : {"0.0.0.0", "::", "10.0.0.1", "example.org", ""}) {
    EXPECT_FALSE(CheckExposure(host, false, false).ok()) << host;
    EXPECT_TRUE(CheckExposure(host, false, true).ok()) << host;
    EXPECT_TRUE(CheckExposure(host, true, false).ok()) << host;
  }
}

}  // namespace
}  // namespace kuruma::server
