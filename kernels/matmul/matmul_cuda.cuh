// Terms of weights and activations, and their products on the tensor cores; device code shared by the
// two families of product kernels, which therefore give the same bits.
//
// Equation:  a number v is t_0 + t_1 + …, t_i the BF16 number nearest to what is left; a product keeps
//            the t_i u_j with i + j below the larger number of terms, smallest first.
// Shapes:    fragments of mma.m16n8k16 (PTX ISA 9.7.14): weights are its rows, tokens its columns;
//            which input stands where among the 16 is matmul_cuda.h's ElementOfLane.
// Numerics:  as in matmul_batch.h.
// Threads:   all 32 lanes of a warp.
#ifndef LETHE_KERNELS_MATMUL_MATMUL_CUDA_CUH_
#define LETHE_KERNELS_MATMUL_MATMUL_CUDA_CUH_

#include <cstdint>

#include "kernels/matmul/matmul_cuda.h"

namespace lethe::matmul {

// The numbers of a pair that is rounded to BF16, low half first, and what rounding left.
__device__ __forceinline__ uint32_t TakeTerm(float2* pair) {
  uint32_t term;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(term) : "f"(pair->y), "f"(pair->x));
  pair->x -= __uint_as_float(term << 16);
  pair->y -= __uint_as_float(term & 0xffff0000u);
  return term;
}

// Four weights: registers `half` and `half + 1` of the operand.
struct Bf16Weights {
  static constexpr int kTerms = 1;
  static constexpr int kLoads = 1;  // of 16 bytes a lane, for a block

  static __device__ __forceinline__ void Split(const uint4 (&loaded)[1], uint32_t (&a)[1][4]) {
    a[0][0] = loaded[0].x;
    a[0][1] = loaded[0].y;
    a[0][2] = loaded[0].z;
    a[0][3] = loaded[0].w;
  }
};

struct F32Weights {
  static constexpr int kTerms = 3;
  static constexpr int kLoads = 2;

  static __device__ __forceinline__ void Split(const uint4 (&loaded)[2], uint32_t (&a)[3][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float2 low = {__uint_as_float(loaded[half].x), __uint_as_float(loaded[half].y)};
      float2 high = {__uint_as_float(loaded[half].z), __uint_as_float(loaded[half].w)};
#pragma unroll
      for (int term = 0; term < 3; ++term) {
        a[term][2 * half] = TakeTerm(&low);
        a[term][2 * half + 1] = TakeTerm(&high);
      }
    }
  }
};

template <int kTerms>
__device__ __forceinline__ void SplitActivations(float4 x, uint32_t (&b)[kTerms][2]) {
  float2 low = {x.x, x.y};
  float2 high = {x.z, x.w};
#pragma unroll
  for (int term = 0; term < kTerms; ++term) {
    b[term][0] = TakeTerm(&low);
    b[term][1] = TakeTerm(&high);
  }
}

__device__ __forceinline__ void Mma(const uint32_t (&a)[4], const uint32_t (&b)[2],
                                    float (&sum)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// One step of kStepInputs for kRowTiles tiles of 8 rows. The tiles' sums are independent, so they take
// turns: a sum waits for its own last product only.
template <int kWeightTerms, int kTerms, int kRowTiles>
__device__ __forceinline__ void MultiplyStep(const uint32_t (&a)[kWeightTerms][4],
                                             const uint32_t (&b)[kRowTiles][kTerms][2],
                                             float (&sums)[kRowTiles][4]) {
  constexpr int kOrders = kTerms > kWeightTerms ? kTerms : kWeightTerms;
#pragma unroll
  for (int order = kOrders - 1; order >= 0; --order) {
#pragma unroll
    for (int i = 0; i <= order; ++i) {
      if (i >= kWeightTerms || order - i >= kTerms) continue;
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) Mma(a[i], b[tile][order - i], sums[tile]);
    }
  }
}

// Where a lane's four sums of a 16 x 8 tile belong.
__device__ __forceinline__ int OutputOfSum(int lane, int i) { return lane / 4 + 8 * (i / 2); }
__device__ __forceinline__ int RowOfSum(int lane, int i) { return 2 * (lane % 4) + i % 2; }

// x[row][input … input + 3], zeros outside.
__device__ __forceinline__ float4 LoadActivations(const CudaProblem& p, bool in_fours, int64_t row,
                                                  int input) {
  float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
  if (row >= p.num_rows || input >= p.num_inputs) return x;
  const float* from = p.x + row * p.num_inputs + input;
  if (in_fours) return __ldg(reinterpret_cast<const float4*>(from));
  const int count = p.num_inputs - input;
  x.x = from[0];
  if (count > 1) x.y = from[1];
  if (count > 2) x.z = from[2];
  if (count > 3) x.w = from[3];
  return x;
}

// Whether rows can be read 16 bytes at a time.
inline bool InFours(const CudaProblem& p) {
  return p.num_inputs % 4 == 0 && reinterpret_cast<uintptr_t>(p.x) % sizeof(float4) == 0;
}

}  // namespace lethe::matmul

#endif  // LETHE_KERNELS_MATMUL_MATMUL_CUDA_CUH_
