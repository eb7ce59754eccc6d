// What VlaFold's kernels do to one token beside the products with A and S: its place in shared memory
// and the work of a single warp. Shared by both kernels, so that their bits are equal.
#ifndef LETHE_KERNELS_VLA_VLA_FOLD_TOKEN_CUDA_CUH_
#define LETHE_KERNELS_VLA_VLA_FOLD_TOKEN_CUDA_CUH_

#include <cstdint>

#include "kernels/vla/vla_fold_cuda.h"

namespace lethe::vla_fold {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kTileRows = 16;
constexpr int kLaneRows = 4;
constexpr int kParts = 16;  // sums that a block's dot product with u is joined from

struct FoldArgs {
  VlaBatch batch;
  int num_heads;
  int key_dim;
  int value_dim;
  bool is_rls;
  bool nudge;
};

inline FoldArgs MakeFoldArgs(const VlaOptions& options, const VlaBatch& batch) {
  return {batch,
          static_cast<int>(options.num_heads),
          static_cast<int>(options.key_dim),
          static_cast<int>(options.value_dim),
          options.variant == VlaVariant::kRls,
          options.nudge};
}

inline int NumTiles(int rows) { return (rows + kTileRows - 1) / kTileRows; }

// What one token brings and what is made of it, in shared memory. Vectors of the key dimension, then
// the parts of u.z and u.y, the divisor of kPaper, and vectors of the value dimension.
template <int kKey>
struct Token {
  static constexpr int kValueOffset = 6 * kKey + 2 * kParts + 4;
  static __host__ __device__ constexpr int Floats(int padded_value_dim) {
    return kValueOffset + 2 * padded_value_dim;
  }
  __device__ float* k() const { return data; }  // k^
  __device__ float* u() const { return data + kKey; }
  __device__ float* q() const { return data + 2 * kKey; }
  __device__ float* z() const { return data + 3 * kKey; }
  __device__ float* y() const { return data + 4 * kKey; }
  __device__ float* alpha() const { return data + 5 * kKey; }
  __device__ float* parts() const { return data + 6 * kKey; }
  __device__ float* divisor() const { return parts() + 2 * kParts; }
  __device__ float* v() const { return data + kValueOffset; }
  __device__ float* read() const { return v() + padded_value_dim; }

  float* data;
  int padded_value_dim;
};

// 1 / sqrt(x) to about one ulp; NaN for infinite x, so that what overflowed shows.
__device__ inline float InverseRoot(float x) {
  float root;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root * __fmaf_rn(-0.5f * x * root, root, 1.5f);
}

// Each of kCount sums over the lanes.
template <int kCount>
__device__ inline void WarpSums(float (&x)[kCount]) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) x[n] += __shfl_xor_sync(kAllLanes, x[n], mask);
  }
}

__device__ inline float Element(const float4& x, int i) {
  return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

__device__ inline const float4* Vectors(const float* x) {
  return reinterpret_cast<const float4*>(x);
}

// Starts copying four floats into shared memory, or zeros there.
__device__ inline void Copy16(const float* from, bool is_there, float* to) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(is_there ? 16 : 0)
               : "memory");
}

