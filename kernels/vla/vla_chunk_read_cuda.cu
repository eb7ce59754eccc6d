// VlaChunk's stage read: out = Q S^T + lt(Q alpha^T) E and the read norm; all chunks at once.
//
// A block of D / 16 warps per chunk and head, 64 value columns at a time. Shared memory: Q [64][D + 8],
// alpha [64][D + 8] f16, whose place lt(Q alpha^T) [64][72] takes, S [64][D + 8] and E^T [64][72] of
// the columns.
#include "kernels/base/queue.h"
#include "kernels/vla/vla_chunk_cuda.cuh"
#include "kernels/vla/vla_chunk_cuda.h"

namespace lethe {
namespace {

using namespace vla_chunk;  // NOLINT(google-build-using-namespace): the kernels' vocabulary

struct ReadArguments {
  const float* q;  // of the segment's first token
  int64_t token_stride;
  int num_heads;
  const __half* alpha;
  const float* errors;
  const float* states;
  float* out;
};

template <int kDim>
struct ReadLayout {
  static constexpr int kStride = kDim + 8;
  static constexpr int kSquareStride = kTokens + 8;
  static constexpr int kWarps = kDim / 16;
  static constexpr int kParts = kDim / 64;
  static constexpr int kScores = kTokens * kStride;  // floats before it
  static constexpr int kStates = kScores + kTokens * kSquareStride;
  static constexpr int kErrors = kStates + 64 * kStride;
  static constexpr int kSums = kErrors + 64 * kSquareStride;
  static constexpr int kBytes = kSums * 4 + 2 * kTokens * 8;
  static_assert(kTokens * kStride * 2 <= kTokens * kSquareStride * 4);
};

// num_rows rows of kColumns elements, contiguous, into rows of kColumns + 8.
template <int kThreads, int kColumns, typename T>
__device__ __forceinline__ void CopyRows(const T* from, int num_rows, T* to) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  constexpr int kVectors = kColumns / kVector;
  for (int i = static_cast<int>(threadIdx.x); i < num_rows * kVectors; i += kThreads) {
    const int row = i / kVectors;
    const int column = i % kVectors * kVector;
    CopyAsync(to + row * (kColumns + 8) + column, from + row * kColumns + column);
  }
}

// Divides the block's 64 rows by their root mean square, in f64 up to the root. A warp has 64 columns
// of 16 rows.
template <int kDim>
__device__ __forceinline__ void Normalize(double* sums, float (&c)[kDim / 64][1][512 / kDim][4]) {
  const int g = Lane() >> 2;
  const int row = (Warp() & 3) * kTile + g;
  double upper = 0.0;
  double lower = 0.0;
#pragma unroll
  for (int n = 0; n < 16; ++n) {
    const float(&pair)[4] = c[n / 2 * kDim / 512][0][n / 2 % (512 / kDim)];
    const double x = pair[n % 2];
    const double y = pair[2 + n % 2];
    upper = __fma_rn(x, x, upper);
    lower = __fma_rn(y, y, lower);
  }
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) {
    upper += __shfl_xor_sync(kFullWarp, upper, distance);
    lower += __shfl_xor_sync(kFullWarp, lower, distance);
  }
  if constexpr (kDim == 128) {
    double* own = sums + (Warp() >> 2) * kTokens + row;
    if ((Lane() & 3) == 0) own[0] = upper, own[8] = lower;
    __syncthreads();
    upper = sums[row] + sums[kTokens + row];
    lower = sums[row + 8] + sums[kTokens + row + 8];
  }
  const auto divisor = [](double sum) {
    return static_cast<float>(__dsqrt_rn(sum / kDim + kVlaReadEpsilon));
  };
  const float of_upper = divisor(upper);
  const float of_lower = divisor(lower);
#pragma unroll
  for (int n = 0; n < 16; ++n) {
    float(&pair)[4] = c[n / 2 * kDim / 512][0][n / 2 % (512 / kDim)];
    pair[n % 2] = __fdiv_rn(pair[n % 2], of_upper);
    pair[2 + n % 2] = __fdiv_rn(pair[2 + n % 2], of_lower);
  }
}

// Q's rows, rounded to TF32.
template <int kDim>
__device__ __forceinline__ void LoadQueries(const float* q, int64_t stride, float* to) {
  constexpr int kVectors = kDim / 4;
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * kVectors; i += kDim * 2) {
    const int row = i / kVectors;
    const int column = i % kVectors * 4;
    const float4 x = *reinterpret_cast<const float4*>(q + row * stride + column);
    *reinterpret_cast<float4*>(to + row * (kDim + 8) + column) =
        make_float4(RoundToTf32(x.x), RoundToTf32(x.y), RoundToTf32(x.z), RoundToTf32(x.w));
  }
}

