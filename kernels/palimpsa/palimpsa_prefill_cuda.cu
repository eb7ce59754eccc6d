#include <cuda_runtime.h>

#include "kernels/base/phase_barrier_cuda.cuh"
#include "kernels/palimpsa/palimpsa_cuda.cuh"
#include "kernels/palimpsa/palimpsa_tile_cuda.cuh"

namespace lethe::palimpsa_cuda {
namespace {

// Partial sums of reads that a thread adds across lanes together, and how many times that in one
// straight stretch of code.
constexpr int kSums = 16;
template <int kRows>
constexpr int kParts = kRows == 1 ? 1 : 2;

// value or precision of kCount tokens from `first` on, of the thread's rows from `row` on.
template <int kLanes, int kColumns, int kRows, int kCount>
__device__ inline void LoadRows(const float (&from)[Tile<kLanes, kColumns, kRows>::kValueRows]
                                                   [Tile<kLanes, kColumns, kRows>::kValueColumns],
                                int first, int row, float (&to)[kRows][kCount]) {
  using Block = Tile<kLanes, kColumns, kRows>;
  if constexpr (Block::kByToken) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      float rows[kRows];
      LoadVector(&from[first + n][row], rows);
#pragma unroll
      for (int r = 0; r < kRows; ++r) to[r][n] = rows[r];
    }
  } else {
#pragma unroll
    for (int r = 0; r < kRows; ++r) LoadVector(&from[row + r * Block::kRowStep][first], to[r]);
  }
}

// Tokens `first` to first + kTokens - 1 of the tile into the thread's rows; `row` is the first of
// them in the block. sums: this lane's share of the reads, [kTokens][kRows].
template <int kLanes, int kColumns, int kRows, bool kPrecision, bool kRead, int kTokens>
__device__ inline void FoldTokens(const Tile<kLanes, kColumns, kRows>& tile, const float* decays,
                                  int first, int group, int row, RowState<kRows, kColumns>* state,
                                  float (&sums)[kTokens * kRows]) {
  constexpr int kVector = kTokens % 4 == 0 ? 4 : 1;
#pragma unroll
  for (int t = 0; t < kTokens; t += kVector) {
    float decay[kVector];
    float value[kRows][kVector];
    float precision[kRows][kVector] = {};
    LoadVector(decays + first + t, decay);
    LoadRows<kLanes, kColumns, kRows>(tile.value, first + t, row, value);
    if constexpr (kPrecision)
      LoadRows<kLanes, kColumns, kRows>(tile.precision, first + t, row, precision);
#pragma unroll
    for (int n = 0; n < kVector; ++n) {
      float k[kColumns];
      float q[kColumns] = {};
      float k_squared[kColumns];
      LoadVector(&tile.k[first + t + n][group * kColumns], k);
      if constexpr (kRead) LoadVector(&tile.q[first + t + n][group * kColumns], q);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) k_squared[j] = __fmul_rn(k[j], k[j]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        sums[(t + n) * kRows + r] = FoldToken<kPrecision, kRead>(
            decay[n], value[r][n], precision[r][n], k, k_squared, q, state->m[r], state->i_bar[r]);
      }
    }
  }
}

// kNumParts times kTokens tokens. The parts stand in one stretch of code, in which the compiler can
// hide the additions across lanes of one behind the arithmetic of the next; hence no store between
// them.
template <int kLanes, int kColumns, int kRows, bool kPrecision, bool kRead, int kTokens,
          int kNumParts>
__device__ inline void FoldParts(const Tile<kLanes, kColumns, kRows>& tile, const float* decays,
                                 int first, int lane, int row, float read_scale,
                                 RowState<kRows, kColumns>* state,
                                 float (*out)[Tile<kLanes, kColumns, kRows>::kBlockRows]) {
  using Block = Tile<kLanes, kColumns, kRows>;
  const int group = lane / Block::kPassRows;
  float sums[kNumParts][kTokens * kRows];
#pragma unroll
  for (int part = 0; part < kNumParts; ++part) {
    FoldTokens<kLanes, kColumns, kRows, kPrecision, kRead, kTokens>(
        tile, decays, first + part * kTokens, group, row, state, sums[part]);
    if constexpr (kRead) SumAcrossLanes<kLanes>(lane, sums[part]);
  }
  if constexpr (kRead) {
    constexpr int kValues = kTokens * kRows;
    const int value = ValueOfGroup<kValues>(group);
    if (HasValue<kValues>(group)) {
#pragma unroll
      for (int part = 0; part < kNumParts; ++part) {
        out[first + part * kTokens + value / kRows][row + value % kRows * Block::kRowStep] =
            __fmul_rn(read_scale, sums[part][0]);
      }
    }
  }
}

