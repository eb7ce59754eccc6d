// VlaChunk's stage keys for kVla with warpgroup products (wgmma) of sm_90a, which take their right operand
// from shared memory: one load for 64 tokens instead of 16. All products have one term of f16.
//
// A warpgroup per chunk and head, a warp 16 tokens in all their columns: rows pass from product to product
// in registers, as sums, then as left operands. Only what all tokens use goes through shared memory.
#include <cuda_runtime.h>

#include "kernels/vla/vla_chunk_inverse_cuda.cuh"
#include "kernels/vla/vla_chunk_keys_cuda.cuh"
#include "kernels/vla/vla_chunk_rows_cuda.cuh"
#include "kernels/vla/vla_chunk_warpgroup_cuda.cuh"

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
  static constexpr int kMixingBlocks = kScratch + kWarps * kBlockFloats * 4;
  static constexpr int kMaxima = kMixingBlocks + 8 * TileBlocks<false>::kWords * 4;
  static constexpr int kBytes = kMaxima + kWarps * 4;
  // Where Q comes, in the end: over what T was made of, or behind V in L^-1's place.
  static constexpr int kQueries = kDim == 64 ? kScratch : kTokens * kDim * 2;
  static_assert(kInverseWords<4, false> * 4 <= kMaxima - kScratch);
  static_assert(kQueries + kTokens * kDim * 2 <= (kDim == 64 ? kMaxima : kKeys));
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <int kDim>
class Keys {
 public:
  static constexpr int kBlocks = kDim / kTile;
  using Strip = Block[kBlocks];     // 16 tokens of a matrix [64][D]
  using StripLeft = Left[kBlocks];  // as left operands
  using TokenPanels = Panels<kTokens>;
  using Rows = ChunkRows<kDim, kWarps>;

