// Many rows: tiles of weights and of activations pass through shared memory, several stages ahead.
#include "kernels/base/copy_async_cuda.cuh"
#include "kernels/matmul/matmul_cuda.cuh"

namespace lethe::matmul {
namespace {

constexpr int kStageInputs = kStepInputs * kStepsPerStage;
constexpr int kChunks = kStageInputs / 4;  // of 16 bytes, in a row of activations
constexpr int kStagesPerSlice = kSliceInputs / kStageInputs;

// A block's tile: kWarpsM x kWarpsN warps of kTilesM x 16 outputs and kTilesN x 8 rows each.
template <class WeightsT, int kTermsT, int kWarpsM, int kWarpsN, int kTilesM, int kTilesN,
          int kStagesT, bool kIsSlicedT>
struct Geometry {
  using Weights = WeightsT;
  static constexpr int kTerms = kTermsT;
  static constexpr int kStages = kStagesT;
  static constexpr bool kIsSliced = kIsSlicedT;
  static constexpr int kOutputWarps = kWarpsM;
  static constexpr int kWarpOutputTiles = kTilesM;
  static constexpr int kWarpRowTiles = kTilesN;
  static constexpr int kThreads = kWarpsM * kWarpsN * kLanesPerWarp;
  static constexpr int kOutputTiles = kWarpsM * kTilesM;
  static constexpr int kOutputs = kOutputTiles * kTileOutputs;
  static constexpr int kRows = kWarpsN * kTilesN * 8;
  static constexpr int kBlockLoads = Weights::kLoads * kLanesPerWarp;  // of 16 bytes
  static constexpr int kTileLoads = kBlockLoads * kStepsPerStage;
  static constexpr int kWeightLoads = kOutputTiles * kTileLoads;  // of a stage
  static constexpr int kRowLoads = kRows * kChunks;
  static constexpr int kStageLoads = kWeightLoads + kRowLoads;
  static constexpr size_t kSharedBytes = size_t{kStages} * kStageLoads * sizeof(uint4);
};

// Chunk c of a row stands where the eight lanes that read two rows' chunks together find them in
// different banks.
__device__ __forceinline__ int ChunkPosition(int row, int chunk) {
  return row * kChunks + (chunk ^ (row % 2 * (kChunks / 2)));
}

// A thread's part of every stage; what does not change from stage to stage is worked out once.
template <class G>
class StageLoader {
 public:
  __device__ StageLoader(const CudaProblem& p, bool in_fours) : p_(p), in_fours_(in_fours) {
    const int thread = static_cast<int>(threadIdx.x);
    const int tile = static_cast<int>(blockIdx.x) * G::kOutputTiles + thread / G::kTileLoads;
    tiles_left_ = p.num_tiles - tile;
    tile_stride_ = int64_t{kTilesPerPass} * p.num_steps * G::kBlockLoads;
    weights_ = static_cast<const uint4*>(p.tiles) +
               static_cast<int64_t>(tile) * p.num_steps * G::kBlockLoads + thread % G::kTileLoads;
    first_row_ = static_cast<int64_t>(blockIdx.y) * G::kRows + thread / kChunks;
    rows_left_ = p.num_rows - first_row_;
    row_stride_ = int64_t{kRowsPerPass} * p.num_inputs;
    column_ = thread % kChunks * 4;
    x_ = p.x + first_row_ * p.num_inputs + column_;
    row_place_ = G::kWeightLoads + ChunkPosition(thread / kChunks, thread % kChunks);
  }

