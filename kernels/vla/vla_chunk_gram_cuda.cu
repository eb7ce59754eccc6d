// VlaChunk's stages up to the inverse of every boundary's M: gram, prefix, invert; and the pool's a.
//
// Every kernel has a block per chunk and head (prefix: threads per element, a row of blocks per
// sequence; the pool's inverses: a block per sequence and head).
#include "kernels/base/queue.h"
#include "kernels/vla/vla_chunk_cuda.h"
#include "kernels/vla/vla_chunk_half_cuda.cuh"
#include "kernels/vla/vla_chunk_inverse_cuda.cuh"
#include "kernels/vla/vla_chunk_rows_cuda.cuh"

namespace lethe {
namespace {

using namespace vla_chunk;  // NOLINT(google-build-using-namespace): the kernels' vocabulary

struct GramArguments {
  const float* directions;  // of the segment's first token; k where kUnit
  int64_t token_stride;
  int num_heads;
  float* gram;
};

constexpr int kGramWarps = 4;

template <int kDim>
inline constexpr int kGramBytes = 2 * kTokens*(kDim + 8) * 2;

// U^T U, lower blocks, in split f16. kUnit: U is the rows scaled to length 1.
template <int kDim, bool kUnit>
__global__ void __launch_bounds__(kGramWarps * 32) GramKernel(GramArguments arguments) {
  constexpr int kStride = kDim + 8;
  extern __shared__ __align__(16) float shared[];
  auto* high = reinterpret_cast<__half*>(shared);
  __half* low = high + kTokens * kStride;
  const int head = static_cast<int>(blockIdx.x) % arguments.num_heads;
  const int64_t chunk = static_cast<int64_t>(blockIdx.x) / arguments.num_heads;
  const float* directions =
      arguments.directions + chunk * kTokens * arguments.token_stride + head * kDim;
  RowBlocks<kDim> u;
  u.Load(directions, arguments.token_stride, Warp() * kTile);
  if constexpr (kUnit) u.Normalize();
#pragma unroll
  for (int n = 0; n < kDim / kTile; ++n) {
    ForEachPairOfBlock(Warp() * kTile, n * kTile, u.block[n], [&](int i, int j, float x, float y) {
      uint32_t h;
      uint32_t l;
      SplitHalfPair(x, y, &h, &l);
      *reinterpret_cast<uint32_t*>(high + i * kStride + j) = h;
      *reinterpret_cast<uint32_t*>(low + i * kStride + j) = l;
    });
  }
  __syncthreads();
  float* gram = arguments.gram + static_cast<int64_t>(blockIdx.x) * kPacked<kDim>;
  for (int block = Warp(); block < kLowerBlocks<kDim>; block += kGramWarps) {
    int i;
    int j;
    BlockOf(block, &i, &j);
    Block c;
    ClearBlock(c);
#pragma unroll
    for (int k = 0; k < kTokens; k += kTile) {
      const SplitLeft a{LoadLeftOfColumns(high, kStride, i * kTile, k),
                        LoadLeftOfColumns(low, kStride, i * kTile, k)};
      const SplitRight b{LoadRightOfColumns(high, kStride, k, j * kTile),
                         LoadRightOfColumns(low, kStride, k, j * kTile)};
      AddSplitHalfProduct(a, b, c);
    }
    ForEachPairOfBlock(0, 0, c, [&](int row, int column, float x, float y) {
      *reinterpret_cast<float2*>(gram + block * 256 + row * kTile + column) = make_float2(x, y);
    });
  }
}

struct PrefixArguments {
  const int32_t* offsets;
  const int32_t* slots;
  int chunk_begin;
  int chunk_end;
  int num_heads;
  float* work;  // [chunks][H][packed]
  float* pool;  // [slots][H][D][D]
};

// Thread: one element below or on the diagonal of one head, from chunk to chunk.
template <int kDim>
__global__ void PrefixKernel(PrefixArguments arguments) {
  constexpr int kAhead = 16;  // loads in flight
  const int sequence = static_cast<int>(blockIdx.y);
  const int begin = max(arguments.offsets[sequence] / kTokens, arguments.chunk_begin);
  const int end = min(arguments.offsets[sequence + 1] / kTokens, arguments.chunk_end);
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (begin >= end || index >= arguments.num_heads * kPacked<kDim>) return;
  const int head = index / kPacked<kDim>;
  const int element = index % kPacked<kDim>;
  int i;
  int j;
  BlockOf(element / 256, &i, &j);
  const int row = i * kTile + element % 256 / kTile;
  const int column = j * kTile + element % kTile;
  if (column > row) return;
  float* matrix =
      arguments.pool +
      (static_cast<int64_t>(arguments.slots[sequence]) * arguments.num_heads + head) * kDim * kDim;
  float sum = matrix[row * kDim + column];
  const int64_t stride = static_cast<int64_t>(arguments.num_heads) * kPacked<kDim>;
  float* work = arguments.work + (begin - arguments.chunk_begin) * stride + index;
  float next[kAhead];
#pragma unroll
  for (int n = 0; n < kAhead; ++n) next[n] = begin + n < end ? work[n * stride] : 0.0f;
  for (int chunk = begin; chunk < end; chunk += kAhead) {
    float added[kAhead];
#pragma unroll
    for (int n = 0; n < kAhead; ++n) added[n] = next[n];
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      next[n] = chunk + kAhead + n < end ? work[(kAhead + n) * stride] : 0.0f;
    }
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      if (chunk + n < end) {
        work[n * stride] = sum;
        sum += added[n];
      }
    }
    work += kAhead * stride;
  }
  matrix[row * kDim + column] = sum;
  matrix[column * kDim + row] = sum;
}

