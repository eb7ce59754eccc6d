#include "paper/recall_models.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/status_macros.h"
#include "paper/gate.h"
#include "paper/report.h"

namespace lethe::paper {
namespace {

constexpr int64_t kWidth = 4;  // of projected keys and queries
constexpr size_t kKeySize = RecallModel::kKeyDim * kWidth;
constexpr size_t kValueSize = RecallModel::kValueDim * RecallModel::kValueDim;
// Where each matrix begins among the weights.
constexpr size_t kKeyAt = 0;
constexpr size_t kValueAt = kKeySize;
constexpr size_t kQueryAt = kValueAt + kValueSize;
constexpr size_t kScaleAt = kQueryAt + kKeySize;
constexpr double kFirstScale = 5.0;
constexpr double kLeastTotal = 1e-8;  // the paper's clamp of a readout's denominator
constexpr double kTolerance = 1e-7;   // of alpha, where the paper's partition has its borders

// rows W, W [rows.dim][columns].
Points Project(const Points& rows, const double* weights, int64_t columns) {
  Points projected{columns, {}};
  for (int64_t i = 0; i < rows.count(); ++i) {
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0.0;
      for (int64_t k = 0; k < rows.dim; ++k) {
        sum += rows.row(i)[static_cast<size_t>(k)] * weights[k * columns + c];
      }
      projected.x.push_back(sum);
    }
  }
  return projected;
}

// gradient += rows' of_projected.
void ProjectBackward(const Points& rows, const Points& of_projected, double* gradient) {
  for (int64_t i = 0; i < rows.count(); ++i) {
    for (int64_t k = 0; k < rows.dim; ++k) {
      for (int64_t c = 0; c < of_projected.dim; ++c) {
        gradient[k * of_projected.dim + c] +=
            rows.row(i)[static_cast<size_t>(k)] * of_projected.row(i)[static_cast<size_t>(c)];
      }
    }
  }
}

double Dot(absl::Span<const double> a, absl::Span<const double> b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double Kernel(absl::Span<const double> a, absl::Span<const double> b) {
  return std::exp(-SquaredDistance(a, b) / (RecallModel::kSigma * RecallModel::kSigma));
}

// *a_gradient and *b_gradient += what `gradient` of kappa(a, b) means for a and b.
void KernelBackward(absl::Span<const double> a, absl::Span<const double> b, double gradient,
                    double* a_gradient, double* b_gradient) {
  const double factor =
      -2.0 * gradient * Kernel(a, b) / (RecallModel::kSigma * RecallModel::kSigma);
  for (size_t i = 0; i < a.size(); ++i) {
    a_gradient[i] += factor * (a[i] - b[i]);
    b_gradient[i] -= factor * (a[i] - b[i]);
  }
}

// Gaussian elimination with partial pivoting; matrix [n][n] and right side are used up.
std::vector<double> SolveDense(std::vector<std::vector<double>> matrix, std::vector<double> right) {
  const size_t n = right.size();
  for (size_t column = 0; column < n; ++column) {
    size_t pivot = column;
    for (size_t i = column + 1; i < n; ++i) {
      if (std::abs(matrix[i][column]) > std::abs(matrix[pivot][column])) pivot = i;
    }
    std::swap(matrix[column], matrix[pivot]);
    std::swap(right[column], right[pivot]);
    for (size_t i = column + 1; i < n; ++i) {
      const double factor = matrix[i][column] / matrix[column][column];
      for (size_t j = column; j < n; ++j) matrix[i][j] -= factor * matrix[column][j];
      right[i] -= factor * right[column];
    }
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t j = i + 1; j < n; ++j) right[i] -= matrix[i][j] * right[j];
    right[i] /= matrix[i][i];
  }
  return right;
}

}  // namespace

struct RecallModel::Forward {
  Points keys;                  // X
  Points values;                // V
  Points query;                 // Q
  std::vector<double> alpha;    // 1 without a gate
  std::vector<double> similar;  // kappa(Q, X_i), or the softmax's logits
  std::vector<double> share;    // of each value in the readout
  double total = 1.0;           // what the weights were divided by
  bool clamped = false;         // the total is kLeastTotal
  std::vector<double> readout;
};

