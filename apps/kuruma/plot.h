// A small plot as SVG: labelled points, joined in their order, over two axes that begin at 0.
#ifndef KURUMA_APPS_PLOT_H_
#define KURUMA_APPS_PLOT_H_

#include <string>
#include <vector>

namespace kuruma {

struct PlotPoint {
  double x = 0;  // finite, at least 0
  double y = 0;
  std::string label;
};

// Texts are UTF-8.
struct Plot {
  std::string title;
  std::string subtitle;
  std::string x_label;
  std::string y_label;
  std::vector<PlotPoint> points;
};

// 0 and multiples of a round step (1, 2 or 5 times a power of ten), 5 to 11 of them, the last one
// at or above `largest`. For `largest` <= 0 up to 1.
std::vector<double> RoundTicks(double largest);

// A whole SVG document that looks right on light and on dark pages.
std::string ToSvg(const Plot& plot);

}  // namespace kuruma

#endif  // KURUMA_APPS_PLOT_H_
