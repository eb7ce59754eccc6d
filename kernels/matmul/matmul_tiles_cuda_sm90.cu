// Many rows on sm_90a: warpgroup products (wgmma), the weights from registers, the activations' terms from
// shared memory. On one H200 wgmma and mma.sync gave the same bits in every one of 102,400 sums of 128 products
// (2026-11-30); matmul_batch_test compares this kernel with the others, so a device where they differ fails.
#include "kernels/matmul/matmul_cuda.cuh"

namespace lethe::matmul {
namespace {

// A block: two warpgroups of 64 outputs, 128 rows for both. A stage is a slice.
constexpr int kGroups = 2;
constexpr int kGroupThreads = 128;
constexpr int kThreads = kGroups * kGroupThreads;
constexpr int kGroupTiles = kGroupThreads / kLanesPerWarp;  // of outputs, a warp each
constexpr int kOutputs = kGroups * kGroupTiles * kTileOutputs;
constexpr int kRows = 128;
constexpr int kRowTiles = kRows / 8;
constexpr int kSteps = kSliceInputs / kStepInputs;
constexpr int kRowChunks = kSliceInputs / 4;  // of 16 bytes, of a row's slice
constexpr int kRowsPerPass = kThreads / kRowChunks;
constexpr int kChunksPerThread = kRows / kRowsPerPass;

// A term of a step in shared memory, in bytes: two halves of 8 inputs, each [kRows] of 16 bytes. The 64 bytes
// between steps keep the stores of neighbouring steps in different banks.
constexpr int kHalfBytes = kRows * 16;
constexpr int kStepBytes = 2 * kHalfBytes + 64;
constexpr int kTermBytes = kSteps * kStepBytes;

using Sums = float[kRowTiles][4];

// The descriptor of a step's term (PTX ISA 9.7.15.5.1): no swizzle, core matrices of 8 rows by 16 bytes, the two
// halves kHalfBytes apart, groups of 8 rows 128 bytes.
__device__ __forceinline__ uint64_t Descriptor(const char* term) {
  const auto address = static_cast<uint64_t>(__cvta_generic_to_shared(term));
  return (address & 0x3ffff) >> 4 | uint64_t{kHalfBytes >> 4} << 16 | uint64_t{128 >> 4} << 32;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// s += a b, or s = a b.
__device__ __forceinline__ void Wgmma(const uint32_t (&a)[4], uint64_t b, bool is_first, Sums& s) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}"
      : "+f"(s[0][0]), "+f"(s[0][1]), "+f"(s[0][2]), "+f"(s[0][3]), "+f"(s[1][0]), "+f"(s[1][1]),
        "+f"(s[1][2]), "+f"(s[1][3]), "+f"(s[2][0]), "+f"(s[2][1]), "+f"(s[2][2]), "+f"(s[2][3]),
        "+f"(s[3][0]), "+f"(s[3][1]), "+f"(s[3][2]), "+f"(s[3][3]), "+f"(s[4][0]), "+f"(s[4][1]),
        "+f"(s[4][2]), "+f"(s[4][3]), "+f"(s[5][0]), "+f"(s[5][1]), "+f"(s[5][2]), "+f"(s[5][3]),
        "+f"(s[6][0]), "+f"(s[6][1]), "+f"(s[6][2]), "+f"(s[6][3]), "+f"(s[7][0]), "+f"(s[7][1]),
        "+f"(s[7][2]), "+f"(s[7][3]), "+f"(s[8][0]), "+f"(s[8][1]), "+f"(s[8][2]), "+f"(s[8][3]),
        "+f"(s[9][0]), "+f"(s[9][1]), "+f"(s[9][2]), "+f"(s[9][3]), "+f"(s[10][0]), "+f"(s[10][1]),
        "+f"(s[10][2]), "+f"(s[10][3]), "+f"(s[11][0]), "+f"(s[11][1]), "+f"(s[11][2]),
        "+f"(s[11][3]), "+f"(s[12][0]), "+f"(s[12][1]), "+f"(s[12][2]), "+f"(s[12][3]),
        "+f"(s[13][0]), "+f"(s[13][1]), "+f"(s[13][2]), "+f"(s[13][3]), "+f"(s[14][0]),
        "+f"(s[14][1]), "+f"(s[14][2]), "+f"(s[14][3]), "+f"(s[15][0]), "+f"(s[15][1]),
        "+f"(s[15][2]), "+f"(s[15][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(is_first ? 0 : 1));
}

__device__ __forceinline__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void WaitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
__device__ __forceinline__ void ShowStoresToTensorCores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A thread's part of the activations: the same 4 inputs of a slice of every kRowsPerPass-th row.
struct RowLoader {
  const float* from;  // in its first row
  int64_t stride;     // to the next one
  int64_t rows_left;
  int column;
  int num_inputs;