// Lower blocks of a chunk's M become those of its inverse Cholesky factor.
template <int kDim>
__global__ void __launch_bounds__(kDim * 2) InvertKernel(float* gram, float lambda0, float unit) {
  extern __shared__ __align__(16) float shared[];
  float* packed = gram + static_cast<int64_t>(blockIdx.x) * kPacked<kDim>;
  for (int i = static_cast<int>(threadIdx.x) * 4; i < kPacked<kDim>; i += kDim * 8) {
    *reinterpret_cast<float4*>(shared + i / kTile * kBlockStride + i % kTile) =
        *reinterpret_cast<const float4*>(packed + i);
  }
  __syncthreads();
  const BlockRows matrix{shared};
  CholeskyInverse<kDim, kDim / 16>(
      matrix, reinterpret_cast<__half*>(shared + InverseLayout<kDim>::kMatrixFloats), lambda0);
  for (int block = Warp(); block < kLowerBlocks<kDim>; block += kDim / 16) {
    StoreInverseBlock(shared + block * kBlockFloats, kBlockStride, unit, packed + block * 256);
  }
}

// Element (row, column) of lower blocks; zero above the diagonal.
template <int kDim>
struct LowerRows {
  const float* data;
  __device__ __forceinline__ float At(int row, int column) const {
    return data[LowerBlock(row >> 4, column >> 4) * kBlockFloats + (row & 15) * kBlockStride +
                (column & 15)];
  }
};

// The pool's a = X^T X, X = L^-1, both of its triangles from the lower blocks.
template <int kDim>
__global__ void __launch_bounds__(kDim * 2)
    PoolInverseKernel(const int32_t* offsets, const int32_t* slots, int num_heads, float lambda0,
                      const float* gram, float* a) {
  constexpr int kWarps = kDim / 16;
  extern __shared__ __align__(16) float shared[];
  const int sequence = static_cast<int>(blockIdx.x) / num_heads;
  const int head = static_cast<int>(blockIdx.x) % num_heads;
  if (offsets[sequence] == offsets[sequence + 1]) return;
  const int64_t base = (static_cast<int64_t>(slots[sequence]) * num_heads + head) * kDim * kDim;
  const BlockRows matrix{shared};
  for (int element = static_cast<int>(threadIdx.x); element < kDim * kDim; element += kDim * 2) {
    const int row = element / kDim;
    const int column = element % kDim;
    if (column >> 4 > row >> 4) continue;
    matrix.At(row >> 4, column >> 4)[(row & 15) * kBlockStride + (column & 15)] =
        gram[base + element];
  }
  __syncthreads();
  CholeskyInverse<kDim, kWarps>(
      matrix, reinterpret_cast<__half*>(shared + InverseLayout<kDim>::kMatrixFloats), lambda0);
  const auto columns = Transpose(LowerRows<kDim>{shared});
  for (int block = Warp(); block < kLowerBlocks<kDim>; block += kWarps) {
    int i;
    int j;
    BlockOf(block, &i, &j);
    float c[1][2][4];
    Clear(c);
    WarpProduct<Split, false>(columns, kTile * i, columns, kTile * j, kTile * i, kDim, c);
    ForEachPair(kTile * i, kTile * j, c, [&](int row, int column, float first, float second) {
      if (column <= row) a[base + row * kDim + column] = a[base + column * kDim + row] = first;
      if (column + 1 <= row) {
        a[base + row * kDim + column + 1] = a[base + (column + 1) * kDim + row] = second;
      }
    });
  }
}

