// Prefill: one block a sequence and head, A and S in registers from the first token to the last.
//
// Warps have roles, each a stage of a pipeline of tokens through a ring in shared memory:
//   input warp   loads q, k, v, u; k^; key_sum and the divisor of kPaper
//   A warps      the recurrence: products, one block-wide sum, update fused with the next products.
//                They are the chain that everything waits for: one barrier a token, among themselves
//   alpha warp   the write direction from z, y, u.z and u.y
//   S warps      errors, update, read; rows of S are independent, so no barrier
//   read warp    the read's norm, out
// Stages hand over groups of kGroup tokens by mbarriers.
// Grid: B * H. Block: K / 16 + V / 16 + 3 warps. Shared memory: a ring of kRing tokens.
#include <cuda_runtime.h>

#include "kernels/base/phase_barrier_cuda.cuh"
#include "kernels/base/status_macros.h"
#include "kernels/vla/vla_fold_cuda.h"
#include "kernels/vla/vla_fold_tile_cuda.cuh"

namespace lethe {
namespace vla_fold {
namespace {

constexpr int kGroup = 4;
constexpr int kNumGroups = 8;
constexpr int kRing = kGroup * kNumGroups;

enum Stage { kFilled, kProduced, kDirected, kRead, kFreed, kNumStages };

template <int kKey>
struct Ring {
  __device__ Token<kKey> At(int t) const {
    const int floats = Token<kKey>::Floats(padded_value_dim);
    return {tokens + t % kRing * floats, padded_value_dim};
  }
  // The token after one in the ring.
  __device__ Token<kKey> After(const Token<kKey>& token) const {
    const int floats = Token<kKey>::Floats(padded_value_dim);
    float* const next = token.data + floats;
    return {next == tokens + kRing * floats ? tokens : next, padded_value_dim};
  }
  // Waits until `stage` is done with a group.
  __device__ void Wait(Stage stage, int group) const {
    uint64_t* barrier = barriers + stage * kNumGroups + group % kNumGroups;
    while (!cuda::HasPassed(barrier, static_cast<unsigned>(group / kNumGroups % 2))) {
    }
    __syncwarp();  // else lanes may go on one by one
  }
  // This lane is done with a group.
  __device__ void Done(Stage stage, int group) const {
    cuda::ArriveAtBarrier(barriers + stage * kNumGroups + group % kNumGroups);
  }