RecallModel::RecallModel(ReadoutKind kind, double ridge, TorchRandom* random) : kind_(kind) {
  params_.sigma = kSigma;
  params_.box_mass = 1.0 / kBoxC;
  params_.ridge = ridge;
  params_.key_dim = kWidth;
  for (const size_t size : {kKeySize, kValueSize, kKeySize}) {
    for (const double x : random->Normals(static_cast<int64_t>(size))) weights_.push_back(0.5 * x);
  }
  weights_.push_back(std::log(kFirstScale));
  moment_.assign(weights_.size(), 0.0);
  square_.assign(weights_.size(), 0.0);
}

absl::StatusOr<RecallModel::Forward> RecallModel::Evaluate(const RecallCase& of) const {
  Forward forward;
  forward.keys = Project(of.keys, weights_.data() + kKeyAt, kWidth);
  forward.values = Project(of.values, weights_.data() + kValueAt, kValueDim);
  forward.query = Project(of.query, weights_.data() + kQueryAt, kWidth);
  const auto n = static_cast<size_t>(of.keys.count());
  forward.alpha.assign(n, 1.0);
  if (kind_ == ReadoutKind::kGated) {
    LETHE_ASSIGN_OR_RETURN(Gate gate, params_.ridge > 0.0
                                          ? SolveGate(params_, forward.keys)
                                          : SolveWithoutRidge(params_, forward.keys));
    forward.alpha = std::move(gate.alpha);
  }
  const absl::Span<const double> query = forward.query.row(0);
  for (size_t i = 0; i < n; ++i) {
    const absl::Span<const double> key = forward.keys.row(static_cast<int64_t>(i));
    forward.similar.push_back(kind_ == ReadoutKind::kSoftmax
                                  ? Dot(query, key) * std::exp(weights_[kScaleAt])
                                  : Kernel(query, key));
  }
  const double largest = Largest(forward.similar);
  forward.total = 0.0;
  for (size_t i = 0; i < n; ++i) {
    forward.share.push_back(kind_ == ReadoutKind::kSoftmax ? std::exp(forward.similar[i] - largest)
                                                           : forward.alpha[i] * forward.similar[i]);
    forward.total += forward.share[i];
  }
  forward.clamped = kind_ != ReadoutKind::kSoftmax && forward.total < kLeastTotal;
  if (forward.clamped) forward.total = kLeastTotal;
  forward.readout.assign(kValueDim, 0.0);
  for (size_t i = 0; i < n; ++i) {
    forward.share[i] /= forward.total;
    for (size_t c = 0; c < kValueDim; ++c) {
      forward.readout[c] += forward.share[i] * forward.values.row(static_cast<int64_t>(i))[c];
    }
  }
  return forward;
}

void RecallModel::GateBackward(const Forward& forward, absl::Span<const double> alpha_gradient,
                               Points* key_gradient) const {
  std::vector<int64_t> margin;
  for (size_t i = 0; i < forward.alpha.size(); ++i) {
    if (forward.alpha[i] > kTolerance && forward.alpha[i] < kBoxC - kTolerance) {
      margin.push_back(static_cast<int64_t>(i));
    }
  }
  if (margin.empty()) return;
  const size_t size = margin.size() + 1;
  std::vector<std::vector<double>> bordered(size, std::vector<double>(size, 1.0));
  bordered[0][0] = 0.0;
  std::vector<double> right = {0.0};
  for (size_t i = 1; i < size; ++i) {
    for (size_t j = 1; j < size; ++j) {
      bordered[i][j] =
          2.0 * (Kernel(forward.keys.row(margin[i - 1]), forward.keys.row(margin[j - 1])) +
                 (i == j ? params_.ridge : 0.0));
    }
    right.push_back(alpha_gradient[static_cast<size_t>(margin[i - 1])]);
  }
  const std::vector<double> w = SolveDense(std::move(bordered), std::move(right));
  for (size_t i = 1; i < size; ++i) {
    for (int64_t j = 0; j < forward.keys.count(); ++j) {
      const double gradient = -2.0 * w[i] * forward.alpha[static_cast<size_t>(j)];
      KernelBackward(forward.keys.row(margin[i - 1]), forward.keys.row(j), gradient,
                     key_gradient->x.data() + margin[i - 1] * kWidth,
                     key_gradient->x.data() + j * kWidth);
    }
  }
}