template <int kLanes, int kColumns, int kRows, bool kPrecision, bool kRead>
__device__ inline void FoldTile(const Tile<kLanes, kColumns, kRows>& tile, const float* decays,
                                int count, int lane, int row, float read_scale,
                                RowState<kRows, kColumns>* state,
                                float (*out)[Tile<kLanes, kColumns, kRows>::kBlockRows]) {
  constexpr int kTokens = kSums / kRows;
  constexpr int kStretch = kParts<kRows> * kTokens;
  int t = 0;
#pragma unroll 1
  for (; t + kStretch <= count; t += kStretch) {
    FoldParts<kLanes, kColumns, kRows, kPrecision, kRead, kTokens, kParts<kRows>>(
        tile, decays, t, lane, row, read_scale, state, out);
  }
#pragma unroll 1
  for (; t < count; ++t) {
    FoldParts<kLanes, kColumns, kRows, kPrecision, kRead, 1, 1>(tile, decays, t, lane, row,
                                                                read_scale, state, out);
  }
}

// The barrier at which the loading warp meets the others. They come to it from different code, where
// __syncthreads may not stand. All lanes arrive: racecheck knows no warp whose one lane speaks for it.
class Meeting {
 public:
  __device__ explicit Meeting(uint64_t* barrier) : barrier_(barrier) {}

  __device__ void Meet() {
    cuda::ArriveAtBarrier(barrier_);
    while (!cuda::HasPassed(barrier_, parity_)) {
    }
    __syncwarp();  // else lanes may go on one by one
    parity_ ^= 1u;
  }

 private:
  uint64_t* barrier_;
  unsigned parity_ = 0;
};

// The warp that loads tiles of inputs ahead of the others, computes decays and stores reads. It meets
// them at one barrier a tile, and one before the first.
template <int kLanes, int kColumns, int kRows, bool kPrecision, bool kRead>
__device__ inline void RunLoader(const FoldArguments& arguments, const BlockPlace& place, int lane,
                                 Shared<kLanes, kColumns, kRows>* shared) {
  Meeting meeting(&shared->meeting);
  const auto load = [&](int first) {
    auto* tile = &shared->tiles[first / kTile % kStages];
    const int count = place.length - first;
    const int64_t token = place.first_token + first;
    if (count >= kTile) {
      LoadTile<kLanes, kColumns, kRows, kPrecision, kRead, true>(arguments, place, lane, token,
                                                                 kTile, tile);
    } else if (count > 0) {
      LoadTile<kLanes, kColumns, kRows, kPrecision, kRead, false>(arguments, place, lane, token,
                                                                  count, tile);
    }
    asm volatile("cp.async.commit_group;");
  };
  const auto log_decay = [&](int first) {
    const int64_t token = place.first_token + min(first + lane, place.length - 1);
    return arguments.batch.log_decay[token * arguments.num_heads + place.head];
  };
  const auto store = [&](int first) {
    if constexpr (kRead) {
      StoreOut<Tile<kLanes, kColumns, kRows>::kBlockRows>(
          arguments, place, lane, place.first_token + first, min(kTile, place.length - first),
          shared->out[first / kTile % 2]);
    }
  };
  for (int s = 0; s < kStages - 1; ++s) load(s * kTile);
  shared->decays[0][lane] = Exp(log_decay(0));
  float next_log_decay = log_decay(kTile);
  asm volatile("cp.async.wait_group %0;" : : "n"(kStages - 2) : "memory");
  meeting.Meet();
  for (int first = 0; first < place.length; first += kTile) {
    load(first + (kStages - 1) * kTile);
    shared->decays[(first / kTile + 1) % 2][lane] = Exp(next_log_decay);
    next_log_decay = log_decay(first + 2 * kTile);
    if (first > 0) store(first - kTile);
    asm volatile("cp.async.wait_group %0;" : : "n"(kStages - 2) : "memory");
    meeting.Meet();
  }
  store((place.length - 1) / kTile * kTile);
}

// The warps that fold.
template <int kLanes, int kColumns, int kRows, bool kPrecision, bool kRead>
__device__ inline void RunFolder(const FoldArguments& arguments, const BlockPlace& place, int warp,
                                 int lane, Shared<kLanes, kColumns, kRows>* shared) {
  using Block = Tile<kLanes, kColumns, kRows>;
  const int column = lane / Block::kPassRows * kColumns;
  const int row = Block::Row(warp, lane);
  Meeting meeting(&shared->meeting);
  RowState<kRows, kColumns> state;
  LoadState<kRows, kColumns, kPrecision>(arguments, place, place.first_row + row, Block::kRowStep,
                                         column, &state);
  meeting.Meet();
  for (int first = 0; first < place.length; first += kTile) {
    const int index = first / kTile;
    FoldTile<kLanes, kColumns, kRows, kPrecision, kRead>(
        shared->tiles[index % kStages], shared->decays[index % 2], min(kTile, place.length - first),
        lane, row, arguments.read_scale, &state, shared->out[index % 2]);
    meeting.Meet();
  }
  StoreState<kRows, kColumns, kPrecision>(arguments, place, place.first_row + row, Block::kRowStep,
                                          column, state);
}

