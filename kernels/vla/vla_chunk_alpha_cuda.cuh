// Alpha: alpha of a chunk, the first part of VlaChunk's stage keys. The places of its matrices.
//
// For kVla every product has one term: alpha is scaled to length 1, and its error is that of f16, as is
// that of the products it goes into. For kRls up to N they have three, because G is as ill conditioned as
// the keys are alike; there alpha is z / (1 + u^T z), which is F's row times N's diagonal element, so that
// nothing has to be taken away from K^.
#ifndef LETHE_KERNELS_VLA_VLA_CHUNK_ALPHA_CUDA_CUH_
#define LETHE_KERNELS_VLA_VLA_CHUNK_ALPHA_CUDA_CUH_

#include "kernels/vla/vla_chunk_half_cuda.cuh"
#include "kernels/vla/vla_chunk_inverse_cuda.cuh"
#include "kernels/vla/vla_chunk_keys_cuda.cuh"
#include "kernels/vla/vla_chunk_rows_cuda.cuh"

namespace lethe::vla_chunk {

template <int kDim, bool kIsRls>
struct KeysLayout {
  static constexpr int kBlocks = kDim / kTile;
  static constexpr int kWarps = kDim / kTile;
  static constexpr int kStride = kDim + 8;
  static constexpr int kSlot = kTokens * kStride / 2;  // words: a 64 x D matrix of f16
  static constexpr int kTileWords = TileBlocks<kIsRls>::kWords;
  // L^-1, then the blocks of the tokens' triangular system, then Q.
  static constexpr int kInverse = kLowerBlocks<kDim> * kTileWords;
  static constexpr int kRegion = kInverse > kSlot ? kInverse : kSlot;
  static constexpr int kScratch =
      kInverseWords<4, kIsRls> > 10 * kTileWords ? kInverseWords<4, kIsRls> : 10 * kTileWords;
  // Where alpha comes to be, after U or the low parts of K^ and the scratch.
  static constexpr int kAlphaSlot = kIsRls ? 3 : 2;
  static constexpr int kScratchAt = kRegion + kAlphaSlot * kSlot;
  static constexpr int kRowsAt = kScratchAt + (kScratch > kSlot ? kScratch : kSlot);
  static constexpr int kBytes = 4 * (kRowsAt + 5 * kTokens + kBlocks);
  static_assert(4 * kBlockFloats <= kSlot);
};

// Where a block has its chunk's matrices, and which part of them the calling warp.
template <int kDim, bool kIsRls>
struct KeysPlaces {
  using Layout = KeysLayout<kDim, kIsRls>;
  static constexpr int kStride = Layout::kStride;
  static constexpr int kBlocks = Layout::kBlocks;
  static constexpr int kWarps = Layout::kWarps;
  using Matrix = HalfMatrix<false, kStride>;
  using Terms = HalfMatrix<kIsRls, kStride>;

  __device__ __forceinline__ KeysPlaces(const KeysArguments& of_kernel, uint32_t* shared)
      : arguments(of_kernel),
        region(shared),
        inverse{shared},
        scratch(shared + Layout::kScratchAt),
        innovations{Slot(shared, 0), Slot(shared, 2)},
        units{Slot(shared, 1), Slot(shared, Layout::kAlphaSlot)},
        keys{Slot(shared, 1), nullptr},
        values{Slot(shared, 0), nullptr},
        alpha{Slot(shared, Layout::kAlphaSlot), nullptr},
        queries{reinterpret_cast<__half*>(shared), nullptr},
        beta(reinterpret_cast<float*>(shared + Layout::kRowsAt)),
        query_scales(beta + kTokens),
        diagonal(beta + 2 * kTokens),
        sums(beta + 3 * kTokens),
        value_scales(beta + 5 * kTokens),
        warp(Warp()),
        strip((warp + static_cast<int>(blockIdx.x >> 2)) & 3),
        row(strip * kTile),
        half(warp >> 2),
        index(blockIdx.x),
        rows(index / arguments.num_heads * kTokens * arguments.token_stride +
             index % arguments.num_heads * kDim) {}

  static __device__ __forceinline__ __half* Slot(uint32_t* shared, int slot) {
    return reinterpret_cast<__half*>(shared + Layout::kRegion + slot * Layout::kSlot);
  }

  const KeysArguments& arguments;
  uint32_t* region;
  TileBlocks<kIsRls> inverse;
  uint32_t* scratch;
  Terms innovations;  // Y_u, then F
  Terms units;        // K^
  Matrix keys;        // K^'s high parts, then T K^
  Matrix values;      // T V
  Matrix alpha;       // for kVla U before
  Matrix queries;
  float* beta;
  float* query_scales;
  float* diagonal;  // N's
  float* sums;
  float* value_scales;  // of each 16 columns of T V
  int warp;
  // The warp's 16 tokens. Lower triangles give the last rows four times the first rows' work: rows rotate
  // with the block, or else one scheduler of each multiprocessor had the most of it.
  int strip;
  int row;
  int half;       // the warp's 64 columns of them
  int64_t index;  // of the chunk and head
  int64_t rows;   // of the inputs: where the chunk's first row begins
};

template <int kDim, bool kIsRls>
class Alpha {
 public:
  using Places = KeysPlaces<kDim, kIsRls>;
  using Matrix = typename Places::Matrix;
  static constexpr int kBlocks = Places::kBlocks;
  static constexpr int kWarps = Places::kWarps;

