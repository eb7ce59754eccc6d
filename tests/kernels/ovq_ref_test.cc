// Goal: the double reference of OVQ is the paper's attention and its growth law that of
// docs/model-format.md.
// Method: before the first merge it must equal softmax attention; its centroids must be the means
// of all tokens ever assigned, which are one Newton step of the assignment's likelihood; the growth
// law by direct enumeration.
#include "kernels/ovq/ovq_ref.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "gtest/gtest.h"

#include "tests/kernels/stream_inputs.h"

namespace lethe {
namespace {

using testing::MaxAbsDifference;
using testing::RandomSource;
using testing::ToDouble;

std::vector<double> Unit(std::vector<double> x) {
  const double norm = std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 1e-12));
  for (double& element : x) element /= norm;
  return x;
}

TEST(OvqNumSlotsTest, IsMonotoneAndNeverReachesTheMaximum) {
  for (int64_t max_slots : {2, 3, 16, 512, 2048, 65536}) {
    int64_t last = 0;
    for (int64_t t = 0; t <= 64 * 3000; t += 64) {
      const int64_t num_slots = OvqNumSlots(max_slots, t);
      EXPECT_GE(num_slots, last);
      EXPECT_LE(num_slots, t);
      EXPECT_LE(num_slots - last, 64);
      EXPECT_LT(num_slots, max_slots);
      last = num_slots;
    }
    // N - 1 slots are reached at t = N (N - 1), numerics.md 19, and nothing beyond at any t.
    EXPECT_EQ(OvqNumSlots(max_slots, max_slots * (max_slots - 1)), max_slots - 1);
    EXPECT_EQ(OvqNumSlots(max_slots, max_slots * (max_slots - 1) - 1), max_slots - 2);
    EXPECT_EQ(OvqNumSlots(max_slots, int64_t{1} << 40), max_slots - 1);
  }
  EXPECT_EQ(OvqNumSlots(512, 0), 0);
  EXPECT_EQ(OvqNumSlots(512, 64), 56);
  EXPECT_EQ(OvqNumSlots(512, 512), 256);
  EXPECT_EQ(OvqNumSlots(2, 64), 1);
}

TEST(OvqRefTest, BeforeTheFirstMergeItIsSoftmaxAttentionAndTheGaussianMixture) {
  constexpr int64_t kDim = 8;
  constexpr double kBeta = 1.5;
  const double scale = kBeta * std::sqrt(8.0);
  OvqRef ref({kDim, 4, 16}, kBeta);
  RandomSource random(1);
  std::vector<std::vector<double>> keys, values;
  for (int t = 0; t < 64; ++t) {
    const std::vector<double> q = ToDouble(random.Normals(kDim));
    keys.push_back(Unit(ToDouble(random.Normals(kDim))));
    values.push_back(ToDouble(random.Normals(4)));
    const std::vector<double> read = ref.Step(q, keys.back(), values.back());
    const std::vector<double> unit = Unit(q);
    // papers.md 4.1: softmax(beta q k) equals softmax(-beta/2 |q - k|^2) for constant norms.
    std::vector<double> softmax(4), mixture(4);
    double softmax_sum = 0.0, mixture_sum = 0.0;
    for (size_t n = 0; n < keys.size(); ++n) {
      double dot = 0.0, distance = 0.0;
      for (size_t j = 0; j < kDim; ++j) {
        dot += unit[j] * keys[n][j];
        distance += (unit[j] - keys[n][j]) * (unit[j] - keys[n][j]);
      }
      const double a = std::exp(scale * dot);
      const double b = std::exp(-scale / 2.0 * distance);
      softmax_sum += a;
      mixture_sum += b;
      for (size_t i = 0; i < 4; ++i) {
        softmax[i] += a * values[n][i];
        mixture[i] += b * values[n][i];
      }
    }
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(read[i], softmax[i] / softmax_sum, 1e-12);
      EXPECT_NEAR(read[i], mixture[i] / mixture_sum, 1e-9);
    }
  }
}

