// VlaChunk's stage keys: alpha, T K^ and T V of every chunk, from L^-1 of its beginning.
//
// A block of four warps per chunk and head. A warp has 16 rows (tokens) of every matrix, in registers
// from product to product; what all warps need as a right operand passes through shared memory: a
// 64 x 64 matrix of f32, and room for two 64 x D matrices of 16-bit numbers. Lower triangles give the
// last rows four times the first rows' work, so the rows of a warp rotate with the block: else one
// scheduler of each multiprocessor had the most of it.
#include "kernels/base/queue.h"
#include "kernels/vla/vla_chunk_cuda.h"
#include "kernels/vla/vla_chunk_half_cuda.cuh"
#include "kernels/vla/vla_chunk_inverse_cuda.cuh"
#include "kernels/vla/vla_chunk_rows_cuda.cuh"

namespace lethe {
namespace {

using namespace vla_chunk;  // NOLINT(google-build-using-namespace): the kernels' vocabulary

struct KeysArguments {
  const float* k;  // of the segment's first token
  const float* v;
  const float* directions;  // null for kRls
  int64_t token_stride;
  int num_heads;
  const float* inverse;  // packed L^-1, times unit
  float unit;
  __half* alpha;
  __half* keys;
  float* beta;
  float* errors;
};

constexpr int kWarps = 4;
constexpr int kSquareStride = kTokens + 8;

template <int kDim>
struct KeysLayout {
  static constexpr int kBlocks = kDim / kTile;
  static constexpr int kStride = kDim + 8;
  // Blocks a multiprocessor holds; measured best, one more costs more in spilled registers.
  static constexpr int kResident = kDim == 64 ? 4 : 3;
  static constexpr int kSquareFloats = InverseLayout<kTokens>::kFloats;
  static constexpr int kBytes = kSquareFloats * 4 + 2 * kTokens * kStride * 2 + kTokens * 4;
  static_assert(kSquareFloats >= kTokens * kSquareStride);
};

// A warp's blocks to the f32 matrix.
__device__ __forceinline__ void StoreLower(int tile, Block (&c)[4], float* square) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (j > tile) continue;
    ForEachPairOfBlock(tile * kTile, j * kTile, c[j], [&](int row, int column, float x, float y) {
      *reinterpret_cast<float2*>(square + row * kSquareStride + column) = make_float2(x, y);
    });
  }
}

template <typename Operand>
__device__ __forceinline__ void LoadBlock(const Operand& x, int row, int column, Block& c) {
  ForEachPairOfBlock(row, column, c, [&](int i, int j, float& first, float& second) {
    const float2 pair = x.Pair(i, j);
    first = pair.x;
    second = pair.y;
  });
}

// The stage's work on one chunk and head, by a warp of its block.
template <int kDim, bool kIsRls>
class Keys {
 public:
  using Layout = KeysLayout<kDim>;
  static constexpr int kStride = Layout::kStride;
  static constexpr int kBlocks = Layout::kBlocks;
  using Matrix = SplitMatrix<kTokens, kStride>;

  __device__ __forceinline__ Keys(const KeysArguments& arguments, float* shared)
      : arguments_(arguments),
        square_(shared),
        matrix_{reinterpret_cast<__nv_bfloat16*>(shared + Layout::kSquareFloats)},
        alpha_(reinterpret_cast<__half*>(matrix_.high)),
        units_(reinterpret_cast<__half*>(matrix_.Low())),
        beta_(shared + Layout::kSquareFloats + kTokens * kStride),
        tile_((Warp() + static_cast<int>(blockIdx.x >> 2)) & 3),
        row_(tile_ * kTile),
        index_(blockIdx.x),
        rows_(index_ / arguments.num_heads * kTokens * arguments.token_stride +
              index_ % arguments.num_heads * kDim),
        inverse_(arguments.inverse + index_ * kPacked<kDim>) {}

  // alpha, into shared and global memory.
  __device__ __forceinline__ void MakeAlpha() {
    RowBlocks<kDim> x;
    if constexpr (!kIsRls) {
      x.Load(arguments_.directions + rows_, arguments_.token_stride, row_);
      Whiten(inverse_, &x);
      StoreSplitHalf(&x);
    }
    RowBlocks<kDim> y;
    y.Load(arguments_.k + rows_, arguments_.token_stride, row_);
    y.Normalize();
    Whiten(inverse_, &y);
    if constexpr (kIsRls) StoreSplitHalf(&y);
    __syncthreads();
    MakeInnovations();
    RemoveInnovations(&y);
    Unwhiten(inverse_, &y);
    const float square = arguments_.unit * arguments_.unit;  // what y is scaled by, a power of 2
    const float2 lengths = y.Normalize(1e-12f * square * square);
    const float scale = 1.0f / square;
    if ((Lane() & 3) == 0) {
      float* beta = beta_ + row_ + (Lane() >> 2);
      beta[0] = kIsRls ? lengths.x * scale : 1.0f;
      beta[8] = kIsRls ? lengths.y * scale : 1.0f;
    }
    __syncthreads();  // everybody has done with F
    StoreHalf(&y, alpha_);
  }

