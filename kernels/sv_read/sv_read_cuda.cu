// A block has one head of one token, or of kTile of a session's tokens, and up to 64 columns of the values.
// Rows go through shared memory in slices, four in flight. After the logits every slice is two steps a
// barrier apart, which overlap with those of its neighbours: its weights, then its part of the sums.
#include <algorithm>

#include "kernels/base/copy_async_cuda.cuh"
#include "kernels/math/math_cuda.cuh"
#include "kernels/sv_read/sv_read_cuda.h"

namespace lethe::sv_read {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kTile = 8;  // tokens of a block where a session has several
constexpr int kColumns = 64;
constexpr int kSlice = 32;  // rows
constexpr int kStages = 4;
constexpr int kTail = static_cast<int>(kSvTailTokens);
constexpr int kTileKeyDimMax = 256;             // of kTile queries in shared memory
constexpr int kLogitFloatsMax = 76 * 1024 / 4;  // with the rest at most 160 KiB, on sm_80 too

// Shared memory, in floats.
constexpr int kStageFloats = kSlice * (kColumns + 2);  // values, gates, places of the keys
constexpr int kStageGates = kSlice * kColumns;
constexpr int kStageKeyOf = kStageGates + kSlice;
constexpr int kValuesFloats = kStages * kStageFloats;
template <int kQueries>
struct Layout {
  static constexpr int kWeights = kValuesFloats;  // two slices
  static constexpr int kLargest = kWeights + 2 * kSlice * kQueries;
  static constexpr int kTotals = kLargest + kWarps * kQueries;
  static constexpr int kQuery = kTotals + 8;
  static_assert(kQueries <= 8 && kQuery % 4 == 0);
};

// What a block works on. Rows: the support's, then local ones: the tail's from before the call, the call's.
template <int kQueries>
struct Tile {
  SvReadHead rows;
  int64_t first_row;  // of the packed arrays: the sequence's first token
  int64_t row;        // the tile's first
  int head;
  int before;       // local tokens before the call
  int before_tile;  // local tokens before the tile
  int num_queries;

  __device__ int num_local() const { return before_tile + num_queries; }
  __device__ int num_rows() const { return rows.num_support + num_local(); }
  // Local tokens that query m reads.
  __device__ int local_of(int m) const { return before_tile + m + 1; }

  __device__ const float* LocalRow(const CudaProblem& p, const float* packed, const float* tail,
                                   int dim, int i) const {
    return i < before ? tail + i * dim
                      : packed + ((first_row + (i - before)) * p.num_heads + head) * dim;
  }
  __device__ const float* KeyRow(const CudaProblem& p, int i) const {
    return i < num_local() ? LocalRow(p, p.k, rows.tail_keys, p.key_dim, i)
                           : rows.support_keys + static_cast<int64_t>(i - num_local()) * p.key_dim;
  }
  __device__ const float* ValueRow(const CudaProblem& p, int i) const {
    return i < rows.num_support
               ? rows.support_values + static_cast<int64_t>(i) * p.value_dim
               : LocalRow(p, p.v, rows.tail_values, p.value_dim, i - rows.num_support);
  }
};

// Slice `slice` of the rows, columns from `column`, to its stage: one group of copies, empty past the end.
template <int kQueries>
__device__ __forceinline__ void StageSlice(const CudaProblem& p, const Tile<kQueries>& tile,
                                           int slice, int column, float* shared) {
  constexpr int kChunks = kColumns / 4;
  float* stage = shared + slice % kStages * kStageFloats;
  const int first = slice * kSlice;
  const int num_rows = min(kSlice, tile.num_rows() - first);
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int n = thread; n < kSlice * kChunks; n += kThreads) {
    const int row = n / kChunks;
    const int offset = n % kChunks * 4;
    if (row < num_rows && column + offset < p.value_dim) {
      cuda::CopyAsync16(stage + row * kColumns + offset,
                        tile.ValueRow(p, first + row) + column + offset);
    }
  }
  // Four gates, or places of keys, a thread.
  constexpr int kFours = kSlice / 4;
  const int row = first + thread % kFours * 4;
  if (thread < 2 * kFours && row < tile.rows.num_support) {
    const bool is_gate = thread < kFours;
    const void* from = is_gate ? static_cast<const void*>(tile.rows.support_gates + row)
                               : static_cast<const void*>(tile.rows.support_key_of + row);
    cuda::CopyAsync16(stage + (is_gate ? kStageGates : kStageKeyOf) + thread % kFours * 4, from);
  }
  cuda::CommitCopies();
}