  __device__ __forceinline__ Keys(const KeysArguments& arguments, char* shared)
      : arguments_(arguments),
        inverse_{shared},
        values_{shared},
        keys_{shared + Layout<kDim>::kKeys},
        products_{shared + Layout<kDim>::kProducts},
        queries_{shared + Layout<kDim>::kQueries},
        scratch_(reinterpret_cast<uint32_t*>(shared + Layout<kDim>::kScratch)),
        mixing_blocks_{reinterpret_cast<uint32_t*>(shared + Layout<kDim>::kMixingBlocks)},
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
      Take(products_, u);
      Whiten(u, y);
      __syncwarp();  // the warp has done with U
      Store(y, products_);
    }
    Share();
    MakeInnovations();
    {
      Strip alpha;
      MakeAlpha(alpha);
      __syncthreads();  // everybody has done with F and L^-1
      Store(alpha, products_);
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

  __device__ __forceinline__ void Take(const TokenPanels& from, StripLeft& x) const {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) x[n] = from.LeftAt(row_, n * kTile);
  }

  static __device__ __forceinline__ void Round(const Strip& x, StripLeft& rounded) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) rounded[n] = HalfBlock(x[n]);
  }

  // Multiplies the lane's two rows.
  static __device__ __forceinline__ void MultiplyRows(float upper, float lower, Strip& x) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int e = 0; e < 8; ++e) x[n][e / 4][e % 4] *= e % 4 < 2 ? upper : lower;
    }
  }

  // Rows scaled to length 1, where epsilon is added to their squares.
  static __device__ __forceinline__ void Normalize(float epsilon, Strip& x) {
    float upper = 0.0f;
    float lower = 0.0f;
#pragma unroll
    for (int n = 0; n < 2 * kBlocks; ++n) {
      const float(&c)[4] = x[n / 2][n % 2];
      upper = __fmaf_rn(c[0], c[0], __fmaf_rn(c[1], c[1], upper));
      lower = __fmaf_rn(c[2], c[2], __fmaf_rn(c[3], c[3], lower));
    }
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
      upper += __shfl_xor_sync(kFullWarp, upper, distance);
      lower += __shfl_xor_sync(kFullWarp, lower, distance);
    }
    MultiplyRows(ReciprocalRoot(upper + epsilon), ReciprocalRoot(lower + epsilon), x);
  }

  __device__ __forceinline__ void Store(const StripLeft& x, const TokenPanels& to) const {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) to.Store(row_, n * kTile, x[n]);
  }
  __device__ __forceinline__ void Store(const Strip& x, const TokenPanels& to) const {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) to.Store(row_, n * kTile, HalfBlock(x[n]));
  }

  // y = x L^-T, times the inverse's unit.
  __device__ __forceinline__ void Whiten(StripLeft& x, Strip& y) const {
    Hold(x);
    BeginProducts();
#pragma unroll
    for (int n = 0; n < kBlocks; n += kPanelBlocks) {
#pragma unroll
      for (int k = 0; k < n + kPanelBlocks; ++k) {
        Wgmma<false>(x[k], inverse_.OfRows(n * kTile, k * kTile), k > 0, y + n);
      }
    }
    EndProducts();
    Hold(y);
  }

  // y = x L^-1
  __device__ __forceinline__ void Unwhiten(StripLeft& x, Strip& y) const {
    Hold(x);
    BeginProducts();
#pragma unroll
    for (int n = 0; n < kBlocks; n += kPanelBlocks) {
#pragma unroll
      for (int k = n; k < kBlocks; ++k) {
        Wgmma<true>(x[k], inverse_.OfColumns(k * kTile, n * kTile), k > n, y + n);
      }
    }
    EndProducts();
    Hold(y);
  }

  // c = x m^T
  __device__ __forceinline__ void MultiplyRowsOf(const TokenPanels& m, StripLeft& x,
                                                 Block (&c)[4]) const {
    Hold(x);
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) Wgmma<false>(x[k], m.OfRows(0, k * kTile), k > 0, c);
    EndProducts();
    Hold(c);
  }

  // y = c m, or with kAdds y += c m.
  template <bool kAdds>
  __device__ __forceinline__ void Combine(Left (&c)[4], const TokenPanels& m, Strip& y) const {
    Hold(c);
    if constexpr (kAdds) Hold(y);
    BeginProducts();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int n = 0; n < kBlocks; n += kPanelBlocks) {
        Wgmma<true>(c[k], m.OfColumns(k * kTile, n * kTile), kAdds || k > 0, y + n);
      }
    }
    EndProducts();
    Hold(y);
  }

  // As left operand, times -1, with zeros above the matrix's diagonal.
  __device__ __forceinline__ void MinusLower(Block (&c)[4], Left (&lower)[4]) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      ForEachPairOfBlock(row_, j * kTile, c[j], [](int i, int s, float& first, float& second) {
        first = s <= i ? -first : 0.0f;
        second = s + 1 <= i ? -second : 0.0f;
      });
      lower[j] = HalfBlock(c[j]);
    }
  }

  // F in place of Y_u, which is times the unit.
  __device__ __forceinline__ void MakeInnovations() const {
    const float over_unit = 1.0f / arguments_.unit;  // powers of 2
    const float scale = arguments_.gram_scale;
    const float by = over_unit * over_unit * scale * scale;
    Block c[4];
    {
      StripLeft y;
      Take(products_, y);
      MultiplyRowsOf(products_, y, c);
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
    Combine<false>(n, products_, f);
    MultiplyRows(over_unit, over_unit, f);
    __syncthreads();  // everybody has done with Y_u
    Store(f, products_);
    Share();
  }

  // alpha from K^ and F.
  __device__ __forceinline__ void MakeAlpha(Strip& alpha) const {
    StripLeft x;
    Strip y;
    Take(keys_, x);
    Whiten(x, y);
    {
      Round(y, x);
      Block c[4];
      MultiplyRowsOf(products_, x, c);
      Left lower[4];
      MinusLower(c, lower);
      Combine<true>(lower, products_, y);
    }
    Round(y, x);
    Unwhiten(x, alpha);
    const float square = arguments_.unit * arguments_.unit;
    Normalize(1e-12f * square * square, alpha);
  }

  // T = (I + W)^-1, W = slt(K^ alpha^T), by halves: [[A, 0], [B, C]]^-1 = [[A^-1, 0], [-C^-1 B A^-1, C^-1]].
  __device__ __forceinline__ void MakeMixing(Left (&mixing)[4]) const {
    Block w[4];
    {
      StripLeft k;
      Take(keys_, k);
      MultiplyRowsOf(products_, k, w);
    }
    float* diagonal = reinterpret_cast<float*>(scratch_) + warp_ * kBlockFloats;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      mixing[j] = HalfBlock(w[j]);  // as W's for now
      if (j == warp_) StoreAccumulator(diagonal, kBlockStride, w[j]);
    }
    __syncwarp();
    InvertUnitDiagonal(diagonal);
    Block x;
    LoadAccumulator(diagonal, kBlockStride, x);
    const Left own = HalfBlock(x);
    const Left minus_own = Minus(own);
    mixing_blocks_.Store(warp_, own);
    __syncthreads();
    Left beside{};  // (1, 0), (3, 2)
    if (warp_ & 1) {
      ClearBlock(x);
      AddProduct(Select(warp_ == 1, mixing[0], mixing[2]), mixing_blocks_.OfColumns(warp_ - 1), x);
      Block y;
      ClearBlock(y);
      AddProduct(minus_own, RightOf<false>(x), y);
      beside = HalfBlock(y);
      mixing_blocks_.Store(4 + warp_ / 2, beside);
    }
    __syncthreads();
    Left first{};  // (2, 0), (3, 0); (2, 1), (3, 1)
    Left second{};
    if (warp_ >= 2) {
      Block z[2];
      ClearBlock(z[0]);
      ClearBlock(z[1]);
      AddProduct(mixing[0], mixing_blocks_.OfColumns(0), z[0]);
      AddProduct(mixing[1], mixing_blocks_.OfColumns(4), z[0]);
      AddProduct(mixing[1], mixing_blocks_.OfColumns(1), z[1]);
      first = HalfBlock(z[0]);
      second = HalfBlock(z[1]);
      if (warp_ == 2) {
        mixing_blocks_.Store(6, first);
        mixing_blocks_.Store(7, second);
      }
    }
    __syncthreads();
    if (warp_ >= 2) {
      Block z[2];
      ClearBlock(z[0]);
      ClearBlock(z[1]);
      AddProduct(minus_own, Transposed(first), z[0]);
      AddProduct(minus_own, Transposed(second), z[1]);
      if (warp_ == 3) {
        const Left minus_beside = Minus(beside);
        AddProduct(minus_beside, mixing_blocks_.OfColumns(6), z[0]);
        AddProduct(minus_beside, mixing_blocks_.OfColumns(7), z[1]);
      }
      first = HalfBlock(z[0]);
      second = HalfBlock(z[1]);
    }
    const Left none{};
    mixing[0] = Select(warp_ == 0, own, Select(warp_ == 1, beside, first));
    mixing[1] = Select(warp_ == 0, none, Select(warp_ == 1, own, second));
    mixing[2] = Select(warp_ < 2, none, Select(warp_ == 2, own, beside));
    mixing[3] = Select(warp_ < 3, none, own);
  }

  // Of values, so that both stay in registers.
  static __device__ __forceinline__ Left Select(bool takes_first, const Left& x, const Left& y) {
    Left selected;
#pragma unroll
    for (int e = 0; e < 4; ++e) selected.r[e] = takes_first ? x.r[e] : y.r[e];
    return selected;
  }

  // T K^ and T V in place of K^ and V.
  __device__ __forceinline__ void Mix(Left (&mixing)[4]) const {
    StripLeft keys;
    Strip x;
    Combine<false>(mixing, keys_, x);
    Round(x, keys);
    Combine<false>(mixing, values_, x);
    __syncthreads();  // everybody has done with K^ and V
    Store(keys, keys_);
    Store(x, values_);
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
      Combine<false>(a, keys_, x);
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        Write(HalfBlock(x[n]), arguments_.transitions + (first + n) * 32);
      }
      Combine<false>(a, values_, x);
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
    Take(queries_, q);
    Left minus_p[4];
    {
      Block c[4];
      MultiplyRowsOf(products_, q, c);
      MinusLower(c, minus_p);
    }
    Strip x;
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 pair = UnpackHalf(q[n].r[e]);
        x[n][e / 2][e % 2 * 2] = pair.x;
        x[n][e / 2][e % 2 * 2 + 1] = pair.y;
      }
    }
    Combine<true>(minus_p, keys_, x);
    const int64_t first = (index_ * 4 + warp_) * kBlocks;
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      Write(HalfBlock(x[n]), arguments_.queries + (first + n) * 32);
    }
    Combine<false>(minus_p, values_, x);
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
  TileBlocks<false> mixing_blocks_;
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
  kernel<<<static_cast<unsigned>(num_blocks), kWarps * 32, kBytes, queue->stream()>>>(arguments);
}

}  // namespace

void VlaChunkLaunchKeysSm90(Queue* queue, int64_t num_blocks, int64_t dim,
                            const vla_chunk::KeysArguments& arguments) {
  dim == 64 ? Launch<64, 4>(queue, num_blocks, arguments)
            : Launch<128, 2>(queue, num_blocks, arguments);
}

}  // namespace lethe
