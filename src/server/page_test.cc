#include "server/page.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "base/sha256.h"

namespace kuruma::server {
namespace {

const std::filesystem::path kFolder =
    std::filesystem::path(KURUMA_SOURCE_DIR) / "src" / "server" / "page";

std::string FileName(std::string_view path) {
  return path == "/" ? "index.html" : std::string(path.substr(1));
}

TEST(Page, HoldsTheBytesOfItsFiles) {
  for (const Asset& asset : PageAssets()) {
    std::ifstream file(kFolder / FileName(asset.path), std::ios::binary);
    ASSERT_TRUE(file) << asset.path;
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(asset.bytes, bytes) << asset.path;
  }
}

TEST(Page, HoldsEveryFileOfTheFolder) {
  std::set<std::string> held;
  for (const Asset& asset : PageAssets()) held.insert(FileName(asset.path));
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename();
    if (name == "CMakeLists.txt") continue;
    EXPECT_TRUE(held.contains(name)) << name << " is missing in src/server/page/CMakeLists.txt";
  }
}

TEST(Page, EtagChangesWithTheBytes) {
  std::set<std::string_view> etags;
  for (const Asset& asset : PageAssets()) {
    Sha256 digest;
    digest.Add(asset.bytes.data(), asset.bytes.size());
    EXPECT_EQ(asset.etag, '"' + Hex(digest.Finish()).substr(0, 16) + '"') << asset.path;
    etags.insert(asset.etag);
  }
  EXPECT_EQ(etags.size(), PageAssets().size());
}

TEST(Page, ServesTypesThatBrowsersAccept) {
  ASSERT_NE(FindAsset("/"), nullptr);
  EXPECT_EQ(FindAsset("/")->content_type, "text/html; charset=utf-8");
  ASSERT_NE(FindAsset("/app.js"), nullptr);
  EXPECT_EQ(FindAsset("/app.js")->content_type, "text/javascript; charset=utf-8");
  ASSERT_NE(FindAsset("/style.css"), nullptr);
  EXPECT_EQ(FindAsset("/style.css")->content_type, "text/css; charset=utf-8");
  ASSERT_NE(FindAsset("/mark.svg"), nullptr);
  EXPECT_EQ(FindAsset("/mark.svg")->content_type, "image/svg+xml");
}

TEST(Page, FindsNothingElse) {
  EXPECT_EQ(FindAsset("/index.html"), FindAsset("/"));
  for (const char* path :
       {"", "app.js", "//app.js", "/app.js/", "/../page.cc", "/CMakeLists.txt"}) {
    EXPECT_EQ(FindAsset(path), nullptr) << path;
  }
}

// What a strict Content-Security-Policy forbids would fail only in the browser.
TEST(Page, KeepsToItsOwnOrigin) {
  for (const Asset& asset : PageAssets()) {
    for (const char* word : {" style=\"", "<style", "innerHTML", "outerHTML", "insertAdjacentHTML",
                             "document.write", "eval(", "new Function", "@import", "url("}) {
      EXPECT_EQ(asset.bytes.find(word), std::string_view::npos) << asset.path << ": " << word;
    }
    if (asset.path != "/") continue;
    EXPECT_EQ(asset.bytes.find("http"), std::string_view::npos) << asset.path;
    EXPECT_EQ(asset.bytes.find("<script>"), std::string_view::npos);
    for (size_t at = asset.bytes.find(" on"); at != std::string_view::npos;
         at = asset.bytes.find(" on", at + 1)) {
      const size_t end = asset.bytes.find_first_not_of("abcdefghijklmnopqrstuvwxyz", at + 1);
      EXPECT_NE(asset.bytes[end], '=') << "an inline handler";
    }
  }
}

}  // namespace
}  // namespace kuruma::server