  __device__ void Load(int stage, uint4* shared) const {
    const uint4* weights = weights_ + int64_t{stage} * G::kTileLoads;
#pragma unroll
    for (int pass = 0; pass < G::kWeightLoads / G::kThreads; ++pass) {
      const bool is_there = pass * kTilesPerPass < tiles_left_;
      cuda::CopyAsync16(shared + static_cast<int>(threadIdx.x) + pass * G::kThreads,
                        is_there ? weights + pass * tile_stride_ : p_.tiles, is_there);
    }
    const int input = stage * kStageInputs + column_;
#pragma unroll
    for (int pass = 0; pass < G::kRowLoads / G::kThreads; ++pass) {
      uint4* to = shared + row_place_ + pass * kRowsPerPass * kChunks;
      if (in_fours_) {
        const bool is_there = pass * kRowsPerPass < rows_left_ && input < p_.num_inputs;
        cuda::CopyAsync16(to, is_there ? x_ + stage * kStageInputs + pass * row_stride_ : p_.x,
                          is_there);
      } else {
        *reinterpret_cast<float4*>(to) =
            LoadActivations(p_, false, first_row_ + pass * kRowsPerPass, input);
      }
    }
  }

 private:
  static constexpr int kTilesPerPass = G::kThreads / G::kTileLoads;
  static constexpr int kRowsPerPass = G::kThreads / kChunks;
  static_assert(G::kThreads % G::kTileLoads == 0 && G::kWeightLoads % G::kThreads == 0);
  // Even, so that ChunkPosition's order of chunks is the same in every pass.
  static_assert(kRowsPerPass % 2 == 0 && G::kRowLoads % G::kThreads == 0);

  const CudaProblem& p_;
  bool in_fours_;
  int tiles_left_;
  int column_;
  int row_place_;
  int64_t tile_stride_;
  int64_t row_stride_;
  int64_t first_row_;
  int64_t rows_left_;
  const uint4* weights_;
  const float* x_;
};

template <class G>
__device__ __forceinline__ void MultiplyStage(
    const uint4* shared, int warp_m, int warp_n,
    float (&sums)[G::kWarpOutputTiles][G::kWarpRowTiles][4]) {
  using Weights = typename G::Weights;
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerWarp;
  const uint4* rows = shared + G::kWeightLoads;
#pragma unroll
  for (int step = 0; step < kStepsPerStage; ++step) {
    uint32_t b[G::kWarpRowTiles][G::kTerms][2];
#pragma unroll
    for (int tile = 0; tile < G::kWarpRowTiles; ++tile) {
      const int row = (warp_n * G::kWarpRowTiles + tile) * 8 + lane / 4;
      SplitActivations<G::kTerms>(
          *reinterpret_cast<const float4*>(rows + ChunkPosition(row, step * 4 + lane % 4)),
          b[tile]);
    }
#pragma unroll
    for (int tile = 0; tile < G::kWarpOutputTiles; ++tile) {
      const uint4* block = shared + (warp_m * G::kWarpOutputTiles + tile) * G::kTileLoads +
                           step * G::kBlockLoads + lane;
      uint4 loaded[Weights::kLoads];
#pragma unroll
      for (int i = 0; i < Weights::kLoads; ++i) loaded[i] = block[i * kLanesPerWarp];
      uint32_t a[Weights::kTerms][4];
      Weights::Split(loaded, a);
      MultiplyStep<Weights::kTerms, G::kTerms, G::kWarpRowTiles>(a, b, sums[tile]);
    }
  }
}

template <class G>
__device__ __forceinline__ void AddSlice(
    float (&sums)[G::kWarpOutputTiles][G::kWarpRowTiles][4],
    float (&totals)[G::kWarpOutputTiles][G::kWarpRowTiles][4]) {
#pragma unroll
  for (int m = 0; m < G::kWarpOutputTiles; ++m) {
#pragma unroll
    for (int n = 0; n < G::kWarpRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        totals[m][n][i] += sums[m][n][i];
        sums[m][n][i] = 0.0f;
      }
    }
  }
}

// grid: [groups of kOutputs outputs][groups of kRows rows], so that blocks that run together share
// activations; dynamic shared memory: G::kSharedBytes.
template <class G>
__global__ void __launch_bounds__(G::kThreads, 1)
    TilesKernel(const CudaProblem p, const bool in_fours) {
  extern __shared__ uint4 stages[];
  const int warp = static_cast<int>(threadIdx.x) / kLanesPerWarp;
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerWarp;
  const int warp_m = warp % G::kOutputWarps;
  const int warp_n = warp / G::kOutputWarps;
  float totals[G::kWarpOutputTiles][G::kWarpRowTiles][4] = {};
  float sums[G::kWarpOutputTiles][G::kWarpRowTiles][4] = {};
  const int num_stages = p.num_steps / kStepsPerStage;
  const StageLoader<G> loader(p, in_fours);
#pragma unroll
  for (int stage = 0; stage < G::kStages - 1; ++stage) {
    if (stage < num_stages) loader.Load(stage, stages + stage * G::kStageLoads);
    cuda::CommitCopies();
  }
  for (int stage = 0; stage < num_stages; ++stage) {
    cuda::WaitForCopies<G::kStages - 2>();
    __syncthreads();
    const int next = stage + G::kStages - 1;
    if (next < num_stages) {
      loader.Load(next, stages + next % G::kStages * G::kStageLoads);
    }
    cuda::CommitCopies();
    MultiplyStage<G>(stages + stage % G::kStages * G::kStageLoads, warp_m, warp_n, sums);
    if (G::kIsSliced && (stage + 1) % kStagesPerSlice == 0) AddSlice<G>(sums, totals);
  }
  AddSlice<G>(sums, totals);
#pragma unroll
  for (int m = 0; m < G::kWarpOutputTiles; ++m) {
#pragma unroll
    for (int n = 0; n < G::kWarpRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int output = static_cast<int>(blockIdx.x) * G::kOutputs +
                           (warp_m * G::kWarpOutputTiles + m) * kTileOutputs + OutputOfSum(lane, i);
        const int64_t row = static_cast<int64_t>(blockIdx.y) * G::kRows +
                            (warp_n * G::kWarpRowTiles + n) * 8 + RowOfSum(lane, i);
        if (output < p.num_outputs && row < p.num_rows) {
          p.y[row * p.num_outputs + output] = totals[m][n][i];
        }
      }
    }
  }
}