template <typename Kernel>
void AllowShared(Kernel* kernel, int bytes) {
  // An error shows in the launch that follows.
  static_cast<void>(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

template <int kDim, bool kUnit>
void LaunchGram(Queue* queue, const VlaChunkSegment& segment, const GramArguments& arguments) {
  const auto blocks = static_cast<unsigned>(segment.num_chunks * segment.options.num_heads);
  AllowShared(GramKernel<kDim, kUnit>, kGramBytes<kDim>);
  GramKernel<kDim, kUnit>
      <<<blocks, kGramWarps * 32, kGramBytes<kDim>, queue->stream()>>>(arguments);
}

}  // namespace

absl::Status VlaChunkGram(Queue* queue, const VlaChunkSegment& segment) {
  const VlaOptions& options = segment.options;
  const bool is_rls = options.variant == VlaVariant::kRls;
  const float* rows = is_rls ? segment.batch.k : segment.batch.write_direction;
  const int64_t stride = options.num_heads * options.key_dim;
  const GramArguments arguments{rows + segment.chunk_begin * kVlaChunkTokens * stride, stride,
                                static_cast<int>(options.num_heads), segment.work.gram};
  if (options.key_dim == 64) {
    is_rls ? LaunchGram<64, true>(queue, segment, arguments)
           : LaunchGram<64, false>(queue, segment, arguments);
  } else {
    is_rls ? LaunchGram<128, true>(queue, segment, arguments)
           : LaunchGram<128, false>(queue, segment, arguments);
  }
  return queue->LaunchStatus("vla chunk gram");
}

absl::Status VlaChunkPrefix(Queue* queue, const VlaChunkSegment& segment) {
  const VlaOptions& options = segment.options;
  const PrefixArguments arguments{segment.batch.offsets,
                                  segment.batch.slots,
                                  static_cast<int>(segment.chunk_begin),
                                  static_cast<int>(segment.chunk_begin + segment.num_chunks),
                                  static_cast<int>(options.num_heads),
                                  segment.work.gram,
                                  segment.batch.gram};
  constexpr unsigned kThreads = 128;
  const auto elements = static_cast<unsigned>(options.num_heads * VlaChunkPacked(options.key_dim));
  const dim3 grid((elements + kThreads - 1) / kThreads,
                  static_cast<unsigned>(segment.batch.num_sequences));
  if (options.key_dim == 64) {
    PrefixKernel<64><<<grid, kThreads, 0, queue->stream()>>>(arguments);
  } else {
    PrefixKernel<128><<<grid, kThreads, 0, queue->stream()>>>(arguments);
  }
  return queue->LaunchStatus("vla chunk prefix");
}

absl::Status VlaChunkInvert(Queue* queue, const VlaChunkSegment& segment) {
  const VlaOptions& options = segment.options;
  const auto blocks = static_cast<unsigned>(segment.num_chunks * options.num_heads);
  const auto lambda0 = static_cast<float>(options.lambda0);
  const float unit = VlaChunkInverseUnit(options.lambda0);
  if (options.key_dim == 64) {
    AllowShared(InvertKernel<64>, InverseLayout<64>::kFloats * 4);
    InvertKernel<64><<<blocks, 128, InverseLayout<64>::kFloats * 4, queue->stream()>>>(
        segment.work.gram, lambda0, unit);
  } else {
    AllowShared(InvertKernel<128>, InverseLayout<128>::kFloats * 4);
    InvertKernel<128><<<blocks, 256, InverseLayout<128>::kFloats * 4, queue->stream()>>>(
        segment.work.gram, lambda0, unit);
  }
  return queue->LaunchStatus("vla chunk invert");
}

absl::Status VlaChunkInverse(Queue* queue, const VlaOptions& options, const VlaChunkBatch& batch) {
  const auto blocks = static_cast<unsigned>(batch.num_sequences * options.num_heads);
  const auto heads = static_cast<int>(options.num_heads);
  const auto lambda0 = static_cast<float>(options.lambda0);
  if (options.key_dim == 64) {
    AllowShared(PoolInverseKernel<64>, InverseLayout<64>::kFloats * 4);
    PoolInverseKernel<64><<<blocks, 128, InverseLayout<64>::kFloats * 4, queue->stream()>>>(
        batch.offsets, batch.slots, heads, lambda0, batch.gram, batch.a);
  } else {
    AllowShared(PoolInverseKernel<128>, InverseLayout<128>::kFloats * 4);
    PoolInverseKernel<128><<<blocks, 256, InverseLayout<128>::kFloats * 4, queue->stream()>>>(
        batch.offsets, batch.slots, heads, lambda0, batch.gram, batch.a);
  }
  return queue->LaunchStatus("vla chunk inverse");
}

}  // namespace lethe
