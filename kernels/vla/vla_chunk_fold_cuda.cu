// VlaChunk's stage fold: S from chunk to chunk, the only chain of the chunk form.
//
// A block folds kRows of the D value rows of one head of one sequence; rows of S do not meet. With
// tokens and then keys along the matrix unit's rows: E [64 x kRows] = T V - (T K^) S^T, then S^T [D x
// kRows] += alpha^T E. D / 16 warps do that: S^T stays in their registers, 16 keys each; it and E pass
// through shared memory to become the right operand; the left operands are in registers before what
// they wait for is there. Four more warps fill the ring of what comes and write out what the reads
// need. Shared memory: the ring, S [kRows][D + 8], E [kRows][72].
#include "kernels/base/queue.h"
#include "kernels/vla/vla_chunk_cuda.cuh"
#include "kernels/vla/vla_chunk_cuda.h"

namespace lethe {
namespace {

using namespace vla_chunk;  // NOLINT(google-build-using-namespace): the kernels' vocabulary

struct FoldArguments {
  const int32_t* offsets;
  const int32_t* slots;
  int chunk_begin;
  int chunk_end;
  int num_heads;
  const __half* alpha;
  const __half* keys;
  const float* beta;
  float* errors;
  float* states;  // null: no reads, and errors stay as they are
  float* pool;    // [slots][H][D value][D key]
};

template <int kDim, int kRows, int kRing>
struct FoldLayout {
  static constexpr int kWarps = kDim / 16;
  static constexpr int kCopiers = 128;  // threads
  static constexpr int kThreads = kWarps * 32 + kCopiers;
  static constexpr int kStages = kRing;  // chunks under way
  // Rows of tiles that ldmatrix reads start 16 bytes further on in the banks.
  static constexpr int kHalfStride = kDim + 8;
  static constexpr int kErrorStride = kTokens + 8;
  static constexpr int kStateStride = kDim + 8;
  static constexpr int kKeysBytes = kTokens * kHalfStride * 2;
  static constexpr int kErrorsBytes = kRows * kErrorStride * 4;
  static constexpr int kStageBytes = 2 * kKeysBytes + kErrorsBytes + kTokens * 4;
  static constexpr int kBytes =
      kStages * kStageBytes + kRows * kStateStride * 4 + kRows * kErrorStride * 4;
};

// Four 8 x 8 tiles of halves; lane i gives the address of row i % 8 of tile i / 8. Without kTransposed
// the lane 4 g + t gets (g, 2t), (g, 2t + 1) of each tile, with it (2t, g), (2t + 1, g).
template <bool kTransposed>
__device__ __forceinline__ void LoadTiles(const __half* row, float2 (&tiles)[4]) {
  uint32_t x[4];
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(SharedAddress(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(SharedAddress(row))
                 : "memory");
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) tiles[i] = __half22float2(reinterpret_cast<const __half2&>(x[i]));
}

// The left operand of kCount mma along k, 16 rows: f16 numbers are TF32 numbers.
template <int kCount>
struct LeftOperand {
  uint32_t a[kCount][4];

  // Rows row … row + 15 of x, k along x's rows.
  __device__ __forceinline__ void Load(const __half* x, int stride, int row) {
    const __half* own = x + (row + (Lane() & 15)) * stride + (Lane() >> 4) * 8;
#pragma unroll
    for (int k = 0; k < kCount; k += 2) Set(k, own + 8 * k);
  }
  // Columns column … column + 15 of x, k along x's columns.
  __device__ __forceinline__ void LoadTransposed(const __half* x, int stride, int column) {
    // Tiles in the order of Load: (rows 0-7, k 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15).
    const int tile = Lane() >> 3;
    const __half* own = x + ((tile >> 1) * 8 + (Lane() & 7)) * stride + column + (tile & 1) * 8;
#pragma unroll
    for (int k = 0; k < kCount; k += 2) Set<true>(k, own + 8 * k * stride);
  }