// Place of a key's logits: local ones first.
__device__ __forceinline__ int PlaceOfDistinct(int i) { return kTail + i; }

// Logits of all keys: eight neighbouring threads have the lanes of one key's product, a warp eight keys at
// once. Every warp's largest of each query goes to `largest`.
template <int kQueries, int kKeyDim>
__device__ __forceinline__ void FillLogits(const CudaProblem& p, const Tile<kQueries>& tile,
                                           const float* query, float* logits, float* largest) {
  const int key_dim = kKeyDim > 0 ? kKeyDim : p.key_dim;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int group = static_cast<int>(threadIdx.x) % 32 / 8;
  const int lane = static_cast<int>(threadIdx.x) % 8;
  const float scale = p.scales[tile.head];
  const int num_local = tile.num_local();
  const int num_keys = num_local + tile.rows.num_distinct;
  float most[kQueries];
#pragma unroll
  for (float& x : most) x = -INFINITY;
  constexpr int kAtOnce = 2;
  for (int first = warp * 4 * kAtOnce; first < num_keys; first += kWarps * 4 * kAtOnce) {
    const float* rows[kAtOnce];
    float sums[kAtOnce][kQueries] = {};
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      rows[u] = tile.KeyRow(p, min(first + u * 4 + group, num_keys - 1)) + lane;
    }
#pragma unroll 8
    for (int i = 0; i < key_dim; i += 8) {
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const float key = rows[u][i];
#pragma unroll
        for (int m = 0; m < kQueries; ++m) {
          sums[u][m] = fmaf(query[m * key_dim + i + lane], key, sums[u][m]);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int n = first + u * 4 + group;
      const bool is_local = n < num_local;
      const int place = is_local ? n : PlaceOfDistinct(n - num_local);
#pragma unroll
      for (int m = 0; m < kQueries; ++m) {
        const float logit = scale * cuda::SumTree(sums[u][m]);
        if (n >= num_keys) continue;
        if (!is_local || n < tile.local_of(m)) most[m] = fmaxf(most[m], logit);
        if (lane == m && place < p.room) logits[place * kQueries + m] = logit;
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kQueries; ++m) {
    most[m] = fmaxf(most[m], __shfl_xor_sync(0xffffffffu, most[m], 8));
    most[m] = fmaxf(most[m], __shfl_xor_sync(0xffffffffu, most[m], 16));
    if (threadIdx.x % 32 == 0) largest[warp * kQueries + m] = most[m];
  }
}

template <int kQueries>
__device__ __forceinline__ float LargestOf(const float* largest, int m) {
  float most = largest[m];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) most = fmaxf(most, largest[warp * kQueries + m]);
  return most;
}

// exp(logit - largest) in place.
template <int kQueries>
__device__ __forceinline__ void ExpLogits(const CudaProblem& p, const Tile<kQueries>& tile,
                                          const float* largest, float* logits) {
  const int num_local = tile.num_local();
  const int num_distinct = min(tile.rows.num_distinct, p.room - kTail);
  const int m = static_cast<int>(threadIdx.x) % kQueries;
  const float most = LargestOf<kQueries>(largest, m);
  for (int n = static_cast<int>(threadIdx.x) / kQueries; n < num_local + num_distinct;
       n += kThreads / kQueries) {
    float* logit = logits + (n < num_local ? n : PlaceOfDistinct(n - num_local)) * kQueries + m;
    *logit = cuda::Exp(*logit - most);
  }
}

// The same for a key without a place, by one thread.
__device__ __noinline__ float ExpOfKey(const float* query, const float* key, int key_dim,
                                       float scale, float most) {
  float lanes[8] = {};
  for (int i = 0; i < key_dim; i += 8) {
#pragma unroll
    for (int l = 0; l < 8; ++l) lanes[l] = fmaf(query[i + l], key[i + l], lanes[l]);
  }
  return cuda::Exp(scale * cuda::SumTree(lanes) - most);
}

// Weights of a slice's rows, [row][query].
template <int kQueries>
__device__ __forceinline__ void WeighSlice(const CudaProblem& p, const Tile<kQueries>& tile,
                                           int slice, const float* shared, const float* logits,
                                           float* weights) {
  // With one query threads that do not sum the values.
  const int n = static_cast<int>(threadIdx.x) - (kQueries == 1 ? kColumns : 0);
  if (n < 0 || n >= kSlice * kQueries) return;
  const int m = n % kQueries;
  const int row = n / kQueries;
  const int i = slice * kSlice + row;
  if (i >= tile.num_rows()) return;
  float weight;
  if (i < tile.rows.num_support) {
    const float* stage = shared + slice % kStages * kStageFloats;
    const int key = reinterpret_cast<const int32_t*>(stage)[kStageKeyOf + row];
    if (PlaceOfDistinct(key) < p.room) {
      weight = logits[PlaceOfDistinct(key) * kQueries + m];
    } else {
      const float* query = shared + Layout<kQueries>::kQuery + m * p.key_dim;
      weight = ExpOfKey(query, tile.rows.support_keys + static_cast<int64_t>(key) * p.key_dim,
                        p.key_dim, p.scales[tile.head],
                        LargestOf<kQueries>(shared + Layout<kQueries>::kLargest, m));
    }
    weight *= stage[kStageGates + row];
  } else {
    weight = logits[(i - tile.rows.num_support) * kQueries + m];
  }
  weights[row * kQueries + m] = weight;
}

// A thread's sums: one column of some queries, and maybe a lane of one query's total.
template <int kQueries>
struct Sums {
  static constexpr int kEach = (kQueries + kThreads / kColumns - 1) / (kThreads / kColumns);
  static_assert(kQueries == 1 || kEach * (kThreads / kColumns) == kQueries);
  int column = static_cast<int>(threadIdx.x) % kColumns;
  int query = static_cast<int>(threadIdx.x) / kColumns * kEach;           // the first of kEach
  int total = static_cast<int>(threadIdx.x) - (kThreads - 8 * kQueries);  // query * 8 + lane
  float o[kEach] = {};
  float lane = 0.0f;

  __device__ __forceinline__ void Add(const Tile<kQueries>& tile, int slice, const float* stage,
                                      const float* weights) {
    const int first = slice * kSlice;
    const int num_rows = min(kSlice, tile.num_rows() - first);
    const int all_read = tile.rows.num_support + tile.local_of(0) - first;  // by every query
    if (query < kQueries) {
      const float* value = stage + column;
      const float* weight = weights + query;
      int row = 0;
#pragma unroll 8
      for (; row < min(num_rows, all_read); ++row) {
#pragma unroll
        for (int m = 0; m < kEach; ++m) {
          o[m] = fmaf(weight[row * kQueries + m], value[row * kColumns], o[m]);
        }
      }
      for (; row < num_rows; ++row) {
#pragma unroll
        for (int m = 0; m < kEach; ++m) {
          if (row < all_read + query + m) {
            o[m] = fmaf(weight[row * kQueries + m], value[row * kColumns], o[m]);
          }
        }
      }
    }
    if (total >= 0) {
      const int end = min(num_rows, all_read + total / 8);
      for (int row = total % 8; row < end; row += 8) {
        lane += weights[row * kQueries + total / 8];
      }
    }
  }
};

// The tile's keys and values, to the tail. Nobody reads these places in this call.
template <int kQueries>
__device__ __forceinline__ void AppendToTail(const CudaProblem& p, const Tile<kQueries>& tile) {
  const auto append = [&](const float* packed, int dim, float* tail) {
    for (int n = static_cast<int>(threadIdx.x); n < tile.num_queries * dim; n += kThreads) {
      const int m = n / dim;
      tail[(tile.before_tile + m) * dim + n % dim] =
          packed[((tile.row + m) * p.num_heads + tile.head) * dim + n % dim];
    }
  };
  append(p.k, p.key_dim, tile.rows.tail_keys);
  append(p.v, p.value_dim, tile.rows.tail_values);
}

template <int kQueries>
__device__ __forceinline__ void StoreReads(const CudaProblem& p, const Tile<kQueries>& tile,
                                           int column, const Sums<kQueries>& sums, float* totals) {
  const float total = cuda::SumTree(sums.lane);
  if (sums.total >= 0 && sums.total % 8 == 0) totals[sums.total / 8] = total;
  __syncthreads();
  if (sums.query >= kQueries || column + sums.column >= p.value_dim) return;
#pragma unroll
  for (int m = 0; m < Sums<kQueries>::kEach; ++m) {
    const int query = sums.query + m;
    if (query >= tile.num_queries) return;
    p.o[((tile.row + query) * p.num_heads + tile.head) * p.value_dim + column + sums.column] =
        sums.o[m] / totals[query];
  }
}

// grid: [H x tiles of the longest sequence][sequences][V / 64]; dynamic shared memory: Layout, the queries
// [kQueries][K], the logits [room][kQueries].
template <int kQueries, int kKeyDim>
__global__ void __launch_bounds__(kThreads) ReadKernel(const CudaProblem p) {
  extern __shared__ float4 shared_bytes[];
  using L = Layout<kQueries>;
  auto* shared = reinterpret_cast<float*>(shared_bytes);
  float* query = shared + L::kQuery;
  float* logits = query + kQueries * p.key_dim;
  float* largest = shared + L::kLargest;
  const int64_t sequence = blockIdx.y;
  const int64_t first_row = p.sequences.offsets[sequence];
  const int64_t length = p.sequences.offsets[sequence + 1] - first_row;
  const int tile_begin =
      static_cast<int>(blockIdx.x / static_cast<unsigned>(p.num_heads)) * kQueries;
  if (tile_begin >= length) return;
  const int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.num_heads));
  const int before = static_cast<int>(p.sequences.ranks[sequence] % kTail);
  const Tile<kQueries> tile = {
      p.heads[static_cast<int64_t>(p.sequences.slots[sequence]) * p.num_heads + head],
      first_row,
      first_row + tile_begin,
      head,
      before,
      before + tile_begin,
      static_cast<int>(min(length - tile_begin, static_cast<int64_t>(kQueries)))};
  const int column = static_cast<int>(blockIdx.z) * kColumns;
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int slice = 0; slice < kStages - 1; ++slice) StageSlice(p, tile, slice, column, shared);
  for (int n = thread; n < kQueries * p.key_dim; n += kThreads) {
    const int m = n / p.key_dim;
    query[n] = m < tile.num_queries
                   ? p.q[((tile.row + m) * p.num_heads + head) * p.key_dim + n % p.key_dim]
                   : 0.0f;
  }
  __syncthreads();
  FillLogits<kQueries, kKeyDim>(p, tile, query, logits, largest);
  if (blockIdx.z == 0) AppendToTail(p, tile);
  __syncthreads();
  ExpLogits(p, tile, largest, logits);
  cuda::WaitForCopies<kStages - 2>();
  __syncthreads();
  const auto weights_of = [&](int slice) {
    return shared + L::kWeights + slice % 2 * kSlice * kQueries;
  };
  WeighSlice(p, tile, 0, shared, logits, weights_of(0));
  Sums<kQueries> sums;
  const int num_slices = (tile.num_rows() + kSlice - 1) / kSlice;
  for (int slice = 0; slice < num_slices; ++slice) {
    cuda::WaitForCopies<kStages - 3>();  // slice + 1 is there
    __syncthreads();  // for all; and slice - 1, whose stage is filled next, is done
    StageSlice(p, tile, slice + kStages - 1, column, shared);
    sums.Add(tile, slice, shared + slice % kStages * kStageFloats, weights_of(slice));
    WeighSlice(p, tile, slice + 1, shared, logits, weights_of(slice + 1));
  }
  StoreReads(p, tile, column, sums, shared + L::kTotals);
}