  explicit __device__ __forceinline__ Alpha(const Places& places) : at_(places) {}

  __device__ __forceinline__ void LoadInputs() {
    const uint32_t* from =
        reinterpret_cast<const uint32_t*>(at_.arguments.inverse + at_.index * kPacked<kDim>);
    constexpr int kVectors = Places::Layout::kTileWords / 4;
    for (int i = static_cast<int>(threadIdx.x); i < kLowerBlocks<kDim> * kVectors;
         i += kWarps * 32) {
      CopyAsync(at_.region + 4 * i, from + i / kVectors * 256 + i % kVectors * 4);
    }
    CommitCopies();
    ChunkRows<kDim, kWarps> rows;
    rows.Load(at_.warp, at_.arguments.k + at_.rows, at_.arguments.token_stride);
    rows.template Store<RowScaling::kUnit>(at_.warp, at_.units);
    if constexpr (!kIsRls) {
      rows.Load(at_.warp, at_.arguments.directions + at_.rows, at_.arguments.token_stride);
      rows.template Store<RowScaling::kNone>(at_.warp, at_.alpha);
    }
    AwaitCopies<0>();
    __syncthreads();
  }

  // alpha, in rows of length 1, and beta.
  __device__ __forceinline__ void Make() {
    Block y[4];
    Whiten([&](int k) { return Directions().LeftAt(at_.row, k * kTile); }, y);
    StoreStrip(at_.innovations, y);
    __syncthreads();
    Block f[4];
    MakeInnovations(f);
    if constexpr (kIsRls) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        ForEachPairOfBlock(at_.row, 0, f[n], [&](int i, int, float& first, float& second) {
          first *= at_.diagonal[i];
          second *= at_.diagonal[i];
        });
      }
      Unwhiten(f, at_.innovations, y);
    } else {
      Whiten([&](int k) { return at_.units.LeftAt(at_.row, k * kTile); }, y);
      __syncthreads();                                    // everybody has done with Y_u
      const float over_unit = 1.0f / at_.arguments.unit;  // a power of 2
#pragma unroll
      for (int n = 0; n < 4; ++n) MultiplyBlock(over_unit, f[n]);
      StoreStrip(at_.innovations, f);
      if constexpr (kDim == 128) StoreStrip(at_.alpha, y);
      __syncthreads();
      RemoveInnovations(y);
      if constexpr (kDim == 128) __syncthreads();
      Unwhiten(y, at_.alpha, f);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int e = 0; e < 8; ++e) y[n][e / 4][e % 4] = f[n][e / 4][e % 4];
      }
    }
    Normalize(y);
    StoreStrip(at_.alpha, y);
    __syncthreads();
  }

 private:
  // U: for kVla where alpha comes to be.
  __device__ __forceinline__ auto Directions() const {
    if constexpr (kIsRls) {
      return at_.units;
    } else {
      return at_.alpha;
    }
  }

  template <typename M>
  __device__ __forceinline__ void StoreStrip(const M& to, Block (&y)[4]) const {
#pragma unroll
    for (int n = 0; n < 4; ++n) to.Store(at_.row, (4 * at_.half + n) * kTile, y[n]);
  }

  // Columns 64 half … 64 half + 63 of a strip x L^-T, times the inverse's unit.
  template <typename LeftAt>
  __device__ __forceinline__ void Whiten(LeftAt left_at, Block (&y)[4]) const {
#pragma unroll
    for (int n = 0; n < 4; ++n) ClearBlock(y[n]);
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      if (k >= 4 * at_.half + 4) continue;
      const auto a = left_at(k);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int column = 4 * at_.half + n;
        if (k <= column) AddProduct(a, at_.inverse.OfRows(LowerBlock(column, k)), y[n]);
      }
    }
  }

  // Of a strip x L^-1. Where a warp has half of the strip's columns they meet in `matrix`.
  template <typename M>
  __device__ __forceinline__ void Unwhiten(Block (&x)[4], const M& matrix, Block (&y)[4]) const {
    if constexpr (kDim == 128) {
      StoreStrip(matrix, x);
      __syncthreads();
    }
    Block sum[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) ClearBlock(sum[n]);
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      if (k < 4 * at_.half) continue;
      LeftTerms<kIsRls> a;
      if constexpr (kDim == 128) {
        a = matrix.LeftAt(at_.row, k * kTile);
      } else {
        a = LeftOf<kIsRls>(x[k]);
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int column = 4 * at_.half + n;
        if (column <= k) AddProduct(a, at_.inverse.OfColumns(LowerBlock(k, column)), sum[n]);
      }
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int e = 0; e < 8; ++e) y[n][e / 4][e % 4] = sum[n][e / 4][e % 4];
    }
  }

  // F's strip, times the unit, from Y_u, times the unit; kRls: and N's diagonal.
  __device__ __forceinline__ void MakeInnovations(Block (&f)[4]) const {
    const float over_unit = 1.0f / at_.arguments.unit;  // powers of 2
    const float scale = at_.arguments.gram_scale;
    const float by = over_unit * over_unit * scale * scale;
    constexpr int kOwn = kOwnBlocks<4, kWarps>;
    Block c[kOwn];
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      int i;
      int j;
      BlockOf(at_.warp + kWarps * n, &i, &j);
      if (i >= 4) continue;
      ClearBlock(c[n]);
#pragma unroll
      for (int k = 0; k < kBlocks; ++k) {
        AddProduct(at_.innovations.LeftAt(i * kTile, k * kTile),
                   at_.innovations.OfRows(j * kTile, k * kTile), c[n]);
      }
      ForEachPairOfBlock(i * kTile, j * kTile, c[n], [&](int r, int s, float& x, float& y) {
        x = __fmaf_rn(x, by, r == s ? scale * scale : 0.0f);
        y = __fmaf_rn(y, by, r == s + 1 ? scale * scale : 0.0f);
      });
    }
    CholeskyInverse<4, kWarps, kIsRls>(at_.warp, scale * scale, at_.scratch, c);
    __syncthreads();
    const TileBlocks<kIsRls> mixing{at_.scratch};
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      int i;
      int j;
      BlockOf(at_.warp + kWarps * n, &i, &j);
      if (i >= 4) continue;
      MultiplyBlock(scale, c[n]);
      mixing.Store(LowerBlock(i, j), c[n]);
      if (kIsRls && i == j) {
        ForEachPairOfBlock(i * kTile, j * kTile, c[n], [&](int r, int s, float x, float y) {
          if (r == s) at_.diagonal[r] = x;
          if (r == s + 1) at_.diagonal[r] = y;
        });
      }
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < 4; ++n) ClearBlock(f[n]);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j > at_.strip) continue;
      const LeftTerms<kIsRls> a = mixing.LeftAt(LowerBlock(at_.strip, j));
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        AddProduct(a, at_.innovations.OfColumns(j * kTile, (4 * at_.half + n) * kTile), f[n]);
      }
    }
    if constexpr (kIsRls) __syncthreads();  // everybody has done with Y_u
  }

  // y -= lt(y F^T) F, y times the unit; kDim 128: y is in alpha's place too.
  __device__ __forceinline__ void RemoveInnovations(Block (&y)[4]) const {
    Block c[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) ClearBlock(c[j]);
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      Left a;
      if constexpr (kDim == 128) {
        a = at_.alpha.LeftAt(at_.row, k * kTile);
      } else {
        a = HalfBlock(y[k]);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j <= at_.strip) AddProduct(a, at_.innovations.OfRows(j * kTile, k * kTile), c[j]);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j > at_.strip) continue;
      ForEachPairOfBlock(at_.row, j * kTile, c[j], [](int i, int col, float& first, float& second) {
        first = col <= i ? -first : 0.0f;
        second = col + 1 <= i ? -second : 0.0f;
      });
      const Left a = HalfBlock(c[j]);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        AddProduct(a, at_.innovations.OfColumns(j * kTile, (4 * at_.half + n) * kTile), y[n]);
      }
    }
  }

  // Scales the rows of alpha, times the unit's square, to length 1; beta.
  __device__ __forceinline__ void Normalize(Block (&y)[4]) const {
    float upper = 0.0f;
    float lower = 0.0f;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float(&c)[4] = y[n / 2][n % 2];
      upper = __fmaf_rn(c[0], c[0], __fmaf_rn(c[1], c[1], upper));
      lower = __fmaf_rn(c[2], c[2], __fmaf_rn(c[3], c[3], lower));
    }
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
      upper += __shfl_xor_sync(kFullWarp, upper, distance);
      lower += __shfl_xor_sync(kFullWarp, lower, distance);
    }
    const int row = at_.row + (Lane() >> 2);
    const bool is_first = (Lane() & 3) == 0;
    if constexpr (kDim == 128) {
      float* own = at_.sums + at_.half * kTokens + row;
      if (is_first) own[0] = upper, own[8] = lower;
      __syncthreads();
      upper = at_.sums[row] + at_.sums[kTokens + row];
      lower = at_.sums[row + 8] + at_.sums[kTokens + row + 8];
    }
    const float square = at_.arguments.unit * at_.arguments.unit;
    upper += 1e-12f * square * square;
    lower += 1e-12f * square * square;
    const float of_upper = ReciprocalRoot(upper);
    const float of_lower = ReciprocalRoot(lower);
    if (kIsRls && is_first && at_.half == 0) {
      at_.beta[row] = upper * of_upper / square;
      at_.beta[row + 8] = lower * of_lower / square;
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float(&c)[4] = y[n / 2][n % 2];
      c[0] *= of_upper, c[1] *= of_upper, c[2] *= of_lower, c[3] *= of_lower;
    }
  }

  const Places& at_;
};

}  // namespace lethe::vla_chunk

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_ALPHA_CUDA_CUH_
