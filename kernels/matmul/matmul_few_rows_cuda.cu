// Few rows: the weights stream through once, straight from device memory into the tensor cores.
#include "kernels/matmul/matmul_cuda.cuh"

namespace lethe::matmul {
namespace {

constexpr int kPaddedOutputs = kTileOutputs + 4;  // of a row of partial sums: no bank conflicts

template <class Weights>
__device__ __forceinline__ void LoadWeights(const uint4* block, int lane,
                                            uint4 (&loaded)[Weights::kLoads]) {
#pragma unroll
  for (int i = 0; i < Weights::kLoads; ++i) {
    const uint4* from = block + i * kLanesPerWarp + lane;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(loaded[i].x), "=r"(loaded[i].y), "=r"(loaded[i].z), "=r"(loaded[i].w)
                 : "l"(from));
  }
}

// The sum of slice `slice` for 16 outputs and kRowTiles x 8 rows. All weights are asked for before the
// first is used.
template <class Weights, int kTerms, int kRowTiles, int kStepsPerSlice>
__device__ __forceinline__ void SumSlice(const CudaProblem& p, bool in_fours, int slice,
                                         int64_t first_row, float (&sums)[kRowTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerWarp;
  const int first_step = slice * kStepsPerSlice;
  const uint4* blocks = static_cast<const uint4*>(p.tiles) +
                        (static_cast<int64_t>(blockIdx.x) * p.num_steps + first_step) *
                            (Weights::kLoads * kLanesPerWarp);
  const int num_steps = min(kStepsPerSlice, p.num_steps - first_step);
  uint4 loaded[kStepsPerSlice][Weights::kLoads];
#pragma unroll
  for (int step = 0; step < kStepsPerSlice; ++step) {
    if (step < num_steps) {
      LoadWeights<Weights>(blocks + step * Weights::kLoads * kLanesPerWarp, lane, loaded[step]);
    }
  }
#pragma unroll
  for (int step = 0; step < kStepsPerSlice; ++step) {
    if (step >= num_steps) break;
    uint32_t b[kRowTiles][kTerms][2];
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      SplitActivations<kTerms>(LoadActivations(p, in_fours, first_row + tile * 8 + lane / 4,
                                               (first_step + step) * kStepInputs + 4 * (lane % 4)),
                               b[tile]);
    }
    uint32_t a[Weights::kTerms][4];
    Weights::Split(loaded[step], a);
    MultiplyStep<Weights::kTerms, kTerms, kRowTiles>(a, b, sums);
  }
}

// grid: [tiles][groups of 8 kRowTiles rows]; a warp a slice, then the next kWarps slices; dynamic shared
// memory: a round's partial sums [kWarps][8 kRowTiles][kPaddedOutputs].
template <class Weights, int kTerms, int kRowTiles, int kStepsPerSlice, int kWarps>
__global__ void __launch_bounds__(kWarps* kLanesPerWarp)
    FewRowsKernel(const CudaProblem p, const bool in_fours) {
  constexpr int kRows = 8 * kRowTiles;
  constexpr int kThreads = kWarps * kLanesPerWarp;
  constexpr int kSumsPerThread = (kRows * kTileOutputs + kThreads - 1) / kThreads;
  extern __shared__ float partial[];
  const int warp = static_cast<int>(threadIdx.x) / kLanesPerWarp;
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerWarp;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kRows;
  const int num_slices = (p.num_steps + kStepsPerSlice - 1) / kStepsPerSlice;
  float totals[kSumsPerThread] = {};
  for (int first_slice = 0; first_slice < num_slices; first_slice += kWarps) {
    float sums[kRowTiles][4] = {};
    if (first_slice + warp < num_slices) {
      SumSlice<Weights, kTerms, kRowTiles, kStepsPerSlice>(p, in_fours, first_slice + warp,
                                                           first_row, sums);
    }
    if (first_slice > 0) __syncthreads();
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = warp * kRows + tile * 8 + RowOfSum(lane, i);
        partial[row * kPaddedOutputs + OutputOfSum(lane, i)] = sums[tile][i];
      }
    }
    __syncthreads();
    const int num_partial = min(kWarps, num_slices - first_slice);
#pragma unroll
    for (int i = 0; i < kSumsPerThread; ++i) {
      const int element = static_cast<int>(threadIdx.x) + i * kThreads;
      if (element >= kRows * kTileOutputs) break;
      const int at = element / kTileOutputs * kPaddedOutputs + element % kTileOutputs;
      for (int w = 0; w < num_partial; ++w) totals[i] += partial[w * kRows * kPaddedOutputs + at];
    }
  }
#pragma unroll
  for (int i = 0; i < kSumsPerThread; ++i) {
    const int element = static_cast<int>(threadIdx.x) + i * kThreads;
    const int64_t row = first_row + element / kTileOutputs;
    const int output = static_cast<int>(blockIdx.x) * kTileOutputs + element % kTileOutputs;
    if (element < kRows * kTileOutputs && row < p.num_rows && output < p.num_outputs) {
      p.y[row * p.num_outputs + output] = totals[i];
    }
  }
}

template <class Weights, int kTerms, int kRowTiles, int kSlice, int kWarps>
void Launch(Queue* queue, const CudaProblem& p) {
  constexpr int kRows = 8 * kRowTiles;
  const dim3 grid(static_cast<unsigned>(p.num_tiles),
                  static_cast<unsigned>((p.num_rows + kRows - 1) / kRows));
  constexpr size_t kSharedBytes = size_t{kWarps} * kRows * kPaddedOutputs * sizeof(float);
  static_assert(kSharedBytes <= 48 * 1024);
  FewRowsKernel<Weights, kTerms, kRowTiles, kSlice / kStepInputs, kWarps>
      <<<grid, kWarps * kLanesPerWarp, kSharedBytes, queue->stream()>>>(p, InFours(p));
}

template <class Weights, int kTerms>
void LaunchPlan(Queue* queue, const CudaProblem& p, MatmulPlan plan) {
  if (plan == MatmulPlan::kFewRows16) return Launch<Weights, kTerms, 2, kSliceInputs, 16>(queue, p);
  Launch<Weights, kTerms, 1, kSliceInputs, 16>(queue, p);
}

}  // namespace

absl::Status MatmulFewRowsCuda(Queue* queue, const CudaProblem& p, MatmulPlan plan) {
  if (plan == MatmulPlan::kFinerSlices) {
    Launch<Bf16Weights, 2, 1, kSliceInputs / 2, 32>(queue, p);
  } else if (!p.is_bf16) {
    LaunchPlan<F32Weights, 3>(queue, p, plan);
  } else if (p.terms == 1) {
    LaunchPlan<Bf16Weights, 1>(queue, p, plan);
  } else if (p.terms == 2) {
    LaunchPlan<Bf16Weights, 2>(queue, p, plan);
  } else {
    LaunchPlan<Bf16Weights, 3>(queue, p, plan);
  }
  return queue->LaunchStatus("matmul of few rows");
}

}  // namespace lethe::matmul
