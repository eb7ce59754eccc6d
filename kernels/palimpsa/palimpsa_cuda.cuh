// Device code that the step and the prefill kernel share. Every state element and every read goes
// through these functions in one order, so that the two kernels have equal bits.
//
// A row of K columns lies across kLanes lanes (16 or 32) of a warp, kColumns (4 or 2) to a lane; a
// warp covers 32 / kLanes rows at once, and each thread holds kRows such rows. Lane l has columns
// kColumns g on, for its group g = l / (32 / kLanes): lanes that share columns are neighbours, so
// that a 16-byte load of theirs from shared memory is one access.
#ifndef LETHE_KERNELS_PALIMPSA_PALIMPSA_CUDA_CUH_
#define LETHE_KERNELS_PALIMPSA_PALIMPSA_CUDA_CUH_

#include <cstdint>

#include "kernels/palimpsa/palimpsa_batch.h"

namespace lethe::palimpsa_cuda {

constexpr int kWarpSize = 32;
constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;
constexpr unsigned kAllLanes = 0xffffffffu;

struct FoldArguments {
  PalimpsaBatch batch;
  int num_heads;
  int key_dim;
  int value_dim;
  int num_row_blocks;  // of a head
  float read_scale;
  // Sequences of other lengths are another launch's.
  int min_length;
  int max_length;
};

// What a block works on: rows first_row on of one head of one sequence.
struct BlockPlace {
  int64_t first_token;
  int length;
  int head;
  int first_row;
  int64_t state;  // index of the head's [V][K] in m and i_bar
};

__device__ inline BlockPlace PlaceOfBlock(const FoldArguments& arguments, int block_rows) {
  const unsigned row_blocks = static_cast<unsigned>(arguments.num_row_blocks);
  const unsigned heads = static_cast<unsigned>(arguments.num_heads);
  const unsigned head_index = blockIdx.x / row_blocks;
  const unsigned sequence = head_index / heads;
  BlockPlace place;
  place.head = static_cast<int>(head_index % heads);
  place.first_row = static_cast<int>(blockIdx.x % row_blocks) * block_rows;
  place.first_token = arguments.batch.offsets[sequence];
  place.length = static_cast<int>(arguments.batch.offsets[sequence + 1] - place.first_token);
  const int64_t slot = arguments.batch.slots[sequence];
  place.state = (slot * arguments.num_heads + place.head) * arguments.value_dim * arguments.key_dim;
  return place;
}

// kernels/math's Exp, operation by operation, for the same bits.
__device__ inline float RoundToInteger(float x) {
  constexpr float kShift = 0x1.8p23f;
  return __fadd_rn(__fadd_rn(x, kShift), -kShift);
}

__device__ inline float PowerOfTwo(float n) {
  return __uint_as_float(__float_as_uint(__fadd_rn(n, 0x1.8p23f + 127.0f)) << 23);
}

__device__ inline float Exp(float x) {
  const float clamped = fminf(fmaxf(x, -88.0f), 89.0f);
  const float n = RoundToInteger(__fmul_rn(clamped, 0x1.715476p+0f));
  float r = __fmaf_rn(-n, 0x1.62e4p-1f, clamped);
  r = __fmaf_rn(-n, 0x1.7f7d1cp-20f, r);
  float tail = 0x1.a124f2p-13f;
  tail = __fmaf_rn(tail, r, 0x1.6d4324p-10f);
  tail = __fmaf_rn(tail, r, 0x1.1110e0p-7f);
  tail = __fmaf_rn(tail, r, 0x1.5554eap-5f);
  tail = __fmaf_rn(tail, r, 0x1.555556p-3f);
  tail = __fmaf_rn(tail, r, 0x1.0p-1f);
  const float one_plus = __fadd_rn(__fmaf_rn(__fmul_rn(r, r), tail, r), 1.0f);
  const float n_half = RoundToInteger(__fmul_rn(n, 0.5f));
  const float y =
      __fmul_rn(__fmul_rn(one_plus, PowerOfTwo(n_half)), PowerOfTwo(__fadd_rn(n, -n_half)));
  const float flushed = y < 0x1.0p-126f ? 0.0f : y;
  return x != x ? x : flushed;
}

// 1 ulp for x >= 1, which I + 1 is; a result below the smallest normal number is 0.
__device__ inline float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <int kRows, int kColumns>
struct RowState {
  float m[kRows][kColumns];
  float i_bar[kRows][kColumns];
};

// kCount floats that are aligned to their size.
template <int kCount>
__device__ inline void LoadVector(const float* from, float (&to)[kCount]) {
  if constexpr (kCount == 4) {
    const float4 x = *reinterpret_cast<const float4*>(from);
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
  } else if constexpr (kCount == 2) {
    const float2 x = *reinterpret_cast<const float2*>(from);
    to[0] = x.x, to[1] = x.y;
  } else {
    static_assert(kCount == 1);
    to[0] = from[0];
  }
}

template <int kCount>
__device__ inline void StoreVector(const float (&from)[kCount], float* to) {
  if constexpr (kCount == 4) {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  } else {
    static_assert(kCount == 2);
    *reinterpret_cast<float2*>(to) = make_float2(from[0], from[1]);
  }
}

// One token into one row's elements of a lane; returns their share of the read, the sum of M / (I +
// 1) q: two columns in one fma chain, then pairs of columns joined.
template <bool kPrecision, bool kRead, int kColumns>
__device__ inline float FoldToken(float decay, float value, float precision,
                                  const float (&k)[kColumns], const float (&k_squared)[kColumns],
                                  const float (&q)[kColumns], float (&m)[kColumns],
                                  float (&i_bar)[kColumns]) {
  float pairs[kColumns / 2] = {};
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    m[j] = __fmaf_rn(value, k[j], __fmul_rn(decay, m[j]));
    float mean = m[j];
    if constexpr (kPrecision) {
      i_bar[j] = __fmaf_rn(precision, k_squared[j], __fmul_rn(decay, i_bar[j]));
      if constexpr (kRead) mean = __fmul_rn(mean, Reciprocal(__fadd_rn(i_bar[j], 1.0f)));
    }
    if constexpr (kRead) {
      float& pair = pairs[j / 2];
      pair = j % 2 == 0 ? __fmul_rn(mean, q[j]) : __fmaf_rn(mean, q[j], pair);
    }
  }
  return kColumns == 2 ? pairs[0] : __fadd_rn(pairs[0], pairs[kColumns / 2 - 1]);
}

