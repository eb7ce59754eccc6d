// Tiles of inputs in shared memory, for the prefill kernel: their layout, the copies into them and
// the copies of reads out of shared memory.
#ifndef LETHE_KERNELS_PALIMPSA_PALIMPSA_TILE_CUDA_CUH_
#define LETHE_KERNELS_PALIMPSA_PALIMPSA_TILE_CUDA_CUH_

#include "kernels/palimpsa/palimpsa_cuda.cuh"

namespace lethe::palimpsa_cuda {

constexpr int kStages = 2;  // tiles in shared memory: one in use, one on its way
constexpr int kTile = 32;   // tokens staged at once; the loading warp has a lane for each decay
constexpr int kBlockThreads = kThreads + kWarpSize;  // and the warp that loads

// A tile of inputs in shared memory, and which rows a thread has.
template <int kLanes, int kColumns, int kRows>
struct Tile {
  static constexpr int kPassRows = kWarpSize / kLanes;
  static constexpr int kWarpRows = kPassRows * kRows;
  static constexpr int kBlockRows = kWarps * kWarpRows;
  // A thread reads value and precision 16 bytes at a time: four rows of one token where it has four
  // rows, else four tokens of one row. For the latter they are transposed on their way into the
  // tile, and padded so that neighbouring rows lie in other banks.
  static constexpr bool kByToken = kRows == 4;
  static constexpr int kRowStep = kByToken ? 1 : kPassRows;  // between a thread's rows
  static constexpr int kValueRows = kByToken ? kTile : kBlockRows;
  static constexpr int kValueColumns = kByToken ? kBlockRows : kTile + 4;

  // The thread's first row in the block.
  __device__ static int Row(int warp, int lane) {
    return warp * kWarpRows + lane % kPassRows * (kByToken ? kRows : 1);
  }

  float k[kTile][kLanes * kColumns];
  float q[kTile][kLanes * kColumns];
  float value[kValueRows][kValueColumns];
  float precision[kValueRows][kValueColumns];
};

template <int kLanes, int kColumns, int kRows>
struct Shared {
  Tile<kLanes, kColumns, kRows> tiles[kStages];
  float decays[2][kTile];
  float out[2][kTile][Tile<kLanes, kColumns, kRows>::kBlockRows];
  uint64_t meeting;
};

__device__ inline unsigned SharedAddress(const float* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

template <int kBytes>
__device__ inline void CopyAsync(const char* from, unsigned to) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(to), "l"(from));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" : : "r"(to), "l"(from), "n"(kBytes));
  }
}

// Every kTokenStep-th token from `token` on, below `count`: kBytes of each, from `from` on, which
// belongs to `token`, to shared memory at `to`. token_stride in bytes: one multiplication gives an
// address, and this warp has little else to do.
template <int kBytes, int kTokenStep, int kToStep, bool kWholeTile>
__device__ inline void CopyTokens(const float* from, int token_stride, int token, int count,
                                  unsigned to) {
  const char* bytes = reinterpret_cast<const char*>(from);
#pragma unroll
  for (int n = 0; n < kTile / kTokenStep; ++n) {
    if (!kWholeTile && token + n * kTokenStep >= count) break;
    CopyAsync<kBytes>(bytes + int64_t{token_stride} * (n * kTokenStep), to + n * kToStep);
  }
}

// The warp that loads: `count` tokens from `first` on, into a tile.
template <int kLanes, int kColumns, int kRows, bool kPrecision, bool kRead, bool kWholeTile>
__device__ inline void LoadTile(const FoldArguments& arguments, const BlockPlace& place, int lane,
                                int64_t first, int count, Tile<kLanes, kColumns, kRows>* tile) {
  using Block = Tile<kLanes, kColumns, kRows>;
  const PalimpsaBatch& batch = arguments.batch;
  constexpr int kLanesOfKey = kLanes * kColumns / 4;
  const int column = lane % kLanesOfKey * 4;
  if (column < arguments.key_dim) {
    constexpr int kStep = kWarpSize / kLanesOfKey;
    constexpr int kToStep = kStep * sizeof(tile->k[0]);
    const int token = lane / kLanesOfKey;
    const int stride = arguments.num_heads * arguments.key_dim * static_cast<int>(sizeof(float));
    const int64_t at =
        ((first + token) * arguments.num_heads + place.head) * arguments.key_dim + column;
    CopyTokens<16, kStep, kToStep, kWholeTile>(batch.k + at, stride, token, count,
                                               SharedAddress(&tile->k[token][column]));
    if constexpr (kRead) {
      CopyTokens<16, kStep, kToStep, kWholeTile>(batch.q + at, stride, token, count,
                                                 SharedAddress(&tile->q[token][column]));
    }
  }
  constexpr int kPartRows = Block::kByToken ? 4 : 1;
  constexpr int kLanesOfToken = Block::kBlockRows / kPartRows;
  const int row = lane % kLanesOfToken * kPartRows;
  if (place.first_row + row < arguments.value_dim) {
    constexpr int kBytes = kPartRows * sizeof(float);
    constexpr int kStep = kWarpSize / kLanesOfToken;
    constexpr int kToStep = kStep * (Block::kByToken ? sizeof(tile->value[0]) : sizeof(float));
    const int token = lane / kLanesOfToken;
    const int stride = arguments.num_heads * arguments.value_dim * static_cast<int>(sizeof(float));
    const int64_t at = ((first + token) * arguments.num_heads + place.head) * arguments.value_dim +
                       place.first_row + row;
    const int to_row = Block::kByToken ? token : row;
    const int to_column = Block::kByToken ? row : token;
    CopyTokens<kBytes, kStep, kToStep, kWholeTile>(batch.value + at, stride, token, count,
                                                   SharedAddress(&tile->value[to_row][to_column]));
    if constexpr (kPrecision) {
      CopyTokens<kBytes, kStep, kToStep, kWholeTile>(
          batch.precision + at, stride, token, count,
          SharedAddress(&tile->precision[to_row][to_column]));
    }
  }
}

// The warp that loads: reads of `count` tokens from `first` on, from shared memory to their place.
template <int kBlockRows>
__device__ inline void StoreOut(const FoldArguments& arguments, const BlockPlace& place, int lane,
                                int64_t first, int count, const float (*out)[kBlockRows]) {
  constexpr int kParts = kBlockRows / 4;
  const int row = lane % kParts * 4;
  if (place.first_row + row >= arguments.value_dim) return;
  const int stride = arguments.num_heads * arguments.value_dim;
  float* to = arguments.batch.out +
              (first * arguments.num_heads + place.head) * arguments.value_dim + place.first_row;
#pragma unroll
  for (int n = 0; n < kTile * kParts / kWarpSize; ++n) {
    const int token = lane / kParts + n * (kWarpSize / kParts);
    if (token < count) {
      *reinterpret_cast<float4*>(to + (token * stride + row)) =
          *reinterpret_cast<const float4*>(&out[token][row]);
    }
  }
}

}  // namespace lethe::palimpsa_cuda

#endif  // LETHE_KERNELS_PALIMPSA_PALIMPSA_TILE_CUDA_CUH_
