// VlaChunk's stage keys: all of a chunk that does not depend on S, from L^-1 of its beginning.
//
// A block of D / 16 warps per chunk and head; matrices of 64 x D pass from product to product through
// shared memory in f16.
#include <cmath>

#include "kernels/base/early_launch_cuda.cuh"
#include "kernels/base/queue.h"
#include "kernels/vla/vla_chunk_alpha_cuda.cuh"
#include "kernels/vla/vla_chunk_cuda.h"

namespace lethe {
namespace {

using namespace vla_chunk;  // NOLINT(google-build-using-namespace): the kernels' vocabulary

// What follows from alpha.
template <int kDim, bool kIsRls>
class Transition {
 public:
  using Places = KeysPlaces<kDim, kIsRls>;
  using Matrix = typename Places::Matrix;
  static constexpr int kBlocks = Places::kBlocks;
  static constexpr int kWarps = Places::kWarps;

  explicit __device__ __forceinline__ Transition(const Places& places) : at_(places) {}

  // T K^ and T V in place of K^ and in shared memory, by forward substitution; a warp has 16 columns of
  // each.
  __device__ __forceinline__ void Mix() {
    Block v[4];
    const float* values = at_.arguments.v + at_.rows + at_.warp * kTile;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      ForEachPairOfBlock(i * kTile, 0, v[i], [&](int row, int column, float& x, float& y) {
        const float2 pair =
            *reinterpret_cast<const float2*>(values + row * at_.arguments.token_stride + column);
        x = pair.x;
        y = pair.y;
      });
    }
    const TileBlocks<false> system{at_.region};
    MakeSystem(system);
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) largest = LargestOf(v[i], largest);
    const Scale scale = ScaleOf<8>(LargestOfWarp(largest));
    if (Lane() == 0) at_.value_scales[at_.warp] = scale.from;
    Right keys[4];
    Right mixed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Block k;
      at_.keys.LoadBlock(i * kTile, at_.warp * kTile, k);
      MultiplyBlock(scale.to, v[i]);
#pragma unroll
      for (int j = 0; j < i; ++j) {
        const Left a = system.LeftAt(LowerBlock(i, j));
        AddProduct(a, keys[j], k);
        AddProduct(a, mixed[j], v[i]);
      }
      const Left a = system.LeftAt(LowerBlock(i, i));
      Block x;
      Block y;
      ClearBlock(x);
      ClearBlock(y);
      AddProduct(a, RightOf<false>(k), x);
      AddProduct(a, RightOf<false>(v[i]), y);
      at_.keys.Store(i * kTile, at_.warp * kTile, x);
      at_.values.Store(i * kTile, at_.warp * kTile, y);
      keys[i] = RightOf<false>(x);
      mixed[i] = RightOf<false>(y);
    }
    __syncthreads();
  }

  // ((T K^)^T alpha)^T and ((T V)^T alpha)^T; a warp has 16 keys.
  __device__ __forceinline__ void Write() const {
    const Scale scale = BetaScale();
    Left a[4];
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      a[t] = at_.alpha.LeftOfColumns(at_.warp * kTile, t * kTile);
      if constexpr (kIsRls) ScaleTokens(t * kTile, scale.to, &a[t]);
    }
    const int64_t first = (at_.index * kBlocks + at_.warp) * kBlocks;
#pragma unroll 2
    for (int n = 0; n < kBlocks; ++n) {
      Block h;
      Block g;
      ClearBlock(h);
      ClearBlock(g);
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        AddProduct(a[t], at_.keys.OfColumns(t * kTile, n * kTile), h);
        AddProduct(a[t], at_.values.OfColumns(t * kTile, n * kTile), g);
      }
      WriteBlock(h, at_.arguments.transitions + (first + n) * 32);
      const Scale of_gain = ScaleOf<8>(LargestOfWarp(LargestOf(g)));
      MultiplyBlock(of_gain.to, g);
      WriteBlock(g, at_.arguments.gains + (first + n) * 32);
      if (Lane() == 0) {
        at_.arguments.gain_scales[first + n] =
            make_float2(scale.from, of_gain.from * at_.value_scales[n] * scale.from);
      }
    }
  }

  __device__ __forceinline__ void LoadQueries() {
    ChunkRows<kDim, kWarps> rows;
    rows.Load(at_.warp, at_.arguments.q + at_.rows, at_.arguments.token_stride);
    rows.template Store<RowScaling::kPower>(at_.warp, at_.queries, 1.0f, at_.query_scales);
  }

  // Q - P T K^ and P T V, P = lt(Q alpha^T).
  __device__ __forceinline__ void WriteQueries() const {
    const Matrix& queries = at_.queries;
    const Scale scale = BetaScale();
    Left p[4];
    {
      Block c[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) ClearBlock(c[j]);
#pragma unroll
      for (int k = 0; k < kBlocks; ++k) {
        const Left a = queries.LeftAt(at_.row, k * kTile);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (j <= at_.strip) AddProduct(a, at_.alpha.OfRows(j * kTile, k * kTile), c[j]);
        }
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        ForEachPairOfBlock(
            at_.row, j * kTile, c[j], [&](int i, int s, float& first, float& second) {
              first = s > i ? 0.0f : first * (kIsRls ? at_.beta[s] * scale.to : 1.0f);
              second = s + 1 > i ? 0.0f : second * (kIsRls ? at_.beta[s + 1] * scale.to : 1.0f);
            });
        p[j] = HalfBlock(c[j]);
      }
    }
