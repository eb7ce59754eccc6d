// Highway compiles this file once for each width; hwy/foreach_target.h includes it again.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/matmul/panel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/matmul_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lethe::matmul {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, kPanelOutputs>;
using V = hn::Vec<D>;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
constexpr int kVectors = kPanelOutputs / kLanes;  // of a panel's row
constexpr bool kIsWide = kLanes == kPanelOutputs;

// A tile keeps kRowsMax x kPanelsMax x kVectors accumulators, its weights and a broadcast in the 16
// vector registers of AVX2, the 32 of AVX-512.
constexpr int kRowsMax = kIsWide ? 12 : 6;
constexpr int kPanelsMax = kIsWide ? 2 : 1;
// A block of kPanelsMax panels, widened to f32, and the rows of x beside it fit a first-level cache of
// 48 KiB.
constexpr int64_t kInputsPerBlock = 512 / kPanelsMax;
// With so few rows several panels run side by side, because one panel's accumulators would wait for
// each other's fma latency.
constexpr int kFewRows = 6;

using HalfPanel = hn::Vec<hn::FixedTag<float, kHalfPanel>>;

HWY_INLINE void JoinHalves(HalfPanel low, HalfPanel high, HalfPanel (&row)[2]) {
  row[0] = low;
  row[1] = high;
}

template <class Panel>
HWY_INLINE void JoinHalves(HalfPanel low, HalfPanel high, Panel (&row)[1]) {
  row[0] = hn::Combine(hn::DFromV<Panel>(), high, low);
}

struct F32Weights {
  using Element = float;
  // By number of rows; measured by tests/bench/matmul_bench.cc. More would spill accumulators.
  static constexpr std::array<int, kFewRows> kPanelsPerTile =
      kIsWide ? std::array<int, kFewRows>{8, 6, 4, 3, 3, 2}
              : std::array<int, kFewRows>{4, 3, 2, 1, 1, 1};
  static HWY_INLINE void Load(const float* w, V (&out)[kVectors]) {
    for (int i = 0; i < kVectors; ++i) out[i] = hn::Load(D(), w + i * kLanes);
  }
};

struct Bf16Weights {
  using Element = uint16_t;
  static constexpr std::array<int, kFewRows> kPanelsPerTile =
      kIsWide ? std::array<int, kFewRows>{8, 6, 4, 3, 2, 2}
              : std::array<int, kFewRows>{4, 2, 1, 1, 1, 1};
  // A pair's low half is output i, its high half output kHalfPanel + i.
  static HWY_INLINE void Load(const uint16_t* w, V (&out)[kVectors]) {
    const hn::FixedTag<float, kHalfPanel> d;
    const hn::FixedTag<uint32_t, kHalfPanel> du;
    const auto pairs = hn::Load(du, reinterpret_cast<const uint32_t*>(w));
    JoinHalves(hn::BitCast(d, hn::ShiftLeft<16>(pairs)),
               hn::BitCast(d, hn::And(pairs, hn::Set(du, 0xffff0000u))), out);
  }
};

// One tile: kRows rows of x by kPanels panels, over `num_inputs` consecutive k.
struct Tile {
  const float* x;
  int64_t x_stride;
  const void* w;         // at the first k of the first panel
  int64_t panel_stride;  // elements from one panel to the next
  int64_t num_inputs;
  float* y;
  int64_t y_stride;
  int64_t num_outputs;  // from the tile's first to the matrix's last
  bool is_first;        // start from +0 instead of what y holds
};

HWY_INLINE void LoadOutputs(const float* y, int64_t count, V (&out)[kVectors]) {
  float row[kPanelOutputs] = {};
  if (count < kPanelOutputs) {
    if (count > 0) std::memcpy(row, y, static_cast<size_t>(count) * sizeof(float));
    y = row;
  }
  for (int i = 0; i < kVectors; ++i) out[i] = hn::LoadU(D(), y + i * kLanes);
}

