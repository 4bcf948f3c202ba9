#include "text/engram_map.h"

#include <gtest/gtest.h>

#include <set>

#include "text/golden_test_util.h"

namespace kuruma::text {
namespace {

int32_t OnlyId(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.Encode(text);
  EXPECT_TRUE(ids.ok() && ids->size() == 1) << text;
  return ids.ok() ? ids->front() : -1;
}

TEST(EngramMap, HasTheClassesOfTheReleasedConfig) {
  const Tokenizer* tokenizer = GoldenTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  const TokenClasses classes = ComputeTokenClasses(*tokenizer);
  EXPECT_EQ(classes.num_classes, 99092);
  ASSERT_EQ(classes.class_of.size(), 129280u);
  // Classes are numbered by first appearance.
  int32_t next = 0;
  for (const int32_t token_class : classes.class_of) {
    ASSERT_LE(token_class, next);
    if (token_class == next) ++next;
  }
  EXPECT_EQ(next, classes.num_classes);
}

TEST(EngramMap, TextsEqualAfterNormalisationShareAClass) {
  const Tokenizer* tokenizer = GoldenTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  const auto class_of = ComputeTokenClasses(*tokenizer).class_of;
  const auto of = [&](std::string_view text) {
    return class_of[static_cast<size_t>(OnlyId(*tokenizer, text))];
  };
  EXPECT_EQ(of("hello"), of(" Hello"));
  EXPECT_EQ(of("a"), of("é") == of("e") ? of("A") : -1);
  EXPECT_NE(of("hello"), of("world"));
  EXPECT_NE(of(" "), of("a"));
  EXPECT_EQ(of(" "), of("\n"));
  EXPECT_EQ(of(" "), of("  "));
  // Control tokens keep their spelling apart from case.
  EXPECT_NE(of("<｜User｜>"), of("<｜Assistant｜>"));
}

}  // namespace
}  // namespace kuruma::text
