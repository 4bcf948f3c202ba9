// HTTPS, with a certificate made here.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <future>
#include <memory>
#include <string>

#include "server/http.h"
#include "server/test_client.h"

namespace kuruma::server {
namespace {

struct Pair {
  std::string cert, key;
};

// A self-signed certificate for "localhost" and its key, as PEM files.
Pair MakePair(const std::string& name) {
  const Pair files{testing::TempDir() + "/" + name + ".crt",
                   testing::TempDir() + "/" + name + ".key"};
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* cert = X509_new();
  X509_set_version(cert, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
  X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
  X509_set_pubkey(cert, key);
  X509_NAME* subject = X509_get_subject_name(cert);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(cert, subject);
  X509_sign(cert, key, EVP_sha256());
  FILE* out = std::fopen(files.cert.c_str(), "w");
  PEM_write_X509(out, cert);
  std::fclose(out);
  out = std::fopen(files.key.c_str(), "w");
  PEM_write_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(out);
  X509_free(cert);
  EVP_PKEY_free(key);
  return files;
}

class TlsClient {
 public:
  explicit TlsClient(int port) : context_(SSL_CTX_new(TLS_client_method())) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, fd_);
    EXPECT_EQ(SSL_connect(ssl_), 1);
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
    close(fd_);
  }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  void Send(const std::string& bytes) {
    EXPECT_EQ(SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())),
              static_cast<int>(bytes.size()));
  }
  bool ReadUntil(const std::string& text) {
    while (in_.find(text) == std::string::npos) {
      char buffer[16384];
      const int n = SSL_read(ssl_, buffer, sizeof(buffer));
      if (n <= 0) return false;
      in_.append(buffer, static_cast<size_t>(n));
    }
    return true;
  }
  // Whether the server ended the session as it should, so that nobody can have cut it short.
  bool EndsOrderly() {
    char buffer[16384];
    int n = 0;
    while ((n = SSL_read(ssl_, buffer, sizeof(buffer))) > 0) {
    }
    return SSL_get_error(ssl_, n) == SSL_ERROR_ZERO_RETURN;
  }

 private:
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
  int fd_ = -1;
  std::string in_;
};

TEST(Https, ServesAndStreams) {
  const Pair pair = MakePair("serves");
  std::promise<std::shared_ptr<HttpReply>> held;
  auto server = HttpServer::Create({.tls_cert_file = pair.cert, .tls_key_file = pair.key},
                                   [&](HttpRequest request, std::shared_ptr<HttpReply> reply) {
                                     if (request.path == "/hold")
                                       return held.set_value(std::move(reply));
                                     reply->Send(200, "text/plain",
                                                 std::to_string(request.body.size()) + " bytes");
                                   });
  ASSERT_TRUE(server.ok()) << server.status().message();
  {
    TlsClient client((*server)->port());
    client.Send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 300000\r\n\r\n" +
                std::string(300'000, 'x'));
    EXPECT_TRUE(client.ReadUntil("300000 bytes"));
    client.Send("GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    EXPECT_TRUE(client.ReadUntil("0 bytes"));
    EXPECT_TRUE(client.EndsOrderly());
  }
  std::promise<void> gone;
  {
    TlsClient client((*server)->port());
    client.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
    const auto reply = held.get_future().get();
    reply->OnGone([&] { gone.set_value(); });
    reply->BeginStream({});
    reply->Write("data: x\n\n");
    EXPECT_TRUE(client.ReadUntil("data: x\n\n"));
  }
  gone.get_future().wait();
}

TEST(Https, OtherProtocolsAreDropped) {
  const Pair pair = MakePair("drops");
  auto server = HttpServer::Create({.tls_cert_file = pair.cert,
                                    .tls_key_file = pair.key,
                                    .header_timeout = std::chrono::milliseconds(100)},
                                   nullptr);
  ASSERT_TRUE(server.ok()) << server.status().message();
  TestClient plain((*server)->port());
  plain.Send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
  plain.ReadToEnd();  // an alert, or nothing; but an end
  TestClient silent((*server)->port());
  EXPECT_EQ(silent.ReadToEnd(), "");
}

TEST(Https, FilesThatDoNotWorkAreNamed) {
  const Pair pair = MakePair("one"), other = MakePair("other");
  const std::string missing = testing::TempDir() + "/missing.pem";
  const std::string bad = testing::TempDir() + "/bad.pem";
  std::ofstream(bad) << "nothing of use";
  const auto error = [](const std::string& cert, const std::string& key) {
    return HttpServer::Create({.tls_cert_file = cert, .tls_key_file = key}, nullptr)
        .status()
        .message();
  };
  EXPECT_EQ(error(missing, pair.key), "TLS file " + missing + ": No such file or directory");
  EXPECT_TRUE(error(bad, pair.key).starts_with("TLS certificate " + bad + ": "));
  EXPECT_TRUE(error(pair.cert, bad).starts_with("TLS key " + bad));
  EXPECT_TRUE(error(pair.cert, other.key).starts_with("TLS key " + other.key));
  EXPECT_EQ(error(pair.cert, ""), "TLS needs both a certificate file and a key file");
}

}  // namespace
}  // namespace kuruma::server