void RecallModel::Backward(const RecallCase& of, const Forward& forward,
                           absl::Span<const double> readout_gradient, Weights* gradient) const {
  const auto n = static_cast<size_t>(of.keys.count());
  Points key_gradient{kWidth, std::vector<double>(n * kWidth, 0.0)};
  Points value_gradient{kValueDim, {}};
  Points query_gradient{kWidth, std::vector<double>(kWidth, 0.0)};
  std::vector<double> alpha_gradient(n, 0.0);
  const double along = Dot(readout_gradient, forward.readout);
  for (size_t i = 0; i < n; ++i) {
    const auto rank = static_cast<int64_t>(i);
    for (const double g : readout_gradient) value_gradient.x.push_back(forward.share[i] * g);
    // Of an unnormalised weight, times the total.
    const double pull =
        Dot(readout_gradient, forward.values.row(rank)) - (forward.clamped ? 0.0 : along);
    if (kind_ == ReadoutKind::kSoftmax) {
      const double of_logit = forward.share[i] * pull;
      (*gradient)[kScaleAt] += of_logit * forward.similar[i];
      const double scale = std::exp(weights_[kScaleAt]);
      for (size_t c = 0; c < kWidth; ++c) {
        query_gradient.x[c] += of_logit * scale * forward.keys.row(rank)[c];
        key_gradient.x[i * kWidth + c] += of_logit * scale * forward.query.row(0)[c];
      }
      continue;
    }
    alpha_gradient[i] = pull / forward.total * forward.similar[i];
    KernelBackward(forward.query.row(0), forward.keys.row(rank),
                   pull / forward.total * forward.alpha[i], query_gradient.x.data(),
                   key_gradient.x.data() + i * kWidth);
  }
  if (kind_ == ReadoutKind::kGated) GateBackward(forward, alpha_gradient, &key_gradient);
  ProjectBackward(of.keys, key_gradient, gradient->data() + kKeyAt);
  ProjectBackward(of.values, value_gradient, gradient->data() + kValueAt);
  ProjectBackward(of.query, query_gradient, gradient->data() + kQueryAt);
}

void RecallModel::StepAdam(const Weights& gradient, double rate) {
  constexpr double kFirst = 0.9;
  constexpr double kSecond = 0.999;
  constexpr double kEpsilon = 1e-8;
  ++steps_;
  const auto steps = static_cast<double>(steps_);
  for (size_t i = 0; i < weights_.size(); ++i) {
    moment_[i] = kFirst * moment_[i] + (1.0 - kFirst) * gradient[i];
    square_[i] = kSecond * square_[i] + (1.0 - kSecond) * gradient[i] * gradient[i];
    const double root = std::sqrt(square_[i] / (1.0 - std::pow(kSecond, steps)));
    weights_[i] -= rate / (1.0 - std::pow(kFirst, steps)) * moment_[i] / (root + kEpsilon);
  }
}

absl::StatusOr<double> RecallModel::Train(absl::Span<const RecallCase> cases, double rate) {
  Weights gradient(weights_.size(), 0.0);
  double loss = 0.0;
  const auto count = static_cast<double>(cases.size());
  for (const RecallCase& of : cases) {
    LETHE_ASSIGN_OR_RETURN(const Forward forward, Evaluate(of));
    std::vector<double> readout_gradient;
    for (size_t c = 0; c < kValueDim; ++c) {
      const double error = forward.readout[c] - of.values.row(of.wanted)[c];
      loss += error * error / static_cast<double>(kValueDim) / count;
      readout_gradient.push_back(2.0 * error / static_cast<double>(kValueDim) / count);
    }
    Backward(of, forward, readout_gradient, &gradient);
  }
  StepAdam(gradient, rate);
  return loss;
}

absl::StatusOr<RecallModel::Answer> RecallModel::Read(const RecallCase& of) const {
  LETHE_ASSIGN_OR_RETURN(Forward forward, Evaluate(of));
  const auto support =
      std::count_if(forward.alpha.begin(), forward.alpha.end(), [](double a) { return a > 0.0; });
  return Answer{std::move(forward.readout), std::move(forward.values),
                static_cast<double>(support) / static_cast<double>(forward.alpha.size())};
}

}  // namespace lethe::paper