  float* tokens;
  int padded_value_dim;
  uint64_t* barriers;  // [kNumStages][kNumGroups]
};

// One sequence and head.
struct Chain {
  int64_t row;         // of the first token in [N][H]
  int64_t row_stride;  // from token to token
  int64_t state;       // slot * H + head
  int count;
  int until_nudge;  // tokens up to the one with the next nudge, 1 .. kVlaNudgePeriod
};

__device__ bool Nudges(bool nudge, int* until_nudge) {
  if (--*until_nudge > 0) return false;
  *until_nudge = static_cast<int>(kVlaNudgePeriod);
  return nudge;
}

// The tokens of a group; those behind the chain's end are room that nobody reads.
template <int kKey>
__device__ void GroupOf(const Ring<kKey>& ring, int first, Token<kKey> (&tokens)[kGroup]) {
#pragma unroll
  for (int i = 0; i < kGroup; ++i) tokens[i] = ring.At(first + i);
}

template <int kKey>
__device__ void FillInputs(const FoldArgs& args, const Chain& chain, const Ring<kKey>& ring,
                           int lane) {
  constexpr int kAhead = 3;  // groups whose copies are under way
  const bool has_key_sum = args.batch.key_sum != nullptr;
  float* const sum = has_key_sum ? args.batch.key_sum + chain.state * args.key_dim : nullptr;
  Slice<kKey> key_sum = {};
  if (has_key_sum) key_sum = LoadSlice<kKey>(sum, args.key_dim, lane);
  const InputCopier<kKey> copier(args, ring.padded_value_dim, lane);
  Token<kKey> next = ring.At(0);
  const auto copy = [&](int first) {
    const int group = first / kGroup;
    if (first < chain.count && group >= kNumGroups) ring.Wait(kFreed, group - kNumGroups);
    for (int t = first; t < min(first + kGroup, chain.count); ++t) {
      copier.Start(chain.row + t * chain.row_stride, next);
      next = ring.After(next);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  for (int n = 0; n < kAhead; ++n) copy(n * kGroup);
  for (int first = 0; first < chain.count; first += kGroup) {
    copy(first + kAhead * kGroup);
    asm volatile("cp.async.wait_group %0;" ::"n"(kAhead) : "memory");
    __syncwarp();
    Token<kKey> tokens[kGroup];
    GroupOf(ring, first, tokens);
    FinishInputs(tokens, args.is_rls, chain.count - first, lane, has_key_sum ? &key_sum : nullptr);
    ring.Done(kFilled, first / kGroup);
  }
  if (has_key_sum) StoreSlice(key_sum, args.key_dim, lane, sum);
}

// Adds the lane's shares of A u and A k^ to the products.
template <int kKey, bool kHeld>
__device__ void MultiplyColumns(const Tile<kKey>& tile, const Columns<kKey, kHeld>& u,
                                const Columns<kKey, kHeld>& k, Products& products) {
#pragma unroll
  for (int m = 0; m < Tile<kKey>::kVectors; ++m) {
    const float4 um = u.At(m);
    const float4 km = k.At(m);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) {
        products.z[r] = __fmaf_rn(tile.x[r][4 * m + e], Element(um, e), products.z[r]);
        products.y[r] = __fmaf_rn(tile.x[r][4 * m + e], Element(km, e), products.y[r]);
      }
    }
  }
}

// Subtract and MultiplyColumns in one pass.
template <int kKey, bool kHeld>
__device__ void SubtractAndMultiply(const Direction<kKey, kHeld>& direction,
                                    const Columns<kKey, kHeld>& u, const Columns<kKey, kHeld>& k,
                                    Tile<kKey>& tile, Products& products) {
#pragma unroll
  for (int m = 0; m < Tile<kKey>::kVectors; ++m) {
    const float4 z = direction.z_columns.At(m);
    const float4 um = u.At(m);
    const float4 km = k.At(m);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float w = Element(z, e) * direction.scale;
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) {
        float& x = tile.x[r][4 * m + e];
        x = __fmaf_rn(direction.rows[r], w, x);
        products.z[r] = __fmaf_rn(x, Element(um, e), products.z[r]);
        products.y[r] = __fmaf_rn(x, Element(km, e), products.y[r]);
      }
    }
  }
}

// A barrier of the A warps.
template <int kKey>
__device__ void SyncA() {
  asm volatile("bar.sync 1, %0;" ::"n"(kKey / kTileRows * kWarp) : "memory");
}

// The loop is the chain of the whole kernel: what does not need the barrier's other side is done
// before it, and the last token is not among its cases.
template <int kKey>
__device__ void AdvanceA(const FoldArgs& args, Chain chain, const Ring<kKey>& ring, int warp,
                         int lane) {
  constexpr bool kHeld = kKey == 64;  // there are registers for columns, read before the barrier
  float* const a = args.batch.a + chain.state * args.key_dim * args.key_dim;
  const Place place = PlaceOf(warp, lane);
  const MatrixShape<kKey, false> shape{args.key_dim, args.key_dim};
  Tile<kKey> tile;
  LoadTile(a, shape, place, tile);
  ring.Wait(kFilled, 0);
  Token<kKey> token = ring.At(0);
  Products products;
  MultiplyColumns<kKey, kHeld>(tile, {token.u(), place}, {token.k(), place}, products);
  const int last = chain.count - 1;
  for (int first = 0; first < last; first += kGroup) {
    const int end = min(first + kGroup, last);
    ring.Wait(kFilled, end / kGroup);
    for (int t = first; t < end; ++t) {
      const Token<kKey> next = ring.After(token);
      const Columns<kKey, kHeld> u(next.u(), place);
      const Columns<kKey, kHeld> k(next.k(), place);
      PublishProducts(products, token, warp, lane);
      SyncA<kKey>();
      const Direction<kKey, kHeld> direction(token, place);
      products = {};
      if (Nudges(args.nudge, &chain.until_nudge)) {
        Subtract(direction, tile);
        Nudge(place, tile);
        MultiplyColumns(tile, u, k, products);
      } else {
        SubtractAndMultiply(direction, u, k, tile, products);
      }
      token = next;
    }
    if (end == first + kGroup) ring.Done(kProduced, first / kGroup);
  }
  PublishProducts(products, token, warp, lane);
  ring.Done(kProduced, last / kGroup);
  SyncA<kKey>();
  Subtract(Direction<kKey, kHeld>(token, place), tile);
  if (Nudges(args.nudge, &chain.until_nudge)) Nudge(place, tile);
  StoreTile(tile, shape, place, a);
}

template <int kKey>
__device__ void FillAlpha(const FoldArgs& args, Chain chain, const Ring<kKey>& ring, int lane) {
  for (int first = 0; first < chain.count; first += kGroup) {
    Token<kKey> tokens[kGroup];
    GroupOf(ring, first, tokens);
    bool nudges[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) nudges[i] = Nudges(args.nudge, &chain.until_nudge);
    ring.Wait(kProduced, first / kGroup);
    PublishAlpha(tokens, args.is_rls, nudges, lane);
    ring.Done(kDirected, first / kGroup);
  }
}

template <int kKey, bool kHasRead>
__device__ void AdvanceS(const FoldArgs& args, const Chain& chain, const Ring<kKey>& ring, int warp,
                         int lane) {
  float* const s = args.batch.s + chain.state * args.value_dim * args.key_dim;
  const Place place = PlaceOf(warp, lane);
  const MatrixShape<kKey, false> shape{args.value_dim, args.key_dim};
  Tile<kKey> tile;
  LoadTile(s, shape, place, tile);
  ring.Wait(kFilled, 0);
  Token<kKey> token = ring.At(0);
  float error = WriteError(tile, token, place, lane);
  float joined[2];
  const int last = chain.count - 1;
  for (int first = 0; first < last; first += kGroup) {
    const int end = min(first + kGroup, last);
    ring.Wait(kFilled, end / kGroup);
    ring.Wait(kDirected, first / kGroup);
    for (int t = first; t < end; ++t) {
      const Token<kKey> next = ring.After(token);
      const float v = next.v()[JoinedRow(place, lane)];
      float sums[2][kLaneRows] = {};
      WriteAndMultiply<kHasRead, true>(error, token, next.k(), place, lane, tile, sums);
      JoinColumns(sums, lane, joined);
      error = v - joined[1];
      if (kHasRead) PublishRead(joined[0], token, place, lane);
      token = next;
    }
    if (end == first + kGroup) ring.Done(kHasRead ? kRead : kFreed, first / kGroup);
  }
  ring.Wait(kDirected, last / kGroup);
  float sums[2][kLaneRows] = {};
  WriteAndMultiply<kHasRead, false>(error, token, nullptr, place, lane, tile, sums);
  JoinColumns(sums, lane, joined);
  if (kHasRead) PublishRead(joined[0], token, place, lane);
  ring.Done(kHasRead ? kRead : kFreed, last / kGroup);
  StoreTile(tile, shape, place, s);
}

template <int kKey>
__device__ void WriteReads(const FoldArgs& args, const Chain& chain, const Ring<kKey>& ring,
                           int lane) {
  for (int first = 0; first < chain.count; first += kGroup) {
    Token<kKey> tokens[kGroup];
    GroupOf(ring, first, tokens);
    float* outs[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      outs[i] = args.batch.out + (chain.row + (first + i) * chain.row_stride) * args.value_dim;
    }
    ring.Wait(kRead, first / kGroup);
    FinishReads(tokens, outs, chain.count - first, args.value_dim, args.batch.key_sum != nullptr,
                lane);
    ring.Done(kFreed, first / kGroup);
  }
}

template <int kKey, int kValue>
constexpr int kMaxThreads = (kKey / kTileRows + kValue / kTileRows + 3) * kWarp;

// kMinBlocks: on one multiprocessor. A chain is fastest alone; two of them share it well.
template <int kKey, int kValue, int kMinBlocks>
__global__ void __launch_bounds__(kMaxThreads<kKey, kValue>, kMinBlocks)
    Fold(const __grid_constant__ FoldArgs args) {
  extern __shared__ float4 shared[];
  __shared__ uint64_t barriers[kNumStages * kNumGroups];
  const int sequence = static_cast<int>(blockIdx.x) / args.num_heads;
  const int head = static_cast<int>(blockIdx.x) % args.num_heads;
  const int begin = args.batch.offsets[sequence];
  const Chain chain{
      static_cast<int64_t>(begin) * args.num_heads + head, args.num_heads,
      static_cast<int64_t>(args.batch.slots[sequence]) * args.num_heads + head,
      args.batch.offsets[sequence + 1] - begin,
      static_cast<int>(kVlaNudgePeriod - args.batch.step_counts[sequence] % kVlaNudgePeriod)};
  if (chain.count == 0) return;
  constexpr int kNumA = kKey / kTileRows;
  const int num_s = static_cast<int>(blockDim.x) / kWarp - kNumA - 3;
  const Ring<kKey> ring{reinterpret_cast<float*>(shared), num_s * kTileRows, barriers};
  if (threadIdx.x < kNumGroups) {
    const int freeing = args.batch.out != nullptr ? 1 : num_s;
    const int arrivals[kNumStages] = {1, kNumA, 1, num_s, freeing};
    for (int stage = 0; stage < kNumStages; ++stage) {
      cuda::InitBarrier(barriers + stage * kNumGroups + threadIdx.x, kWarp * arrivals[stage]);
    }
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (warp < kNumA) {
    AdvanceA(args, chain, ring, warp, lane);
  } else if (warp < kNumA + num_s) {
    if (args.batch.out != nullptr) {
      AdvanceS<kKey, true>(args, chain, ring, warp - kNumA, lane);
    } else {
      AdvanceS<kKey, false>(args, chain, ring, warp - kNumA, lane);
    }
  } else if (warp == kNumA + num_s) {
    FillInputs(args, chain, ring, lane);
  } else if (warp == kNumA + num_s + 1) {
    FillAlpha(args, chain, ring, lane);
  } else if (args.batch.out != nullptr) {
    WriteReads(args, chain, ring, lane);
  }
}

template <int kKey, int kValue, int kMinBlocks = 1>
absl::Status Launch(Queue* queue, const VlaOptions& options, const VlaBatch& batch) {
  const FoldArgs args = MakeFoldArgs(options, batch);
  const auto kernel = Fold<kKey, kValue, kMinBlocks>;
  const int num_s = NumTiles(args.value_dim);
  const int bytes =
      kRing * Token<kKey>::Floats(num_s * kTileRows) * static_cast<int>(sizeof(float));
  // Its error is the launch's.
  static_cast<void>(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const auto blocks = static_cast<unsigned>(batch.num_sequences * options.num_heads);
  const auto threads = static_cast<unsigned>((kKey / kTileRows + num_s + 3) * kWarp);
  kernel<<<blocks, threads, static_cast<unsigned>(bytes), queue->stream()>>>(args);
  return queue->LaunchStatus("VLA fold");
}

}  // namespace
}  // namespace vla_fold

absl::Status VlaFoldCuda(Queue* queue, const VlaOptions& options, const VlaBatch& batch) {
  using vla_fold::Launch;
  if (options.key_dim <= 64 && options.value_dim <= 64) {
    const int64_t chains = batch.num_sequences * options.num_heads;
    return chains > queue->num_multiprocessors() ? Launch<64, 64, 2>(queue, options, batch)
                                                 : Launch<64, 64>(queue, options, batch);
  }
  if (options.key_dim <= 64) return Launch<64, 128>(queue, options, batch);
  return options.value_dim <= 64 ? Launch<128, 64>(queue, options, batch)
                                 : Launch<128, 128>(queue, options, batch);
}

}  // namespace lethe
