// PageAssets is in the source that the build makes from the files of src/server/page/.
#include "server/page.h"

#include <algorithm>

namespace kuruma::server {

const Asset* FindAsset(std::string_view path) {
  if (path == "/index.html") path = "/";
  const std::span<const Asset> assets = PageAssets();
  const auto found = std::ranges::find(assets, path, &Asset::path);
  return found == assets.end() ? nullptr : &*found;
}

}  // namespace kuruma::server
