// VlaChunk's stage keys for kVla with warpgroup products (wgmma) of sm_90a, which take their right operand
// from shared memory: one load for 64 tokens instead of 16. All products have one term of f16.
//
// A warpgroup per chunk and head, a warp 16 tokens in all their columns: rows pass from product to product
// in registers, as sums, then as left operands. Only what all tokens use goes through shared memory.
#include <cuda_runtime.h>

#include "kernels/base/early_launch_cuda.cuh"
#include "kernels/vla/vla_chunk_keys_cuda.cuh"
#include "kernels/vla/vla_chunk_mixing_cuda.cuh"
#include "kernels/vla/vla_chunk_rows_cuda.cuh"
#include "kernels/vla/vla_chunk_strip_cuda.cuh"

namespace lethe {
namespace {

using namespace vla_chunk;  // NOLINT(google-build-using-namespace): the kernels' vocabulary

constexpr int kWarps = 4;

// Bytes of shared memory.
template <int kDim>
struct Layout {
  static constexpr int kKeys = kDim * kDim * 2;  // after L^-1
  static constexpr int kProducts = kKeys + kTokens * kDim * 2;
  static constexpr int kScratch = kProducts + kTokens * kDim * 2;
  static constexpr int kMaxima = kScratch + kMixingWords * 4;
  static constexpr int kBytes = kMaxima + kWarps * 4;
  // Where Q comes, in the end: over what T was made of, or behind V in L^-1's place.
  static constexpr int kQueries = kDim == 64 ? kScratch : kTokens * kDim * 2;
  static_assert(kInverseWords<4, false> <= kMixingWords);
  static_assert(kQueries + kTokens * kDim * 2 <= (kDim == 64 ? kMaxima : kKeys));
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <int kDim>
class Keys {
 public:
  static constexpr int kBlocks = kDim / kTile;
  using Strip = Block[kBlocks];     // 16 tokens of a matrix [64][D]
  using StripLeft = Left[kBlocks];  // as left operands
  using Rows = ChunkRows<kDim, kWarps>;

  __device__ __forceinline__ Keys(const KeysArguments& arguments, char* shared)
      : arguments_(arguments),
        inverse_{shared},
        values_{shared},
        keys_{shared + Layout<kDim>::kKeys},
        products_{shared + Layout<kDim>::kProducts},
        queries_{shared + Layout<kDim>::kQueries},
        scratch_(reinterpret_cast<uint32_t*>(shared + Layout<kDim>::kScratch)),
        maxima_(reinterpret_cast<uint32_t*>(shared + Layout<kDim>::kMaxima)),
        warp_(Warp()),
        row_(warp_ * kTile),
        index_(blockIdx.x),
        rows_(index_ / arguments.num_heads * kTokens * arguments.token_stride +
              index_ % arguments.num_heads * kDim) {}

  __device__ __forceinline__ void Run() {
    LoadInputs();
    Share();
    {
      StripLeft u;
      Strip y;
      Take(products_, row_, u);
      MultiplyTransposed(inverse_, u, y);
      __syncwarp();  // the warp has done with U
      Put(y, products_, row_);
    }
    Share();
    MakeInnovations();
    {
      Strip alpha;
      MakeAlpha(alpha);
      __syncthreads();  // everybody has done with F and L^-1
      Put(alpha, products_, row_);
    }
    const Scale value_scale = LoadValues();
    Left mixing[4];
    MakeMixing(mixing);
    Share();
    Mix(mixing);
    Share();
    WriteTransitions(value_scale);
    if (arguments_.q != nullptr) WriteQueries(value_scale);
  }

 private:
  // What threads have stored is there for all and for the tensor cores.
  static __device__ __forceinline__ void Share() {
    ShowStoresToTensorCores();
    __syncthreads();
  }

  // L^-1, U and K^.
  __device__ __forceinline__ void LoadInputs() const {
    CopyInverse();
    Rows u;
    Rows k;
    LoadRows(arguments_.directions, u);
    LoadRows(arguments_.k, k);
    Prefetch(arguments_.v);
    if (arguments_.q != nullptr) Prefetch(arguments_.q);
    u.template Store<RowScaling::kNone>(warp_, products_);
    k.template Store<RowScaling::kUnit>(warp_, keys_);
    AwaitCopies<0>();
  }

  // V in place of L^-1, in one scale for the chunk, which it returns.
  __device__ __forceinline__ Scale LoadValues() const {
    Rows v;
    LoadRows(arguments_.v, v);
    const uint32_t largest = v.Largest();
    if (Lane() == 0) maxima_[warp_] = largest;
    Share();
    const Scale scale = ScaleOf<8>(max(max(maxima_[0], maxima_[1]), max(maxima_[2], maxima_[3])));
    v.template Store<RowScaling::kNone>(warp_, values_, scale.to);
    return scale;
  }

