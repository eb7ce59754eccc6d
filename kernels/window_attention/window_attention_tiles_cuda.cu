// Many tokens a sequence: 64 queries of one head a block. Products of queries and keys do not depend on
// where a pair stands in the tile; sums over the window run by distance from each query.
#include <algorithm>

#include "kernels/base/copy_async_cuda.cuh"
#include "kernels/math/math_cuda.cuh"
#include "kernels/window_attention/window_attention_cuda.h"

namespace lethe::window_attention {
namespace {

constexpr int kDim = 64;      // K and V
constexpr int kQueries = 64;  // of a tile; the 64 keys before its first come with it
constexpr int kBefore = 64;
constexpr int kKeys = kBefore + kQueries;

// Scores: a thread has 4 queries and 8 keys. The window of 4 neighbours crosses 9 groups of 8 keys.
constexpr int kScoreQueries = 4;
constexpr int kScoreKeys = 8;
constexpr int kKeyGroups = 9;
constexpr int kScoreThreads = kQueries / kScoreQueries * kKeyGroups;
constexpr int kThreads = (kScoreThreads + 31) / 32 * 32;
// Values: a thread has 8 queries and 4 channels.
constexpr int kValueQueries = 8;
constexpr int kValueChannels = 4;
constexpr int kValueThreads = kQueries / kValueQueries * (kDim / kValueChannels);

// Shared memory in floats. The weights take the place of queries and keys.
constexpr int kQueryFloats = kDim * kQueries;    // [dimension][query]
constexpr int kKeyFloats = kDim * kKeys;         // [dimension][place of the key]
constexpr int kValueFloats = kKeys * kDim;       // [key][channel]
constexpr int kWeightFloats = kKeys * kQueries;  // [key][query]
static_assert(kWeightFloats <= kQueryFloats + kKeyFloats);
constexpr size_t kSharedBytes =
    sizeof(float) * (kQueryFloats + kKeyFloats + kValueFloats + kQueries);

struct Tile {
  int64_t first_row;    // of the packed arrays: the tile's first query
  int64_t before_call;  // tokens of the call before the tile's first
  int64_t rank;         // of the tile's first query
  int64_t slot_head;    // slot * H + head
  int head;
  int num_queries;
  int phase;  // the first query's place in the pool
};

// Key i's place in a row of transposed keys: the halves of a group of 8 lie apart, so that neighbouring
// groups' first halves are contiguous.
__device__ __forceinline__ int PlaceOfKey(int i) {
  return i % 8 < 4 ? i / 8 * 4 + i % 4 : kKeys / 2 + i / 8 * 4 + i % 4;
}

// Row of key or value i (the tile's queries are kBefore …); null where the sequence has none or the
// window does not reach.
__device__ __forceinline__ const float* SourceRow(const CudaProblem& p, const Tile& tile,
                                                  const float* packed, const float* pool, int i) {
  const int token = i - kBefore;  // from the tile's first query
  if (token >= tile.num_queries || tile.rank + token < 0) return nullptr;
  if (tile.before_call + token >= 0) {
    return packed + ((tile.first_row + token) * p.num_heads + tile.head) * kDim;
  }
  // Rows before the call, which only its first tile reaches: the pool holds window - 1 of them.
  if (token <= -p.window) return nullptr;
  const int place = tile.phase + token;
  return pool +
         (tile.slot_head * (p.window - 1) + (place >= 0 ? place : place + p.window - 1)) * kDim;
}

// kCount numbers of 16 bytes of a row, to column `row` of a matrix [dimension][stride]: zeros for null.
template <int kCount, int kStride>
__device__ __forceinline__ void LoadTransposed(const float* from, float* to) {
  float4 values[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (from != nullptr) values[i] = reinterpret_cast<const float4*>(from)[i];
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    to[(4 * i) * kStride] = values[i].x;
    to[(4 * i + 1) * kStride] = values[i].y;
    to[(4 * i + 2) * kStride] = values[i].z;
    to[(4 * i + 3) * kStride] = values[i].w;
  }
}

__device__ __forceinline__ void LoadTile(const CudaProblem& p, const Tile& tile, float* queries,
                                         float* keys, float* values) {
  const int thread = static_cast<int>(threadIdx.x);
  constexpr int kRowChunks = kDim / 4;
  constexpr int kLoadThreads = kKeys;
  static_assert(kLoadThreads <= kThreads && kLoadThreads == 2 * kQueries);
  if (thread < kLoadThreads) {
    // Values: sixteen threads a row.
#pragma unroll 4
    for (int row = thread / kRowChunks; row < kKeys; row += kLoadThreads / kRowChunks) {
      const float* from = SourceRow(p, tile, p.v, p.pool.values, row);
      const int column = thread % kRowChunks * 4;
      cuda::CopyAsync16(values + row * kDim + column, (from != nullptr ? from : p.v) + column,
                        from != nullptr);
    }
    cuda::CommitCopies();
    // Keys: a thread a row, in two halves. Queries: two threads a row.
    const float* key = SourceRow(p, tile, p.k, p.pool.keys, thread);
    float* to = keys + PlaceOfKey(thread);
    LoadTransposed<kRowChunks / 2, kKeys>(key, to);
    LoadTransposed<kRowChunks / 2, kKeys>(key != nullptr ? key + kDim / 2 : nullptr,
                                          to + kDim / 2 * kKeys);
    const int row = thread % kQueries;
    const int column = thread / kQueries * (kDim / 2);
    const float* query = row < tile.num_queries
                             ? p.q + ((tile.first_row + row) * p.num_heads + tile.head) * kDim
                             : nullptr;
    LoadTransposed<kRowChunks / 2, kQueries>(query != nullptr ? query + column : nullptr,
                                             queries + column * kQueries + row);
  }
}

using Scores = float[kScoreQueries][kScoreKeys];

// Lane `lane` of every pair's product: dimensions lane, lane + 8, … .
__device__ __forceinline__ void SumLane(const float* queries, const float* keys, int lane,
                                        Scores& sums) {
#pragma unroll
  for (int m = 0; m < kScoreQueries; ++m) {
#pragma unroll
    for (int n = 0; n < kScoreKeys; ++n) sums[m][n] = 0.0f;
  }
#pragma unroll
  for (int i = lane; i < kDim; i += 8) {
    const float4 q = *reinterpret_cast<const float4*>(queries + i * kQueries);
    const float4 low = *reinterpret_cast<const float4*>(keys + i * kKeys);
    const float4 high = *reinterpret_cast<const float4*>(keys + i * kKeys + kKeys / 2);
    const float query[kScoreQueries] = {q.x, q.y, q.z, q.w};
    const float key[kScoreKeys] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int m = 0; m < kScoreQueries; ++m) {
#pragma unroll
      for (int n = 0; n < kScoreKeys; ++n) sums[m][n] = fmaf(query[m], key[n], sums[m][n]);
    }
  }
}

__device__ __forceinline__ void AddTo(Scores& sums, const Scores& other) {
#pragma unroll
  for (int m = 0; m < kScoreQueries; ++m) {
#pragma unroll
    for (int n = 0; n < kScoreKeys; ++n) sums[m][n] += other[m][n];
  }
}

// l_a + l_(a+4), as the tree of kernels/math's Dot begins.
__device__ __forceinline__ void SumPair(const float* queries, const float* keys, int lane,
                                        Scores& sums) {
  Scores other;
  SumLane(queries, keys, lane, sums);
  SumLane(queries, keys, lane + 4, other);
  AddTo(sums, other);
}

// The scores of a thread's pairs, to weights[key][query].
__device__ __forceinline__ void ScorePairs(const CudaProblem& p, float slope, const float* queries,
                                           const float* keys, int query_group, int key_group,
                                           Scores& sums) {
  queries += query_group * kScoreQueries;
  keys += key_group * (kScoreKeys / 2);
  Scores odd, other;
  // ((l0+l4)+(l2+l6)) + ((l1+l5)+(l3+l7)).
  SumPair(queries, keys, 0, sums);
  SumPair(queries, keys, 2, other);
  AddTo(sums, other);
  SumPair(queries, keys, 1, odd);
  SumPair(queries, keys, 3, other);
  AddTo(odd, other);
  AddTo(sums, odd);
#pragma unroll
  for (int m = 0; m < kScoreQueries; ++m) {
#pragma unroll
    for (int n = 0; n < kScoreKeys; ++n) {
      const int distance = kBefore + query_group * kScoreQueries + m - (key_group * kScoreKeys + n);
      sums[m][n] = fmaf(-slope, static_cast<float>(distance), sums[m][n] * p.scale);
    }
  }
}

// Scores to weights in place, and each query's total. Two neighbouring threads share a query: one has the
// distances of lanes 0 … 3, the other those of 4 … 7.
__device__ __forceinline__ void WeighQueries(const CudaProblem& p, const Tile& tile, float* weights,
                                             float* totals) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= 2 * kQueries) return;
  const int query = thread / 2;
  const int half = thread % 2;
  const int count = static_cast<int>(min(tile.rank + query + 1, static_cast<int64_t>(p.window)));
  float* newest = weights + (kBefore + query) * kQueries + query;
  float scores[kBefore / 2];
  float largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kBefore / 2; ++i) {
    const int j = i / 4 * 8 + half * 4 + i % 4;
    scores[i] = j < count ? newest[-j * kQueries] : -INFINITY;
    largest = fmaxf(largest, scores[i]);
  }
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
  float lanes[4] = {};
