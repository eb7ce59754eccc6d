#include <algorithm>

#include "kernels/elementwise/columns_cuda.h"
#include "kernels/math/math.h"
#include "kernels/math/math_cuda.cuh"

namespace lethe::elementwise {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocksMax = 4096;  // of a part; its threads then take several elements

__device__ __forceinline__ float MapOf(Map map, float x) {
  switch (map) {
    case Map::kNone:
      return x;
    case Map::kSigmoid:
      return cuda::Sigmoid(x);
    case Map::kSilu:
      return cuda::Silu(x);
    case Map::kSoftplus:
      return cuda::Softplus(x);
    case Map::kEluPlusOne:
      return cuda::EluPlusOne(x);
  }
  return x;
}

__device__ __forceinline__ float SplitOne(const SplitPart& part, float x, int64_t row, int64_t c,
                                          uint8_t* is_bad) {
  constexpr uint32_t kExponent = 0x7f800000u;
  if (is_bad != nullptr && (__float_as_uint(x) & kExponent) == kExponent) {
    is_bad[row] = 1;  // several threads may mark a row: they write the same
    x = 0.0f;
  }
  if (part.add != nullptr) x += part.add[c];
  x = MapOf(part.map, x);
  return part.scale != nullptr ? x * part.scale[c] : x;
}

__device__ __forceinline__ float JoinOne(const JoinPart& part, int64_t i, int64_t c) {
  float value = part.x[i];
  if (part.factor != nullptr) value *= part.factor[i];
  return part.gain != nullptr ? value * part.gain[c % part.gain_columns] : value;
}

__device__ __forceinline__ bool AreFours(int64_t begin, int64_t num_columns, int64_t stride,
                                         const float* a, const float* b) {
  return ((begin | num_columns | stride) % 4 == 0) &&
         (reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b)) % sizeof(float4) == 0;
}

// grid: [fours of the widest part's elements, by kThreads][parts].
__global__ void __launch_bounds__(kThreads)
    SplitKernel(const float* x, int64_t num_rows, int64_t num_columns, const SplitPart* parts,
                uint8_t* is_bad) {
  const SplitPart part = parts[blockIdx.y];
  const bool in_fours = AreFours(part.begin, part.num_columns, num_columns, x, part.y);
  const auto units = static_cast<unsigned>(in_fours ? part.num_columns / 4 : part.num_columns);
  const unsigned size = static_cast<unsigned>(num_rows) * units;
  for (unsigned i = blockIdx.x * kThreads + threadIdx.x; i < size; i += gridDim.x * kThreads) {
    const int64_t row = i / units;
    const int64_t unit = i % units;
    const float* from = x + row * num_columns + part.begin;
    if (in_fours) {
      const int64_t c = 4 * unit;
      const float4 v = reinterpret_cast<const float4*>(from)[unit];
      reinterpret_cast<float4*>(part.y)[i] = {
          SplitOne(part, v.x, row, c, is_bad), SplitOne(part, v.y, row, c + 1, is_bad),
          SplitOne(part, v.z, row, c + 2, is_bad), SplitOne(part, v.w, row, c + 3, is_bad)};
    } else {
      part.y[i] = SplitOne(part, from[unit], row, unit, is_bad);
    }
  }
}

// grid: as SplitKernel's.
__global__ void __launch_bounds__(kThreads)
    JoinKernel(const JoinPart* parts, int64_t num_rows, int64_t num_columns, float* y) {
  const JoinPart part = parts[blockIdx.y];
  const bool in_fours = AreFours(part.begin, part.num_columns, num_columns, y, nullptr);
  const auto units = static_cast<unsigned>(in_fours ? part.num_columns / 4 : part.num_columns);
  const unsigned size = static_cast<unsigned>(num_rows) * units;
  for (unsigned i = blockIdx.x * kThreads + threadIdx.x; i < size; i += gridDim.x * kThreads) {
    const int64_t row = i / units;
    const int64_t unit = i % units;
    float* to = y + row * num_columns + part.begin;
    if (in_fours) {
      const int64_t c = 4 * unit;
      const int64_t first = 4 * static_cast<int64_t>(i);
      reinterpret_cast<float4*>(to)[unit] = {
          JoinOne(part, first, c), JoinOne(part, first + 1, c + 1), JoinOne(part, first + 2, c + 2),
          JoinOne(part, first + 3, c + 3)};
    } else {
      to[unit] = JoinOne(part, i, unit);
    }
  }
}

// grid: elements of y by kThreads.
__global__ void __launch_bounds__(kThreads)
    SwigluColumnsKernel(const float* x, unsigned size, unsigned num_columns, float* y) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= size) return;
  const unsigned row = i / num_columns;
  const float* gate = x + (static_cast<int64_t>(i) + static_cast<int64_t>(row) * num_columns);
  y[i] = cuda::Silu(gate[0]) * gate[num_columns];
}