  // L^-1 of packed blocks; where a product's 64 columns meet blocks above the diagonal these are zeros.
  __device__ __forceinline__ void CopyInverse() const {
    const float* from = arguments_.inverse + index_ * kPacked<kDim> + Lane() * 4;
    const int row_in = (Lane() >> 4) * 8 + (Lane() & 7);  // 16 bytes a lane: tile, row
    const int column_in = (Lane() >> 3 & 1) * 8;
    for (int block = warp_; block < kLowerBlocks<kDim>; block += kWarps) {
      int i;
      int j;
      BlockOf(block, &i, &j);
      CopyAsync(inverse_.Piece(i * kTile + row_in, j * kTile + column_in), from + block * 256);
    }
    CommitCopies();
#pragma unroll
    for (int n = 0; n < kBlocks * 3 / 2; ++n) {
      // Rows and columns of the six blocks above the diagonal of 64 x 64, four bits each.
      const int block_row = (0x211000 >> n % 6 * 4 & 3) + n / 6 * 4;
      const int block_column = (0x332321 >> n % 6 * 4 & 3) + n / 6 * 4;
      if (n % kWarps != warp_) continue;
      *reinterpret_cast<uint4*>(
          inverse_.Piece(block_row * kTile + row_in, block_column * kTile + column_in)) = uint4{};
    }
  }

  // Into the second-level cache; a line a thread and step.
  __device__ __forceinline__ void Prefetch(const float* rows) const {
    constexpr int kLines = kDim / 32;  // of a row
#pragma unroll
    for (int i = 0; i < kTokens * kLines; i += kWarps * 32) {
      const int line = i + static_cast<int>(threadIdx.x);
      asm volatile("prefetch.global.L2 [%0];" ::"l"(
          rows + rows_ + line / kLines * arguments_.token_stride + line % kLines * 32));
    }
  }

  // The warp's rows.
  __device__ __forceinline__ void LoadRows(const float* rows, Rows& x) const {
    x.Load(warp_, rows + rows_, arguments_.token_stride);
  }

  // F in place of Y_u, which is times the unit.
  __device__ __forceinline__ void MakeInnovations() const {
    const float over_unit = 1.0f / arguments_.unit;  // powers of 2
    const float scale = arguments_.gram_scale;
    const float by = over_unit * over_unit * scale * scale;
    Block c[4];
    {
      StripLeft y;
      Take(products_, row_, y);
      MultiplyTokens(products_, y, c);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      ForEachPairOfBlock(row_, j * kTile, c[j], [&](int r, int s, float& x, float& y) {
        x = __fmaf_rn(x, by, r == s ? scale * scale : 0.0f);
        y = __fmaf_rn(y, by, r == s + 1 ? scale * scale : 0.0f);
      });
    }
    CholeskyInverse<4, kWarps, false, Deal::kRows>(warp_, scale * scale, scratch_, c);
    Left n[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      MultiplyBlock(j <= warp_ ? scale : 0.0f, c[j]);
      n[j] = HalfBlock(c[j]);
    }
    Strip f;
    CombineTokens<false>(products_, n, f);
    MultiplyRows(over_unit, over_unit, f);
    __syncthreads();  // everybody has done with Y_u
    Put(f, products_, row_);
    Share();
  }

  // alpha from K^ and F.
  __device__ __forceinline__ void MakeAlpha(Strip& alpha) const {
    StripLeft x;
    Strip y;
    Take(keys_, row_, x);
    MultiplyTransposed(inverse_, x, y);
    {
      Round(y, x);
      Block c[4];
      MultiplyTokens(products_, x, c);
      Left lower[4];
      MinusLower(row_, c, lower);
      CombineTokens<true>(products_, lower, y);
    }
    Round(y, x);
    Multiply(inverse_, x, alpha);
    const float square = arguments_.unit * arguments_.unit;
    Normalize(1e-12f * square * square, alpha);
  }

  // T's strip.
  __device__ __forceinline__ void MakeMixing(Left (&mixing)[4]) const {
    StripLeft k;
    Take(keys_, row_, k);
    Block w[4];
    MultiplyTokens(products_, k, w);
    InvertUnitLower(warp_, scratch_, w, mixing);
  }

