#include "kernels/math/math.h"

#include <cmath>
#include <cstddef>

#include "hwy/highway.h"

#include "kernels/base/check.h"
#include "kernels/math/vector_math.h"

namespace lethe {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
using WideTag = hn::FixedTag<T, 32 / sizeof(T)>;

// The scalar form is the one-lane vector form: same operations, same bits.
template <typename T, class Function>
T Scalar(T x, Function function) {
  const hn::FixedTag<T, 1> d;
  return hn::GetLane(function(d, hn::Set(d, x)));
}

template <typename T, class Function>
void ForEach(absl::Span<const T> x, absl::Span<T> y, Function function) {
  LETHE_CHECK(x.size() == y.size());
  const WideTag<T> d;
  constexpr size_t kLanes = hn::MaxLanes(WideTag<T>());
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    hn::StoreU(function(d, hn::LoadU(d, x.data() + i)), d, y.data() + i);
  }
  if (i == x.size()) return;
  T rest[kLanes] = {};
  for (size_t j = i; j < x.size(); ++j) rest[j - i] = x[j];
  hn::StoreU(function(d, hn::LoadU(d, rest)), d, rest);
  for (size_t j = i; j < x.size(); ++j) y[j] = rest[j - i];
}

// Lanes of the elements past the last multiple of 8, zeros after them.
template <typename T>
void LoadRest(absl::Span<const T> x, size_t begin, T (&rest)[8]) {
  for (size_t j = 0; j < 8; ++j) rest[j] = begin + j < x.size() ? x[begin + j] : T{0};
}

}  // namespace

#define LETHE_DEFINE_MATH(Name, T)                                     \
  T Name(T x) {                                                        \
    return Scalar(x, [](auto d, auto v) { return simd::Name(d, v); }); \
  }                                                                    \
  void Name(absl::Span<const T> x, absl::Span<T> y) {                  \
    ForEach<T>(x, y, [](auto d, auto v) { return simd::Name(d, v); }); \
  }
LETHE_DEFINE_MATH(Exp, float)
LETHE_DEFINE_MATH(Exp, double)
LETHE_DEFINE_MATH(Log, float)
LETHE_DEFINE_MATH(Log, double)
LETHE_DEFINE_MATH(Sigmoid, float)
LETHE_DEFINE_MATH(Silu, float)
LETHE_DEFINE_MATH(Softplus, float)
LETHE_DEFINE_MATH(Elu, float)
LETHE_DEFINE_MATH(EluPlusOne, float)
#undef LETHE_DEFINE_MATH

float Dot(absl::Span<const float> x, absl::Span<const float> y) {
  LETHE_CHECK(x.size() == y.size());
  const hn::FixedTag<float, 8> d;
  auto lanes = hn::Zero(d);
  size_t i = 0;
  for (; i + 8 <= x.size(); i += 8) {
    lanes = hn::MulAdd(hn::LoadU(d, x.data() + i), hn::LoadU(d, y.data() + i), lanes);
  }
  if (i < x.size()) {
    float x_rest[8];
    float y_rest[8];
    LoadRest(x, i, x_rest);
    LoadRest(y, i, y_rest);
    lanes = hn::MulAdd(hn::LoadU(d, x_rest), hn::LoadU(d, y_rest), lanes);
  }
  return simd::SumTree(lanes);
}

double Dot(absl::Span<const double> x, absl::Span<const double> y) {
  LETHE_CHECK(x.size() == y.size());
  const hn::FixedTag<double, 4> d;
  auto low = hn::Zero(d);
  auto high = hn::Zero(d);
  size_t i = 0;
  for (; i + 8 <= x.size(); i += 8) {
    low = hn::MulAdd(hn::LoadU(d, x.data() + i), hn::LoadU(d, y.data() + i), low);
    high = hn::MulAdd(hn::LoadU(d, x.data() + i + 4), hn::LoadU(d, y.data() + i + 4), high);
  }
  if (i < x.size()) {
    double x_rest[8];
    double y_rest[8];
    LoadRest(x, i, x_rest);
    LoadRest(y, i, y_rest);
    low = hn::MulAdd(hn::LoadU(d, x_rest), hn::LoadU(d, y_rest), low);
    high = hn::MulAdd(hn::LoadU(d, x_rest + 4), hn::LoadU(d, y_rest + 4), high);
  }
  return simd::SumTree(low, high);
}

float Sum(absl::Span<const float> x) {
  const hn::FixedTag<float, 8> d;
  auto lanes = hn::Zero(d);
  size_t i = 0;
  for (; i + 8 <= x.size(); i += 8) lanes = hn::Add(lanes, hn::LoadU(d, x.data() + i));
  if (i < x.size()) {
    float rest[8];
    LoadRest(x, i, rest);
    lanes = hn::Add(lanes, hn::LoadU(d, rest));
  }
  return simd::SumTree(lanes);
}

float SumSquares(absl::Span<const float> x) { return Dot(x, x); }

void L2Normalize(absl::Span<const float> x, absl::Span<float> y) {
  const float norm = std::sqrt(SumSquares(x) + kL2Epsilon);
  ForEach<float>(x, y, [norm](auto d, auto v) { return hn::Div(v, hn::Set(d, norm)); });
}

}  // namespace lethe