template <class G>
void Launch(Queue* queue, const CudaProblem& p) {
  const dim3 grid(static_cast<unsigned>((p.num_outputs + G::kOutputs - 1) / G::kOutputs),
                  static_cast<unsigned>((p.num_rows + G::kRows - 1) / G::kRows));
  // Once; where the device has less the launch fails.
  [[maybe_unused]] static const cudaError_t allowed =
      cudaFuncSetAttribute(TilesKernel<G>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(G::kSharedBytes));
  TilesKernel<G><<<grid, G::kThreads, G::kSharedBytes, queue->stream()>>>(p, InFours(p));
}

template <class Weights, int kTerms>
void LaunchPlan(Queue* queue, const CudaProblem& p, MatmulPlan plan) {
  if (plan == MatmulPlan::kSmallTiles) {
    return Launch<Geometry<Weights, kTerms, 2, 2, 2, 4, 4, true>>(queue, p);
  }
  Launch<Geometry<Weights, kTerms, 2, 4, 4, 4, 4, true>>(queue, p);
}

}  // namespace

absl::Status MatmulTilesCuda(Queue* queue, const CudaProblem& p, MatmulPlan plan) {
  if (plan == MatmulPlan::kUnsliced) {
    Launch<Geometry<Bf16Weights, 2, 2, 4, 4, 4, 4, false>>(queue, p);
  } else if (!p.is_bf16) {
    LaunchPlan<F32Weights, 3>(queue, p, plan);
  } else if (p.terms == 1) {
    LaunchPlan<Bf16Weights, 1>(queue, p, plan);
  } else if (p.terms == 2) {
    LaunchPlan<Bf16Weights, 2>(queue, p, plan);
  } else {
    LaunchPlan<Bf16Weights, 3>(queue, p, plan);
  }
  return queue->LaunchStatus("matmul of tiles");
}

}  // namespace lethe::matmul
