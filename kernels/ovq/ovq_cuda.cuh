// Device code that OVQ's CUDA kernels share: sequences and rows, operands of the matrix unit, the
// softmax of a read. That every read goes through the same functions in the same order makes its
// bits independent of the kernel that computes it.
#ifndef LETHE_KERNELS_OVQ_OVQ_CUDA_CUH_
#define LETHE_KERNELS_OVQ_OVQ_CUDA_CUH_

#include <cstdint>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/ovq/ovq_cuda.h"

namespace lethe::ovq {

constexpr float kLog2E = 1.44269504088896341f;

// A warp's lane in the matrix unit's layout: rows g and g + 8, columns 2t and 2t + 1.
struct Lane {
  int index, g, t;
};
__device__ inline Lane ThisLane() {
  const int index = static_cast<int>(threadIdx.x) & 31;
  return {index, index >> 2, index & 3};
}

// OvqNumSlots, at least 1 after the first chunk. A double's quotient is off by one at most.
__device__ inline int NumFilled(int max_slots, int64_t num_tokens) {
  if (num_tokens == 0) return 0;
  const int64_t numerator = max_slots * num_tokens;
  const int64_t denominator = max_slots + num_tokens;
  auto filled = static_cast<int64_t>(
      __ddiv_rn(static_cast<double>(numerator), static_cast<double>(denominator)));
  if (filled * denominator > numerator) --filled;
  if ((filled + 1) * denominator <= numerator) ++filled;
  return filled > 1 ? static_cast<int>(filled) : 1;
}

// One sequence of the call. Its tokens are counted from the first pending one: `pending` that the
// state holds, then `length` of the call.
struct Sequence {
  int64_t state;
  int64_t base;  // tokens merged before the call
  int first;     // its row in the call's arrays
  int length;
  int pending;
  int num_merges;
  int num_chunks;  // the last one may be incomplete
};

__device__ inline Sequence GetSequence(const OvqKernelArgs& args, int index) {
  Sequence sequence;
  const int64_t before = args.inputs.num_tokens_before[index];
  sequence.state = args.inputs.states[index];
  sequence.first = args.inputs.offsets[index];
  sequence.length = args.inputs.offsets[index + 1] - sequence.first;
  sequence.pending = static_cast<int>(before % args.chunk_tokens);
  sequence.base = before - sequence.pending;
  const int size = sequence.pending + sequence.length;
  sequence.num_merges = size / args.chunk_tokens;
  sequence.num_chunks = (size + args.chunk_tokens - 1) / args.chunk_tokens;
  return sequence;
}

// Slots in use at the start of a chunk.
__device__ inline int FilledBefore(const OvqKernelArgs& args, const Sequence& sequence, int chunk) {
  return NumFilled(args.max_slots, sequence.base + static_cast<int64_t>(chunk) * args.chunk_tokens);
}

__device__ inline const float* KeyRow(const OvqKernelArgs& args, const Sequence& sequence, int head,
                                      int token) {
  if (token < sequence.pending) {
    return args.states.pending_keys +
           ((sequence.state * args.num_heads + head) * args.chunk_tokens + token) * args.key_dim;
  }
  const int64_t row = sequence.first + token - sequence.pending;
  return args.inputs.k + (row * args.num_heads + head) * args.key_dim;
}
__device__ inline const float* ValueRow(const OvqKernelArgs& args, const Sequence& sequence,
                                        int head, int token) {
  if (token < sequence.pending) {
    return args.states.pending_values +
           ((sequence.state * args.num_heads + head) * args.chunk_tokens + token) * args.value_dim;
  }
  const int64_t row = sequence.first + token - sequence.pending;
  return args.inputs.v + (row * args.num_heads + head) * args.value_dim;
}

// The call's row of a token; null where the token is not one of the call.
__device__ inline const float* QueryRow(const OvqKernelArgs& args, const Sequence& sequence,
                                        int head, int token) {
  if (token < sequence.pending || token >= sequence.pending + sequence.length) return nullptr;
  const int64_t row = sequence.first + token - sequence.pending;
  return args.inputs.q + (row * args.num_heads + head) * args.key_dim;
}
__device__ inline float* OutRow(const OvqKernelArgs& args, const Sequence& sequence, int head,
                                int token) {
  if (token < sequence.pending || token >= sequence.pending + sequence.length) return nullptr;
  const int64_t row = sequence.first + token - sequence.pending;
  return args.out + (row * args.num_heads + head) * args.value_dim;
}

// The first row of a head of a sequence.
__device__ inline int64_t RowsOfChain(const OvqKernelArgs& args, int64_t chain) {
  return chain * (args.capacity + static_cast<int64_t>(args.segment_chunks) * args.chunk_tokens);
}

// Four elements of a row of `size`; zeros where there is no row or it has ended. kFull: size is D.
template <bool kFull>
__device__ inline float4 LoadRow(const float* row, int element, int size) {
  if (row == nullptr || (!kFull && element >= size)) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  return *reinterpret_cast<const float4*>(row + element);
}

__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float Log2(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline uint32_t SharedAddress(const void* address) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(address));
}
__device__ inline float Infinity() { return __int_as_float(0x7f800000); }