  // T into shared memory, in swapped blocks.
  __device__ __forceinline__ void MakeMixing() {
    RowBlocks<kDim> units;
    units.Load(arguments_.k + rows_, arguments_.token_stride, row_);
    units.Normalize();
    StoreHalf(&units, units_);
    __syncthreads();
    Block c[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) ClearBlock(c[j]);
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      const Left a = HalfBlock(units.block[k]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j <= tile_) {
          AddHalfProduct(a, LoadRightOfRows(alpha_, kStride, j * kTile, k * kTile), c[j]);
        }
      }
    }
    if constexpr (kIsRls) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        ForEachPairOfBlock(0, j * kTile, c[j], [&](int, int column, float& first, float& second) {
          first *= beta_[column];
          second *= beta_[column + 1];
        });
      }
    }
    StoreLower(tile_, c, square_);
    CopyOut(alpha_, arguments_.alpha);
    if (threadIdx.x < kTokens) arguments_.beta[index_ * kTokens + threadIdx.x] = beta_[threadIdx.x];
    __syncthreads();
    UnitLowerInverse<kSquareStride, kWarps>(square_);
  }

  // T K^ and T V.
  __device__ __forceinline__ void Mix() {
    const SwappedBlockRows<kSquareStride> mixing{square_};
    RowBlocks<kDim> c;
    c.Clear();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j > tile_) continue;
      Block t;
      LoadBlock(mixing, row_, j * kTile, t);
      const Left a = HalfBlock(t);
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        AddHalfProduct(a, LoadRightOfColumns(units_, kStride, j * kTile, n * kTile), c.block[n]);
      }
    }
    StoreHalf(&c, alpha_);  // copied out before UnitLowerInverse
    __syncthreads();
    CopyOut(alpha_, arguments_.keys);
    __syncthreads();
    c.Load(arguments_.v + rows_, arguments_.token_stride, row_);
    StoreRows(&c);
    __syncthreads();
    c.Clear();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j > tile_) continue;
      Block t;
      LoadBlock(mixing, row_, j * kTile, t);
      const SplitLeft a = SplitBlock(t);