// For the assignment fixed, the negative log-likelihood of slot n has gradient beta c (mu - mean)
// and Hessian beta c I: from anywhere one Newton step lands in the mean, and that is where the
// slots must be.
TEST(OvqRefTest, CentroidsAreTheNewtonStepOfAllTheirTokens) {
  constexpr int64_t kDim = 8;
  OvqRef ref({kDim, 4, 16}, 1.0);
  RandomSource random(2);
  std::map<int32_t, std::vector<std::vector<double>>> keys_of, values_of;
  for (int chunk = 0; chunk < 20; ++chunk) {
    std::vector<std::vector<double>> values;
    for (int t = 0; t < 64; ++t) {
      values.push_back(ToDouble(random.Normals(4)));
      ref.Step(ToDouble(random.Normals(kDim)), ToDouble(random.Normals(kDim)), values.back());
    }
    const std::vector<int32_t> assignment = ref.ChooseAssignment();
    EXPECT_LE(ref.AssignmentShortfall(assignment), 0.0);
    for (size_t i = 0; i < 64; ++i) {
      const int32_t slot = assignment[i] < 0 ? ~assignment[i] : assignment[i];
      keys_of[slot].push_back(ref.chunk_keys()[i]);
      values_of[slot].push_back(values[i]);
    }
    ref.Merge(assignment);
    EXPECT_EQ(ref.num_slots(), OvqNumSlots(16, 64 * (chunk + 1)));
  }
  constexpr double kBeta = 3.0;
  for (int32_t slot = 0; slot < ref.num_slots(); ++slot) {
    const auto n = static_cast<size_t>(slot);
    EXPECT_EQ(ref.counts()[n], static_cast<int64_t>(keys_of[slot].size()));
    for (size_t j = 0; j < kDim; ++j) {
      const double start = 0.37 * static_cast<double>(j) - 1.0;
      double gradient = 0.0;
      double hessian = 0.0;
      for (const std::vector<double>& key : keys_of[slot]) {
        gradient += kBeta * (start - key[j]);
        hessian += kBeta;
      }
      EXPECT_NEAR(ref.slot_keys()[n][j], start - gradient / hessian, 1e-12);
    }
    for (size_t i = 0; i < 4; ++i) {
      double sum = 0.0;
      for (const std::vector<double>& value : values_of[slot]) sum += value[i];
      EXPECT_NEAR(ref.slot_values()[n][i], sum / static_cast<double>(values_of[slot].size()),
                  1e-12);
    }
  }
}

TEST(OvqRefTest, ShortfallSeesAWrongAssignment) {
  OvqRef ref({8, 8, 16}, 1.0);
  RandomSource random(3);
  const auto fill = [&] {
    for (int t = 0; t < 64; ++t) {
      ref.Step(ToDouble(random.Normals(8)), ToDouble(random.Normals(8)),
               ToDouble(random.Normals(8)));
    }
  };
  for (int chunk = 0; chunk < 2; ++chunk) {
    fill();
    const std::vector<int32_t> assignment = ref.ChooseAssignment();
    const int32_t num_joinable =
        static_cast<int32_t>(chunk == 0 ? ref.num_new_slots() : ref.num_slots());
    // One token joins the next slot instead of its best; one seed changes places with a token that
    // joined.
    const auto joined = std::find_if(assignment.begin(), assignment.end(),
                                     [](int32_t entry) { return entry >= 0; });
    std::vector<int32_t> wrong_join = assignment;
    int32_t& entry = wrong_join[static_cast<size_t>(joined - assignment.begin())];
    entry = (entry + 1) % num_joinable;
    EXPECT_GT(ref.AssignmentShortfall(wrong_join), 1e-3);
    const auto seed = std::find(assignment.begin() + 1, assignment.end(),
                                ~static_cast<int32_t>(ref.num_slots() + ref.num_new_slots() - 1));
    const auto last_joined =
        std::find_if(assignment.rbegin(), assignment.rend(), [](int32_t e) { return e >= 0; });
    std::vector<int32_t> wrong_seed = assignment;
    std::swap(wrong_seed[static_cast<size_t>(seed - assignment.begin())],
              wrong_seed[static_cast<size_t>(assignment.rend() - last_joined) - 1]);
    EXPECT_GT(ref.AssignmentShortfall(wrong_seed), 1e-3);
    ref.Merge(assignment);
  }
}

}  // namespace
}  // namespace lethe
