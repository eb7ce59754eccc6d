// BlockFactor: the Cholesky factor of 2(K_SS + ridge I), kept by a team of threads while S changes.
//
// Equation:  L L' = 2(K_SS + ridge I) over the positions; a member that left stays as a position of the
//            identity (its row and column are those of I), and the rows behind it take up its column by a
//            rank-one update. Append: one triangular solve. Both are backward stable, as numerics.md 2
//            asks; an inverse is not.
// Shapes:    positions 0 … size() - 1; vectors by position. Packed by columns. Up to kSmallFactor members
//            the workspace's small factor, above the large one.
// Units:     none.
// Requires:  workspace of max_keys; everything by all members of the team, what the arguments point at
//            synchronised.
// Rejects:   Build, Append: false where a pivot is not above the ridge (in exact arithmetic it is at least
//            twice that) or not a number; then the factor is of no use.
// Effects:   uses workspace.ones. Every function ends synchronised.
// Numerics:  f64.
// Threads:   one team.
#ifndef LETHE_MEMORY_SVDD_SVDD_BLOCK_FACTOR_H_
#define LETHE_MEMORY_SVDD_SVDD_BLOCK_FACTOR_H_

#include <cmath>
#include <cstdint>

#include "memory/svdd/svdd_block_state.h"
#include "memory/svdd/svdd_team.h"

namespace lethe::svdd {

template <typename Team>
class BlockFactor {
 public:
  LETHE_TEAM_CODE BlockFactor(Team* team, const BlockProblem& problem,
                              const BlockWorkspace& workspace)
      : team_(team), problem_(problem), work_(workspace), ridge_(problem.head->ridge) {}

  LETHE_TEAM_CODE int size() const { return size_; }
  LETHE_TEAM_CODE int live() const { return size_ - num_left_; }
  LETHE_TEAM_CODE int capacity() const { return capacity_; }
  // What the large factor was packed for; 0: it was not used.
  LETHE_TEAM_CODE int large_capacity() const { return large_capacity_; }

  // Of the rows margin[0 … count - 1].
  LETHE_TEAM_CODE bool Build(int count);
  // Of the rows that stay and `added` more in `rows`, for which margin has room.
  LETHE_TEAM_CODE bool Rebuild(const int32_t* rows, int added);
  LETHE_TEAM_CODE bool Append(int32_t row);
  LETHE_TEAM_CODE void Remove(int position);

  // L^-1 x and L^-1 y, L'^-1 x. They begin with a Sync.
  LETHE_TEAM_CODE void SolveLower(double* x, double* y);
  LETHE_TEAM_CODE void SolveUpper(double* x);

 private:
  static constexpr int kPanel = 32;

  // Row i of column k, k <= i.
  LETHE_TEAM_CODE double* At(int i, int k) const { return Column(k) + i; }
  // Column k, from which row i >= k is i on.
  LETHE_TEAM_CODE double* Column(int k) const {
    return factor_ + (static_cast<int64_t>(k) * (2 * capacity_ - k + 1) / 2 - k);
  }
  // This thread's first element above k, where element i is thread i mod size's.
  LETHE_TEAM_CODE int FirstAbove(int k) const {
    const int rank = team_->rank();
    return rank > k ? rank : rank + ((k - rank) / team_->size() + 1) * team_->size();
  }
  LETHE_TEAM_CODE void Fill();
  // Columns first … end - 1, then what they take from the ones behind.
  LETHE_TEAM_CODE bool FactorPanel(int first, int end);
  LETHE_TEAM_CODE void UpdateTrailing(int first, int end);
  LETHE_TEAM_CODE void Scale(double* x) const {
    for (int i = team_->rank(); i < size_; i += team_->size()) x[i] *= inverse_[i];
  }