HWY_INLINE void StoreOutputs(const V (&out)[kVectors], int64_t count, float* y) {
  float row[kPanelOutputs];
  float* to = count < kPanelOutputs ? row : y;
  for (int i = 0; i < kVectors; ++i) hn::StoreU(out[i], D(), to + i * kLanes);
  if (to == row && count > 0) std::memcpy(y, row, static_cast<size_t>(count) * sizeof(float));
}

template <class Weights, int kRows, int kPanels>
HWY_NOINLINE void MultiplyTile(const Tile& tile) {
  const D d;
  const auto* w = static_cast<const typename Weights::Element*>(tile.w);
  V sums[kRows][kPanels][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      for (V& sum : sums[r][p]) sum = hn::Zero(d);
      if (tile.is_first) continue;
      LoadOutputs(tile.y + r * tile.y_stride + p * kPanelOutputs,
                  tile.num_outputs - p * kPanelOutputs, sums[r][p]);
    }
  }
  for (int64_t k = 0; k < tile.num_inputs; ++k) {
    V weights[kPanels][kVectors];
    for (int p = 0; p < kPanels; ++p) {
      Weights::Load(w + p * tile.panel_stride + k * kPanelOutputs, weights[p]);
    }
    for (int r = 0; r < kRows; ++r) {
      const V x = hn::Set(d, tile.x[r * tile.x_stride + k]);
      for (int p = 0; p < kPanels; ++p) {
        for (int i = 0; i < kVectors; ++i) {
          sums[r][p][i] = hn::MulAdd(x, weights[p][i], sums[r][p][i]);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      StoreOutputs(sums[r][p], tile.num_outputs - p * kPanelOutputs,
                   tile.y + r * tile.y_stride + p * kPanelOutputs);
    }
  }
}

using TileFunction = void (*)(const Tile& tile);

template <class Weights, int kPanels, int... kRowsLess1>
constexpr std::array<TileFunction, sizeof...(kRowsLess1)> TilesByRows(
    std::integer_sequence<int, kRowsLess1...> /*rows*/) {
  return {&MultiplyTile<Weights, kRowsLess1 + 1, kPanels>...};
}

// [rows - 1], one panel wide.
template <class Weights>
constexpr auto kOnePanel = TilesByRows<Weights, 1>(std::make_integer_sequence<int, kRowsMax>());
// [rows - 1], kPanelsMax panels wide.
constexpr auto kBlock =
    TilesByRows<F32Weights, kPanelsMax>(std::make_integer_sequence<int, kRowsMax>());

template <class Weights, int... kRowsLess1>
constexpr std::array<TileFunction, sizeof...(kRowsLess1)> SideBySide(
    std::integer_sequence<int, kRowsLess1...> /*rows*/) {
  return {&MultiplyTile<Weights, kRowsLess1 + 1, Weights::kPanelsPerTile[size_t{kRowsLess1}]>...};
}

// [rows - 1], kPanelsPerTile panels wide.
template <class Weights>
constexpr auto kSideBySide = SideBySide<Weights>(std::make_integer_sequence<int, kFewRows>());

// Up to kFewRows rows: the weights stream through once.
template <class Weights>
void MultiplyFewRows(const Problem& problem) {
  const int64_t num_panels = NumPanels(problem.num_outputs);
  Tile tile = {problem.x,
               problem.num_inputs,
               nullptr,
               problem.num_inputs * kPanelOutputs,
               problem.num_inputs,
               nullptr,
               problem.num_outputs,
               0,
               true};
  const auto rows = static_cast<size_t>(problem.num_rows - 1);
  const int64_t panels_per_tile = Weights::kPanelsPerTile[rows];
  for (int64_t panel = 0; panel < num_panels;) {
    tile.w = static_cast<const typename Weights::Element*>(problem.w) + panel * tile.panel_stride;
    tile.y = problem.y + panel * kPanelOutputs;
    tile.num_outputs = problem.num_outputs - panel * kPanelOutputs;
    if (num_panels - panel < panels_per_tile) {
      kOnePanel<Weights>[rows](tile);
      ++panel;
    } else {
      kSideBySide<Weights>[rows](tile);
      panel += panels_per_tile;
    }
  }
}

// All rows over one block of inputs of num_panels panels, in tiles of nearly equal height.
void MultiplyBlock(const Problem& problem, int64_t panel, int num_panels, int64_t first_input,
                   int64_t num_inputs, const float* w, int64_t panel_stride) {
  Tile tile = {nullptr,
               problem.num_inputs,
               w,
               panel_stride,
               num_inputs,
               nullptr,
               problem.num_outputs,
               problem.num_outputs - panel * kPanelOutputs,
               first_input == 0};
  const auto& tiles = num_panels == kPanelsMax ? kBlock : kOnePanel<F32Weights>;
  int64_t num_tiles = (problem.num_rows + kRowsMax - 1) / kRowsMax;
  for (int64_t row = 0; row < problem.num_rows; --num_tiles) {
    const int64_t num_rows = (problem.num_rows - row + num_tiles - 1) / num_tiles;
    tile.x = problem.x + row * problem.num_inputs + first_input;
    tile.y = problem.y + row * problem.num_outputs + panel * kPanelOutputs;
    tiles[static_cast<size_t>(num_rows - 1)](tile);
    row += num_rows;
  }
}

void Widen(const uint16_t* w, int64_t num_inputs, float* widened) {
  for (int64_t k = 0; k < num_inputs; ++k) {
    V out[kVectors];
    Bf16Weights::Load(w + k * kPanelOutputs, out);
    for (int i = 0; i < kVectors; ++i) {
      hn::Store(out[i], D(), widened + k * kPanelOutputs + i * kLanes);
    }
  }
}

template <class Weights>
void Multiply(const Problem& problem) {
  if (problem.num_rows <= kFewRows) return MultiplyFewRows<Weights>(problem);
  alignas(64) float widened[kPanelsMax * kInputsPerBlock * kPanelOutputs];
  const auto* panel_w = static_cast<const typename Weights::Element*>(problem.w);
  const int64_t panel_stride = problem.num_inputs * kPanelOutputs;
  for (int64_t panel = 0; panel < NumPanels(problem.num_outputs); panel += kPanelsMax) {
    const int num_panels = NumPanels(problem.num_outputs) - panel < kPanelsMax ? 1 : kPanelsMax;
    for (int64_t k = 0; k < problem.num_inputs; k += kInputsPerBlock) {
      const int64_t num_inputs = std::min(kInputsPerBlock, problem.num_inputs - k);
      const auto* w = panel_w + panel * panel_stride + k * kPanelOutputs;
      if constexpr (sizeof(typename Weights::Element) == sizeof(float)) {
        MultiplyBlock(problem, panel, num_panels, k, num_inputs, w, panel_stride);
      } else {
        for (int p = 0; p < num_panels; ++p) {
          Widen(w + p * panel_stride, num_inputs, widened + p * kInputsPerBlock * kPanelOutputs);
        }
        MultiplyBlock(problem, panel, num_panels, k, num_inputs, widened,
                      kInputsPerBlock * kPanelOutputs);
      }
    }
  }
}

void MultiplyF32(const Problem& problem) { Multiply<F32Weights>(problem); }
void MultiplyBf16(const Problem& problem) { Multiply<Bf16Weights>(problem); }

}  // namespace

extern const Kernel kKernel;
const Kernel kKernel = {kLanes, &MultiplyF32, &MultiplyBf16};

}  // namespace HWY_NAMESPACE
}  // namespace lethe::matmul
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lethe::matmul {

// Highway's own dispatch lives in a shared library that a static server could not carry.
absl::Span<const Kernel> SupportedKernels() {
  static const auto* const kernels = [] {
    auto* supported = new std::vector<Kernel>;
#if HWY_STATIC_TARGET != HWY_AVX3 && (HWY_TARGETS & HWY_AVX3)
    supported->push_back(HWY_STATIC_DISPATCH(kKernel));
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512cd")) {
      supported->push_back(N_AVX3::kKernel);
    }
#else
    supported->push_back(HWY_STATIC_DISPATCH(kKernel));
#endif
    return supported;
  }();
  return *kernels;
}

}  // namespace lethe::matmul
#endif  // HWY_ONCE