#pragma unroll
  for (int i = 0; i < kBefore / 2; ++i) {
    const int j = i / 4 * 8 + half * 4 + i % 4;
    const float weight = cuda::Exp(scores[i] - largest);  // +0 beyond the window
    lanes[i % 4] += weight;
    if (j < count) newest[-j * kQueries] = weight;
  }
#pragma unroll
  for (float& lane : lanes) lane += __shfl_xor_sync(0xffffffffu, lane, 1);
  if (half == 0) totals[query] = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

// o of 8 queries and 4 channels. At step s query m is at distance s + m - 7, so a step's value is one key's
// row for all of them.
__device__ __forceinline__ void SumValues(const CudaProblem& p, const Tile& tile,
                                          const float* weights, const float* values,
                                          const float* totals) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= kValueThreads) return;
  const int first_query = thread / (kDim / kValueChannels) * kValueQueries;
  const int channel = thread % (kDim / kValueChannels) * kValueChannels;
  if (first_query >= tile.num_queries) return;
  constexpr int kLast = kValueQueries - 1;
  const int newest = kBefore + first_query + kLast;
  float sums[kValueQueries][kValueChannels] = {};
  const auto step = [&](int s, auto is_in_window) {
    const int key = newest - s;
    const float4 value = *reinterpret_cast<const float4*>(values + key * kDim + channel);
    const auto* of_key = reinterpret_cast<const float4*>(weights + key * kQueries + first_query);
    const float4 low = of_key[0];
    const float4 high = of_key[1];
    const float weight[kValueQueries] = {low.x,  low.y,  low.z,  low.w,
                                         high.x, high.y, high.z, high.w};
#pragma unroll
    for (int m = 0; m < kValueQueries; ++m) {
      if (!is_in_window(m, s + m - kLast)) continue;
      sums[m][0] = fmaf(weight[m], value.x, sums[m][0]);
      sums[m][1] = fmaf(weight[m], value.y, sums[m][1]);
      sums[m][2] = fmaf(weight[m], value.z, sums[m][2]);
      sums[m][3] = fmaf(weight[m], value.w, sums[m][3]);
    }
  };
  const auto is_present = [&](int m, int j) {
    return j >= 0 && j < p.window && j <= tile.rank + first_query + m;
  };
  const bool is_full = tile.rank + first_query + 1 >= p.window;
  const int num_steps = min(p.window + kLast, newest + 1);
  int s = 0;
  for (; s < min(kLast, num_steps); ++s) step(s, is_present);
  if (is_full) {
#pragma unroll 4
    for (; s < p.window; ++s) step(s, [](int, int) { return true; });
  }
  for (; s < num_steps; ++s) step(s, is_present);
