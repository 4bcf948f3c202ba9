#include "size_option.h"

#include <gtest/gtest.h>

namespace kuruma {
namespace {

TEST(ParseSize, UnitsAreMultiplesOf1024) {
  const std::pair<const char*, int64_t> cases[] = {
      {"1", 1},           {"4096b", 4096},    {"3k", 3072},
      {"3KiB", 3072},     {"2 MB", 2 << 20},  {" 512MiB ", 512 << 20},
      {"5g", 5LL << 30},  {"1Ti", 1LL << 40}, {"7EiB", 7LL << 60},
      {"1PIB", 1LL << 50}};
  for (const auto& [text, bytes] : cases) {
    const Result<int64_t> size = ParseSize(text);
    ASSERT_TRUE(size.ok()) << text;
    EXPECT_EQ(*size, bytes) << text;
  }
}

TEST(ParseSize, EverythingElseIsRefusedWithTheRange) {
  for (const char* text : {"", " ", "GiB", "0", "-1", "+1", "1.5GiB", "1 GiBi", "1x", "1bb", "8EiB",
                           "9223372036854775808", "1e3", "nan", "1 2"}) {
    const Result<int64_t> size = ParseSize(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_NE(size.status().message().find("1..9223372036854775807"), std::string::npos);
  }
}

}  // namespace
}  // namespace kuruma