 private:
  template <bool kTransposed = false>
  __device__ __forceinline__ void Set(int k, const __half* row) {
    float2 tiles[4];
    LoadTiles<kTransposed>(row, tiles);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      a[k + half][0] = __float_as_uint(tiles[2 * half].x);
      a[k + half][1] = __float_as_uint(tiles[2 * half + 1].x);
      a[k + half][2] = __float_as_uint(tiles[2 * half].y);
      a[k + half][3] = __float_as_uint(tiles[2 * half + 1].y);
    }
  }
};

// c[n] = A times the rows of `right` (tile n: rows 8 n … 8 n + 7), in two chains an element; right's
// numbers are TF32 numbers.
template <int kCount, int kColumnTiles>
__device__ __forceinline__ void Multiply(const LeftOperand<kCount>& left, const float* right,
                                         int stride, float (&c)[1][kColumnTiles][4]) {
  const float* own = right + (Lane() >> 2) * stride + 2 * (Lane() & 3);
  float odd[1][kColumnTiles][4];
  Clear(c);
  Clear(odd);
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const float2 pair = *reinterpret_cast<const float2*>(own + 8 * n * stride + 8 * k);
      const uint32_t b[2] = {__float_as_uint(pair.x), __float_as_uint(pair.y)};
      Mma(left.a[k], b, k % 2 == 0 ? c[0][n] : odd[0][n]);
    }
  }
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) c[0][n][e] += odd[0][n][e];
  }
}

// Stores c^T in TF32, rows of length stride.
template <int kColumnTiles>
__device__ __forceinline__ void StoreTransposed(float (&c)[1][kColumnTiles][4], int row, int column,
                                                int stride, float* to) {
  ForEachPair(row, column, c, [&](int i, int j, float first, float second) {
    to[j * stride + i] = RoundToTf32(first);
    to[(j + 1) * stride + i] = RoundToTf32(second);
  });
}

template <int kDim, int kRows, int kRing>
class RowFold {
 public:
  using Layout = FoldLayout<kDim, kRows, kRing>;
  static constexpr int kRowTiles = kRows / 8;
  // Of E: a warp has 16 tokens and, where there are eight warps, half of the rows.
  static constexpr int kErrorTiles = kDim == 64 ? kRowTiles : kRowTiles / 2;

  __device__ __forceinline__ RowFold(const FoldArguments& arguments, char* shared, int head,
                                     int first_row)
      : arguments_(arguments),
        shared_(shared),
        state_shared_(reinterpret_cast<float*>(shared + Layout::kStages * Layout::kStageBytes)),
        error_shared_(state_shared_ + kRows * Layout::kStateStride),
        head_(head),
        first_row_(first_row) {}

  // The computing warps' part of chunks begin … end - 1. In a chunk's first half E is made from S, in
  // its second S from E; a barrier ends each half.
  __device__ __forceinline__ void Fold(int begin, int end, float* state) {
    ForEachPair(KeyBase(), 0, s_, [&](int key, int row, float& first, float& second) {
      first = state[(first_row_ + row) * kDim + key];
      second = state[(first_row_ + row + 1) * kDim + key];
    });
    StoreTransposed(s_, KeyBase(), 0, Layout::kStateStride, state_shared_);
    __syncthreads();
    keys_.Load(Keys(0), Layout::kHalfStride, TokenBase());
    int stage = 0;
    for (int chunk = begin; chunk < end; ++chunk) {
      MakeErrors(stage);
      __syncthreads();
      stage = (stage + 1) % Layout::kStages;
      Advance(stage);
      __syncthreads();
    }
    ForEachPair(KeyBase(), 0, s_, [&](int key, int row, float first, float second) {
      state[(first_row_ + row) * kDim + key] = first;
      state[(first_row_ + row + 1) * kDim + key] = second;
    });
  }

  // The copying warps' part.
  __device__ __forceinline__ void Copy(int begin, int end) {
    for (int n = 0; n < Layout::kStages - 1; ++n) Prefetch(begin + n, end, n);
    AwaitCopies<Layout::kStages - 2>();
    __syncthreads();
    int stage = 0;
    for (int chunk = begin; chunk < end; ++chunk) {
      const int64_t index = Index(chunk);
      Prefetch(chunk + Layout::kStages - 1, end, (stage + Layout::kStages - 1) % Layout::kStages);
      if (arguments_.states != nullptr) {
        WriteOut<kDim>(state_shared_, Layout::kStateStride,
                       arguments_.states + (index * kDim + first_row_) * kDim);
      }
      AwaitCopies<Layout::kStages - 2>();  // the next chunk's stage
      __syncthreads();
      if (arguments_.states != nullptr) {
        WriteOut<kTokens>(error_shared_, Layout::kErrorStride,
                          arguments_.errors + (index * kDim + first_row_) * kTokens);
      }
      stage = (stage + 1) % Layout::kStages;
      __syncthreads();
    }
  }

