#include "plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace kuruma {
namespace {

// The picture and, inside it, the area of the points.
constexpr double kWidth = 760;
constexpr double kHeight = 480;
constexpr double kLeft = 84;
constexpr double kRight = 724;
constexpr double kTop = 76;
constexpr double kBottom = 416;

constexpr std::string_view kStyle = R"(<style>
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .title { font-size: 17px; font-weight: 600; }
  .small { fill: #59636e; }
  .page { fill: #ffffff; }
  .grid { stroke: #d1d9e0; }
  .axis { stroke: #59636e; }
  .line { stroke: #0969da; stroke-width: 2; fill: none; }
  .point { fill: #0969da; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .small { fill: #9198a1; }
    .page { fill: #0d1117; }
    .grid { stroke: #3d444d; }
    .axis { stroke: #9198a1; }
    .line { stroke: #4493f8; }
    .point { fill: #4493f8; }
  }
</style>
)";

// Control characters are not allowed in XML 1.0 and become U+FFFD.
std::string EscapeXml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\uFFFD";
    } else {
      out += c;
    }
  }
  return out;
}

struct TextStyle {
  std::string_view css_class = "";
  std::string_view anchor = "start";
};

std::string Text(double x, double y, std::string_view text, const TextStyle& style) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n",
                     x, y, style.css_class, style.anchor, EscapeXml(text));
}

std::string Line(double x1, double y1, double x2, double y2, std::string_view css_class) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2,
      y2, css_class);
}

struct Axis {
  explicit Axis(double largest) : ticks(RoundTicks(largest)) {}
  double Share(double value) const { return value / ticks.back(); }
  double X(double value) const { return kLeft + Share(value) * (kRight - kLeft); }
  double Y(double value) const { return kBottom - Share(value) * (kBottom - kTop); }

  std::vector<double> ticks;
};

std::string Frame(const Plot& plot, const Axis& x, const Axis& y) {
  std::string out;
  for (const double tick : x.ticks) {
    out += Line(x.X(tick), kTop, x.X(tick), kBottom, tick == 0 ? "axis" : "grid");
    out += Text(x.X(tick), kBottom + 20, fmt::format("{:.6g}", tick), {"small", "middle"});
  }
  for (const double tick : y.ticks) {
    out += Line(kLeft, y.Y(tick), kRight, y.Y(tick), tick == 0 ? "axis" : "grid");
    out += Text(kLeft - 8, y.Y(tick) + 4.5, fmt::format("{:.6g}", tick), {"small", "end"});
  }
  out += Text(24, 32, plot.title, {"title"});
  out += Text(24, 52, plot.subtitle, {"small"});
  out += Text((kLeft + kRight) / 2, kBottom + 46, plot.x_label, {"", "middle"});
  out += fmt::format(
      "<text transform=\"translate(22 {:.1f}) rotate(-90)\" text-anchor=\"middle\">"
      "{}</text>\n",
      (kTop + kBottom) / 2, EscapeXml(plot.y_label));
  return out;
}

}  // namespace

std::vector<double> RoundTicks(double largest) {
  constexpr int kMostSteps = 10;
  if (!(largest > 0)) largest = 1;
  const double least = largest / kMostSteps;
  const double power = std::pow(10, std::floor(std::log10(least)));
  double step = 10 * power;
  for (const double round : {1, 2, 5}) {
    if (round * power >= least) {
      step = round * power;
      break;
    }
  }
  std::vector<double> ticks{0};
  while (ticks.back() < largest) ticks.push_back(static_cast<double>(ticks.size()) * step);
  return ticks;
}

std::string ToSvg(const Plot& plot) {
  double largest_x = 0;
  double largest_y = 0;
  for (const PlotPoint& point : plot.points) {
    largest_x = std::max(largest_x, point.x);
    largest_y = std::max(largest_y, point.y);
  }
  const Axis x(largest_x);
  const Axis y(largest_y);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" role=\"img\">\n<title>{2}</title>\n",
      kWidth, kHeight, EscapeXml(plot.title));
  out += kStyle;
  out += fmt::format("<rect class=\"page\" width=\"{}\" height=\"{}\"/>\n", kWidth, kHeight);
  out += Frame(plot, x, y);
  std::string line;
  for (const PlotPoint& point : plot.points) {
    line += fmt::format("{}{:.1f},{:.1f}", line.empty() ? "" : " ", x.X(point.x), y.Y(point.y));
  }
  out += fmt::format("<polyline class=\"line\" points=\"{}\"/>\n", line);
  for (const PlotPoint& point : plot.points) {
    // Beside the point, on the side where there is room.
    const bool right = x.X(point.x) < kRight - 60;
    out += fmt::format("<circle class=\"point\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\"/>\n",
                       x.X(point.x), y.Y(point.y));
    out += Text(x.X(point.x) + (right ? 9 : -9), y.Y(point.y) - 8, point.label,
                {"", right ? "start" : "end"});
  }
  return out + "</svg>\n";
}

}  // namespace kuruma