// lt(Q alpha^T), rounded to TF32, over alpha.
template <int kDim>
__device__ __forceinline__ void MakeScores(const float* q, float* scores) {
  using Layout = ReadLayout<kDim>;
  constexpr int kEach = (10 + Layout::kWarps - 1) / Layout::kWarps;
  const HalfRows<Layout::kStride> alpha{reinterpret_cast<const __half*>(scores)};
  float p[kEach][1][2][4];
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    int i;
    int j;
    BlockOf(Warp() + n * Layout::kWarps, &i, &j);
    Clear(p[n]);
    if (i < 4) {
      WarpProduct<Plain, true>(Rows<Layout::kStride>{q}, kTile * i, alpha, kTile * j, 0, kDim,
                               p[n]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    int i;
    int j;
    BlockOf(Warp() + n * Layout::kWarps, &i, &j);
    if (i >= 4) continue;
    ForEachPair(kTile * i, kTile * j, p[n], [](int t, int s, float& first, float& second) {
      first = s > t ? 0.0f : RoundToTf32(first);
      second = s + 1 > t ? 0.0f : RoundToTf32(second);
    });
    Store(p[n], kTile * i, kTile * j, Layout::kSquareStride, scores);
  }
}

template <int kDim>
__global__ void __launch_bounds__(kDim * 2) ReadKernel(ReadArguments arguments) {
  using Layout = ReadLayout<kDim>;
  constexpr int kThreads = kDim * 2;
  constexpr int kTiles = 8 / Layout::kParts;  // of 8 columns, a warp's in each part
  extern __shared__ __align__(16) float shared[];
  float* q = shared;
  float* scores = shared + Layout::kScores;
  float* states = shared + Layout::kStates;
  float* errors = shared + Layout::kErrors;
  const int64_t index = blockIdx.x;
  const int head = static_cast<int>(blockIdx.x) % arguments.num_heads;
  const int64_t rows = index / arguments.num_heads * kTokens * arguments.token_stride + head * kDim;
  CopyRows<kThreads, kDim>(arguments.alpha + index * kTokens * kDim, kTokens,
                           reinterpret_cast<__half*>(scores));
  CommitCopies();
  const int row = (Warp() & 3) * kTile;
  const int column = (Warp() >> 2) * (64 / Layout::kParts);
  float c[Layout::kParts][1][kTiles][4];
#pragma unroll
  for (int part = 0; part < Layout::kParts; ++part) {
    if (part > 0) __syncthreads();
    const int64_t first = index * kDim + part * 64;
    CopyRows<kThreads, kDim>(arguments.states + first * kDim, 64, states);
    CopyRows<kThreads, kTokens>(arguments.errors + first * kTokens, 64, errors);
    CommitCopies();
    if (part == 0) {
      LoadQueries<kDim>(arguments.q + rows, arguments.token_stride, q);
      AwaitCopies<1>();
      __syncthreads();
      MakeScores<kDim>(q, scores);
    }
    AwaitCopies<0>();
    __syncthreads();
    Clear(c[part]);
    WarpProduct<Plain, true>(Rows<Layout::kStride>{q}, row, Rows<Layout::kStride>{states}, column,
                             0, kDim, c[part]);
    WarpProduct<Plain, true>(Rows<Layout::kSquareStride>{scores}, row,
                             Rows<Layout::kSquareStride>{errors}, column, 0, row + kTile, c[part]);
  }
  Normalize<kDim>(reinterpret_cast<double*>(shared + Layout::kSums), c);
#pragma unroll
  for (int part = 0; part < Layout::kParts; ++part) {
    Store(c[part], row, part * 64 + column, arguments.token_stride, arguments.out + rows);
  }
}

template <int kDim>
void Launch(Queue* queue, const VlaChunkSegment& segment, const ReadArguments& arguments) {
  constexpr int kBytes = ReadLayout<kDim>::kBytes;
  // An error shows in the launch that follows.
  static_cast<void>(
      cudaFuncSetAttribute(ReadKernel<kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  const auto blocks = static_cast<unsigned>(segment.num_chunks * segment.options.num_heads);
  ReadKernel<kDim><<<blocks, kDim * 2, kBytes, queue->stream()>>>(arguments);
}

}  // namespace

absl::Status VlaChunkRead(Queue* queue, const VlaChunkSegment& segment) {
  const VlaChunkWork& work = segment.work;
  const int64_t stride = segment.options.num_heads * segment.options.key_dim;
  const int64_t first = segment.chunk_begin * kVlaChunkTokens * stride;
  const ReadArguments arguments{segment.batch.q + first,
                                stride,
                                static_cast<int>(segment.options.num_heads),
                                reinterpret_cast<const __half*>(work.alpha),
                                work.errors,
                                work.states,
                                segment.batch.out + first};
  if (segment.options.key_dim == 64) {
    Launch<64>(queue, segment, arguments);
  } else {
    Launch<128>(queue, segment, arguments);
  }
  return queue->LaunchStatus("vla chunk read");
}

}  // namespace lethe