  __device__ explicit RowLoader(const CudaProblem& p) {
    const int row = static_cast<int>(threadIdx.x) / kRowChunks;
    const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kRows + row;
    column = static_cast<int>(threadIdx.x) % kRowChunks * 4;
    num_inputs = p.num_inputs;
    from = p.x + first_row * num_inputs + column;
    stride = int64_t{kRowsPerPass} * num_inputs;
    rows_left = p.num_rows - first_row;
  }
  __device__ __forceinline__ void Load(int stage, float4 (&x)[kChunksPerThread]) const {
    const float* at = from + stage * kSliceInputs;
    const bool is_inside = stage * kSliceInputs + column < num_inputs;
#pragma unroll
    for (int i = 0; i < kChunksPerThread; ++i) {
      x[i] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (is_inside && i * kRowsPerPass < rows_left) {
        x[i] = __ldg(reinterpret_cast<const float4*>(at + i * stride));
      }
    }
  }
};

// As terms to shared memory; the order of inputs within a step is that of ElementOfLane.
template <int kTerms>
__device__ __forceinline__ void StoreRows(const float4 (&x)[kChunksPerThread], char* buffer) {
  const int column = static_cast<int>(threadIdx.x) % kRowChunks;
  char* first = buffer + column / 4 * kStepBytes + column % 4 * 4 +
                static_cast<int>(threadIdx.x) / kRowChunks * 16;
#pragma unroll
  for (int i = 0; i < kChunksPerThread; ++i) {
    char* to = first + i * kRowsPerPass * 16;
    uint32_t terms[kTerms][2];
    SplitActivations<kTerms>(x[i], terms);
#pragma unroll
    for (int term = 0; term < kTerms; ++term) {
      *reinterpret_cast<uint32_t*>(to + term * kTermBytes) = terms[term][0];
      *reinterpret_cast<uint32_t*>(to + term * kTermBytes + kHalfBytes) = terms[term][1];
    }
  }
}

// The weights of a stage for a warp's tile, from its lane's first: zeros past the matrix (null).
__device__ __forceinline__ void LoadTile(const uint4* tile, int steps_left,
                                         uint4 (&weights)[kSteps]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    weights[step] = {0, 0, 0, 0};
    if (tile != nullptr && step < steps_left) weights[step] = __ldg(tile + step * kLanesPerWarp);
  }
}

template <int kTerms>
__device__ __forceinline__ void MultiplyStage(const uint4 (&weights)[kSteps], const char* buffer,
                                              Sums& sums) {
  BeginProducts();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint32_t a[4] = {weights[step].x, weights[step].y, weights[step].z, weights[step].w};
#pragma unroll
    for (int term = kTerms - 1; term >= 0; --term) {
      Wgmma(a, Descriptor(buffer + term * kTermBytes + step * kStepBytes),
            step == 0 && term == kTerms - 1, sums);
    }
  }
  CommitProducts();
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

// grid: [groups of kOutputs outputs][groups of kRows rows]; dynamic shared memory: two buffers of kTerms terms.
// While the tensor cores have a stage, the threads bring the next one.
template <int kTerms>
__global__ void __launch_bounds__(kThreads, 1) WgmmaKernel(const CudaProblem p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) char buffers[];
  constexpr int kBufferBytes = kTerms * kTermBytes;
  const int warp = static_cast<int>(threadIdx.x) / kLanesPerWarp;
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerWarp;
  const int tile = static_cast<int>(blockIdx.x) * (kOutputs / kTileOutputs) + warp;
  const int num_stages = (p.num_steps + kSteps - 1) / kSteps;
  float totals[kRowTiles][4] = {};
  const RowLoader rows(p);
  const uint4* lane_tile = tile < p.num_tiles
                               ? static_cast<const uint4*>(p.tiles) +
                                     static_cast<int64_t>(tile) * p.num_steps * kLanesPerWarp + lane
                               : nullptr;
  const auto load_tile = [&](int stage, uint4(&weights)[kSteps]) {
    LoadTile(lane_tile != nullptr ? lane_tile + int64_t{stage} * (kSteps * kLanesPerWarp) : nullptr,
             p.num_steps - stage * kSteps, weights);
  };
  float4 x[kChunksPerThread];
  rows.Load(0, x);
  uint4 even_weights[kSteps];
  uint4 odd_weights[kSteps];
  load_tile(0, even_weights);
  StoreRows<kTerms>(x, buffers);
  if (num_stages > 1) rows.Load(1, x);
  ShowStoresToTensorCores();
  __syncthreads();
  const auto run_stage = [&](int stage, const uint4(&weights)[kSteps], uint4(&next_weights)[kSteps],
                             char* buffer, char* next_buffer) {
    Sums sums;
    MultiplyStage<kTerms>(weights, buffer, sums);
    load_tile(stage + 1, next_weights);
    if (stage + 1 < num_stages) {
      StoreRows<kTerms>(x, next_buffer);
      if (stage + 2 < num_stages) rows.Load(stage + 2, x);
    }
    ShowStoresToTensorCores();
    WaitForProducts();
    __syncthreads();
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) totals[n][i] += sums[n][i];
    }
  };
  // Two stages a turn, so that no weight moves between registers while the tensor cores read them.
  for (int stage = 0; stage < num_stages; stage += 2) {
    run_stage(stage, even_weights, odd_weights, buffers, buffers + kBufferBytes);
    if (stage + 1 == num_stages) break;
    run_stage(stage + 1, odd_weights, even_weights, buffers + kBufferBytes, buffers);
  }
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int output = tile * kTileOutputs + OutputOfSum(lane, i);
      const int64_t row = static_cast<int64_t>(blockIdx.y) * kRows + n * 8 + RowOfSum(lane, i);
      if (output < p.num_outputs && row < p.num_rows) {
        p.y[row * p.num_outputs + output] = totals[n][i];
      }
    }
  }
