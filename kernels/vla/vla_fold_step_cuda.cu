// Decode: one token for each sequence, bound by the bytes of A and S. Every warp starts with copying its
// rows of one of them into shared memory; blocks on a multiprocessor hide each other's waits.
// Grid: B * H. Block: K / 16 warps for A, V / 16 for S. Shared memory: the tiles and one token.
#include <cuda_runtime.h>

#include "kernels/base/early_launch_cuda.cuh"
#include "kernels/vla/vla_fold_cuda.h"
#include "kernels/vla/vla_fold_tile_cuda.cuh"

namespace lethe {
namespace vla_fold {
namespace {

// Barriers of a block beside __syncthreads.
enum BarrierId { kAmongA = 1, kProductsToS = 2, kAmongS = 3 };

__device__ void Sync(BarrierId barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(static_cast<int>(barrier)), "r"(threads) : "memory");
}
__device__ void Arrive(BarrierId barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(static_cast<int>(barrier)), "r"(threads) : "memory");
}

// One sequence and head.
struct Item {
  int64_t row;  // in [N][H]
  int64_t state;
  bool nudges;
};

// The inputs' copies have come.
template <int kKey>
__device__ void FinishItemInputs(const FoldArgs& args, const Item& item, const Token<kKey>& token,
                                 int lane) {
  const Token<kKey> tokens[] = {token};
  if (args.batch.key_sum == nullptr) {
    FinishInputs<kKey>(tokens, args.is_rls, 1, lane, nullptr);
    return;
  }
  float* const sum = args.batch.key_sum + item.state * args.key_dim;
  auto key_sum = LoadSlice<kKey>(sum, args.key_dim, lane);
  FinishInputs(tokens, args.is_rls, 1, lane, &key_sum);
  StoreSlice(key_sum, args.key_dim, lane, sum);
}

template <int kKey, bool kExact>
__device__ void StepA(const Token<kKey>& token, MatrixShape<kKey, kExact> shape, bool nudges,
                      int warp, int lane, Tile<kKey>& tile, float* a) {
  constexpr int kThreads = kKey / kTileRows * kWarp;
  const Place place = PlaceOf(warp, lane);
  Products products;
  Multiply(tile, token.u(), place, products.z);
  Multiply(tile, token.k(), place, products.y);
  PublishProducts(products, token, warp, lane);
  Arrive(kProductsToS, kThreads + kWarp);
  Sync(kAmongA, kThreads);
  Subtract(Direction<kKey, kKey == 64>(token, place), tile);
  if (nudges) Nudge(place, tile);
  StoreTile(tile, shape, place, a);
}

template <int kKey, bool kExact>
__device__ void StepS(const FoldArgs& args, const Item& item, const Token<kKey>& token,
                      MatrixShape<kKey, kExact> shape, int warp, int lane, Tile<kKey>& tile,
                      float* s) {
  const int num_threads = token.padded_value_dim / kTileRows * kWarp;
  const Place place = PlaceOf(warp, lane);
  const Token<kKey> tokens[] = {token};
  const float error = WriteError(tile, token, place, lane);
  if (warp == 0) {
    Sync(kProductsToS, kKey / kTileRows * kWarp + kWarp);
    const bool nudges[] = {item.nudges};
    PublishAlpha(tokens, args.is_rls, nudges, lane);
  }
  Sync(kAmongS, num_threads);
  float sums[2][kLaneRows] = {};
  WriteAndMultiply<true, false>(error, token, nullptr, place, lane, tile, sums);
  StoreTile(tile, shape, place, s);
  if (args.batch.out == nullptr) return;
  float joined[2];
  JoinColumns(sums, lane, joined);
  PublishRead(joined[0], token, place, lane);
  Sync(kAmongS, num_threads);
  if (warp == 0) {
    float* const outs[] = {args.batch.out + item.row * args.value_dim};
    FinishReads(tokens, outs, 1, args.value_dim, args.batch.key_sum != nullptr, lane);
  }
}

// kExact: K = V = kKey; else smaller ones, V at most 128.
template <int kKey, bool kExact>
constexpr int kMaxThreads = (kKey + (kExact ? kKey : 128)) / kTileRows* kWarp;
template <int kKey, bool kExact>
constexpr int kMinBlocks = kExact&& kKey == 64 ? 4 : 1;  // on a multiprocessor, by their registers
template <int kKey>
constexpr int kStageFloats = kTileRows* kKey;

template <int kKey, bool kExact>
__global__ void __launch_bounds__(kMaxThreads<kKey, kExact>, kMinBlocks<kKey, kExact>)
    Step(const __grid_constant__ FoldArgs args) {
  extern __shared__ float4 shared[];
  cuda::WaitForEarlierKernels();
  const int sequence = static_cast<int>(blockIdx.x) / args.num_heads;
  const int head = static_cast<int>(blockIdx.x) % args.num_heads;
  // All at once: a block's life begins with waiting for them.
  const int begin = args.batch.offsets[sequence];
  const int end = args.batch.offsets[sequence + 1];
  const int slot = args.batch.slots[sequence];
  const int64_t step_count = args.nudge ? args.batch.step_counts[sequence] : 0;
  if (begin == end) return;
  const Item item{static_cast<int64_t>(begin) * args.num_heads + head,
                  static_cast<int64_t>(slot) * args.num_heads + head,
                  args.nudge && (step_count + 1) % kVlaNudgePeriod == 0};
  constexpr int kNumA = kKey / kTileRows;
  const int num_s = kExact ? kNumA : static_cast<int>(blockDim.x) / kWarp - kNumA;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float* const stages = reinterpret_cast<float*>(shared);
  float* const stage = stages + warp * kStageFloats<kKey>;
  const Token<kKey> token{stages + (kNumA + num_s) * kStageFloats<kKey>, num_s * kTileRows};

  const bool is_a = warp < kNumA;
  const int tile_index = is_a ? warp : warp - kNumA;
  const MatrixShape<kKey, kExact> shape{is_a ? args.key_dim : args.value_dim, args.key_dim};
  float* const matrix = is_a ? args.batch.a + item.state * args.key_dim * args.key_dim
                             : args.batch.s + item.state * args.value_dim * args.key_dim;
  CopyTile(matrix, shape, PlaceOf(tile_index, lane), lane, stage);
  if (warp == 0) {
    InputCopier<kKey>(args, token.padded_value_dim, lane).Start(item.row, token);
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncwarp();
  if (warp == 0) FinishItemInputs(args, item, token, lane);
  Tile<kKey> tile;
  LoadStaged(stage, lane, tile);
  __syncthreads();  // the inputs
  if (is_a) {
    StepA(token, shape, item.nudges, tile_index, lane, tile, matrix);
  } else {
    StepS(args, item, token, shape, tile_index, lane, tile, matrix);
  }
}

template <int kKey, bool kExact>
absl::Status LaunchStep(Queue* queue, const VlaOptions& options, const VlaBatch& batch) {
  const FoldArgs args = MakeFoldArgs(options, batch);
  const auto kernel = Step<kKey, kExact>;
  const int num_s = NumTiles(args.value_dim);
  const int num_warps = kKey / kTileRows + num_s;
  const int floats = num_warps * kStageFloats<kKey> + Token<kKey>::Floats(num_s * kTileRows);
  const int bytes = floats * static_cast<int>(sizeof(float));
  // Its error is the launch's.
  static_cast<void>(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  cuda::LaunchEarly(queue, kernel, batch.num_sequences * options.num_heads, num_warps * kWarp,
                    static_cast<size_t>(bytes), args);
  return queue->LaunchStatus("VLA step");
}

}  // namespace
}  // namespace vla_fold

absl::Status VlaFoldStepCuda(Queue* queue, const VlaOptions& options, const VlaBatch& batch) {
  using vla_fold::LaunchStep;
  const bool is_square = options.value_dim == options.key_dim;
  if (is_square && options.key_dim == 64) return LaunchStep<64, true>(queue, options, batch);
  if (is_square && options.key_dim == 128) return LaunchStep<128, true>(queue, options, batch);
  return options.key_dim <= 64 ? LaunchStep<64, false>(queue, options, batch)
                               : LaunchStep<128, false>(queue, options, batch);
}

}  // namespace lethe