// grid: elements by kThreads.
__global__ void __launch_bounds__(kThreads)
    ScaleHeadsKernel(const float* gate, const float* gain, Map map, const float* x, unsigned size,
                     unsigned head_columns, unsigned num_heads, float* y) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= size) return;
  const unsigned head = i / head_columns;  // of the row
  float factor = gate[head];
  if (gain != nullptr) factor *= gain[head % num_heads];
  y[i] = factor * MapOf(map, x[i]);
}

// Eight threads a head, in the lanes and the tree of kernels/math's Dot. grid: [heads of the part with the
// most, by kThreads / 8, at most kBlocksMax][parts].
__global__ void __launch_bounds__(kThreads)
    NormalizeHeadsKernel(const HeadsPart* parts, int64_t num_rows) {
  const HeadsPart part = parts[blockIdx.y];
  const auto columns = static_cast<int>(part.head_columns);
  const int64_t num_heads = num_rows * (part.num_columns / part.head_columns);
  const int lane = static_cast<int>(threadIdx.x) % 8;
  constexpr int kHeads = kThreads / 8;  // of a block; all of its threads meet in the tree
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kHeads; first < num_heads;
       first += static_cast<int64_t>(gridDim.x) * kHeads) {
    const int64_t head = first + threadIdx.x / 8;
    const bool is_there = head < num_heads;
    float* x = part.x + head * columns;
    float sum = 0.0f;
    if (is_there) {
#pragma unroll 8
      for (int i = lane; i < columns; i += 8) sum = fmaf(x[i], x[i], sum);
    }
    const float root = sqrtf(cuda::SumTree(sum) + kL2Epsilon);
    if (!is_there) continue;
#pragma unroll 8
    for (int i = lane; i < columns; i += 8) x[i] = x[i] / root;
  }
}

// grid: elements by kThreads.
__global__ void __launch_bounds__(kThreads)
    GatherRowsKernel(const float* table, const int32_t* rows, unsigned size, unsigned num_columns,
                     float* y) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= size) return;
  y[i] = table[static_cast<int64_t>(rows[i / num_columns]) * num_columns + i % num_columns];
}

unsigned Blocks(int64_t num_threads) {
  return static_cast<unsigned>((num_threads + kThreads - 1) / kThreads);
}

dim3 PartsGrid(int64_t num_rows, int64_t widest, int64_t num_parts) {
  const int64_t fours = num_rows * ((widest + 3) / 4);
  const int64_t blocks = std::min<int64_t>(kBlocksMax, Blocks(fours));
  return dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(num_parts));
}

}  // namespace

absl::Status SplitColumnsCuda(Queue* queue, const float* x, const Matrix& shape,
                              const SplitPart* parts, int64_t num_parts, int64_t widest,
                              uint8_t* is_bad) {
  SplitKernel<<<PartsGrid(shape.num_rows, widest, num_parts), kThreads, 0, queue->stream()>>>(
      x, shape.num_rows, shape.num_columns, parts, is_bad);
  return queue->LaunchStatus("split columns");
}

absl::Status JoinColumnsCuda(Queue* queue, const JoinPart* parts, int64_t num_parts, int64_t widest,
                             const Matrix& shape, float* y) {
  JoinKernel<<<PartsGrid(shape.num_rows, widest, num_parts), kThreads, 0, queue->stream()>>>(
      parts, shape.num_rows, shape.num_columns, y);
  return queue->LaunchStatus("join columns");
}

absl::Status SwigluColumnsCuda(Queue* queue, const float* x, const Matrix& shape, float* y) {
  SwigluColumnsKernel<<<Blocks(shape.size()), kThreads, 0, queue->stream()>>>(
      x, static_cast<unsigned>(shape.size()), static_cast<unsigned>(shape.num_columns), y);
  return queue->LaunchStatus("swiglu");
}

absl::Status ScaleHeadsCuda(Queue* queue, const float* gate, const float* gain, Map map,
                            const float* x, const Matrix& shape, int64_t num_heads, float* y) {
  ScaleHeadsKernel<<<Blocks(shape.size()), kThreads, 0, queue->stream()>>>(
      gate, gain, map, x, static_cast<unsigned>(shape.size()),
      static_cast<unsigned>(shape.num_columns / num_heads), static_cast<unsigned>(num_heads), y);
  return queue->LaunchStatus("scale heads");
}

absl::Status NormalizeHeadsCuda(Queue* queue, const HeadsPart* parts, int64_t num_parts,
                                int64_t widest, int64_t num_rows) {
  // Heads have at least 8 columns: as many threads as columns are enough.
  const int64_t blocks = std::min<int64_t>(kBlocksMax, Blocks(num_rows * widest));
  NormalizeHeadsKernel<<<dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(num_parts)),
                         kThreads, 0, queue->stream()>>>(parts, num_rows);
  return queue->LaunchStatus("normalise heads");
}

absl::Status GatherRowsCuda(Queue* queue, const float* table, const int32_t* rows,
                            const Matrix& shape, float* y) {
  GatherRowsKernel<<<Blocks(shape.size()), kThreads, 0, queue->stream()>>>(
      table, rows, static_cast<unsigned>(shape.size()), static_cast<unsigned>(shape.num_columns),
      y);
  return queue->LaunchStatus("gather rows");
}

}  // namespace lethe::elementwise