__device__ inline uint32_t PackHalves(float low, float high) {
  const __half2 packed = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&packed);
}

// c += a b for a [16][16] of halves, b [16][8].
__device__ inline void MmaHalf(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// c = a b + first.
__device__ inline void MmaHalf(float (&c)[4], float first, const uint32_t (&a)[4], uint32_t b0,
                               uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(first));
}

// Dot products take the 16 dimensions of a step in the order in which lane t's four elements
// 4t .. 4t + 3 are its operands (2t, 2t + 1) and (2t + 8, 2t + 9): one 16-byte load a step from
// f32. Rows that the reads see are in that order: of `dim`, a multiple of 4, and the next three
// elements two stand at KeyPosition and two 8 behind.
__host__ __device__ constexpr int KeyPosition(int dim) { return (dim & ~15) + ((dim & 15) >> 1); }
// A merge's rows hold two steps, 32 dimensions, as four 16-byte pieces, piece t the two steps'
// operands of lane t. PermutedHalf: where element `dim` (a multiple of 4) stands.
__host__ __device__ constexpr int PermutedHalf(int dim) {
  return (dim & ~31) + ((dim >> 2) & 3) * 8 + ((dim >> 4) & 1) * 4;
}
// A piece's place in shared memory, in halves: rows of odd index swap neighbouring groups of four
// pieces, so that the eight lanes of a phase (two rows) touch all banks.
template <int kDim>
__device__ inline int SharedKey(int row, int piece) {
  return row * kDim + ((piece ^ ((row & 1) << 2)) << 3);
}
// The same for a lane that walks down the rows 8 at a time: its operands of 8 slots' keys. The
// first row is a multiple of 8.
template <int kDim>
struct KeyLane {
  const uint16_t* pieces[2];  // of even and odd pairs of steps

  __device__ KeyLane(const uint16_t* keys, int first, const Lane& lane) {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      pieces[odd] = keys + (first + lane.g) * kDim + (((odd ^ (lane.g & 1)) * 4 + lane.t) << 3);
    }
  }
  __device__ uint4 Load(int n, int pair) const {
    return *reinterpret_cast<const uint4*>(pieces[pair & 1] + 8 * n * kDim + (pair & ~1) * 32);
  }
};
// Brings lines `first`, first + step, … of a row nearer ahead of their use, as far as the second
// cache. A line costs as much as a load.
__device__ inline void PrefetchLines(const float* row, int size, int first, int step) {
  for (int element = 32 * first; element < size; element += 32 * step) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(row + element) : "memory");
  }
}

// Eight halves of a key row, in PermutedHalf's order, from its f32.
template <bool kFull>
__device__ inline uint4 KeyPiece(const float* row, int piece, int size) {
  const int dim = (piece >> 2) * 32 + (piece & 3) * 4;
  const float4 x = LoadRow<kFull>(row, dim, size);
  const float4 y = LoadRow<kFull>(row, dim + 16, size);
  return make_uint4(PackHalves(x.x, x.y), PackHalves(x.z, x.w), PackHalves(y.x, y.y),
                    PackHalves(y.z, y.w));
}
// Rows g and g + 8 of a [16][kDim] operand; null rows are zero.
template <int kDim, bool kFull>
__device__ inline void LoadOperand(const float* row0, const float* row1, int size, int t,
                                   uint32_t (&a)[kDim / 16][4]) {
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    const float4 x = LoadRow<kFull>(row0, 16 * step + 4 * t, size);
    const float4 y = LoadRow<kFull>(row1, 16 * step + 4 * t, size);
    a[step][0] = PackHalves(x.x, x.y);
    a[step][1] = PackHalves(y.x, y.y);
    a[step][2] = PackHalves(x.z, x.w);
    a[step][3] = PackHalves(y.z, y.w);
  }
}