__device__ inline float JoinParts(const float* parts) {
  float4 x[kParts / 4];
  float sums[kParts / 4];
#pragma unroll
  for (int i = 0; i < kParts / 4; ++i) x[i] = Vectors(parts)[i];
#pragma unroll
  for (int i = 0; i < kParts / 4; ++i) sums[i] = (x[i].x + x[i].y) + (x[i].z + x[i].w);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// 1 / sqrt(max(1 + u.z, minimum)).
template <int kKey>
__device__ inline float Scale(const Token<kKey>& token, bool* is_clamped) {
  const float denominator = 1.0f + JoinParts(token.parts());
  constexpr auto kMin = static_cast<float>(kVlaDenominatorMin);
  *is_clamped = denominator < kMin;  // no for NaN, which stays
  return InverseRoot(*is_clamped ? kMin : denominator);
}

// One warp's work on kCount tokens at once, so that their shuffles overlap. ------------------------

// A lane's elements of a vector of kPadded elements: kPadded / 32 from lane * kPadded / 32 on.
template <int kPadded>
struct alignas(kPadded / kWarp * sizeof(float)) Slice {
  static constexpr int kSize = kPadded / kWarp;
  float x[kSize];
};

template <int kPadded>
__device__ inline Slice<kPadded> LoadSlice(const float* x, int size, int lane) {
  if (lane * Slice<kPadded>::kSize >= size) return {};  // sizes are multiples of eight
  return reinterpret_cast<const Slice<kPadded>*>(x)[lane];
}

template <int kPadded>
__device__ inline void StoreSlice(const Slice<kPadded>& slice, int size, int lane, float* x) {
  if (lane * Slice<kPadded>::kSize < size) reinterpret_cast<Slice<kPadded>*>(x)[lane] = slice;
}

template <int kPadded>
__device__ inline float SumProducts(const Slice<kPadded>& x, const Slice<kPadded>& y) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < Slice<kPadded>::kSize; ++i) sum = __fmaf_rn(x.x[i], y.x[i], sum);
  return sum;
}

template <int kPadded>
__device__ inline void ScaleSlice(float scale, Slice<kPadded>& slice) {
#pragma unroll
  for (int i = 0; i < Slice<kPadded>::kSize; ++i) slice.x[i] *= scale;
}

template <int kPadded, int kCount>
__device__ inline void L2Normalize(Slice<kPadded> (&slices)[kCount]) {
  float sums[kCount];
#pragma unroll
  for (int n = 0; n < kCount; ++n) sums[n] = SumProducts(slices[n], slices[n]);
  WarpSums(sums);
#pragma unroll
  for (int n = 0; n < kCount; ++n) ScaleSlice(InverseRoot(sums[n] + 1e-12f), slices[n]);
}

// Copies inputs of tokens into token.k, u, q, v, 16 bytes a lane at a time; zeros where a dimension
// ends or there is no such input.
template <int kKey>
class InputCopier {
 public:
  __device__ InputCopier(const FoldArgs& args, int padded_value_dim, int lane) {
    const VlaBatch& batch = args.batch;
#pragma unroll
    for (int n = 0; n < kPerLane; ++n) {
      const int index = 4 * (lane + kWarp * n);
      const bool is_key = index < 3 * kKey;  // k, u, q lie together
      const int j = is_key ? index % kKey : index - 3 * kKey;
      const float* from = batch.v;
      if (is_key)
        from = index < kKey ? batch.k : index < 2 * kKey ? batch.write_direction : batch.q;
      const int dim = is_key ? args.key_dim : args.value_dim;
      const bool is_there = from != nullptr && j < dim;
      from_[n] = is_there ? from + j : batch.k;
      row_size_[n] = is_there ? dim : 0;
      to_[n] = is_key ? index : j < padded_value_dim ? Token<kKey>::kValueOffset + j : -1;
    }
  }

  // Starts the copy of the token and head at `row` of [N][H].
  __device__ void Start(int64_t row, const Token<kKey>& token) const {
#pragma unroll
    for (int n = 0; n < kPerLane; ++n) {
      if (to_[n] >= 0) Copy16(from_[n] + row * row_size_[n], row_size_[n] > 0, token.data + to_[n]);
    }
  }

 private:
  static constexpr int kPerLane = (3 * kKey + static_cast<int>(kVlaFoldMaxDim) + 127) / 128;

  const float* from_[kPerLane];
  int row_size_[kPerLane];  // 0: zeros
  int to_[kPerLane];        // in the token; -1: nothing
};

