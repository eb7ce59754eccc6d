#include "memory/svdd/enclosure.h"

#include <algorithm>
#include <cmath>

#include "memory/svdd/outward.h"

namespace lethe::svdd {
namespace {

// 2(sum + ridge a) - lambda. Its terms are at most 2(|sum| + ridge) + |lambda|, each operation's
// error below 2^-102 of them; RowError covers these and the sum's own.
DoubleDouble Excess(const EnclosureInput& input, const EnclosureRow& row) {
  return (row.sum + row.a * input.ridge) * 2.0 - input.lambda;
}

double RowError(const EnclosureInput& input) {
  double largest = 0.0;
  for (const EnclosureRow& row : input.rows) largest = std::max(largest, std::abs(row.sum.hi));
  const double magnitude =
      SumUp(ProductUp(2.0, SumUp(largest, input.ridge)), std::abs(input.lambda.hi));
  return SumUp(ProductUp(2.0, input.sum_error), ProductUp(magnitude, 0x1.0p-99));
}

// m - |E| - sum_S w a, whose sums are each within 2^-102 of at most m + |E| + sum_S w a.
double SumResidual(const EnclosureInput& input) {
  DoubleDouble rest = input.mass;
  double absolute = input.mass;
  double num_rows = 2.0;
  for (const EnclosureRow& row : input.rows) {
    if (row.place == Partition::kReserve) continue;
    rest += -(row.a * row.copies);
    absolute = SumUp(absolute, ProductUp(row.copies, NextAbove(std::abs(row.a.hi))));
    num_rows += 1.0;
  }
  return SumUp(Up(Abs(rest)), ProductUp(absolute, 2.0 * num_rows * 0x1.0p-102));
}

bool SignsAreStrict(const EnclosureInput& input, double radius, double gradient_error) {
  return std::all_of(input.rows.begin(), input.rows.end(), [&](const EnclosureRow& row) {
    switch (row.place) {
      case Partition::kMargin:
        return Down(row.a) > radius && Down(-row.a + 1.0) > radius;
      case Partition::kError:
        return Up(Excess(input, row)) < -gradient_error;
      case Partition::kReserve:
        return Down(Excess(input, row)) > gradient_error;
    }
    return false;
  });
}

}  // namespace

Enclosure EncloseOptimum(const EnclosureInput& input) {
  const double row_error = RowError(input);
  Enclosure enclosure;
  double square = 0.0;  // |r1|^2
  for (const EnclosureRow& row : input.rows) {
    if (row.place != Partition::kMargin) continue;
    const double residual = SumUp(Up(Abs(Excess(input, row))), row_error);
    square = SumUp(square, ProductUp(row.copies, ProductUp(residual, residual)));
    enclosure.copies += row.copies;
  }
  const double norm = RootUp(square);
  const double root_low = NextBelow(std::sqrt(enclosure.copies));
  const double root = RootUp(enclosure.copies);
  const double along = QuotientUp(SumResidual(input), root_low);
  // |2(K + ridge I)_SS| <= 2s(1 + ridge), of all copies.
  const double norm_of_matrix = ProductUp(2.0 * enclosure.copies, NextAbove(1.0 + input.ridge));
  const double across =
      QuotientUp(SumUp(norm, ProductUp(norm_of_matrix, along)), 2.0 * input.ridge);
  enclosure.radius = SumUp(along, across);
  enclosure.sum_radius = ProductUp(root, enclosure.radius);
  enclosure.lambda_radius =
      SumUp(QuotientUp(norm, root_low),
            ProductUp(ProductUp(2.0, NextAbove(1.0 + input.ridge)), enclosure.sum_radius));
  const double gradient_error =
      SumUp(SumUp(row_error, enclosure.lambda_radius), ProductUp(2.0, enclosure.sum_radius));
  enclosure.proved = SignsAreStrict(input, enclosure.radius, gradient_error);
  return enclosure;
}

}  // namespace lethe::svdd