#pragma unroll
    for (int n = 4 * at_.half; n < 4 * at_.half + 4; ++n) {
      Block keys;
      Block values;
      ClearBlock(keys);
      ClearBlock(values);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j > at_.strip) continue;
        AddProduct(p[j], at_.keys.OfColumns(j * kTile, n * kTile), keys);
        AddProduct(p[j], at_.values.OfColumns(j * kTile, n * kTile), values);
      }
      Block q;
      queries.LoadBlock(at_.row, n * kTile, q);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        q[e / 4][e % 4] = __fmaf_rn(-scale.from, keys[e / 4][e % 4], q[e / 4][e % 4]);
      }
      const int64_t block = (at_.index * 4 + at_.strip) * kBlocks + n;
      WriteBlock(q, at_.arguments.queries + block * 32);
      const Scale of_read = ScaleOf<8>(LargestOfWarp(LargestOf(values)));
      MultiplyBlock(of_read.to, values);
      WriteBlock(values, at_.arguments.reads + block * 32);
      if (Lane() == 0) {
        at_.arguments.read_scales[block] = of_read.from * at_.value_scales[n] * scale.from;
      }
    }
    if (threadIdx.x < kTokens) {
      at_.arguments.query_scales[at_.index * kTokens + threadIdx.x] = at_.query_scales[threadIdx.x];
    }
  }

 private:
  __device__ __forceinline__ void WriteBlock(const Block& c, uint4* to) const {
    const Left x = HalfBlock(c);
    to[Lane()] = make_uint4(x.r[0], x.r[1], x.r[2], x.r[3]);
  }

  // For each block of 16 tokens: (I + slt(K^ alpha^T) diag(beta)) inverted on the diagonal, times -1
  // below it.
  __device__ __forceinline__ void MakeSystem(const TileBlocks<false>& system) const {
    float* diagonals = reinterpret_cast<float*>(at_.values.high);
#pragma unroll
    for (int n = 0; n < kOwnBlocks<4, kWarps>; ++n) {
      int i;
      int j;
      BlockOf(at_.warp + kWarps * n, &i, &j);
      if (i >= 4) continue;
      Block c;
      ClearBlock(c);
#pragma unroll
      for (int k = 0; k < kBlocks; ++k) {
        AddProduct(at_.keys.LeftAt(i * kTile, k * kTile), at_.alpha.OfRows(j * kTile, k * kTile),
                   c);
      }
      if constexpr (kIsRls) {
        ForEachPairOfBlock(i * kTile, j * kTile, c, [&](int, int s, float& x, float& y) {
          x *= at_.beta[s];
          y *= at_.beta[s + 1];
        });
      }
      if (i == j) {
        StoreAccumulator(diagonals + i * kBlockFloats, kBlockStride, c);
      } else {
        MultiplyBlock(-1.0f, c);
        system.Store(LowerBlock(i, j), c);
      }
    }
    __syncthreads();
    if (at_.warp < 4) {
      InvertUnitDiagonal(diagonals + at_.warp * kBlockFloats);
      Block c;
      LoadAccumulator(diagonals + at_.warp * kBlockFloats, kBlockStride, c);
      system.Store(LowerBlock(at_.warp, at_.warp), c);
    }
    __syncthreads();
  }

  // Of the largest beta; 1 for kVla.
  __device__ __forceinline__ Scale BetaScale() const {
    if constexpr (kIsRls) {
      const uint32_t largest = max(Magnitude(at_.beta[Lane()]), Magnitude(at_.beta[Lane() + 32]));
      return ScaleOf<0>(LargestOfWarp(largest));
    } else {
      return {1.0f, 1.0f};
    }
  }

  // A left operand's columns (tokens token …) times beta and `by`.
  __device__ __forceinline__ void ScaleTokens(int token, float by, Left* x) const {
    const float* beta = at_.beta + token + 2 * (Lane() & 3);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = UnpackHalf(x->r[i]);
      const float* own = beta + (i >> 1) * 8;
      x->r[i] = PackHalf(pair.x * (own[0] * by), pair.y * (own[1] * by));
    }
  }

  const Places& at_;
};

