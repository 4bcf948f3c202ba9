#include "plot.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace kuruma {
namespace {

using Ticks = std::vector<double>;

TEST(RoundTicks, AreRoundAndReachTheLargest) {
  EXPECT_EQ(RoundTicks(10), (Ticks{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(RoundTicks(11), (Ticks{0, 2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(RoundTicks(2100), (Ticks{0, 500, 1000, 1500, 2000, 2500}));
  EXPECT_EQ(RoundTicks(0).back(), 1);
  for (double largest = 1e-7; largest < 1e9; largest *= 1.37) {
    const Ticks ticks = RoundTicks(largest);
    EXPECT_GE(ticks.size(), 5u) << largest;
    EXPECT_LE(ticks.size(), 11u) << largest;
    EXPECT_GE(ticks.back(), largest);
    EXPECT_LT(ticks[ticks.size() - 2], largest);
  }
}

struct Circle {
  double x, y;
};

std::vector<Circle> Circles(const std::string& svg) {
  const std::string begin = "<circle class=\"point\" ";
  std::vector<Circle> found;
  for (size_t at = svg.find(begin); at != std::string::npos; at = svg.find(begin, at + 1)) {
    Circle circle{};
    if (std::sscanf(svg.c_str() + at + begin.size(), "cx=\"%lf\" cy=\"%lf\"", &circle.x,
                    &circle.y) == 2) {
      found.push_back(circle);
    }
  }
  return found;
}

TEST(ToSvg, PointsLieInsideAtTheirValues) {
  const std::string svg = ToSvg({"t", "s", "x", "y", {{0, 0, "a"}, {50, 10, "b"}, {100, 20, "c"}}});
  const std::vector<Circle> at = Circles(svg);
  ASSERT_EQ(at.size(), 3u);
  for (const Circle& c : at) {
    EXPECT_GT(c.x, 0);
    EXPECT_LT(c.x, 760);
    EXPECT_GT(c.y, 0);
    EXPECT_LT(c.y, 480);
  }
  EXPECT_NEAR(at[1].x, (at[0].x + at[2].x) / 2, 0.1);  // right is more
  EXPECT_NEAR(at[1].y, (at[0].y + at[2].y) / 2, 0.1);  // up is more
  EXPECT_LT(at[0].x, at[2].x);
  EXPECT_GT(at[0].y, at[2].y);
  for (const char* label : {">a</text>", ">b</text>", ">c</text>"}) {
    EXPECT_NE(svg.find(label), std::string::npos) << label;
  }
}

TEST(ToSvg, TextsCannotBreakTheDocument) {
  const std::string svg = ToSvg({"<&\">\x01", "", "", "", {{1, 1, "</svg>"}}});
  EXPECT_NE(svg.find("<title>&lt;&amp;&quot;&gt;\uFFFD</title>"), std::string::npos);
  EXPECT_EQ(svg.find("</svg>"), svg.size() - 7);
}

TEST(ToSvg, NothingToShowIsStillADocument) {
  const std::string svg = ToSvg({});
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace kuruma
