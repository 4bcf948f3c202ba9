#include "stop_matcher.h"

#include <gtest/gtest.h>

namespace kuruma {
namespace {

struct Outcome {
  std::string text;
  bool stopped;
  bool operator==(const Outcome&) const = default;
};

// Feeds `text` in pieces of `size` bytes.
Outcome Feed(const std::vector<std::string>& stops, const std::string& text, size_t size) {
  StopMatcher matcher(stops);
  Outcome outcome{"", false};
  for (size_t at = 0; at < text.size(); at += size)
    outcome.text += matcher.Push(text.substr(at, size));
  outcome.stopped = matcher.stopped();
  outcome.text += matcher.Finish();
  return outcome;
}

TEST(StopMatcher, ResultDoesNotDependOnThePieces) {
  for (size_t size = 1; size <= 12; ++size) {
    EXPECT_EQ(Feed({"END"}, "one ENEND two", size), (Outcome{"one EN", true})) << size;
    EXPECT_EQ(Feed({"b", "abc"}, "xabc", size), (Outcome{"xa", true})) << size;
    EXPECT_EQ(Feed({"bc", "abc"}, "xabc", size), (Outcome{"x", true})) << size;
    EXPECT_EQ(Feed({"aab"}, "aaaab", size), (Outcome{"aa", true})) << size;
    EXPECT_EQ(Feed({"END"}, "no end, only EN", size), (Outcome{"no end, only EN", false})) << size;
    EXPECT_EQ(Feed({}, "text", size), (Outcome{"text", false})) << size;
  }
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"<end>"});
  EXPECT_EQ(matcher.Push("hello <e"), "hello ");
  EXPECT_EQ(matcher.Push("x <"), "<ex ");
  EXPECT_EQ(matcher.Push("end>more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.Push("even more"), "");
  EXPECT_EQ(matcher.Finish(), "");
}

}  // namespace
}  // namespace kuruma
