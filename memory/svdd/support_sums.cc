#include "memory/svdd/support_sums.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "memory/svdd/outward.h"
#include "memory/svdd/wide_columns.h"

namespace lethe::svdd {
namespace {

// What one column, a distinct key with a total, holds.
struct Column {
  size_t key = 0;
  DoubleDouble reference;      // X
  double feasible_less = 0.0;  // T - X, rounded
  double moved = 0.0;          // A - X on the margin set, rounded
  double moved_size = 0.0;     // sum |a - a^| over its copies, rounded
};

Column MakeColumn(const DistinctKeys& keys, size_t i, absl::Span<const DoubleDouble> feasible,
                  absl::Span<const double> a, const DoubleDouble* witness) {
  Column column;
  column.key = i;
  DoubleDouble total;
  DoubleDouble moved;
  for (const size_t row : keys.rows(i)) {
    total += feasible[row];
    if (witness == nullptr || keys.place(i) != Partition::kMargin) continue;
    const DoubleDouble apart = -*witness + a[row];
    moved += apart;
    column.moved_size += std::abs(apart.hi);
  }
  column.reference = witness == nullptr ? total : *witness * keys.copies(i);
  column.feasible_less = (total - column.reference).hi;
  column.moved = moved.hi;
  return column;
}

// The columns: every key of S and E, and what else has a total.
std::vector<Column> MakeColumns(const DistinctKeys& keys, absl::Span<const DoubleDouble> feasible,
                                absl::Span<const double> a, const Witness* witness) {
  const DoubleDouble none;
  const DoubleDouble all = 1.0;
  std::vector<Column> columns;
  size_t next = 0;  // of the witness
  for (size_t i = 0; i < keys.size(); ++i) {
    const DoubleDouble* value = nullptr;
    if (witness != nullptr) {
      value = keys.place(i) == Partition::kMargin  ? &witness->a[next++]
              : keys.place(i) == Partition::kError ? &all
                                                   : &none;
    }
    const bool has_total = std::any_of(keys.rows(i).begin(), keys.rows(i).end(),
                                       [&](size_t row) { return feasible[row] > 0.0; });
    if (keys.place(i) == Partition::kReserve && !has_total) continue;
    columns.push_back(MakeColumn(keys, i, feasible, a, value));
  }
  return columns;
}

// Rounding of `num_terms` plain doubles' products and sums.
double RoundedError(size_t num_terms) { return (static_cast<double>(num_terms) + 8.0) * 0x1.0p-51; }

// kappa is in [0, 1]: the sum is between minus what the negative parts and what the positive parts
// add up to. And it is an inner product with a unit vector: at most sqrt(u'Ku).
double MovedBound(const std::vector<Column>& columns, const std::vector<double>& moved_sums) {
  double above = 0.0;
  double below = 0.0;
  double energy = 0.0;
  double size = 0.0;  // sum |a - a^|, an upper bound up to its own rounding
  for (size_t j = 0; j < columns.size(); ++j) {
    const double moved = columns[j].moved;
    (moved > 0.0 ? above : below) += std::abs(moved);
    energy += moved * moved_sums[j];
    size += columns[j].moved_size;
  }
  if (size == 0.0) return 0.0;
  const double error = RoundedError(2 * columns.size());
  const double one_sided = SumUp(std::max(above, below), ProductUp(size, error));
  // Each K u entry is within error * size, and u of one sign rule or not: |u|_1 <= size.
  const double energy_error = ProductUp(ProductUp(size, size), error);
  return std::min(one_sided, RootUp(SumUp(std::max(energy, 0.0), energy_error)));
}

}  // namespace

SupportSums SumOverSupport(const Params& params, const DistinctKeys& keys,
                           absl::Span<const DoubleDouble> feasible, absl::Span<const double> a,
                           const Witness* witness) {
  const std::vector<Column> columns = MakeColumns(keys, feasible, a, witness);
  WideColumns kernel(params.key_dim, params.sigma, columns.size());
  const size_t padded = kernel.padded_size();
  WideArray reference(padded);
  std::vector<double> feasible_less(padded);
  std::vector<double> moved(padded);
  double total = 0.0;       // sum X, and of the totals' copies that were summed
  double less_total = 0.0;  // sum |T - X|
  std::vector<size_t> column_of(keys.size(), columns.size());
  for (size_t j = 0; j < columns.size(); ++j) {
    const Column& column = columns[j];
    kernel.SetKey(j, keys.key(column.key));
    reference.Set(j, column.reference);
    feasible_less[j] = column.feasible_less;
    moved[j] = column.moved;
    column_of[column.key] = j;
    total = SumUp(total, NextAbove(column.reference.hi));
    less_total = SumUp(less_total, std::abs(column.feasible_less));
  }
  SupportSums sums;
  std::vector<double> moved_sums(columns.size());
  WideArray row(padded);
  for (size_t i = 0; i < keys.size(); ++i) {
    kernel.Row(keys.key(i), &row);
    sums.reference.push_back(WideDot(row, reference));
    const double less = less_total == 0.0 ? 0.0 : RoundedDot(row, feasible_less);
    sums.feasible.push_back(sums.reference.back() + less);
    if (witness != nullptr && column_of[i] < columns.size()) {
      moved_sums[column_of[i]] = RoundedDot(row, moved);
    }
  }
  // Of each unit of total: the kernel's error; WideDot's; and, 4u^2 a term, the sums over copies
  // and the products with multiplicities.
  const double terms = static_cast<double>(columns.size() + feasible.size()) + 16.0;
  const double unit_error = WideKernelError(params.key_dim) + terms * 0x1.0p-104;
  sums.reference_error = ProductUp(total, 1.0625 * unit_error);
  sums.feasible_error = SumUp(ProductUp(SumUp(total, less_total), 2.0 * unit_error),
                              ProductUp(less_total, RoundedError(columns.size())));
  if (witness != nullptr) sums.moved_bound = MovedBound(columns, moved_sums);
  return sums;
}

}  // namespace lethe::svdd
