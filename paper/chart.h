// Chart, DrawSvg: curves over two axes, as SVG.
//
// Equation:  none.
// Shapes:    charts stand below each other.
// Units:     the labels say them.
// Requires:  at least one curve with a point; positive coordinates on a logarithmic axis.
// Rejects:   none.
// Effects:   none.
// Numerics:  coordinates to a tenth of a pixel; linear axes contain 0.
// Threads:   safe.
#ifndef LETHE_PAPER_CHART_H_
#define LETHE_PAPER_CHART_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace lethe::paper {

struct Curve {
  std::string label;
  std::vector<std::pair<double, double>> points;
  int colour = 0;  // equal numbers, equal colours
  bool dashed = false;
};

struct Axis {
  std::string label;
  bool logarithmic = false;
};

struct Chart {
  std::string title;
  Axis x;
  Axis y;
  std::vector<Curve> curves;
};

std::string DrawSvg(absl::Span<const Chart> charts);

}  // namespace lethe::paper

#endif  // LETHE_PAPER_CHART_H_