#pragma unroll
  for (int m = 0; m < kValueQueries; ++m) {
    const int query = first_query + m;
    if (query >= tile.num_queries) break;
    const float total = totals[query];
    const float4 o = {sums[m][0] / total, sums[m][1] / total, sums[m][2] / total,
                      sums[m][3] / total};
    *reinterpret_cast<float4*>(p.o + ((tile.first_row + query) * p.num_heads + tile.head) * kDim +
                               channel) = o;
  }
}

// grid: [H x tiles of the longest sequence][sequences]; dynamic shared memory: kSharedBytes.
__global__ void __launch_bounds__(kThreads, 2) TilesKernel(const CudaProblem p) {
  extern __shared__ float4 shared[];
  const int64_t sequence = blockIdx.y;
  const int64_t first_row = p.sequences.offsets[sequence];
  const int64_t length = p.sequences.offsets[sequence + 1] - first_row;
  const auto num_heads = static_cast<unsigned>(p.num_heads);
  const int64_t before_call = static_cast<int64_t>(blockIdx.x / num_heads) * kQueries;
  if (before_call >= length) return;
  const int head = static_cast<int>(blockIdx.x % num_heads);
  const int64_t rank = p.sequences.ranks[sequence] + before_call;
  const Tile tile = {first_row + before_call,
                     before_call,
                     rank,
                     static_cast<int64_t>(p.sequences.slots[sequence]) * p.num_heads + head,
                     head,
                     static_cast<int>(min(length - before_call, static_cast<int64_t>(kQueries))),
                     p.window > 1 ? static_cast<int>(rank % (p.window - 1)) : 0};
  auto* queries = reinterpret_cast<float*>(shared);
  float* keys = queries + kQueryFloats;
  float* values = keys + kKeyFloats;
  float* totals = values + kValueFloats;
  float* weights = queries;
  LoadTile(p, tile, queries, keys, values);
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x);
  const int query_group = thread % (kQueries / kScoreQueries);
  const int key_group =
      query_group * kScoreQueries / kScoreKeys + thread / (kQueries / kScoreQueries);
  Scores scores;
  if (thread < kScoreThreads) {
    ScorePairs(p, p.slopes[head], queries, keys, query_group, key_group, scores);
  }
  __syncthreads();  // the weights take the keys' place
  if (thread < kScoreThreads) {
#pragma unroll
    for (int n = 0; n < kScoreKeys; ++n) {
      const float4 of_key = {scores[0][n], scores[1][n], scores[2][n], scores[3][n]};
      *reinterpret_cast<float4*>(weights + (key_group * kScoreKeys + n) * kQueries +
                                 query_group * kScoreQueries) = of_key;
    }
  }
  __syncthreads();
  WeighQueries(p, tile, weights, totals);
  cuda::WaitForCopies<0>();
  __syncthreads();
  SumValues(p, tile, weights, values, totals);
}

}  // namespace

bool FitsTiles(const CudaProblem& p) {
  return p.key_dim == kDim && p.value_dim == kDim && p.window <= kBefore;
}

absl::Status TilesCuda(Queue* queue, const CudaProblem& p) {
  // Once; where the device has less the launch fails.
  [[maybe_unused]] static const cudaError_t allowed = cudaFuncSetAttribute(
      TilesKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSharedBytes));
  const int64_t num_tiles = (p.sequences.longest + kQueries - 1) / kQueries;
  const dim3 grid(static_cast<unsigned>(num_tiles * p.num_heads),
                  static_cast<unsigned>(p.sequences.num_sequences));
  TilesKernel<<<grid, kThreads, kSharedBytes, queue->stream()>>>(p);
  return queue->LaunchStatus("window attention, tiles");
}

}  // namespace lethe::window_attention
