// Goal: gates, gradients, the training path and reads are those of PyTorch.
// Method: tests/testdata/svdd/training.json (float64; origin train/make_sv_vectors.py, which
// train/test_sv_training.py recomputes), no margin of which is below 1e-4.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "memory/svdd/canonical.h"
#include "memory/svdd/fista.h"
#include "memory/svdd/svdd_ref.h"
#include "tests/memory/svdd_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

using Json = nlohmann::json;

class TrainingVectorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string source = LETHE_SOURCE_DIR;
    std::ifstream file(source + "/tests/testdata/svdd/training.json");
    vectors_ = Json::parse(file);
    ASSERT_GE(vectors_["cases"].size(), 5u);
  }

  Json vectors_;
};

std::vector<double> Doubles(const Json& json) { return json.get<std::vector<double>>(); }

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], tolerance * (1.0 + std::abs(want[i]))) << "entry " << i;
  }
}

Params ParamsOf(const Json& problem) {
  return MakeParamsOrDie(problem["sigma"], problem["box_mass"], problem["ridge"],
                         problem["key_dim"]);
}

TEST_F(TrainingVectorsTest, GatesAndTheirGradients) {
  for (const Json& problem : vectors_["cases"]) {
    SCOPED_TRACE(problem["name"].get<std::string>());
    CanonicalSolver solver(ParamsOf(problem));
    ASSERT_OK(solver.Append(Doubles(problem["keys"])));
    ASSERT_OK(solver.Solve());
    ExpectNear(solver.solution().a, Doubles(problem["a"]), 1e-10);
    EXPECT_NEAR(solver.solution().rho, problem["rho"].get<double>(), 1e-11);
    const SolutionGradient gradient =
        solver.Backward({problem["adjoint_rho"], Doubles(problem["adjoint_a"])});
    ExpectNear(gradient.keys, Doubles(problem["keys_gradient"]), 1e-9);
    EXPECT_NEAR(gradient.sigma, problem["sigma_gradient"].get<double>(), 1e-8);
    EXPECT_NEAR(gradient.ridge, problem["ridge_gradient"].get<double>(), 1e-6);
  }
}

void CheckPath(const Json& problem, const char* name, const FistaOptions& options,
               double iterate_tolerance) {
  SCOPED_TRACE(name);
  const std::vector<double> keys = Doubles(problem["keys"]);
  const Json& want = problem["fista"][name];
  const auto n = static_cast<int64_t>(want["a"].size());
  const FistaGate gate = FistaGates<double>(ParamsOf(problem), keys, {n}, options)[0];
  ExpectNear(gate.iterate, Doubles(want["iterate"]), iterate_tolerance);
  ExpectNear(gate.a, Doubles(want["a"]), 1e-9);
  EXPECT_NEAR(gate.rho, want["rho"].get<double>(), 1e-9);
}

TEST_F(TrainingVectorsTest, TheTrainingPath) {
  for (const Json& problem : vectors_["cases"]) {
    SCOPED_TRACE(problem["name"].get<std::string>());
    const auto num_keys = static_cast<int64_t>(problem["a"].size());
    CheckPath(problem, "paper", FistaOptions::Paper(Mass(ParamsOf(problem), num_keys)), 1e-9);
    FistaOptions serving = FistaOptions::Serving(ParamsOf(problem));
    serving.tolerance = 1e-6;
    CheckPath(problem, "serving", serving, 1e-3);
  }
}

TEST_F(TrainingVectorsTest, ReadsWithAndWithoutPrefixMass) {
  const Json& read = vectors_["read"];
  const auto floats = [&](const char* name) { return read[name].get<std::vector<float>>(); };
  for (const bool prefix_mass : {false, true}) {
    const std::vector<double> out = ReadRef(read["beta"], floats("q"), floats("keys"),
                                            floats("values"), Doubles(read["gate"]), prefix_mass);
    ExpectNear(out, Doubles(read[prefix_mass ? "prefix_mass" : "plain"]), 1e-13);
  }
}

}  // namespace
}  // namespace lethe::svdd
