// Goal: the double reference of Palimpsa is the paper's recurrence.
// Method: the identities of papers.md 2 among its three forms, and against independently written
// special cases: Mamba2 (b = 0), the steady state of the precision, and the Bayes posterior of
// separate measurements.
#include "kernels/palimpsa/palimpsa_ref.h"

#include <cmath>

#include "gtest/gtest.h"

#include "tests/kernels/stream_inputs.h"

namespace lethe {
namespace {

using testing::MaxAbs;
using testing::MaxAbsDifference;
using testing::RandomSource;
using testing::ToDouble;

constexpr double kTolerance = 1e-12;

PalimpsaRefInputs RandomInputs(const PalimpsaShape& shape, int64_t count, uint64_t seed) {
  RandomSource random(seed);
  const int64_t heads = count * shape.num_heads;
  return {ToDouble(random.Normals(heads * shape.key_dim)),
          ToDouble(random.Rows(heads, shape.key_dim, 1.0)),
          ToDouble(random.Normals(heads * shape.value_dim)),
          ToDouble(random.Uniforms(heads, -0.3f, 0.0f)),
          ToDouble(random.Uniforms(heads * shape.value_dim, 0.0f, 2.0f))};
}

void ExpectFormsAgree(PalimpsaNumerator numerator) {
  const PalimpsaRefOptions options{{2, 8, 5}, 0.25, numerator};
  for (int64_t count : {1, 2, 15, 16, 17, 200}) {
    const PalimpsaRefInputs inputs = RandomInputs(options.shape, count, 7);
    const PalimpsaRefResult recurrent = PalimpsaRefRecurrent(options, inputs, count);
    for (const PalimpsaRefResult& other :
         {PalimpsaRefScan(options, inputs, count), PalimpsaRefPosterior(options, inputs, count)}) {
      EXPECT_LE(MaxAbsDifference(recurrent.out, other.out), kTolerance) << count;
      EXPECT_LE(MaxAbsDifference(recurrent.variance, other.variance), kTolerance) << count;
      EXPECT_LE(MaxAbsDifference(recurrent.m, other.m), kTolerance) << count;
      EXPECT_LE(MaxAbsDifference(recurrent.i_bar, other.i_bar), kTolerance) << count;
    }
    EXPECT_GT(MaxAbs(recurrent.out), 1e-3);
  }
}

TEST(PalimpsaRefTest, RecurrentFormEqualsTheTwoScansAndThePosteriorForm) {
  ExpectFormsAgree(PalimpsaNumerator::kCode);
  ExpectFormsAgree(PalimpsaNumerator::kBayes);
}

TEST(PalimpsaRefTest, BayesNumeratorEqualsCodeNumeratorOnWeightedValues) {
  PalimpsaRefOptions options{{2, 8, 5}, 1.0, PalimpsaNumerator::kBayes};
  constexpr int64_t kCount = 60;
  PalimpsaRefInputs inputs = RandomInputs(options.shape, kCount, 8);
  const PalimpsaRefResult bayes = PalimpsaRefRecurrent(options, inputs, kCount);
  options.numerator = PalimpsaNumerator::kCode;
  const PalimpsaRefResult code = PalimpsaRefRecurrent(options, inputs, kCount);
  EXPECT_GT(MaxAbsDifference(bayes.out, code.out), 1e-2);
  for (size_t i = 0; i < inputs.value.size(); ++i) inputs.value[i] *= inputs.precision[i];
  EXPECT_LE(MaxAbsDifference(bayes.out, PalimpsaRefRecurrent(options, inputs, kCount).out),
            kTolerance);
}

// With one-hot keys and no decay each weight is measured alone: its posterior mean under a unit
// prior is sum(b x) / (1 + sum(b)), its variance 1 / (1 + sum(b)).
TEST(PalimpsaRefTest, BayesNumeratorIsThePosteriorOfSeparateMeasurements) {
  const PalimpsaRefOptions options{{1, 8, 3}, 1.0, PalimpsaNumerator::kBayes};
  constexpr int64_t kCount = 40;
  PalimpsaRefInputs inputs = RandomInputs(options.shape, kCount, 9);
  std::fill(inputs.k.begin(), inputs.k.end(), 0.0);
  std::fill(inputs.q.begin(), inputs.q.end(), 0.0);
  std::fill(inputs.log_decay.begin(), inputs.log_decay.end(), 0.0);
  std::vector<double> weighted(24);
  std::vector<double> precision(24, 1.0);
  for (size_t t = 0; t < kCount; ++t) {
    const size_t j = t * 5 % 8;
    inputs.k[t * 8 + j] = 1.0;
    inputs.q[t * 8 + j] = 1.0;
    for (size_t i = 0; i < 3; ++i) {
      precision[i * 8 + j] += inputs.precision[t * 3 + i];
      weighted[i * 8 + j] += inputs.precision[t * 3 + i] * inputs.value[t * 3 + i];
    }
  }
  const PalimpsaRefResult result = PalimpsaRefRecurrent(options, inputs, kCount);
  const size_t last = (kCount - 1) * 5 % 8;
  for (size_t i = 0; i < 3; ++i) {
    const size_t element = i * 8 + last;
    EXPECT_NEAR(result.out[(kCount - 1) * 3 + i], weighted[element] / precision[element],
                kTolerance);
    EXPECT_NEAR(result.variance[(kCount - 1) * 3 + i], 1.0 / precision[element], kTolerance);
  }
}

// Mamba2: h <- exp(-A dt) h + dt x B^T, y = h C (d_t on the value, no normaliser).
TEST(PalimpsaRefTest, ZeroPrecisionIsMamba2) {
  const PalimpsaRefOptions options{{2, 8, 5}, 1.0};
  constexpr int64_t kCount = 50;
  PalimpsaRefInputs inputs = RandomInputs(options.shape, kCount, 10);
  std::fill(inputs.precision.begin(), inputs.precision.end(), 0.0);
  const PalimpsaRefResult result = PalimpsaRefRecurrent(options, inputs, kCount);
  std::vector<double> hidden(80);
  for (size_t t = 0; t < kCount; ++t) {
    for (size_t h = 0; h < 2; ++h) {
      for (size_t i = 0; i < 5; ++i) {
        double read = 0.0;
        for (size_t j = 0; j < 8; ++j) {
          double& element = hidden[(h * 5 + i) * 8 + j];
          element = std::exp(inputs.log_decay[t * 2 + h]) * element +
                    inputs.value[(t * 2 + h) * 5 + i] * inputs.k[(t * 2 + h) * 8 + j];
          read += element * inputs.q[(t * 2 + h) * 8 + j];
        }
        EXPECT_NEAR(result.out[(t * 2 + h) * 5 + i], read, kTolerance);
      }
    }
  }
}

// Putting d_t on k instead of on v~ and b squares it in the precision: papers.md 2.3.
TEST(PalimpsaRefTest, TimeStepOnTheKeyIsAnotherRecurrence) {
  const PalimpsaRefOptions options{{1, 8, 5}, 1.0};
  constexpr int64_t kCount = 30;
  const PalimpsaRefInputs bare = RandomInputs(options.shape, kCount, 11);
  PalimpsaRefInputs on_value = bare;
  PalimpsaRefInputs on_key = bare;
  for (size_t t = 0; t < kCount; ++t) {
    const double step = 0.1 + 0.01 * static_cast<double>(t);
    for (size_t i = 0; i < 5; ++i) {
      on_value.value[t * 5 + i] *= step;
      on_value.precision[t * 5 + i] *= step;
    }
    for (size_t j = 0; j < 8; ++j) on_key.k[t * 8 + j] *= step;
  }
  const auto a = PalimpsaRefRecurrent(options, on_value, kCount);
  const auto b = PalimpsaRefRecurrent(options, on_key, kCount);
  EXPECT_LE(MaxAbsDifference(a.m, b.m), kTolerance);
  EXPECT_GT(MaxAbsDifference(a.out, b.out), 1e-3);
}

// I = I_p + N b k^2 with N = 1 / (1 - e^log_decay), as prescribed in papers.md 2.3.
TEST(PalimpsaRefTest, PrecisionReachesItsSteadyState) {
  const PalimpsaRefOptions options{{1, 8, 2}, 1.0};
  constexpr int64_t kCount = 4000;
  PalimpsaRefInputs inputs = RandomInputs(options.shape, kCount, 12);
  for (size_t t = 0; t < kCount; ++t) {
    inputs.log_decay[t] = -0.01;
    for (size_t j = 0; j < 8; ++j) inputs.k[t * 8 + j] = 0.1 * static_cast<double>(j);
    for (size_t i = 0; i < 2; ++i) inputs.precision[t * 2 + i] = 0.5 + static_cast<double>(i);
  }
  const PalimpsaRefResult result = PalimpsaRefRecurrent(options, inputs, kCount);
  const double window = 1.0 / (1.0 - std::exp(-0.01));
  for (size_t i = 0; i < 2; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      const double k = 0.1 * static_cast<double>(j);
      EXPECT_NEAR(result.i_bar[i * 8 + j], window * (0.5 + static_cast<double>(i)) * k * k,
                  1e-11 * window);
    }
  }
}

TEST(PalimpsaRefTest, VarianceCarriesTheSquareOfTheReadScale) {
  PalimpsaRefOptions options{{1, 8, 2}, 1.0};
  const PalimpsaRefInputs inputs = RandomInputs(options.shape, 3, 13);
  const PalimpsaRefResult unit = PalimpsaRefRecurrent(options, inputs, 3);
  options.read_scale = 0.5;
  const PalimpsaRefResult half = PalimpsaRefRecurrent(options, inputs, 3);
  for (size_t i = 0; i < unit.out.size(); ++i) {
    EXPECT_NEAR(half.out[i], 0.5 * unit.out[i], kTolerance);
    EXPECT_NEAR(half.variance[i], 0.25 * unit.variance[i], kTolerance);
  }
}

}  // namespace
}  // namespace lethe
