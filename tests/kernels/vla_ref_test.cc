// Goal: the double reference of VLA is the published algorithm, and what papers.md 3.2 says of it
// is true.
// Method: closed forms solved with Eigen: ridge regression, the norm and spectrum of one step's
// Jacobian, Kantorovich's bound, the product of many Jacobians, the order of the nudge.
#include "kernels/vla/vla_ref.h"

#include <cmath>
#include <complex>

#include "gtest/gtest.h"
#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <Eigen/LU>

#include "tests/kernels/stream_inputs.h"

namespace lethe {
namespace {

using testing::RandomSource;
using testing::ToDouble;
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXd;

Matrix AsMatrix(const std::vector<double>& x, int64_t columns) {
  return Eigen::Map<const Matrix>(x.data(), static_cast<int64_t>(x.size()) / columns, columns);
}

Vector AsVector(const std::vector<double>& x) {
  return Eigen::Map<const Vector>(x.data(), static_cast<int64_t>(x.size()));
}

VlaOptions Options(int64_t dim) {
  VlaOptions options;
  options.key_dim = dim;
  options.value_dim = dim;
  return options;
}

// One random token: elu + 1 features, u of norm 1/sqrt(dim).
void RandomStep(int64_t dim, RandomSource* random, VlaRef* ref, std::vector<double>* u = nullptr) {
  const std::vector<double> direction =
      ToDouble(random->Rows(1, dim, 1.0 / std::sqrt(static_cast<double>(dim))));
  ref->Step(ToDouble(random->EluPlusOnes(dim)), ToDouble(random->EluPlusOnes(dim)),
            ToDouble(random->Normals(dim)), direction);
  if (u != nullptr) *u = direction;
}

// Ascending eigenvalues of a symmetric matrix.
Vector Spectrum(const Eigen::MatrixXd& matrix) {
  return Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(matrix, Eigen::EigenvaluesOnly)
      .eigenvalues();
}

// The largest singular value, to full precision: it is the small ones that squaring spoils.
double Norm2(const Matrix& matrix) {
  return std::sqrt(Spectrum(matrix.transpose() * matrix)(matrix.cols() - 1));
}

Matrix Jacobian(const VlaRef& ref) {
  const Vector alpha = AsVector(ref.alpha());
  const Vector key = AsVector(ref.key_unit());
  return Matrix::Identity(alpha.size(), alpha.size()) - alpha * key.transpose();
}

TEST(VlaRefTest, RecursiveLeastSquaresVariantIsRidgeRegression) {
  constexpr int64_t kDim = 24;
  constexpr int64_t kCount = 200;
  VlaOptions options = Options(kDim);
  options.value_dim = 7;
  options.variant = VlaVariant::kRls;
  for (double lambda0 : {0.1, 1.0, 10.0}) {
    options.lambda0 = lambda0;
    VlaRef ref(options);
    RandomSource random(1);
    Matrix gram = lambda0 * Matrix::Identity(kDim, kDim);
    Matrix cross = Matrix::Zero(7, kDim);
    for (int64_t t = 0; t < kCount; ++t) {
      const std::vector<double> v = ToDouble(random.Normals(7));
      ref.Step(ToDouble(random.Normals(kDim)), ToDouble(random.Normals(kDim)), v, {});
      const Vector key = AsVector(ref.key_unit());
      gram += key * key.transpose();
      cross += AsVector(v) * key.transpose();
      if (t % 40 != 0 && t != kCount - 1) continue;
      const Matrix want = gram.ldlt().solve(cross.transpose()).transpose();
      EXPECT_LE((AsMatrix(ref.s(), kDim) - want).norm(), 1e-11 * want.norm())
          << lambda0 << " " << t;
    }
  }
}

TEST(VlaRefTest, AIsTheInverseOfTheDirectionsGramMatrix) {
  constexpr int64_t kDim = 16;
  VlaRef ref(Options(kDim));
  RandomSource random(2);
  Matrix gram = 0.1 * Matrix::Identity(kDim, kDim);
  for (int t = 0; t < 300; ++t) {
    std::vector<double> u;
    RandomStep(kDim, &random, &ref, &u);
    gram += AsVector(u) * AsVector(u).transpose();
  }
  EXPECT_LE((AsMatrix(ref.a(), kDim) * gram - Matrix::Identity(kDim, kDim)).norm(), 1e-11);
}

TEST(VlaRefTest, NudgeComesEveryTwentiethTokenAfterTheUpdateAndBeforeAlpha) {
  constexpr int64_t kDim = 8;
  VlaOptions options = Options(kDim);
  options.nudge = true;
  VlaRef ref(options);
  RandomSource random(3);
  Matrix gram = 0.1 * Matrix::Identity(kDim, kDim);
  for (int t = 0; t < 20; ++t) {
    std::vector<double> u;
    RandomStep(kDim, &random, &ref, &u);
    gram += AsVector(u) * AsVector(u).transpose();
    Matrix want = gram.inverse();
    if (t == 19) want += 1e-3 * Matrix::Identity(kDim, kDim);
    EXPECT_LE((AsMatrix(ref.a(), kDim) - want).norm(), 1e-10) << t;
    const Vector alpha = (want * AsVector(ref.key_unit())).normalized();
    EXPECT_LE((alpha - AsVector(ref.alpha())).norm(), 1e-10) << t;
  }
}

// The paper's Proposition 2 claims norm 1; papers.md 3.2 has the true value.
TEST(VlaRefTest, StepNormHasItsClosedFormAndSpectralRadiusOne) {
  for (int64_t dim : {8, 32, 96}) {
    VlaRef ref(Options(dim));
    RandomSource random(4);
    double norm_max = 0.0;
    for (int t = 0; t < 12; ++t) {
      RandomStep(dim, &random, &ref);
      const Vector alpha = AsVector(ref.alpha());
      const Vector key = AsVector(ref.key_unit());
      const double c = alpha.dot(key);
      const double norm = Norm2(Jacobian(ref));
      EXPECT_NEAR(norm, (1.0 + std::sqrt(5.0 - 4.0 * c)) / 2.0, 1e-10) << dim;
      norm_max = std::max(norm_max, norm);
      EXPECT_GE(c, 0.0);
      EXPECT_LE(c, 1.0 + 1e-12);

      const Eigen::VectorXcd eigenvalues =
          Eigen::EigenSolver<Eigen::MatrixXd>(Jacobian(ref), false).eigenvalues();
      EXPECT_NEAR(eigenvalues.cwiseAbs().maxCoeff(), 1.0, 1e-7) << dim;
      EXPECT_NEAR(eigenvalues.cwiseAbs().minCoeff(), 1.0 - c, 1e-7) << dim;

      const Vector spectrum = Spectrum(AsMatrix(ref.a(), dim));
      const double condition = spectrum(dim - 1) / spectrum(0);
      EXPECT_GE(c, 2.0 * std::sqrt(condition) / (1.0 + condition) - 1e-10) << dim;
    }
    EXPECT_GT(norm_max, 1.0 + 1e-4) << "the claim that every step's norm is 1 must not pass";
  }
}

TEST(VlaRefTest, StepNormFormulaHoldsForEveryAngle) {
  for (int64_t dim : {8, 32, 96}) {
    for (double c : {0.0, 0.25, 0.5, 0.9, 1.0}) {
      Vector key = Vector::Zero(dim);
      Vector alpha = Vector::Zero(dim);
      key(0) = 1.0;
      alpha(0) = c;
      alpha(1) = std::sqrt(1.0 - c * c);
      const Matrix step = Matrix::Identity(dim, dim) - alpha * key.transpose();
      EXPECT_NEAR(Norm2(step), (1.0 + std::sqrt(5.0 - 4.0 * c)) / 2.0, 1e-12) << dim << " " << c;
    }
  }
}

TEST(VlaRefTest, ProductOfAThousandJacobiansStaysBounded) {
  constexpr int64_t kDim = 32;
  VlaRef ref(Options(kDim));
  RandomSource random(5);
  Matrix product = Matrix::Identity(kDim, kDim);
  double norm_max = 0.0;
  for (int t = 0; t < 1000; ++t) {
    RandomStep(kDim, &random, &ref);
    product = product * Jacobian(ref);
    if (t % 10 == 9) norm_max = std::max(norm_max, Norm2(product));
  }
  EXPECT_LE(norm_max, 4.0);
  EXPECT_LE(Norm2(product), 1.0);
}

TEST(VlaRefTest, PaperReadDividesByTheKeySum) {
  constexpr int64_t kDim = 8;
  VlaOptions options = Options(kDim);
  options.read_norm = VlaReadNorm::kPaper;
  VlaRef ref(options);
  RandomSource random(6);
  Vector key_sum = Vector::Zero(kDim);
  for (int t = 0; t < 5; ++t) {
    const std::vector<double> q = ToDouble(random.EluPlusOnes(kDim));
    const std::vector<double> k = ToDouble(random.EluPlusOnes(kDim));
    ref.Step(q, k, ToDouble(random.Normals(kDim)), ToDouble(random.Rows(1, kDim, 0.3)));
    key_sum += AsVector(k);
    const Vector want = AsMatrix(ref.s(), kDim) * AsVector(q) / key_sum.dot(AsVector(q));
    EXPECT_LE((AsVector(ref.read()) - want).norm(), 1e-12);
  }
}

TEST(VlaRefTest, RmsReadHasUnitMeanSquare) {
  constexpr int64_t kDim = 16;
  VlaRef ref(Options(kDim));
  RandomSource random(7);
  for (int t = 0; t < 50; ++t) {
    RandomStep(kDim, &random, &ref);
    EXPECT_NEAR(AsVector(ref.read()).squaredNorm() / kDim, 1.0, 1e-6);
  }
}

}  // namespace
}  // namespace lethe