// Slots of a tile: the softmax rescales once a tile. A part of a read is a softmax of its own.
template <int kDim>
constexpr int kPartSlots = kOvqPartElements / kDim;
template <int kDim>
constexpr int kTileSlots = kPartSlots<kDim> / 2;

// A read begins with its chunk's own tokens; the parts of the slots join it in order.
struct JoinScale {
  float largest, before, part;
};
__device__ inline JoinScale ScaleJoin(float largest_before, float largest_part) {
  const float largest = fmaxf(largest_before, largest_part);
  return {largest, Exp2(largest_before - largest), Exp2(largest_part - largest)};
}
__device__ inline float Join(const JoinScale& scale, float before, float part) {
  return fmaf(scale.part, part, scale.before * before);
}

template <int kColumns>
__device__ inline void SetZero(float (&x)[kColumns][4]) {
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) x[n][e] = 0.0f;
  }
}

// The read of 16 tokens over some slots: per lane rows g and g + 8. Column 2t of out[n] is in
// [n][0] for row g and in [n][2] for row g + 8, column 2t + 1 in [n][1] and [n][3]; which element a
// column is, the user's value operand says.
template <int kDim>
struct Reads {
  float largest[2];
  float weights[2];  // this lane's share of the sum until Finish
  float out[kDim / 8][4];

  __device__ void Clear() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      largest[r] = -Infinity();
      weights[r] = 0.0f;
    }
    SetZero(out);
  }

  // Turns a tile's logits (base 2) into weights; at least one of each row is finite, or an earlier
  // tile's was. kRows = 1 leaves rows g + 8 out. kFirst: nothing is set yet; `out` is the caller's.
  template <int kTiles, int kRows, bool kFirst = false>
  __device__ void Softmax(float (&logits)[kTiles][4]) {
    float scale[kRows];
    bool is_scaled = false;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float top = kFirst ? -Infinity() : largest[r];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        top = fmaxf(top, fmaxf(logits[n][2 * r], logits[n][2 * r + 1]));
      }
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      if constexpr (kFirst) {
        weights[r] = 0.0f;
      } else {
        scale[r] = Exp2(largest[r] - top);
        is_scaled |= scale[r] != 1.0f;
        weights[r] *= scale[r];
      }
      largest[r] = top;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          logits[n][e] = Exp2(logits[n][e] - top);
          weights[r] += logits[n][e];
        }
      }
    }
    if constexpr (!kFirst) {
      if (!__any_sync(0xffffffffu, is_scaled)) return;  // a factor of 1 changes no bit
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2 * kRows; ++e) out[n][e] *= scale[e >> 1];
      }
    }
  }

  __device__ void Finish() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      weights[r] += __shfl_xor_sync(0xffffffffu, weights[r], 1);
      weights[r] += __shfl_xor_sync(0xffffffffu, weights[r], 2);
    }
  }

  // Both are finished.
  __device__ void Join(const Reads& part) {
    JoinScale scale[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      scale[r] = ScaleJoin(largest[r], part.largest[r]);
      largest[r] = scale[r].largest;
      weights[r] = ovq::Join(scale[r], weights[r], part.weights[r]);
    }
    const bool is_scaled = scale[0].before != 1.0f || scale[1].before != 1.0f;
    if (__any_sync(0xffffffffu, is_scaled)) {
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) out[n][e] *= scale[e >> 1].before;
      }
    }
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        out[n][e] = fmaf(scale[e >> 1].part, part.out[n][e], out[n][e]);
      }
    }
  }
};

// Weights of 16 slots, two of the matrix unit's columns of 8, as its left operand.
__device__ inline void WeightOperand(const float (&first)[4], const float (&second)[4],
                                     uint32_t (&a)[4]) {
  a[0] = PackHalves(first[0], first[1]);
  a[1] = PackHalves(first[2], first[3]);
  a[2] = PackHalves(second[0], second[1]);
  a[3] = PackHalves(second[2], second[3]);
}

}  // namespace lethe::ovq

#endif  // LETHE_KERNELS_OVQ_OVQ_CUDA_CUH_