 private:
  __device__ __forceinline__ int KeyBase() const { return Warp() * kTile; }
  __device__ __forceinline__ int TokenBase() const { return (Warp() & 3) * kTile; }
  __device__ __forceinline__ int ErrorRowBase() const { return (Warp() >> 2) * (kRows / 2); }
  __device__ __forceinline__ char* Stage(int stage) const {
    return shared_ + stage * Layout::kStageBytes;
  }
  __device__ __forceinline__ __half* Keys(int stage) const {
    return reinterpret_cast<__half*>(Stage(stage));
  }
  __device__ __forceinline__ __half* Alpha(int stage) const {
    return reinterpret_cast<__half*>(Stage(stage) + Layout::kKeysBytes);
  }
  __device__ __forceinline__ float* Errors(int stage) const {
    return reinterpret_cast<float*>(Stage(stage) + 2 * Layout::kKeysBytes);
  }
  __device__ __forceinline__ float* Beta(int stage) const {
    return reinterpret_cast<float*>(Stage(stage) + 2 * Layout::kKeysBytes + Layout::kErrorsBytes);
  }
  __device__ __forceinline__ int64_t Index(int chunk) const {
    return static_cast<int64_t>(chunk - arguments_.chunk_begin) * arguments_.num_heads + head_;
  }

  __device__ __forceinline__ int Copier() const {
    return static_cast<int>(threadIdx.x) - Layout::kWarps * 32;
  }

  // kRows rows of kColumns floats into rows that follow each other.
  template <int kColumns>
  __device__ __forceinline__ void WriteOut(const float* from, int stride, float* to) const {
#pragma unroll
    for (int i = 0; i < kRows * kColumns / 4; i += Layout::kCopiers) {
      const int row = (i + Copier()) / (kColumns / 4);
      const int column = (i + Copier()) % (kColumns / 4) * 4;
      *reinterpret_cast<float4*>(to + row * kColumns + column) =
          *reinterpret_cast<const float4*>(from + row * stride + column);
    }
  }

  // Always commits a group, so that the waits count chunks.
  __device__ __forceinline__ void Prefetch(int chunk, int end, int stage) const {
    if (chunk < end) {
      const int64_t index = Index(chunk);
      const __half* keys = arguments_.keys + index * kTokens * kDim;
      const __half* alpha = arguments_.alpha + index * kTokens * kDim;
#pragma unroll
      for (int i = 0; i < kTokens * kDim / 8; i += Layout::kCopiers) {
        const int row = (i + Copier()) / (kDim / 8);
        const int column = (i + Copier()) % (kDim / 8) * 8;
        CopyAsync(Keys(stage) + row * Layout::kHalfStride + column, keys + row * kDim + column);
        CopyAsync(Alpha(stage) + row * Layout::kHalfStride + column, alpha + row * kDim + column);
      }
      const float* errors = arguments_.errors + (index * kDim + first_row_) * kTokens;
#pragma unroll
      for (int i = 0; i < kRows * kTokens / 4; i += Layout::kCopiers) {
        const int row = (i + Copier()) / (kTokens / 4);
        const int column = (i + Copier()) % (kTokens / 4) * 4;
        CopyAsync(Errors(stage) + row * Layout::kErrorStride + column,
                  errors + row * kTokens + column);
      }
      if (Copier() < kTokens / 4) {
        CopyAsync(Beta(stage) + Copier() * 4, arguments_.beta + index * kTokens + Copier() * 4);
      }
    }
    CommitCopies();
  }

  // On entry: S and this chunk's stage are visible and keys_ holds its keys. Ends with the chunk's
  // alpha in alpha_.
  __device__ __forceinline__ void MakeErrors(int stage) {
    alpha_.LoadTransposed(Alpha(stage), Layout::kHalfStride, KeyBase());
    float e[1][kErrorTiles][4];
    Multiply(keys_, state_shared_ + ErrorRowBase() * Layout::kStateStride, Layout::kStateStride, e);
    const float* errors = Errors(stage);
    const float* beta = Beta(stage);
    ForEachPair(TokenBase(), ErrorRowBase(), e, [&](int t, int row, float& first, float& second) {
      first = (errors[row * Layout::kErrorStride + t] - first) * beta[t];
      second = (errors[(row + 1) * Layout::kErrorStride + t] - second) * beta[t];
    });
    StoreTransposed(e, TokenBase(), ErrorRowBase(), Layout::kErrorStride, error_shared_);
  }