// Once their inputs are there: k^, u of kRls; for kPaper, adds the keys of the first num_valid tokens
// to key_sum (null: kRms) and fills the divisors.
template <int kKey, int kCount>
__device__ inline void FinishInputs(const Token<kKey> (&tokens)[kCount], bool is_rls, int num_valid,
                                    int lane, Slice<kKey>* key_sum) {
  Slice<kKey> k[kCount];
#pragma unroll
  for (int n = 0; n < kCount; ++n) k[n] = LoadSlice<kKey>(tokens[n].k(), kKey, lane);
  if (key_sum != nullptr) {
    float divisors[kCount];
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
#pragma unroll
      for (int i = 0; i < Slice<kKey>::kSize; ++i) {
        if (n < num_valid) key_sum->x[i] += k[n].x[i];
      }
      divisors[n] = SumProducts(*key_sum, LoadSlice<kKey>(tokens[n].q(), kKey, lane));
    }
    WarpSums(divisors);
    constexpr auto kMin = static_cast<float>(kVlaDenominatorMin);
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      if (lane == 0) *tokens[n].divisor() = divisors[n] < kMin ? kMin : divisors[n];
    }
  }
  L2Normalize(k);
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    StoreSlice(k[n], kKey, lane, tokens[n].k());
    if (is_rls) StoreSlice(k[n], kKey, lane, tokens[n].u());
  }
}

// Fills alpha from z, y and the parts.
template <int kKey, int kCount>
__device__ inline void PublishAlpha(const Token<kKey> (&tokens)[kCount], bool is_rls,
                                    const bool (&nudges)[kCount], int lane) {
  Slice<kKey> alpha[kCount];
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    const auto z = LoadSlice<kKey>(tokens[n].z(), kKey, lane);
    const auto k = LoadSlice<kKey>(tokens[n].k(), kKey, lane);
    const auto y = LoadSlice<kKey>(tokens[n].y(), kKey, lane);
    bool is_clamped;
    const float scale = Scale(tokens[n], &is_clamped);
    const float dot = JoinParts(tokens[n].parts() + kParts) * scale;
    const float nudge = nudges[n] ? static_cast<float>(kVlaNudge) : 0.0f;
#pragma unroll
    for (int i = 0; i < Slice<kKey>::kSize; ++i) {
      const float w = z.x[i] * scale;
      // For kRls y = z and u.y = u.z = c - 1: in closed form nothing cancels.
      const float updated = is_rls && !is_clamped ? w * scale : __fmaf_rn(-w, dot, y.x[i]);
      alpha[n].x[i] = __fmaf_rn(nudge, k.x[i], updated);
    }
  }
  if (!is_rls) L2Normalize(alpha);
#pragma unroll
  for (int n = 0; n < kCount; ++n) StoreSlice(alpha[n], kKey, lane, tokens[n].alpha());
}

// Writes the normalised reads of the first num_valid tokens to outs [V].
template <int kKey, int kCount>
__device__ inline void FinishReads(const Token<kKey> (&tokens)[kCount],
                                   float* const (&outs)[kCount], int num_valid, int value_dim,
                                   bool has_key_sum, int lane) {
  constexpr int kMaxDim = static_cast<int>(kVlaFoldMaxDim);
  Slice<kMaxDim> reads[kCount];
  float scales[kCount];
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    reads[n] = LoadSlice<kMaxDim>(tokens[n].read(), value_dim, lane);
    scales[n] = SumProducts(reads[n], reads[n]);
  }
  WarpSums(scales);
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    const float mean = __fdiv_rn(scales[n], static_cast<float>(value_dim));
    const float scale = has_key_sum ? __frcp_rn(*tokens[n].divisor())
                                    : InverseRoot(mean + static_cast<float>(kVlaReadEpsilon));
    ScaleSlice(scale, reads[n]);
    if (n < num_valid) StoreSlice(reads[n], value_dim, lane, outs[n]);
  }
}

}  // namespace lethe::vla_fold

#endif  // LETHE_KERNELS_VLA_VLA_FOLD_TOKEN_CUDA_CUH_
