#include <algorithm>
#include <cstring>

#include "hwy/highway.h"

#include "kernels/matmul/panel.h"

namespace lethe::matmul {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::FixedTag<float, 8>;
using V = hn::Vec<D>;

// 6 rows x 16 outputs keep 12 accumulators, 2 weights and a broadcast in the 16 vector registers.
constexpr int64_t kRowsMax = 6;
// A block of a panel, widened to f32, and 6 rows of x beside it fit a first-level cache of 48 KiB.
constexpr int64_t kInputsPerBlock = 512;

struct F32Weights {
  using Element = float;
  // By number of rows; measured by tests/bench/matmul_bench.cc. More would spill accumulators.
  static constexpr int kPanelsPerTile[kRowsMax] = {4, 3, 2, 1, 1, 1};
  static HWY_INLINE void Load(const float* w, V* low, V* high) {
    const D d;
    *low = hn::Load(d, w);
    *high = hn::Load(d, w + kLanes);
  }
};

struct Bf16Weights {
  using Element = uint16_t;
  static constexpr int kPanelsPerTile[kRowsMax] = {4, 2, 1, 1, 1, 1};
  static HWY_INLINE void Load(const uint16_t* w, V* low, V* high) {
    const D d;
    const hn::RebindToUnsigned<D> du;
    const auto pairs = hn::Load(du, reinterpret_cast<const uint32_t*>(w));
    *low = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
    *high = hn::BitCast(d, hn::And(pairs, hn::Set(du, 0xffff0000u)));
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
  int64_t num_outputs;  // of the tile: 16 kPanels, or fewer at the right edge
  bool is_first;        // start from +0 instead of what y holds
};

HWY_INLINE void LoadOutputs(const float* y, int64_t count, V* low, V* high) {
  const D d;
  float row[kPanelOutputs] = {};
  if (count >= kPanelOutputs) {
    *low = hn::LoadU(d, y);
    *high = hn::LoadU(d, y + kLanes);
    return;
  }
  if (count > 0) std::memcpy(row, y, static_cast<size_t>(count) * sizeof(float));
  *low = hn::LoadU(d, row);
  *high = hn::LoadU(d, row + kLanes);
}

HWY_INLINE void StoreOutputs(V low, V high, int64_t count, float* y) {
  const D d;
  if (count >= kPanelOutputs) {
    hn::StoreU(low, d, y);
    hn::StoreU(high, d, y + kLanes);
    return;
  }
  float row[kPanelOutputs];
  hn::StoreU(low, d, row);
  hn::StoreU(high, d, row + kLanes);
  if (count > 0) std::memcpy(y, row, static_cast<size_t>(count) * sizeof(float));
}

template <class Weights, int kRows, int kPanels>
HWY_NOINLINE void MultiplyTile(const Tile& tile) {
  const D d;
  const auto* w = static_cast<const typename Weights::Element*>(tile.w);
  V low[kRows][kPanels];
  V high[kRows][kPanels];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      low[r][p] = hn::Zero(d);
      high[r][p] = hn::Zero(d);
      if (tile.is_first) continue;
      LoadOutputs(tile.y + r * tile.y_stride + p * kPanelOutputs,
                  tile.num_outputs - p * kPanelOutputs, &low[r][p], &high[r][p]);
    }
  }
  for (int64_t k = 0; k < tile.num_inputs; ++k) {
    V w_low[kPanels];
    V w_high[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      Weights::Load(w + p * tile.panel_stride + k * kPanelOutputs, &w_low[p], &w_high[p]);
    }
    for (int r = 0; r < kRows; ++r) {
      const V x = hn::Set(d, tile.x[r * tile.x_stride + k]);
      for (int p = 0; p < kPanels; ++p) {
        low[r][p] = hn::MulAdd(x, w_low[p], low[r][p]);
        high[r][p] = hn::MulAdd(x, w_high[p], high[r][p]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      StoreOutputs(low[r][p], high[r][p], tile.num_outputs - p * kPanelOutputs,
                   tile.y + r * tile.y_stride + p * kPanelOutputs);
    }
  }
}

template <class Weights>
void MultiplyOnePanel(int64_t num_rows, const Tile& tile) {
  switch (num_rows) {
    case 1:
      return MultiplyTile<Weights, 1, 1>(tile);
    case 2:
      return MultiplyTile<Weights, 2, 1>(tile);
    case 3:
      return MultiplyTile<Weights, 3, 1>(tile);
    case 4:
      return MultiplyTile<Weights, 4, 1>(tile);
    case 5:
      return MultiplyTile<Weights, 5, 1>(tile);
    default:
      return MultiplyTile<Weights, kRowsMax, 1>(tile);
  }
}

// Up to 6 rows: the weights stream through once. With few rows several panels run side by side,
// because one panel's 2 accumulators per row would wait for each other's fma latency.
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
  const int64_t panels_per_tile = Weights::kPanelsPerTile[problem.num_rows - 1];
  for (int64_t panel = 0; panel < num_panels;) {
    tile.w = static_cast<const typename Weights::Element*>(problem.w) + panel * tile.panel_stride;
    tile.y = problem.y + panel * kPanelOutputs;
    tile.num_outputs = problem.num_outputs - panel * kPanelOutputs;
    if (panels_per_tile == 1 || num_panels - panel < panels_per_tile) {
      MultiplyOnePanel<Weights>(problem.num_rows, tile);
      ++panel;
      continue;
    }
    switch (problem.num_rows) {
      case 1:
        MultiplyTile<Weights, 1, Weights::kPanelsPerTile[0]>(tile);
        break;
      case 2:
        MultiplyTile<Weights, 2, Weights::kPanelsPerTile[1]>(tile);
        break;
      default:
        MultiplyTile<Weights, 3, Weights::kPanelsPerTile[2]>(tile);
    }
    panel += panels_per_tile;
  }
}

// All rows over one block of one panel, in tiles of nearly equal height.
void MultiplyBlock(const Problem& problem, int64_t panel, int64_t first_input, int64_t num_inputs,
                   const float* w) {
  Tile tile = {nullptr,
               problem.num_inputs,
               w,
               0,
               num_inputs,
               nullptr,
               problem.num_outputs,
               problem.num_outputs - panel * kPanelOutputs,
               first_input == 0};
  int64_t num_tiles = (problem.num_rows + kRowsMax - 1) / kRowsMax;
  for (int64_t row = 0; row < problem.num_rows; --num_tiles) {
    const int64_t num_rows = (problem.num_rows - row + num_tiles - 1) / num_tiles;
    tile.x = problem.x + row * problem.num_inputs + first_input;
    tile.y = problem.y + row * problem.num_outputs + panel * kPanelOutputs;
    MultiplyOnePanel<F32Weights>(num_rows, tile);
    row += num_rows;
  }
}

void Widen(const uint16_t* w, int64_t num_inputs, float* widened) {
  const D d;
  for (int64_t k = 0; k < num_inputs; ++k) {
    V low;
    V high;
    Bf16Weights::Load(w + k * kPanelOutputs, &low, &high);
    hn::Store(low, d, widened + k * kPanelOutputs);
    hn::Store(high, d, widened + k * kPanelOutputs + kLanes);
  }
}

template <class Weights>
void Multiply(const Problem& problem) {
  if (problem.num_rows <= kRowsMax) return MultiplyFewRows<Weights>(problem);
  alignas(64) float widened[kInputsPerBlock * kPanelOutputs];
  const auto* panel_w = static_cast<const typename Weights::Element*>(problem.w);
  for (int64_t panel = 0; panel < NumPanels(problem.num_outputs); ++panel) {
    for (int64_t k = 0; k < problem.num_inputs; k += kInputsPerBlock) {
      const int64_t num_inputs = std::min(kInputsPerBlock, problem.num_inputs - k);
      if constexpr (sizeof(typename Weights::Element) == sizeof(float)) {
        MultiplyBlock(problem, panel, k, num_inputs, panel_w + k * kPanelOutputs);
      } else {
        Widen(panel_w + k * kPanelOutputs, num_inputs, widened);
        MultiplyBlock(problem, panel, k, num_inputs, widened);
      }
    }
    panel_w += problem.num_inputs * kPanelOutputs;
  }
}

}  // namespace

void MultiplyF32(const Problem& problem) { Multiply<F32Weights>(problem); }
void MultiplyBf16(const Problem& problem) { Multiply<Bf16Weights>(problem); }

}  // namespace lethe::matmul
