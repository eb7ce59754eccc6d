// Goal: how near Matmul comes to the core's fma peak (many rows) and to memory speed (one row).
// Method: repeats each case for 0.2 s in 7 parts; prints the median of the parts and their spread.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "hwy/highway.h"

#include "kernels/matmul/matmul.h"

namespace lethe {
namespace {

constexpr int kRepeats = 7;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds per call: {fastest, median, slowest} of kRepeats.
template <class Function>
std::vector<double> TimePerCall(Function function) {
  std::vector<double> times;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    int64_t num_calls = 0;
    const double start = Seconds();
    double elapsed = 0.0;
    while (elapsed < 0.2 / kRepeats) {
      function();
      ++num_calls;
      elapsed = Seconds() - start;
    }
    times.push_back(elapsed / static_cast<double>(num_calls));
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[kRepeats / 2], times.back()};
}

std::vector<float> RandomValues(int64_t count, bool is_bf16) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = normal(random);
    if (!is_bf16) continue;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits &= 0xffff0000u;
    std::memcpy(&value, &bits, sizeof bits);
  }
  return values;
}

// Independent chains of 256-bit fma, enough to hide their latency: what the core can do.
void PrintPeak() {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::FixedTag<float, 8> d;
  constexpr int kChains = 10;
  constexpr int64_t kSteps = 100000;
  const auto a = hn::Set(d, 0.5f);
  float sink = 0.0f;
  const auto times = TimePerCall([&] {
    auto s0 = hn::Set(d, sink);
    auto s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0, s8 = s0, s9 = s0;
    for (int64_t i = 0; i < kSteps; ++i) {
      s0 = hn::MulAdd(s0, a, a);
      s1 = hn::MulAdd(s1, a, a);
      s2 = hn::MulAdd(s2, a, a);
      s3 = hn::MulAdd(s3, a, a);
      s4 = hn::MulAdd(s4, a, a);
      s5 = hn::MulAdd(s5, a, a);
      s6 = hn::MulAdd(s6, a, a);
      s7 = hn::MulAdd(s7, a, a);
      s8 = hn::MulAdd(s8, a, a);
      s9 = hn::MulAdd(s9, a, a);
      // Keeps the compiler from merging chains that hold the same value.
      asm volatile("" : "+x"(s0.raw), "+x"(s1.raw), "+x"(s2.raw), "+x"(s3.raw), "+x"(s4.raw));
      asm volatile("" : "+x"(s5.raw), "+x"(s6.raw), "+x"(s7.raw), "+x"(s8.raw), "+x"(s9.raw));
    }
    sink += hn::GetLane(s0) * 1e-30f;
  });
  std::printf("peak of 256-bit fma: %.1f GFLOP/s (sum %g)\n",
              16.0 * kChains * kSteps / times[1] * 1e-9, static_cast<double>(sink));
}

void PrintCase(int64_t num_rows, int64_t num_outputs, int64_t num_inputs, int64_t num_matrices,
               bool is_bf16) {
  const std::vector<float> w = RandomValues(num_outputs * num_inputs, is_bf16);
  std::vector<PackedMatrix> packed;
  for (int64_t i = 0; i < num_matrices; ++i) {
    packed.push_back(PackedMatrix::Pack(w, num_outputs, num_inputs));
  }
  const std::vector<float> x = RandomValues(num_rows * num_inputs, false);
  std::vector<float> y(static_cast<size_t>(num_rows * num_outputs));
  const auto times = TimePerCall([&] {
    for (const PackedMatrix& matrix : packed) Matmul(x, num_rows, matrix, absl::MakeSpan(y));
  });
  const double flops =
      2.0 * static_cast<double>(num_rows * num_outputs * num_inputs * num_matrices);
  const double bytes =
      static_cast<double>(packed[0].size_bytes()) * static_cast<double>(num_matrices);
  std::printf(
      "m %3ld  n %5ld  k %4ld  x%-3ld %s  %8.1f us (%.1f … %.1f)  %6.1f GFLOP/s  %5.1f GB/s of "
      "weights\n",
      static_cast<long>(num_rows), static_cast<long>(num_outputs), static_cast<long>(num_inputs),
      static_cast<long>(num_matrices), is_bf16 ? "bf16" : "f32 ", times[1] * 1e6, times[0] * 1e6,
      times[2] * 1e6, flops / times[1] * 1e-9, bytes / times[1] * 1e-9);
}

}  // namespace
}  // namespace lethe

int main() {
  lethe::PrintPeak();
  for (const bool is_bf16 : {false, true}) {
    for (const int64_t num_rows : {1, 2, 3, 4, 6, 16, 64, 256}) {
      lethe::PrintCase(num_rows, 256, 256, 1, is_bf16);
    }
    for (const int64_t num_rows : {1, 64}) {
      lethe::PrintCase(num_rows, 512, 512, 1, is_bf16);
      lethe::PrintCase(num_rows, 256, 1024, 1, is_bf16);
      // 4 M parameters, as a whole model streams them.
      lethe::PrintCase(num_rows, 512, 256, 32, is_bf16);
    }
  }
  return 0;
}
