// Goal: the three readouts of the negative control are trained with the right gradients, the one
// through the gate included.
// Method: losses of the first steps against torch 1.13's autograd on the same problem (gate by a
// dense active set without a ridge, backward by the formulas of the paper's appendix A), seed 0: a
// wrong gradient shows in the second loss, a small one by the hundred-and-first; by then a query
// far from every key has met the clamp of the denominator.
#include "paper/recall_models.h"

#include <array>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

#include "paper/numpy_random.h"
#include "paper/torch_random.h"
#include "tests/testing/status_matchers.h"

namespace lethe::paper {
namespace {

RecallCase DrawCase(RandomState* random) {
  RecallCase drawn;
  drawn.keys = {RecallModel::kKeyDim, random->Normals(50)};
  drawn.values = {RecallModel::kValueDim, random->Normals(30)};
  drawn.wanted = random->Below(10);
  drawn.query = drawn.keys.At({drawn.wanted}).Moved(0.05, random->Normals(5));
  return drawn;
}

struct Losses {
  ReadoutKind kind;
  std::array<double, 4> wanted;  // of steps 0, 1, 2 and 100
};

TEST(RecallModelTest, TrainsAsTorchDoes) {
  const std::array<Losses, 3> kinds = {
      {{ReadoutKind::kGated, {1.376415105521, 1.374914857925, 1.214220720982, 0.344387269975}},
       {ReadoutKind::kUngated, {1.335017433916, 1.530838679013, 1.021186938883, 0.313753176613}},
       {ReadoutKind::kSoftmax, {1.522111956669, 1.841827706685, 1.312476179227, 0.306552865610}}}};
  for (const Losses& of : kinds) {
    TorchRandom initial(0);
    RandomState random(0);
    RecallModel model(of.kind, 0.0, &initial);
    std::vector<double> losses;
    for (int step = 0; step < 101; ++step) {
      std::vector<RecallCase> cases;
      for (int i = 0; i < 4; ++i) cases.push_back(DrawCase(&random));
      ASSERT_OK_AND_ASSIGN(const double loss, model.Train(cases, 0.03));
      losses.push_back(loss);
    }
    EXPECT_NEAR(losses[0], of.wanted[0], 1e-11);
    EXPECT_NEAR(losses[1], of.wanted[1], 1e-10);
    EXPECT_NEAR(losses[2], of.wanted[2], 1e-9);
    EXPECT_NEAR(losses[100], of.wanted[3], 1e-8);
  }
}

TEST(RecallModelTest, TheServedGateIsNear) {
  TorchRandom initial(0);
  RandomState random(0);
  RecallModel model(ReadoutKind::kGated, 1e-8, &initial);
  std::vector<RecallCase> cases;
  for (int i = 0; i < 4; ++i) cases.push_back(DrawCase(&random));
  ASSERT_OK_AND_ASSIGN(const double loss, model.Train(cases, 0.03));
  EXPECT_NEAR(loss, 1.376415105521, 1e-8);
}

}  // namespace
}  // namespace lethe::paper