template <int kQueries, int kKeyDim>
absl::Status Launch(Queue* queue, CudaProblem p, int64_t most_distinct) {
  p.room = static_cast<int>(
      std::clamp<int64_t>(most_distinct + kTail, kTail, kLogitFloatsMax / kQueries));
  const int floats = Layout<kQueries>::kQuery + kQueries * (p.key_dim + p.room);
  // Once; where the device has less the launch fails.
  [[maybe_unused]] static const cudaError_t allowed = cudaFuncSetAttribute(
      ReadKernel<kQueries, kKeyDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, 160 * 1024);
  const int64_t num_tiles = (p.sequences.longest + kQueries - 1) / kQueries;
  const dim3 grid(static_cast<unsigned>(num_tiles * p.num_heads),
                  static_cast<unsigned>(p.sequences.num_sequences),
                  static_cast<unsigned>((p.value_dim + kColumns - 1) / kColumns));
  ReadKernel<kQueries, kKeyDim>
      <<<grid, kThreads, static_cast<size_t>(floats) * sizeof(float), queue->stream()>>>(p);
  return queue->LaunchStatus("sv read");
}

}  // namespace

absl::Status SvReadCuda(Queue* queue, const CudaProblem& p, int64_t most_distinct) {
  if (p.sequences.longest > 1 && p.key_dim <= kTileKeyDimMax) {
    return p.key_dim == 64 ? Launch<kTile, 64>(queue, p, most_distinct)
                           : Launch<kTile, 0>(queue, p, most_distinct);
  }
  return p.key_dim == 64 ? Launch<1, 64>(queue, p, most_distinct)
                         : Launch<1, 0>(queue, p, most_distinct);
}

}  // namespace lethe::sv_read
