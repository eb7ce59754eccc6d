// Report, Table, Cell: what an experiment found, for a person or as JSON.
//
// Equation:  none.
// Shapes:    every row of a table has a cell for each column.
// Units:     a column's name says them.
// Requires:  rows and columns that match (LETHE_CHECK).
// Rejects:   none.
// Effects:   none.
// Numerics:  JSON has the numbers in full, the text the digits of the cell.
// Threads:   compatible.
#ifndef LETHE_PAPER_REPORT_H_
#define LETHE_PAPER_REPORT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"

#include "paper/chart.h"

namespace lethe::paper {

struct Cell {
  std::string text;
  std::vector<double> numbers;  // what the text shows, in JSON a number or an array
};

Cell Text(std::string text);
Cell None();  // nothing to compare with
Cell Count(int64_t value);
Cell Fixed(double value, int digits);                             // 0.861
Cell Scientific(double value);                                    // 2.4e-09; 0 as 0
Cell ThreeScientific(double first, double second, double third);  // 2.4e-09 / 3.1e-05 / 6.4e-03
Cell MedianMeanWorst(const std::vector<double>& values);          // the same; none of no values
Cell MedianAndRange(const std::vector<double>& values);           // 0.141 (0.003 … 4.289)

struct Table {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
};

struct Report {
  std::string name;
  std::string shows;
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<Table> tables;
  std::vector<std::string> notes;     // what differs from the paper, and what misleads there
  std::vector<std::string> failures;  // of what Lethe claims; empty = everything held
  std::vector<Chart> charts;
};

std::string AsText(const Report& report);
// One line.
std::string AsJson(const Report& report);

// Of at least one value.
double Median(std::vector<double> values);
double Mean(absl::Span<const double> values);
double Largest(absl::Span<const double> values);
double Least(absl::Span<const double> values);

}  // namespace lethe::paper

#endif  // LETHE_PAPER_REPORT_H_
