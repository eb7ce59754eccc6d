#include "server/model/rows_ref.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lethe::reference {

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double Silu(double x) { return x * Sigmoid(x); }
double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

double Dot(const double* a, const double* b, size_t size) {
  double sum = 0.0;
  for (size_t i = 0; i < size; ++i) sum += a[i] * b[i];
  return sum;
}

void L2(double* x, size_t size) {
  const double root = std::sqrt(Dot(x, x, size) + 1e-12);
  for (size_t i = 0; i < size; ++i) x[i] /= root;
}

void RmsNorm(const Tensor& gain, double eps, Row* x) {
  const size_t size = gain.values.size();
  for (size_t first = 0; first < x->size(); first += size) {
    double* run = x->data() + first;
    const double root = std::sqrt(Dot(run, run, size) / static_cast<double>(size) + eps);
    for (size_t i = 0; i < size; ++i) run[i] = run[i] / root * static_cast<double>(gain.values[i]);
  }
}

Rows Normed(const Rows& x, const Tensor& gain, double eps) {
  Rows y = x;
  for (Row& row : y) RmsNorm(gain, eps, &row);
  return y;
}

Row Apply(const Tensor& w, const Row& x) {
  const auto outputs = static_cast<size_t>(w.shape[0]);
  const auto inputs = static_cast<size_t>(w.shape[1]);
  Row y(outputs, 0.0);
  for (size_t n = 0; n < outputs; ++n) {
    for (size_t k = 0; k < inputs; ++k) {
      y[n] += static_cast<double>(w.values[n * inputs + k]) * x[k];
    }
  }
  return y;
}

Rows Apply(const Tensor& w, const Rows& x) {
  Rows y;
  for (const Row& row : x) y.push_back(Apply(w, row));
  return y;
}

Rows Conv(const Tensor& w, const Tensor* bias, const Rows& z) {
  const auto width = static_cast<size_t>(w.shape[1]);
  Rows y;
  for (size_t t = 0; t < z.size(); ++t) {
    Row row(z[t].size(), 0.0);
    for (size_t c = 0; c < row.size(); ++c) {
      if (bias != nullptr) row[c] = static_cast<double>(bias->values[c]);
      for (size_t j = 0; j < width && j <= t; ++j) {
        row[c] += static_cast<double>(w.values[c * width + j]) * z[t - j][c];
      }
    }
    y.push_back(std::move(row));
  }
  return y;
}

void Add(const Rows& y, Rows* x) {
  for (size_t t = 0; t < y.size(); ++t) {
    for (size_t i = 0; i < y[t].size(); ++i) (*x)[t][i] += y[t][i];
  }
}

}  // namespace lethe::reference