#endif  // __CUDA_ARCH_FEAT_SM90_ALL
}

template <int kTerms>
void Launch(Queue* queue, const CudaProblem& p) {
  constexpr size_t kSharedBytes = size_t{2} * kTerms * kTermBytes;
  // Once; where the device has less the launch fails.
  [[maybe_unused]] static const cudaError_t allowed = cudaFuncSetAttribute(
      WgmmaKernel<kTerms>, cudaFuncAttributeMaxDynamicSharedMemorySize, int{kSharedBytes});
  const dim3 grid(static_cast<unsigned>((p.num_outputs + kOutputs - 1) / kOutputs),
                  static_cast<unsigned>((p.num_rows + kRows - 1) / kRows));
  WgmmaKernel<kTerms><<<grid, kThreads, kSharedBytes, queue->stream()>>>(p);
}

}  // namespace

bool FitsWgmma(const Queue& queue, const CudaProblem& p) {
#ifdef LETHE_SM90A
  return queue.compute_capability() == 90 && p.is_bf16 && InFours(p);
#else
  static_cast<void>(queue);
  static_cast<void>(p);
  return false;
#endif
}

absl::Status MatmulWgmmaCuda(Queue* queue, const CudaProblem& p) {
  if (p.terms == 1) {
    Launch<1>(queue, p);
  } else if (p.terms == 2) {
    Launch<2>(queue, p);
  } else {
    Launch<3>(queue, p);
  }
  return queue->LaunchStatus("matmul by warpgroups");
}

}  // namespace lethe::matmul
