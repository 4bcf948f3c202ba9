# Writes a C++ source that holds files as arrays, for src/server/page.cc. Run as
#   cmake -DOUTPUT=assets.cc -DFOLDER=dir -DFILES=a.html,b.js -P embed_assets.cmake
# Each file gets a Content-Type from its ending and a quoted ETag of the first 16 digits of its SHA-256.
set(TYPE_html "text/html; charset=utf-8")
set(TYPE_css "text/css; charset=utf-8")
set(TYPE_js "text/javascript; charset=utf-8")
set(TYPE_svg "image/svg+xml")

string(REPLACE "," ";" FILES "${FILES}")
set(arrays "")
set(entries "")
foreach(name ${FILES})
  string(REGEX MATCH "[a-z]+$" ending "${name}")
  if(NOT DEFINED TYPE_${ending})
    message(FATAL_ERROR "embed_assets.cmake: no Content-Type is known for ${name}")
  endif()
  file(READ "${FOLDER}/${name}" hex HEX)
  file(SHA256 "${FOLDER}/${name}" digest)
  string(SUBSTRING "${digest}" 0 16 etag)
  string(REGEX REPLACE "(................................................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(MAKE_C_IDENTIFIER "k_${name}" symbol)
  string(APPEND arrays "constexpr unsigned char ${symbol}[] = {\n${bytes}};\n")
  if(name STREQUAL "index.html")
    set(path "/")
  else()
    set(path "/${name}")
  endif()
  string(APPEND entries
    "    {\"${path}\", \"${TYPE_${ending}}\", \"\\\"${etag}\\\"\", View(${symbol})},\n")
endforeach()

file(WRITE "${OUTPUT}" "// Made by cmake/embed_assets.cmake.
#include \"server/page.h\"

#include <cstddef>

namespace kuruma::server {
namespace {

${arrays}
template <size_t kSize>
std::string_view View(const unsigned char (&bytes)[kSize]) {
  return {reinterpret_cast<const char*>(bytes), kSize};
}

}  // namespace

std::span<const Asset> PageAssets() {
  static const Asset kAssets[] = {
${entries}  };
  return kAssets;
}

}  // namespace kuruma::server
")
