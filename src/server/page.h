// The page that `kuruma serve` shows to people: a chat and a dashboard. Its files
// (src/server/page/) are part of the program and refer to nothing outside of it, so it works
// offline and under the policy "default-src 'self'": no inline script, no inline style.
#ifndef KURUMA_SERVER_PAGE_H_
#define KURUMA_SERVER_PAGE_H_

#include <span>
#include <string_view>

namespace kuruma::server {

// All views live as long as the program.
struct Asset {
  std::string_view path;          // of the request, e.g. "/app.js"; index.html is "/"
  std::string_view content_type;  // e.g. "text/css; charset=utf-8"
  std::string_view etag;          // quoted: the first 16 digits of the SHA-256 of `bytes`
  std::string_view bytes;
};

// Every file of the page, in no order that matters. Any thread.
std::span<const Asset> PageAssets();

// The file for the path of a request without its query; "/index.html" is "/". nullptr: none of
// ours. Any thread.
const Asset* FindAsset(std::string_view path);

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_PAGE_H_
