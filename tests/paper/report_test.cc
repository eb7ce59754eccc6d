// Goal: a report reads the same as text and as JSON, and a chart is SVG that a viewer takes.
// Method: one of each, checked for what must be in it; coordinates must lie inside the picture.
#include "paper/report.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lethe::paper {
namespace {

using ::testing::HasSubstr;

Report Example() {
  Report report;
  report.name = "example";
  report.shows = "What it shows.";
  report.settings = {{"seed", "0"}};
  report.tables = {
      {"numbers",
       {"row", "one", "three", "none"},
       {{Text("first"), Fixed(0.8611, 3), MedianMeanWorst({0.0, 1e-9, 5e-9}), None()}}}};
  report.notes = {std::string(120, 'a') + " " + std::string(120, 'b')};
  return report;
}

TEST(ReportTest, JsonHasTheNumbersInFull) {
  const auto json = nlohmann::json::parse(AsJson(Example()));
  const auto& row = json["tables"][0]["rows"][0];
  EXPECT_EQ(row["row"], "first");
  EXPECT_EQ(row["one"], 0.8611);
  EXPECT_EQ(row["three"], (std::vector<double>{1e-9, 2e-9, 5e-9}));
  EXPECT_EQ(json["settings"]["seed"], "0");
  EXPECT_TRUE(json["failures"].empty());
}

TEST(ReportTest, TextLinesUp) {
  const std::string text = AsText(Example());
  EXPECT_THAT(text, HasSubstr("  row      one                        three  none\n"
                              "  first  0.861  1.0e-09 / 2.0e-09 / 5.0e-09     –\n"));
  EXPECT_THAT(text,
              HasSubstr("- " + std::string(120, 'a') + "\n  " + std::string(120, 'b') + "\n"));
}

TEST(ReportTest, FailuresAreSaid) {
  Report report = Example();
  report.failures = {"a bit differs"};
  EXPECT_THAT(AsText(report), HasSubstr("FAILED: a bit differs\n"));
}

TEST(StatisticsTest, OfFewValues) {
  EXPECT_EQ(Median({3.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(Median({4.0, 1.0}), 2.5);
  EXPECT_EQ(MedianAndRange({2.0, 1.0, 4.0}).text, "2.000 (1.000 … 4.000)");
  EXPECT_EQ(MedianAndRange({}).text, "–");
  EXPECT_EQ(Scientific(0.0).text, "0");
}

TEST(ChartTest, CurvesLieInsideThePicture) {
  const Chart linear{
      "a < b", {"x", false}, {"y", false}, {{"c & d", {{0.0, -1.0}, {1.0, 1.0}}, 0, true}}};
  const Chart logarithmic{
      "", {"x", true}, {"y", true}, {{"e", {{16.0, 0.5}, {256.0, 700.0}}, 1, false}}};
  const std::string svg = DrawSvg({linear, logarithmic});
  EXPECT_THAT(svg, HasSubstr("viewBox=\"0 0 760 800\""));
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("c &amp; d"));
  EXPECT_THAT(svg, HasSubstr("stroke-dasharray"));
  EXPECT_THAT(svg, HasSubstr("points=\"70.0,350.0 550.0,40.0 \""));
  EXPECT_THAT(svg, HasSubstr(">1000<"));
}

TEST(ChartTest, OnePointIsEnough) {
  const Chart chart{"", {"x", false}, {"y", false}, {{"p", {{3.0, 3.0}}, 0, false}}};
  EXPECT_EQ(DrawSvg({chart}).find("nan"), std::string::npos);
}

}  // namespace
}  // namespace lethe::paper