// Grid: (sequence, head, row block) in one dimension, rows fastest; block: 4 warps that fold, each
// with kWarpRows rows whose state stays in registers for the whole sequence, and one that loads;
// sizeof(Shared) bytes of shared memory.
template <int kLanes, int kColumns, int kRows, bool kPrecision, bool kRead>
__global__ void __launch_bounds__(kBlockThreads)
    PalimpsaPrefillKernel(const FoldArguments arguments) {
  extern __shared__ float4 shared_memory[];
  auto* shared = reinterpret_cast<Shared<kLanes, kColumns, kRows>*>(shared_memory);
  const BlockPlace place = PlaceOfBlock(arguments, Tile<kLanes, kColumns, kRows>::kBlockRows);
  if (place.length < arguments.min_length || place.length > arguments.max_length) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;

  if (arguments.key_dim < kLanes * kColumns) {  // the columns that no copy reaches
    for (auto& tile : shared->tiles) {
      for (int n = static_cast<int>(threadIdx.x); n < kTile * kLanes * kColumns;
           n += kBlockThreads) {
        (&tile.k[0][0])[n] = (&tile.q[0][0])[n] = 0.0f;
      }
    }
  }
  if (threadIdx.x == 0) cuda::InitBarrier(&shared->meeting, kBlockThreads);
  __syncthreads();
  if (warp == kWarps) {
    RunLoader<kLanes, kColumns, kRows, kPrecision, kRead>(arguments, place, lane, shared);
  } else {
    RunFolder<kLanes, kColumns, kRows, kPrecision, kRead>(arguments, place, warp, lane, shared);
  }
}

template <int kLanes, int kColumns, int kRows, bool kPrecision, bool kRead>
absl::Status Launch(Queue* queue, FoldArguments arguments) {
  constexpr int kBlockRows = Tile<kLanes, kColumns, kRows>::kBlockRows;
  constexpr auto* kKernel = PalimpsaPrefillKernel<kLanes, kColumns, kRows, kPrecision, kRead>;
  constexpr int kSharedBytes = sizeof(Shared<kLanes, kColumns, kRows>);
  arguments.num_row_blocks = (arguments.value_dim + kBlockRows - 1) / kBlockRows;
  const int64_t num_blocks =
      arguments.batch.num_sequences * arguments.num_heads * arguments.num_row_blocks;
  // A failure shows at the launch.
  static_cast<void>(
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  kKernel<<<static_cast<unsigned>(num_blocks), kBlockThreads, kSharedBytes, queue->stream()>>>(
      arguments);
  return queue->LaunchStatus("PalimpsaPrefillKernel");
}

template <int kLanes, int kColumns, int kRows>
absl::Status LaunchForm(Queue* queue, const FoldArguments& arguments) {
  if (arguments.batch.q == nullptr) {
    return arguments.batch.precision != nullptr
               ? Launch<kLanes, kColumns, kRows, true, false>(queue, arguments)
               : Launch<kLanes, kColumns, kRows, false, false>(queue, arguments);
  }
  return arguments.batch.precision != nullptr
             ? Launch<kLanes, kColumns, kRows, true, true>(queue, arguments)
             : Launch<kLanes, kColumns, kRows, false, true>(queue, arguments);
}

// The most rows to a thread (they share the loads of keys and queries) that still give every
// multiprocessor a block and a half. With precision and reads, four rows take too many registers.
int ChooseRows(const Queue& queue, const FoldArguments& arguments, int pass_rows) {
  const bool is_heavy = arguments.batch.q != nullptr && arguments.batch.precision != nullptr;
  for (int rows = is_heavy ? 2 : 4; rows > 1; rows /= 2) {
    const int block_rows = kWarps * pass_rows * rows;
    const int64_t num_blocks = arguments.batch.num_sequences * arguments.num_heads *
                               ((arguments.value_dim + block_rows - 1) / block_rows);
    if (2 * num_blocks >= 3 * int64_t{queue.num_multiprocessors()}) return rows;
  }
  return 1;
}

}  // namespace

absl::Status LaunchPrefill(Queue* queue, const FoldArguments& arguments, int rows) {
  const bool is_narrow = arguments.key_dim <= 64;
  if (rows == 0) rows = ChooseRows(*queue, arguments, is_narrow ? 2 : 1);
  if (is_narrow) {
    if (rows == 4) return LaunchForm<16, 4, 4>(queue, arguments);
    if (rows == 2) return LaunchForm<16, 4, 2>(queue, arguments);
    // Few rows: two columns to a lane make twice as many warps.
    return LaunchForm<32, 2, 1>(queue, arguments);
  }
  if (rows == 4) return LaunchForm<32, 4, 4>(queue, arguments);
  if (rows == 2) return LaunchForm<32, 4, 2>(queue, arguments);
  return LaunchForm<32, 4, 1>(queue, arguments);
}

}  // namespace lethe::palimpsa_cuda