  // T K^ and T V in place of K^ and V.
  __device__ __forceinline__ void Mix(Left (&mixing)[4]) const {
    StripLeft keys;
    Strip x;
    CombineTokens<false>(keys_, mixing, x);
    Round(x, keys);
    CombineTokens<false>(values_, mixing, x);
    __syncthreads();  // everybody has done with K^ and V
    Put(keys, keys_, row_);
    Put(x, values_, row_);
  }

  static __device__ __forceinline__ void Write(const Left& x, uint4* to) {
    to[Lane()] = make_uint4(x.r[0], x.r[1], x.r[2], x.r[3]);
  }

  // Blocks in scales of their own, which times `from` go to write_scale(block, scale).
  template <typename F>
  static __device__ __forceinline__ void WriteScaled(Strip& x, float from, uint4* to,
                                                     F write_scale) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      const Scale scale = ScaleOf<8>(LargestOfWarp(LargestOf(x[n])));
      MultiplyBlock(scale.to, x[n]);
      Write(HalfBlock(x[n]), to + n * 32);
      if (Lane() == 0) write_scale(n, scale.from * from);
    }
  }

  // ((T K^)^T alpha)^T and ((T V)^T alpha)^T, the keys of alpha along the rows.
  __device__ __forceinline__ void WriteTransitions(const Scale& value_scale) const {
#pragma unroll 1
    for (int i = warp_; i < kBlocks; i += kWarps) {
      Left a[4];
#pragma unroll
      for (int t = 0; t < 4; ++t) a[t] = products_.LeftOfColumns(i * kTile, t * kTile);
      const int64_t first = (index_ * kBlocks + i) * kBlocks;
      Strip x;
      CombineTokens<false>(keys_, a, x);
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        Write(HalfBlock(x[n]), arguments_.transitions + (first + n) * 32);
      }
      CombineTokens<false>(values_, a, x);
      WriteScaled(x, value_scale.from, arguments_.gains + first * 32, [&](int n, float from) {
        arguments_.gain_scales[first + n] = make_float2(1.0f, from);
      });
    }
  }

  // Q - P T K^ and P T V, P = lt(Q alpha^T).
  __device__ __forceinline__ void WriteQueries(const Scale& value_scale) const {
    {
      Rows rows;
      LoadRows(arguments_.q, rows);
      rows.template Store<RowScaling::kPower>(warp_, queries_, 1.0f,
                                              arguments_.query_scales + index_ * kTokens);
      __syncwarp();
    }
    StripLeft q;
    Take(queries_, row_, q);
    Left minus_p[4];
    {
      Block c[4];
      MultiplyTokens(products_, q, c);
      MinusLower(row_, c, minus_p);
    }
    Strip x;
    Unround(q, x);
    CombineTokens<true>(keys_, minus_p, x);
    const int64_t first = (index_ * 4 + warp_) * kBlocks;
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      Write(HalfBlock(x[n]), arguments_.queries + (first + n) * 32);
    }
    CombineTokens<false>(values_, minus_p, x);
    WriteScaled(x, -value_scale.from, arguments_.reads + first * 32,
                [&](int n, float from) { arguments_.read_scales[first + n] = from; });
  }

  const KeysArguments& arguments_;
  Panels<kDim> inverse_;
  TokenPanels values_;    // in the inverse's place
  TokenPanels keys_;      // K^, then T K^
  TokenPanels products_;  // U, then Y_u, then F, then alpha
  TokenPanels queries_;
  uint32_t* scratch_;
  uint32_t* maxima_;
  int warp_;
  int row_;        // the warp's first token
  int64_t index_;  // of the chunk and head
  int64_t rows_;   // of the inputs: where the chunk's first row begins
};

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <int kDim, int kResident>
__global__ void __launch_bounds__(kWarps * 32, kResident)
    KeysSm90Kernel(const __grid_constant__ KeysArguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) char shared_bytes[];
  cuda::WaitForEarlierKernels();
  Keys<kDim>(arguments, shared_bytes).Run();
#endif
}

template <int kDim, int kResident>
void Launch(Queue* queue, int64_t num_blocks, const KeysArguments& arguments) {
  const auto kernel = KeysSm90Kernel<kDim, kResident>;
  constexpr int kBytes = Layout<kDim>::kBytes;
  // An error shows in the launch that follows.
  static_cast<void>(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  cuda::LaunchEarly(queue, kernel, num_blocks, kWarps * 32, kBytes, arguments);
}

}  // namespace

void VlaChunkLaunchKeysSm90(Queue* queue, int64_t num_blocks, int64_t dim,
                            const vla_chunk::KeysArguments& arguments) {
  dim == 64 ? Launch<64, 4>(queue, num_blocks, arguments)
            : Launch<128, 2>(queue, num_blocks, arguments);
}

}  // namespace lethe
