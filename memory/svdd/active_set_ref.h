// ActiveSetRef: the plain primal active-set method behind SolveRef, for any real type.
//
// Equation:  problem.h for a given matrix 2(K + ridge I) and mass.
// Shapes:    twice_gram [n][n].
// Units:     a-units.
// Requires:  1 <= mass <= n; the matrix positive definite on the sets it meets.
// Rejects:   none; `converged` is false after 100 n + 100 steps.
// Effects:   none.
// Numerics:  Real's: long double in SolveRef, 256 bits in tests.
// Threads:   safe.
#ifndef LETHE_MEMORY_SVDD_ACTIVE_SET_REF_H_
#define LETHE_MEMORY_SVDD_ACTIVE_SET_REF_H_

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace lethe::svdd {

template <typename Real>
class ActiveSetRef {
 public:
  using Matrix = std::vector<std::vector<Real>>;

  ActiveSetRef(Matrix twice_gram, Real mass, Real tolerance)
      : n_(twice_gram.size()),
        twice_gram_(std::move(twice_gram)),
        mass_(std::move(mass)),
        tolerance_(std::move(tolerance)) {}

  // True when the optimum was reached to the tolerance.
  bool Run() {
    MakeStart();
    for (size_t round = 0; round < 100 * n_ + 100; ++round) {
      if (!margin_.empty() && !Step()) continue;
      if (!Enter()) return true;
    }
    return false;
  }

  const std::vector<Real>& a() const { return a_; }

  Real Gradient(size_t i) const {
    Real sum = 0;
    for (size_t j = 0; j < n_; ++j) sum += twice_gram_[i][j] * a_[j];
    return sum;
  }

  // The rank-th smallest gradient, counted from 1: lambda for rank = ceil(mass).
  Real GradientOfRank(size_t rank) const {
    std::vector<Real> gradient(n_);
    for (size_t i = 0; i < n_; ++i) gradient[i] = Gradient(i);
    std::sort(gradient.begin(), gradient.end());
    return gradient[rank - 1];
  }

 private:
  // Whole keys by rank until the mass is used up.
  void MakeStart() {
    a_.assign(n_, Real(0));
    Real rest = mass_;
    for (size_t i = 0; i < n_ && rest > 0; ++i) {
      a_[i] = rest < 1 ? rest : Real(1);
      if (rest < 1) margin_.push_back(i);
      rest -= a_[i];
    }
  }

  // Solves a square system, given with its right side as last column, by elimination with pivoting.
  static std::vector<Real> Eliminate(Matrix system) {
    using std::abs;
    const size_t n = system.size();
    for (size_t c = 0; c < n; ++c) {
      size_t pivot = c;
      for (size_t r = c + 1; r < n; ++r) {
        if (abs(system[r][c]) > abs(system[pivot][c])) pivot = r;
      }
      std::swap(system[c], system[pivot]);
      for (size_t r = c + 1; r < n; ++r) {
        const Real factor = system[r][c] / system[c][c];
        for (size_t k = c; k <= n; ++k) system[r][k] -= factor * system[c][k];
      }
    }
    std::vector<Real> x(n);
    for (size_t r = n; r-- > 0;) {
      Real sum = system[r][n];
      for (size_t k = r + 1; k < n; ++k) sum -= system[r][k] * x[k];
      x[r] = sum / system[r][r];
    }
    return x;
  }

  // (lambda, a on the margin set) with the other a fixed.
  std::vector<Real> SolveOnMargin() const {
    const size_t s = margin_.size();
    Matrix system(s + 1, std::vector<Real>(s + 2, Real(0)));
    std::vector<bool> on_margin(n_, false);
    for (const size_t i : margin_) on_margin[i] = true;
    system[0][s + 1] = mass_;
    for (size_t j = 0; j < n_; ++j) {
      if (!on_margin[j]) system[0][s + 1] -= a_[j];
    }
    for (size_t k = 0; k < s; ++k) {
      system[0][k + 1] = 1;
      system[k + 1][0] = -1;
      for (size_t l = 0; l < s; ++l) system[k + 1][l + 1] = twice_gram_[margin_[k]][margin_[l]];
      for (size_t j = 0; j < n_; ++j) {
        if (!on_margin[j]) system[k + 1][s + 1] -= twice_gram_[margin_[k]][j] * a_[j];
      }
    }
    return Eliminate(std::move(system));
  }

  // True when a became optimal on the margin set, false when a bound stopped it.
  bool Step() {
    const std::vector<Real> solved = SolveOnMargin();
    Real step = 1;
    size_t blocking = margin_.size();
    for (size_t k = 0; k < margin_.size(); ++k) {
      const Real& from = a_[margin_[k]];
      const Real& to = solved[k + 1];
      Real length = 1;
      if (to < 0) length = from / (from - to);
      if (to > 1) length = (1 - from) / (to - from);
      if (length < step) {
        step = length;
        blocking = k;
      }
    }
    for (size_t k = 0; k < margin_.size(); ++k) {
      a_[margin_[k]] += step * (solved[k + 1] - a_[margin_[k]]);
    }
    if (blocking == margin_.size()) {
      lambda_ = solved[0];
      return true;
    }
    a_[margin_[blocking]] = solved[blocking + 1] > 1 ? 1 : 0;
    margin_.erase(margin_.begin() + static_cast<std::ptrdiff_t>(blocking));
    return false;
  }

  // Lets the most violating member of the other sets enter; false when there is none.
  bool Enter() {
    size_t low = n_;   // may take mass: the smallest gradient with a < 1
    size_t high = n_;  // may give mass: the largest gradient with a > 0
    std::vector<Real> gradient(n_);
    for (size_t i = 0; i < n_; ++i) {
      gradient[i] = Gradient(i);
      if (std::find(margin_.begin(), margin_.end(), i) != margin_.end()) continue;
      if (a_[i] < 1 && (low == n_ || gradient[i] < gradient[low])) low = i;
      if (a_[i] > 0 && (high == n_ || gradient[i] > gradient[high])) high = i;
    }
    if (margin_.empty()) {
      if (low == n_ || gradient[low] >= gradient[high] - tolerance_) return false;
      margin_ = {std::min(low, high), std::max(low, high)};
      return true;
    }
    const Real low_by = low == n_ ? Real(0) : Real(lambda_ - gradient[low]);
    const Real high_by = high == n_ ? Real(0) : Real(gradient[high] - lambda_);
    if ((low_by > high_by ? low_by : high_by) <= tolerance_ * (1 + lambda_)) return false;
    margin_.push_back(low_by > high_by ? low : high);
    return true;
  }

  size_t n_;
  Matrix twice_gram_;
  Real mass_;
  Real tolerance_;
  std::vector<size_t> margin_;
  std::vector<Real> a_;
  Real lambda_ = 0;
};

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_ACTIVE_SET_REF_H_