  // On entry: E is visible, and the next chunk's stage.
  __device__ __forceinline__ void Advance(int next_stage) {
    keys_.Load(Keys(next_stage), Layout::kHalfStride, TokenBase());
    float sum[1][kRowTiles][4];
    Multiply(alpha_, error_shared_, Layout::kErrorStride, sum);
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s_[0][n][i] += sum[0][n][i];
    }
    StoreTransposed(s_, KeyBase(), 0, Layout::kStateStride, state_shared_);
  }

  const FoldArguments& arguments_;
  char* shared_;
  float* state_shared_;
  float* error_shared_;
  int head_;
  int first_row_;
  float s_[1][kRowTiles][4];
  LeftOperand<kDim / 8> keys_;
  LeftOperand<kTokens / 8> alpha_;
};

template <int kDim, int kRows, int kRing>
__global__ void __launch_bounds__(FoldLayout<kDim, kRows, kRing>::kThreads)
    FoldKernel(const FoldArguments arguments) {
  extern __shared__ __align__(16) char shared_bytes[];
  const int sequence = static_cast<int>(blockIdx.y);
  const int begin = max(arguments.offsets[sequence] / kTokens, arguments.chunk_begin);
  const int end = min(arguments.offsets[sequence + 1] / kTokens, arguments.chunk_end);
  if (begin >= end) return;
  constexpr int kParts = kDim / kRows;
  const int head = static_cast<int>(blockIdx.x) / kParts;
  float* state =
      arguments.pool +
      (static_cast<int64_t>(arguments.slots[sequence]) * arguments.num_heads + head) * kDim * kDim;
  RowFold<kDim, kRows, kRing> fold(arguments, shared_bytes, head,
                                   static_cast<int>(blockIdx.x) % kParts * kRows);
  if (Warp() < FoldLayout<kDim, kRows, kRing>::kWarps) {
    fold.Fold(begin, end, state);
  } else {
    fold.Copy(begin, end);
  }
}

template <int kDim, int kRows, int kRing>
void Launch(Queue* queue, const VlaChunkSegment& segment, const FoldArguments& arguments) {
  using Layout = FoldLayout<kDim, kRows, kRing>;
  const auto kernel = FoldKernel<kDim, kRows, kRing>;
  // An error shows in the launch that follows.
  static_cast<void>(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Layout::kBytes));
  const dim3 grid(static_cast<unsigned>(arguments.num_heads * kDim / kRows),
                  static_cast<unsigned>(segment.batch.num_sequences));
  kernel<<<grid, Layout::kThreads, Layout::kBytes, queue->stream()>>>(arguments);
}

}  // namespace

absl::Status VlaChunkFold(Queue* queue, const VlaChunkSegment& segment) {
  const VlaChunkWork& work = segment.work;
  const FoldArguments arguments{segment.batch.offsets,
                                segment.batch.slots,
                                static_cast<int>(segment.chunk_begin),
                                static_cast<int>(segment.chunk_begin + segment.num_chunks),
                                static_cast<int>(segment.options.num_heads),
                                reinterpret_cast<const __half*>(work.alpha),
                                reinterpret_cast<const __half*>(work.keys),
                                work.beta,
                                work.errors,
                                segment.batch.out == nullptr ? nullptr : work.states,
                                segment.batch.s};
  // Rows and depth do not reach the bits. Before 9.0 a block has less shared memory.
  const bool is_large = queue->compute_capability() >= 90;
  if (segment.options.key_dim == 64) {
    is_large ? Launch<64, 16, 4>(queue, segment, arguments)
             : Launch<64, 16, 3>(queue, segment, arguments);
  } else {
    is_large ? Launch<128, 32, 4>(queue, segment, arguments)
             : Launch<128, 16, 3>(queue, segment, arguments);
  }
  return queue->LaunchStatus("vla chunk fold");
}

}  // namespace lethe