#pragma unroll
      for (int n = 0; n < kBlocks; n += 2) {
        AddProducts(a, matrix_.OfColumns(j * kTile, n * kTile),
                    matrix_.OfColumns(j * kTile, (n + 1) * kTile), c.block[n], c.block[n + 1]);
      }
    }
    float* errors = arguments_.errors + index_ * kTokens * kDim;
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      ForEachPairOfBlock(row_, n * kTile, c.block[n], [&](int i, int j, float x, float y) {
        errors[j * kTokens + i] = x;
        errors[(j + 1) * kTokens + i] = y;
      });
    }
  }

 private:
  __device__ __forceinline__ void StoreRows(RowBlocks<kDim>* x) const {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) matrix_.Store(row_, n * kTile, x->block[n]);
  }

  __device__ __forceinline__ void StoreSplitHalf(RowBlocks<kDim>* x) const {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) matrix_.StoreSplitHalf(row_, n * kTile, x->block[n]);
  }

  // Rounds x to f16.
  __device__ __forceinline__ void StoreHalf(RowBlocks<kDim>* x, __half* to) const {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      ForEachPairOfBlock(
          row_, n * kTile, x->block[n], [&](int i, int j, float first, float second) {
            *reinterpret_cast<uint32_t*>(to + i * kStride + j) = PackHalf(first, second);
          });
    }
  }

  __device__ __forceinline__ void CopyOut(const __half* from, __half* to) const {
    to += index_ * kTokens * kDim;
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * kDim / 8; i += kWarps * 32) {
      const int row = i / (kDim / 8);
      const int column = i % (kDim / 8) * 8;
      *reinterpret_cast<uint4*>(to + row * kDim + column) =
          *reinterpret_cast<const uint4*>(from + row * kStride + column);
    }
  }

  // From Y_u, times the unit, to F in its place, without.
  __device__ __forceinline__ void MakeInnovations() {
    const float over_unit = 1.0f / arguments_.unit;  // powers of 2
    const float over_square = over_unit * over_unit;
    Block gram[4];
    LowerBlocks<kDim>(
        tile_, [&](int k) { return matrix_.LeftAt(row_, k * kTile); },
        [&](int j, int k) { return matrix_.OfRows(j * kTile, k * kTile); }, gram);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      ForEachPairOfBlock(row_, j * kTile, gram[j],
                         [&](int i, int col, float& first, float& second) {
                           first = __fmaf_rn(first, over_square, i == col ? 1.0f : 0.0f);
                           second = __fmaf_rn(second, over_square, i == col + 1 ? 1.0f : 0.0f);
                         });
    }
    const BlockRows blocks{square_};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j <= tile_) StoreAccumulator(blocks.At(tile_, j), gram[j]);
    }
    __syncthreads();
    CholeskyInverse<kTokens, kWarps>(
        blocks, reinterpret_cast<__half*>(square_ + InverseLayout<kTokens>::kMatrixFloats), 1.0f);
    RowBlocks<kDim> f;
    f.Clear();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j > tile_) continue;
      Block n_block;
      LoadAccumulator(blocks.At(tile_, j), n_block);
      AddSplitHalfRow<0, kBlocks>(
          SplitHalfBlock(n_block), [&](int n) { return matrix_.OfColumns(j * kTile, n * kTile); },
          true, f.block);
    }
    __syncthreads();
    f.Multiply(over_unit);
    StoreSplitHalf(&f);
    __syncthreads();
  }

  // y -= lt(y F^T) F, y times the unit.
  __device__ __forceinline__ void RemoveInnovations(RowBlocks<kDim>* y) {
    Block c[4];
    LowerBlocks<kDim>(
        tile_, [&](int k) { return SplitHalfBlock(y->block[k]); },
        [&](int j, int k) { return matrix_.OfRows(j * kTile, k * kTile); }, c);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j > tile_) continue;
      ForEachPairOfBlock(row_, j * kTile, c[j], [](int i, int col, float& first, float& second) {
        first = col <= i ? -first : 0.0f;
        second = col + 1 <= i ? -second : 0.0f;
      });
      AddSplitHalfRow<0, kBlocks>(
          SplitHalfBlock(c[j]), [&](int n) { return matrix_.OfColumns(j * kTile, n * kTile); },
          true, y->block);
    }
  }

  const KeysArguments& arguments_;
  float* square_;
  Matrix matrix_;  // Y_u, F, then V
  __half* alpha_;  // alpha, then T K^, in its upper half
  __half* units_;  // K^, in its lower half
  float* beta_;
  int tile_;
  int row_;
  int64_t index_;
  int64_t rows_;
  const float* inverse_;
};

template <int kDim, bool kIsRls>
__global__ void __launch_bounds__(kWarps * 32, KeysLayout<kDim>::kResident)
    KeysKernel(const KeysArguments arguments) {
  extern __shared__ __align__(16) float shared[];
  Keys<kDim, kIsRls> keys(arguments, shared);
  keys.MakeAlpha();
  keys.MakeMixing();
  keys.Mix();
}

template <int kDim, bool kIsRls>
void Launch(Queue* queue, const VlaChunkSegment& segment, const KeysArguments& arguments) {
  constexpr int kBytes = KeysLayout<kDim>::kBytes;
  const auto kernel = KeysKernel<kDim, kIsRls>;
  // An error shows in the launch that follows.
  static_cast<void>(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  const auto blocks = static_cast<unsigned>(segment.num_chunks * segment.options.num_heads);
  kernel<<<blocks, kWarps * 32, kBytes, queue->stream()>>>(arguments);
}

}  // namespace

absl::Status VlaChunkKeys(Queue* queue, const VlaChunkSegment& segment) {
  const VlaOptions& options = segment.options;
  const VlaChunkWork& work = segment.work;
  const bool is_rls = options.variant == VlaVariant::kRls;
  const int64_t stride = options.num_heads * options.key_dim;
  const int64_t first = segment.chunk_begin * kVlaChunkTokens * stride;
  const KeysArguments arguments{segment.batch.k + first,
                                segment.batch.v + first,
                                is_rls ? nullptr : segment.batch.write_direction + first,
                                stride,
                                static_cast<int>(options.num_heads),
                                work.gram,
                                VlaChunkInverseUnit(options.lambda0),
                                reinterpret_cast<__half*>(work.alpha),
                                reinterpret_cast<__half*>(work.keys),
                                work.beta,
                                work.errors};
  if (options.key_dim == 64) {
    is_rls ? Launch<64, true>(queue, segment, arguments)
           : Launch<64, false>(queue, segment, arguments);
  } else {
    is_rls ? Launch<128, true>(queue, segment, arguments)
           : Launch<128, false>(queue, segment, arguments);
  }
  return queue->LaunchStatus("vla chunk keys");
}

}  // namespace lethe
