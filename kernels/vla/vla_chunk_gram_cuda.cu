// VlaChunk's stages up to the inverse of every boundary's M: gram, prefix, invert; and the pool's a.
//
// Every kernel has a block per chunk and head (prefix: threads per element, a row of blocks per
// sequence; the pool's inverses: a block per sequence and head).
#include "kernels/base/early_launch_cuda.cuh"
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
  const HalfMatrix<true, kStride> u{high, high + kTokens * kStride};
  cuda::WaitForEarlierKernels();
  const int warp = Warp();
  const int head = static_cast<int>(blockIdx.x) % arguments.num_heads;
  const int64_t chunk = static_cast<int64_t>(blockIdx.x) / arguments.num_heads;
  const float* directions =
      arguments.directions + chunk * kTokens * arguments.token_stride + head * kDim;
  ChunkRows<kDim, kGramWarps> rows;
  rows.Load(warp, directions, arguments.token_stride);
  rows.template Store<kUnit ? RowScaling::kUnit : RowScaling::kNone>(warp, u);
  __syncthreads();
  float* gram = arguments.gram + static_cast<int64_t>(blockIdx.x) * kPacked<kDim>;
  // A warp has whole rows of blocks, so that each left operand is loaded once: of 8 rows a short and a
  // long one, which are as long together for every warp.
  static_assert(kDim <= 2 * kGramWarps * kTile);
  for (int n = 0; n < kDim / kTile; n += kGramWarps) {
    const int i = n == 0 ? warp : kDim / kTile - 1 - warp;
    SplitLeft left[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) left[k] = u.LeftOfColumns(i * kTile, k * kTile);
    for (int j = 0; j <= i; ++j) {
      Block c;
      ClearBlock(c);
#pragma unroll
      for (int k = 0; k < 4; ++k) AddProduct(left[k], u.OfColumns(k * kTile, j * kTile), c);
      StoreAccumulator(gram + LowerBlock(i, j) * 256, kTile, c);
    }
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
  cuda::WaitForEarlierKernels();
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

// A chunk's M becomes its inverse Cholesky factor, times unit, as TileBlocks in the places of its blocks:
// split or rounded to f16. kWarps warps for each, kMatrices of them a block.
template <int kDim, int kWarps, int kMatrices, bool kSplit, int kResident>
__global__ void __launch_bounds__(kWarps* kMatrices * 32, kResident)
    InvertKernel(float* gram, int num_matrices, float lambda0, float unit) {
  constexpr int kBlocks = kDim / kTile;
  extern __shared__ __align__(16) uint32_t shared_words[];
  cuda::WaitForEarlierKernels();
  const int warp_of_block = Warp();
  const int own = kMatrices == 1 ? 0 : warp_of_block / kWarps;
  const int warp = kWarps == 1 ? 0 : warp_of_block % kWarps;
  const int matrix = static_cast<int>(blockIdx.x) * kMatrices + own;
  if (kMatrices > 1 && matrix >= num_matrices) return;
  float* packed = gram + static_cast<int64_t>(matrix) * kPacked<kDim>;
  constexpr int kOwn = kOwnBlocks<kBlocks, kWarps>;
  Block c[kOwn];
#pragma unroll
  for (int n = 0; n < kOwn; ++n) {
    const int block = warp + kWarps * n;
    if (block < kLowerBlocks<kDim>) LoadAccumulator(packed + block * 256, kTile, c[n]);
  }
  // s M s has the factor s L and its inverse X / s.
  const float scale = InverseScale(LargestDiagonal<kDim>(packed, 256, kTile));
#pragma unroll
  for (int n = 0; n < kOwn; ++n) MultiplyBlock(scale * scale, c[n]);
  CholeskyInverse<kBlocks, kWarps, true>(warp, lambda0 * scale * scale,
                                         shared_words + own * kInverseWords<kBlocks, true>, c);
#pragma unroll
  for (int n = 0; n < kOwn; ++n) {
    const int block = warp + kWarps * n;
    if (block >= kLowerBlocks<kDim>) continue;
    MultiplyBlock(scale * unit, c[n]);
    TileBlocks<kSplit>{reinterpret_cast<uint32_t*>(packed + block * 256)}.Store(0, c[n]);
  }
}

template <int kDim>
inline constexpr int kPoolInverseBytes = 4 * (kLowerBlocks<kDim> * TileBlocks<true>::kWords +
                                              kInverseWords<kDim / kTile, true>);

// The pool's a = X^T X, X = L^-1, both of its triangles from the lower blocks.
template <int kDim>
__global__ void __launch_bounds__(kDim * 2)
    PoolInverseKernel(const int32_t* offsets, const int32_t* slots, int num_heads, float lambda0,
                      float unit, const float* gram, float* a) {
  constexpr int kBlocks = kDim / kTile;
  constexpr int kWarps = kDim / 16;
  constexpr int kOwn = kOwnBlocks<kBlocks, kWarps>;
  extern __shared__ __align__(16) uint32_t shared_words[];
  const TileBlocks<true> factor{shared_words + kInverseWords<kBlocks, true>};
  cuda::WaitForEarlierKernels();
  const int sequence = static_cast<int>(blockIdx.x) / num_heads;
  const int head = static_cast<int>(blockIdx.x) % num_heads;
  if (offsets[sequence] == offsets[sequence + 1]) return;
  const int warp = Warp();
  const int64_t base = (static_cast<int64_t>(slots[sequence]) * num_heads + head) * kDim * kDim;
  float largest = 0.0f;
  for (int i = Lane(); i < kDim; i += 32) largest = fmaxf(largest, gram[base + i * (kDim + 1)]);
  const float scale = InverseScale(__uint_as_float(LargestOfWarp(Magnitude(largest))));
  int row[kOwn];
  int column[kOwn];
  Block c[kOwn];
#pragma unroll
  for (int n = 0; n < kOwn; ++n) {
    BlockOf(warp + kWarps * n, &row[n], &column[n]);
    if (row[n] >= kBlocks) continue;
    LoadAccumulator(gram + base + row[n] * kTile * kDim + column[n] * kTile, kDim, c[n]);
    MultiplyBlock(scale * scale, c[n]);
  }
  CholeskyInverse<kBlocks, kWarps, true>(warp, lambda0 * scale * scale, shared_words, c);
#pragma unroll
  for (int n = 0; n < kOwn; ++n) {
    if (row[n] >= kBlocks) continue;
    MultiplyBlock(scale * unit, c[n]);
    factor.Store(warp + kWarps * n, c[n]);
  }
  __syncthreads();
  const float over_unit = 1.0f / unit;  // a power of 2
#pragma unroll 1
  for (int n = 0; n < kOwn; ++n) {
    int i;
    int j;
    BlockOf(warp + kWarps * n, &i, &j);
    if (i >= kBlocks) continue;
    Block sum;
    ClearBlock(sum);
#pragma unroll 1
    for (int k = i; k < kBlocks; ++k) {
      AddProduct(factor.LeftOfColumns(LowerBlock(k, i)), factor.OfColumns(LowerBlock(k, j)), sum);
    }
    MultiplyBlock(over_unit * over_unit, sum);
    ForEachPairOfBlock(i * kTile, j * kTile, sum, [&](int r, int s, float first, float second) {
      if (s <= r) a[base + r * kDim + s] = a[base + s * kDim + r] = first;
      if (s + 1 <= r) a[base + r * kDim + s + 1] = a[base + (s + 1) * kDim + r] = second;
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
  AllowShared(GramKernel<kDim, kUnit>, kGramBytes<kDim>);
  cuda::LaunchEarly(queue, GramKernel<kDim, kUnit>, segment.num_chunks * segment.options.num_heads,
                    kGramWarps * 32, kGramBytes<kDim>, arguments);
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

template <int kDim, int kWarps, int kMatrices, bool kSplit, int kResident>
void LaunchInvert(Queue* queue, const VlaChunkSegment& segment) {
  const auto matrices = static_cast<int>(segment.num_chunks * segment.options.num_heads);
  constexpr int kBytes = kMatrices * kInverseWords<kDim / kTile, true> * 4;
  const auto kernel = InvertKernel<kDim, kWarps, kMatrices, kSplit, kResident>;
  AllowShared(kernel, kBytes);
  cuda::LaunchEarly(queue, kernel, (matrices + kMatrices - 1) / kMatrices, kWarps * kMatrices * 32,
                    kBytes, segment.work.gram, matrices,
                    static_cast<float>(segment.options.lambda0),
                    VlaChunkInverseUnit(segment.options.lambda0));
}

absl::Status VlaChunkInvert(Queue* queue, const VlaChunkSegment& segment) {
  const bool is_rls = segment.options.variant == VlaVariant::kRls;
  // Measured best: one warp's registers hold the blocks of 64 x 64, and it waits for nobody.
  if (segment.options.key_dim == 64) {
    is_rls ? LaunchInvert<64, 1, 4, true, 4>(queue, segment)
           : LaunchInvert<64, 1, 4, false, 4>(queue, segment);
  } else {
    is_rls ? LaunchInvert<128, 8, 1, true, 3>(queue, segment)
           : LaunchInvert<128, 8, 1, false, 3>(queue, segment);
  }
  return queue->LaunchStatus("vla chunk invert");
}

template <int kDim>
void LaunchPoolInverse(Queue* queue, const VlaOptions& options, const VlaChunkBatch& batch) {
  AllowShared(PoolInverseKernel<kDim>, kPoolInverseBytes<kDim>);
  cuda::LaunchEarly(queue, PoolInverseKernel<kDim>, batch.num_sequences * options.num_heads,
                    kDim * 2, kPoolInverseBytes<kDim>, batch.offsets, batch.slots,
                    static_cast<int>(options.num_heads), static_cast<float>(options.lambda0),
                    VlaChunkInverseUnit(options.lambda0), batch.gram, batch.a);
}

absl::Status VlaChunkInverse(Queue* queue, const VlaOptions& options, const VlaChunkBatch& batch) {
  options.key_dim == 64 ? LaunchPoolInverse<64>(queue, options, batch)
                        : LaunchPoolInverse<128>(queue, options, batch);
  return queue->LaunchStatus("vla chunk inverse");
}

}  // namespace lethe
