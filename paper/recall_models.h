// RecallModel: projections of keys, values and queries in front of one of three readouts, trained
// by Adam.
//
// Equation:  SV-Attention, svattn/recall.py: X = K Wk, V = Y Wv, Q = q Wq. Gated: o = sum alpha_i
//            kappa(Q, X_i) V_i / sum alpha_i kappa(Q, X_i), alpha the gate of X: canonical, or with
//            ridge 0 the plain reference's; the sum below the line is at least 1e-8, as in the
//            paper. Ungated: alpha = 1. Softmax: o = softmax(e^s Q.X_i) V. Gradient through the
//            gate on a fixed partition: with w of (0, w) = M^-1 (0, dL/dalpha_S), M bordered of 2(K
//            + ridge I)_SS: dL/dK_ij = -2 w_i alpha_j for i in S, j in S and E (alpha = C there);
//            the diagonal of K is constant. None for E and R.
// Shapes:    keys [n][5], values [n][3], query [5]; projected 4 and 3.
// Units:     none.
// Requires:  sizes as above.
// Rejects:   Train, Read: what the solver rejects.
// Effects:   Train steps the weights.
// Numerics:  f64 with libm; no part of any state.
// Threads:   compatible.
#ifndef LETHE_PAPER_RECALL_MODELS_H_
#define LETHE_PAPER_RECALL_MODELS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "memory/svdd/problem.h"
#include "paper/points.h"
#include "paper/torch_random.h"

namespace lethe::paper {

enum class ReadoutKind { kGated, kUngated, kSoftmax };

// One recall: pairs of keys and values, a query near one of the keys.
struct RecallCase {
  Points keys;
  Points values;
  Points query;        // one
  int64_t wanted = 0;  // rank of its pair
};

class RecallModel {
 public:
  static constexpr int64_t kKeyDim = 5;
  static constexpr int64_t kValueDim = 3;
  static constexpr double kSigma = 1.5;
  static constexpr double kBoxC = 0.3;

  // Weights as torch draws them.
  RecallModel(ReadoutKind kind, double ridge, TorchRandom* random);

  // One step of Adam on the mean squared error over the cases; returns that error.
  absl::StatusOr<double> Train(absl::Span<const RecallCase> cases, double rate);
  // The readout of the case, and the projected values among which it should find its own.
  struct Answer {
    std::vector<double> readout;
    Points values;
    double support = 1.0;  // share of keys with a weight
  };
  absl::StatusOr<Answer> Read(const RecallCase& of) const;

 private:
  struct Forward;
  // Gradients in the order of weights_, or steps of Adam.
  using Weights = std::vector<double>;

  absl::StatusOr<Forward> Evaluate(const RecallCase& of) const;
  // Adds the gradient for that of the readout.
  void Backward(const RecallCase& of, const Forward& forward,
                absl::Span<const double> readout_gradient, Weights* gradient) const;
  // Adds what dL/dalpha means for X.
  void GateBackward(const Forward& forward, absl::Span<const double> alpha_gradient,
                    Points* key_gradient) const;
  void StepAdam(const Weights& gradient, double rate);

  ReadoutKind kind_;
  svdd::Params params_;
  Weights weights_;  // Wk, Wv, Wq, log scale
  Weights moment_;
  Weights square_;
  int64_t steps_ = 0;
};

}  // namespace lethe::paper

#endif  // LETHE_PAPER_RECALL_MODELS_H_
