#include "text/json.h"

#include <gtest/gtest.h>

#include <string>

namespace kuruma::text {
namespace {

std::string RoundTrip(std::string_view text) {
  const auto value = ParseJson(text);
  EXPECT_TRUE(value.ok()) << text << ": " << value.status().message();
  return value.ok() ? DumpJson(*value) : "";
}

// Expected spellings are those of Python 3: json.dumps(json.loads(text), ensure_ascii=False), but
// for integers beyond 64 bits.
TEST(Json, IsSpelledAsPythonSpellsIt) {
  const std::pair<std::string, std::string> cases[] = {
      {"{\"b\":1,\"a\":[true,null,{}],\"c\":[]}", R"({"b": 1, "a": [true, null, {}], "c": []})"},
      {"{\"k\":1,\"z\":0,\"k\":2}", R"({"k": 2, "z": 0})"},
      {R"("\u00e9\ud83d\ude00\u0001\u001f\u007f\u2028\b\f\n\r\t\"\\\/")",
       "\"é😀\\u0001\\u001f\x7f\u2028\\b\\f\\n\\r\\t\\\"\\\\/\""},
      {"0.0", "0.0"},
      {"-0.0", "-0.0"},
      {"1.10", "1.1"},
      {"1E5", "100000.0"},
      {"0.0001", "0.0001"},
      {"0.00001", "1e-05"},
      {"1e16", "1e+16"},
      {"9999999999999998.0", "9999999999999998.0"},
      {"123456789012345680.0", "1.2345678901234568e+17"},
      {"1.5e300", "1.5e+300"},
      {"5e-324", "5e-324"},
      {"-2.5e-7", "-2.5e-07"},
      {"12345.678", "12345.678"},
      {"12345678901234567890", "12345678901234567890"},
      {"-9223372036854775808", "-9223372036854775808"},
      {"100000000000000000000000", "1e+23"},
      {"0.30000000000000004", "0.30000000000000004"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(RoundTrip(text), expected);
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const std::string text : {"", " ", "{", "[1,]", "{\"a\":1,}", "NaN", "1 2", "\"\\ud800\"",
                                 "'a'", "\"\xFF\"", "1e999", "\"a\nb\"", "tru", "{1:2}"}) {
    const auto value = ParseJson(text);
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(value.status().message().find("byte"), std::string::npos);
  }
}

TEST(Json, DepthIsBounded) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(ParseJson(nested(kMaxJsonDepth)).ok());
  EXPECT_FALSE(ParseJson(nested(kMaxJsonDepth + 1)).ok());
  EXPECT_FALSE(ParseJson(std::string(1 << 20, '[')).ok());
}

// 200000 members: a list searched for every key would take minutes.
TEST(Json, WideObjectsTakeLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200000; ++i) text += "\"k" + std::to_string(i) + "\":0,";
  text += "\"k7\":7}";
  const auto value = ParseJson(text);
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->If<JsonValue::Object>()->size(), 200000u);
  EXPECT_EQ(*value->Find("k7")->If<uint64_t>(), 7u);
}

}  // namespace
}  // namespace kuruma::text
