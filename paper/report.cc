#include "paper/report.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "kernels/base/check.h"

namespace lethe::paper {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kTextWidth = 100;

// Columns a UTF-8 text takes: every character here is one wide.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string Padded(const std::string& text, size_t width, bool to_the_right) {
  const std::string blanks(width > Width(text) ? width - Width(text) : 0, ' ');
  return to_the_right ? blanks + text : text + blanks;
}

void AppendWrapped(const std::string& text, const std::string& indent, std::string* out) {
  std::string line = indent;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (line != indent && Width(line) + 1 + Width(word) > kTextWidth) {
      absl::StrAppend(out, line, "\n");
      line = indent;
    }
    absl::StrAppend(&line, line == indent ? "" : " ", word);
    begin = end + 1;
  }
  absl::StrAppend(out, line, "\n");
}

void AppendTable(const Table& table, std::string* out) {
  std::vector<size_t> widths;
  for (const std::string& column : table.columns) widths.push_back(Width(column));
  for (const std::vector<Cell>& row : table.rows) {
    LETHE_CHECK(row.size() == widths.size());
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], Width(row[c].text));
  }
  absl::StrAppend(out, "\n", table.title, "\n");
  const auto append = [&](const auto& text_of) {
    std::string line;
    for (size_t c = 0; c < widths.size(); ++c) {
      absl::StrAppend(&line, "  ", Padded(text_of(c), widths[c], c > 0));
    }
    absl::StrAppend(out, line, "\n");
  };
  append([&](size_t c) { return table.columns[c]; });
  for (const std::vector<Cell>& row : table.rows) {
    append([&](size_t c) { return row[c].text; });
  }
}

// Counts without a fraction.
Json AsJson(double value) {
  constexpr double kExactIntegersMax = 0x1.0p53;
  const bool is_count = std::abs(value) <= kExactIntegersMax && value == std::trunc(value);
  return is_count ? Json(static_cast<int64_t>(value)) : Json(value);
}

Json AsJson(const Cell& cell) {
  if (cell.numbers.empty()) return cell.text;
  if (cell.numbers.size() == 1) return AsJson(cell.numbers[0]);
  Json numbers = Json::array();
  for (const double value : cell.numbers) numbers.push_back(AsJson(value));
  return numbers;
}

Json AsJson(const Table& table) {
  Json rows = Json::array();
  for (const std::vector<Cell>& row : table.rows) {
    LETHE_CHECK(row.size() == table.columns.size());
    Json object = Json::object();
    for (size_t c = 0; c < row.size(); ++c) {
      object[table.columns[c]] = AsJson(row[c]);
    }
    rows.push_back(std::move(object));
  }
  return {{"title", table.title}, {"rows", std::move(rows)}};
}

std::string ScientificText(double value) {
  return value == 0.0 ? "0" : absl::StrFormat("%.1e", value);
}

}  // namespace

Cell Text(std::string text) { return {std::move(text), {}}; }

Cell None() { return Text("–"); }

Cell Count(int64_t value) { return {absl::StrCat(value), {static_cast<double>(value)}}; }

Cell Fixed(double value, int digits) { return {absl::StrFormat("%.*f", digits, value), {value}}; }

Cell Scientific(double value) { return {ScientificText(value), {value}}; }

Cell ThreeScientific(double first, double second, double third) {
  return {absl::StrCat(ScientificText(first), " / ", ScientificText(second), " / ",
                       ScientificText(third)),
          {first, second, third}};
}

Cell MedianMeanWorst(const std::vector<double>& values) {
  if (values.empty()) return None();
  return ThreeScientific(Median(values), Mean(values), Largest(values));
}

Cell MedianAndRange(const std::vector<double>& values) {
  if (values.empty()) return None();
  const double median = Median(values);
  return {absl::StrFormat("%.3f (%.3f … %.3f)", median, Least(values), Largest(values)),
          {median, Least(values), Largest(values)}};
}

std::string AsText(const Report& report) {
  std::string out = absl::StrCat(report.name, "\n");
  AppendWrapped(report.shows, "", &out);
  for (const auto& [name, value] : report.settings) {
    absl::StrAppend(&out, "  ", Padded(name, 14, false), " ", value, "\n");
  }
  for (const Table& table : report.tables) AppendTable(table, &out);
  if (!report.notes.empty()) absl::StrAppend(&out, "\n");
  for (const std::string& note : report.notes) {
    std::string wrapped;
    AppendWrapped(note, "  ", &wrapped);
    wrapped[0] = '-';
    absl::StrAppend(&out, wrapped);
  }
  for (const std::string& failure : report.failures)
    absl::StrAppend(&out, "FAILED: ", failure, "\n");
  return out;
}

std::string AsJson(const Report& report) {
  Json settings = Json::object();
  for (const auto& [name, value] : report.settings) settings[name] = value;
  Json tables = Json::array();
  for (const Table& table : report.tables) tables.push_back(AsJson(table));
  const Json json = {{"paper", report.name},  {"shows", report.shows},
                     {"settings", settings},  {"tables", tables},
                     {"notes", report.notes}, {"failures", report.failures}};
  return json.dump();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2.0;
}

double Mean(absl::Span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Largest(absl::Span<const double> values) {
  return *std::max_element(values.begin(), values.end());
}

double Least(absl::Span<const double> values) {
  return *std::min_element(values.begin(), values.end());
}

}  // namespace lethe::paper
