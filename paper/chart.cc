#include "paper/chart.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace lethe::paper {
namespace {

// As tests/bench/plot draws.
constexpr double kWidth = 760;
constexpr double kHeight = 400;
constexpr double kLeft = 70;
constexpr double kRight = 210;
constexpr double kTop = 40;
constexpr double kBottom = 50;
constexpr std::array kColours = {"#0b6e4f", "#c8553d", "#3d5a80", "#8f5bb5", "#a67c00", "#444444"};
constexpr int kTicks = 5;

// From values to pixels.
class Scale {
 public:
  Scale(double least, double greatest, bool logarithmic, double first, double last)
      : logarithmic_(logarithmic), first_(first), last_(last) {
    if (logarithmic) {
      low_ = std::floor(std::log10(least));
      high_ = std::max(std::ceil(std::log10(greatest)), low_ + 1.0);
      step_ = 1.0;
      return;
    }
    least = std::min(least, 0.0);  // a cut axis makes small differences look large
    const double span = greatest > least ? greatest - least : 1.0;
    step_ = NiceStep(span / kTicks);
    low_ = step_ * std::floor(least / step_);
    high_ = std::max(step_ * std::ceil(greatest / step_), low_ + step_);
  }

  double At(double value) const {
    const double place = logarithmic_ ? std::log10(value) : value;
    return first_ + (place - low_) / (high_ - low_) * (last_ - first_);
  }

  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    for (int i = 0; low_ + i * step_ <= high_ + step_ / 2; ++i) {
      const double place = low_ + i * step_;
      ticks.push_back(logarithmic_ ? std::pow(10.0, place) : place);
    }
    return ticks;
  }

 private:
  // The next of 1, 2, 5 times a power of ten.
  static double NiceStep(double least) {
    const double power = std::pow(10.0, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor * power >= least) return factor * power;
    }
    return 10.0 * power;
  }

  bool logarithmic_;
  double first_;
  double last_;
  double low_ = 0.0;
  double high_ = 1.0;
  double step_ = 1.0;
};

std::string Label(double x, double y, const std::string& anchor, const std::string& content,
                  const std::string& colour = "#222222") {
  const std::string escaped =
      absl::StrReplaceAll(content, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n",
                         x, y, anchor, colour, escaped);
}

std::string Line(double x1, double y1, double x2, double y2) {
  return absl::StrFormat(
      "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e5e5e5\"/>\n", x1, y1, x2,
      y2);
}

Scale ScaleOf(const Chart& chart, bool of_x, double first, double last) {
  std::vector<double> values;
  for (const Curve& curve : chart.curves) {
    for (const auto& [x, y] : curve.points) values.push_back(of_x ? x : y);
  }
  const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
  return {*least, *greatest, of_x ? chart.x.logarithmic : chart.y.logarithmic, first, last};
}

void Append(const Chart& chart, double top, std::string* svg) {
  const double right = kWidth - kRight;
  const double bottom = top + kHeight - kBottom;
  const Scale x = ScaleOf(chart, true, kLeft, right);
  const Scale y = ScaleOf(chart, false, bottom, top + kTop);
  absl::StrAppend(svg, Label(kLeft, top + kTop - 16, "start", chart.title));
  for (const double tick : x.Ticks()) {
    absl::StrAppend(svg, Line(x.At(tick), top + kTop, x.At(tick), bottom),
                    Label(x.At(tick), bottom + 18, "middle", absl::StrFormat("%g", tick)));
  }
  for (const double tick : y.Ticks()) {
    absl::StrAppend(svg, Line(kLeft, y.At(tick), right, y.At(tick)),
                    Label(kLeft - 8, y.At(tick) + 4, "end", absl::StrFormat("%g", tick)));
  }
  absl::StrAppend(svg, Label((kLeft + right) / 2, bottom + 38, "middle", chart.x.label),
                  absl::StrFormat("<g transform=\"translate(16 %.1f) rotate(-90)\">",
                                  (top + kTop + bottom) / 2),
                  Label(0, 0, "middle", chart.y.label), "</g>\n");
  double label_y = top + kTop + 12;
  for (const Curve& curve : chart.curves) {
    const std::string colour = kColours[static_cast<size_t>(curve.colour) % kColours.size()];
    std::string path;
    for (const auto& [at_x, at_y] : curve.points) {
      absl::StrAppendFormat(&path, "%.1f,%.1f ", x.At(at_x), y.At(at_y));
    }
    absl::StrAppendFormat(
        svg, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s/>\n", path,
        colour, curve.dashed ? " stroke-dasharray=\"5 4\"" : "");
    absl::StrAppend(svg, Label(right + 12, label_y, "start", curve.label, colour));
    label_y += 18;
  }
}

}  // namespace

std::string DrawSvg(absl::Span<const Chart> charts) {
  const double height = kHeight * static_cast<double>(charts.size());
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"%g\" height=\"%g\" fill=\"white\"/>\n",
      kWidth, height, kWidth, height);
  for (size_t i = 0; i < charts.size(); ++i) {
    Append(charts[i], kHeight * static_cast<double>(i), &svg);
  }
  absl::StrAppend(&svg, "</svg>\n");
  return svg;
}

}  // namespace lethe::paper
