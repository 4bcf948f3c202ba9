#include "base/byte_size.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace kuruma {
namespace {

TEST(ParseByteSize, UnitsAreThoseOfTheGnuTools) {
  const std::pair<const char*, int64_t> cases[] = {
      {"0", 0},
      {"1", 1},
      {"4096b", 4096},
      {"3k", 3072},
      {"3KiB", 3072},
      {"3kB", 3000},
      {"2 MB", 2'000'000},
      {" 512MiB ", 512 << 20},
      {"1.5 GiB", 3 << 29},
      {"0.5", 0},
      {"5g", 5LL << 30},
      {"7EiB", 7LL << 60},
      {"1PIB", 1LL << 50},
      {"9223372036854775807", 9223372036854775807LL},
  };
  for (const auto& [text, bytes] : cases) {
    const Result<int64_t> size = ParseByteSize(text);
    ASSERT_TRUE(size.ok()) << text;
    EXPECT_EQ(*size, bytes) << text;
  }
}

TEST(ParseByteSize, EverythingElseIsRefused) {
  for (const std::string text :
       {"", " ", "GiB", "-1", "+1", ".5k", "1 GiBi", "1x", "1bb", "1ki", "8EiB",
        "9223372036854775808", "1e3", "nan", "inf", "0x10", "1 2", "1,5k"}) {
    const Result<int64_t> size = ParseByteSize(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_NE(size.status().message().find('"' + text + '"'), std::string::npos);
  }
}

}  // namespace
}  // namespace kuruma