  Team* team_;
  const BlockProblem& problem_;
  const BlockWorkspace& work_;
  double ridge_;
  double* factor_ = nullptr;
  double* inverse_ = nullptr;
  int capacity_ = 0;
  int large_capacity_ = 0;
  int size_ = 0;
  int num_left_ = 0;
};

template <typename Team>
LETHE_TEAM_CODE void BlockFactor<Team>::Fill() {
  for (int k = team_->warp(); k < size_; k += team_->warps()) {
    const double* row = problem_.Row(work_.margin[k]);
    double* column = Column(k);
    for (int i = k + team_->lane(); i < size_; i += team_->lanes()) {
      column[i] = 2.0 * row[work_.margin[i]] + (i == k ? 2.0 * ridge_ : 0.0);
    }
  }
  team_->Sync();
}

template <typename Team>
LETHE_TEAM_CODE bool BlockFactor<Team>::Build(int count) {
  const bool is_small = count <= kSmallFactor;
  factor_ = is_small ? work_.small_factor : work_.large_factor;
  inverse_ = is_small ? work_.small_inverse : work_.large_inverse;
  if (!is_small) large_capacity_ = problem_.head->num_keys;
  capacity_ = is_small ? kSmallFactor : large_capacity_;
  size_ = count;
  num_left_ = 0;
  Fill();
  // The small one in one panel: its trailing part is where the panel is.
  const int width = is_small ? kSmallFactor : kPanel;
  for (int first = 0; first < size_; first += width) {
    const int end = first + width < size_ ? first + width : size_;
    if (!FactorPanel(first, end)) return false;
    UpdateTrailing(first, end);
  }
  return true;
}

template <typename Team>
LETHE_TEAM_CODE bool BlockFactor<Team>::FactorPanel(int first, int end) {
  for (int k = first; k < end; ++k) {
    const double pivot = *At(k, k);
    if (!(pivot > ridge_)) return false;
    const double inverse = 1.0 / std::sqrt(pivot);
    double* column = Column(k);
    for (int i = FirstAbove(k); i < size_; i += team_->size()) column[i] *= inverse;
    team_->Sync();
    if (team_->rank() == 0) {
      column[k] = pivot * inverse;
      inverse_[k] = inverse;
    }
    for (int j = k + 1 + team_->warp(); j < end; j += team_->warps()) {
      const double factor = -column[j];
      double* target = Column(j);
      for (int i = j + team_->lane(); i < size_; i += team_->lanes()) {
        target[i] = std::fma(column[i], factor, target[i]);
      }
    }
    team_->Sync();
  }
  return true;
}

// A thread has four columns of four rows.
template <typename Team>
LETHE_TEAM_CODE void BlockFactor<Team>::UpdateTrailing(int first, int end) {
  const int lanes = team_->lanes();
  for (int j = end + 4 * team_->warp(); j < size_; j += 4 * team_->warps()) {
    for (int base = j + team_->lane(); base < size_; base += 4 * lanes) {
      double sums[4][4] = {};
      for (int k = first; k < end; ++k) {
        const double* column = Column(k);
        double row_part[4];
        double column_part[4];
        for (int q = 0; q < 4; ++q) {
          const int i = base + q * lanes;
          row_part[q] = i < size_ ? column[i] : 0.0;
          column_part[q] = j + q < size_ ? column[j + q] : 0.0;
        }
        for (int q = 0; q < 4; ++q) {
          for (int c = 0; c < 4; ++c)
            sums[q][c] = std::fma(row_part[q], column_part[c], sums[q][c]);
        }
      }
      for (int q = 0; q < 4; ++q) {
        const int i = base + q * lanes;
        for (int c = 0; c < 4; ++c) {
          if (i < size_ && i >= j + c) Column(j + c)[i] -= sums[q][c];
        }
      }
    }
  }
  team_->Sync();
}

template <typename Team>
LETHE_TEAM_CODE bool BlockFactor<Team>::Rebuild(const int32_t* rows, int added) {
  int32_t* margin = work_.margin;
  const int kept = team_->Compact(
      size_, [margin](int p) { return margin[p]; }, margin);
  for (int t = team_->rank(); t < added; t += team_->size()) margin[kept + t] = rows[t];
  team_->Sync();
  return Build(kept + added);
}

template <typename Team>
LETHE_TEAM_CODE bool BlockFactor<Team>::Append(int32_t row) {
  const double* gram = problem_.Row(row);
  double* x = work_.ones;
  for (int p = team_->rank(); p < size_; p += team_->size()) {
    const int32_t member = work_.margin[p];
    x[p] = member < 0 ? 0.0 : 2.0 * gram[member];
  }
  for (int k = 0; k < size_; ++k) {
    team_->Sync();
    const double xk = -x[k] * inverse_[k];
    const double* column = Column(k);
    for (int i = FirstAbove(k); i < size_; i += team_->size()) x[i] = std::fma(column[i], xk, x[i]);
  }
  team_->Sync();
  TwoSums squares;
  for (int p = team_->rank(); p < size_; p += team_->size()) {
    const double scaled = x[p] * inverse_[p];
    *At(size_, p) = scaled;
    squares.first = std::fma(scaled, scaled, squares.first);
  }
  const double pivot = 2.0 * (gram[row] + ridge_) - team_->Sum(squares).first;
  if (!(pivot > ridge_)) return false;
  if (team_->rank() == 0) {
    const double inverse = 1.0 / std::sqrt(pivot);
    *At(size_, size_) = pivot * inverse;
    inverse_[size_] = inverse;
    work_.margin[size_] = row;
  }
  ++size_;
  team_->Sync();
  return true;
}

template <typename Team>
LETHE_TEAM_CODE void BlockFactor<Team>::Remove(int position) {
  team_->Sync();
  if (position == size_ - 1) {
    --size_;
    return;
  }
  double* x = work_.ones;
  double* left = Column(position);
  for (int i = FirstAbove(position); i < size_; i += team_->size()) {
    x[i] = left[i];
    left[i] = 0.0;
  }
  for (int j = team_->rank(); j < position; j += team_->size()) *At(position, j) = 0.0;
  // The diagonal of the last column, which others may still be reading when it is known.
  int pending = position;
  double diagonal = 1.0;
  double inverse = 1.0;
  for (int k = position + 1; k < size_; ++k) {
    team_->Sync();
    const double xk = x[k];
    if (xk == 0.0) continue;
    if (team_->rank() == 0) {
      *At(pending, pending) = diagonal;
      inverse_[pending] = inverse;
    }
    double* column = Column(k);
    const double old = column[k];
    const double square = std::fma(old, old, xk * xk);
    inverse = 1.0 / std::sqrt(square);
    diagonal = square * inverse;
    pending = k;
    const double cosine = old * inverse;
    const double sine = xk * inverse;
    for (int i = FirstAbove(k); i < size_; i += team_->size()) {
      const double entry = column[i];
      column[i] = std::fma(cosine, entry, sine * x[i]);
      x[i] = std::fma(cosine, x[i], -(sine * entry));
    }
  }
  team_->Sync();
  if (team_->rank() == 0) {
    *At(pending, pending) = diagonal;
    inverse_[pending] = inverse;
    work_.margin[position] = -1;
  }
  ++num_left_;
  team_->Sync();
}

template <typename Team>
LETHE_TEAM_CODE void BlockFactor<Team>::SolveLower(double* x, double* y) {
  for (int k = 0; k < size_; ++k) {
    team_->Sync();
    const double xk = -x[k] * inverse_[k];
    const double yk = -y[k] * inverse_[k];
    const double* column = Column(k);
    for (int i = FirstAbove(k); i < size_; i += team_->size()) {
      const double entry = column[i];
      x[i] = std::fma(entry, xk, x[i]);
      y[i] = std::fma(entry, yk, y[i]);
    }
  }
  team_->Sync();
  Scale(x);
  Scale(y);
  team_->Sync();
}

template <typename Team>
LETHE_TEAM_CODE void BlockFactor<Team>::SolveUpper(double* x) {
  for (int k = size_ - 1; k >= 0; --k) {
    team_->Sync();
    const double xk = -x[k] * inverse_[k];
    for (int i = team_->rank(); i < k; i += team_->size()) x[i] = std::fma(*At(k, i), xk, x[i]);
  }
  team_->Sync();
  Scale(x);
  team_->Sync();
}

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_SVDD_BLOCK_FACTOR_H_