template <int kDim, bool kIsRls, int kResident>
__global__ void __launch_bounds__(KeysLayout<kDim, kIsRls>::kWarps * 32, kResident)
    KeysKernel(const KeysArguments arguments) {
  extern __shared__ __align__(16) uint32_t shared_words[];
  cuda::WaitForEarlierKernels();
  const KeysPlaces<kDim, kIsRls> places(arguments, shared_words);
  Alpha<kDim, kIsRls> alpha(places);
  alpha.LoadInputs();
  alpha.Make();
  Transition<kDim, kIsRls> transition(places);
  transition.Mix();
  if (arguments.q != nullptr) transition.LoadQueries();
  transition.Write();
  if (arguments.q == nullptr) return;
  __syncthreads();
  transition.WriteQueries();
}

// 2^e with 4^e about 1 / x: CholeskyInverse's scale for the largest diagonal element that G should have.
float GramScale(double x) { return static_cast<float>(std::ldexp(1.0, -(std::ilogb(x) >> 1))); }

template <int kDim, bool kIsRls, int kResident>
void Launch(Queue* queue, const VlaChunkSegment& segment, const KeysArguments& arguments) {
  using Layout = KeysLayout<kDim, kIsRls>;
  const auto kernel = KeysKernel<kDim, kIsRls, kResident>;
  // An error shows in the launch that follows.
  static_cast<void>(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Layout::kBytes));
  cuda::LaunchEarly(queue, kernel, segment.num_chunks * segment.options.num_heads,
                    Layout::kWarps * 32, Layout::kBytes, arguments);
}

}  // namespace

absl::Status VlaChunkKeys(Queue* queue, const VlaChunkSegment& segment) {
  const VlaOptions& options = segment.options;
  const VlaChunkBatch& batch = segment.batch;
  const VlaChunkWork& work = segment.work;
  const bool is_rls = options.variant == VlaVariant::kRls;
  const int64_t stride = options.num_heads * options.key_dim;
  const int64_t first = segment.chunk_begin * kVlaChunkTokens * stride;
  const bool has_reads = batch.out != nullptr;
  const KeysArguments arguments{has_reads ? batch.q + first : nullptr,
                                batch.k + first,
                                batch.v + first,
                                is_rls ? nullptr : batch.write_direction + first,
                                stride,
                                static_cast<int>(options.num_heads),
                                work.gram,
                                VlaChunkInverseUnit(options.lambda0),
                                GramScale(1.0 + 1.0 / options.lambda0),
                                reinterpret_cast<uint4*>(work.transitions),
                                reinterpret_cast<uint4*>(work.gains),
                                reinterpret_cast<float2*>(work.gain_scales),
                                reinterpret_cast<uint4*>(work.queries),
                                work.query_scales,
                                reinterpret_cast<uint4*>(work.reads),
                                work.read_scales};
  if (!is_rls && queue->compute_capability() == 90) {
    VlaChunkLaunchKeysSm90(queue, segment.num_chunks * options.num_heads, options.key_dim,
                           arguments);
    return queue->LaunchStatus("vla chunk keys by warpgroups");
  }
  // Blocks a multiprocessor holds as measured best: one more costs more in spilled registers.
  if (options.key_dim == 64) {
    is_rls ? Launch<64, true, 4>(queue, segment, arguments)
           : Launch<64, false, 5>(queue, segment, arguments);
  } else {
    is_rls ? Launch<128, true, 2>(queue, segment, arguments)
           : Launch<128, false, 2>(queue, segment, arguments);
  }
  return queue->LaunchStatus("vla chunk keys");
}

}  // namespace lethe