// Adds each of kValues values across the kLanes lanes of a row, in the tree that joins group g with
// its neighbour g ^ 1, then with g ^ 2, and so on. Lanes share the work: of the values that it still
// has, each lane hands one half to its partner at every level; HasValue and ValueOfGroup say who has
// which in the end, in values[0]. An addition's operands may swap, nothing else may: a value has the
// same bits for any kValues, in any place, and for lanes of two columns as for lanes of four.
template <int kLanes, int kStride, int kCount, int kValues>
__device__ inline void SumLevels(int lane, float (&values)[kValues]) {
  if constexpr (kStride < kLanes) {
    constexpr int kMask = kStride * (kWarpSize / kLanes);
    constexpr int kHalf = kCount / 2;
    if constexpr (kCount > 1) {
      const bool is_upper = (lane & kMask) != 0;
#pragma unroll
      for (int n = 0; n < kHalf; ++n) {
        const float kept = is_upper ? values[n + kHalf] : values[n];
        const float given = is_upper ? values[n] : values[n + kHalf];
        values[n] = __fadd_rn(kept, __shfl_xor_sync(kAllLanes, given, kMask));
      }
    } else {
      values[0] = __fadd_rn(values[0], __shfl_xor_sync(kAllLanes, values[0], kMask));
    }
    SumLevels<kLanes, kStride * 2, (kCount > 1 ? kHalf : 1)>(lane, values);
  }
}

template <int kLanes, int kValues>
__device__ inline void SumAcrossLanes(int lane, float (&values)[kValues]) {
  static_assert(kValues <= kLanes);
  SumLevels<kLanes, 1, kValues>(lane, values);
}

template <int kValues>
__device__ inline bool HasValue(int group) {
  return group < kValues;
}

// The lowest bit of the group chose between halves, the next between quarters, and so on.
template <int kValues>
__device__ inline int ValueOfGroup(int group) {
  int value = 0;
#pragma unroll
  for (int bit = 1; bit < kValues; bit *= 2) value = value * 2 + ((group & bit) != 0 ? 1 : 0);
  return value;
}

template <int kRows, int kColumns, bool kPrecision>
__device__ inline void LoadState(const FoldArguments& arguments, const BlockPlace& place, int row,
                                 int row_step, int column, RowState<kRows, kColumns>* state) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row_r = row + r * row_step;
    const int64_t at = place.state + row_r * arguments.key_dim + column;
    if (row_r < arguments.value_dim && column < arguments.key_dim) {
      LoadVector(arguments.batch.m + at, state->m[r]);
      if constexpr (kPrecision) LoadVector(arguments.batch.i_bar + at, state->i_bar[r]);
    } else {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) state->m[r][j] = state->i_bar[r][j] = 0.0f;
    }
  }
}

template <int kRows, int kColumns, bool kPrecision>
__device__ inline void StoreState(const FoldArguments& arguments, const BlockPlace& place, int row,
                                  int row_step, int column,
                                  const RowState<kRows, kColumns>& state) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row_r = row + r * row_step;
    if (row_r >= arguments.value_dim || column >= arguments.key_dim) continue;
    const int64_t at = place.state + row_r * arguments.key_dim + column;
    StoreVector(state.m[r], arguments.batch.m + at);
    if constexpr (kPrecision) StoreVector(state.i_bar[r], arguments.batch.i_bar + at);
  }
}

absl::Status LaunchStep(Queue* queue, const FoldArguments& arguments);
// rows: of a thread, 1, 2 or 4; 0 chooses.
absl::Status LaunchPrefill(Queue* queue, const FoldArguments& arguments, int rows);

}  // namespace lethe::palimpsa_cuda

#endif  // LETHE_KERNELS_PALIMPSA_PALIMPSA_CUDA_CUH_
