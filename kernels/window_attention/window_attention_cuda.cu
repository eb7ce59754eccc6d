// One token a sequence (decode), and any shape: a block a query and head.
#include <algorithm>

#include "kernels/base/copy_async_cuda.cuh"
#include "kernels/math/math_cuda.cuh"
#include "kernels/window_attention/window_attention_cuda.h"

namespace lethe::window_attention {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kKeyPad =
    4;  // floats behind a staged key: eight lanes read eight keys without conflict
constexpr int kWindowBytesMax = 64 * 1024;      // RowsKernel's weights
constexpr size_t kSharedBytesMax = 160 * 1024;  // of a block, on sm_80 too

// The token and its place: what a block works on.
struct Query {
  int64_t row;      // of the packed arrays
  int64_t in_call;  // tokens of its sequence before it in this call
  int64_t rank;
  int32_t slot;
  int head;
  int count;  // keys in its window
};

__device__ __forceinline__ Query MakeQuery(const CudaProblem& p, int64_t sequence, int64_t token,
                                           int head) {
  Query query;
  query.row = p.sequences.offsets[sequence] + token;
  query.in_call = token;
  query.rank = p.sequences.ranks[sequence] + token;
  query.slot = p.sequences.slots[sequence];
  query.head = head;
  query.count = static_cast<int>(min(query.rank + 1, static_cast<int64_t>(p.window)));
  return query;
}

// The row of the key or value at distance j of the query, in the call or in the pool.
__device__ __forceinline__ const float* RowAt(const CudaProblem& p, const Query& query,
                                              const float* packed, const float* pool, int dim,
                                              int j) {
  if (j <= query.in_call) {
    return packed + ((query.row - j) * p.num_heads + query.head) * dim;
  }
  const int64_t place = (query.rank - j) % (p.window - 1);
  return pool +
         ((static_cast<int64_t>(query.slot) * p.num_heads + query.head) * (p.window - 1) + place) *
             dim;
}

// K and V of a kernel: kDim of both, or with kDim 0 the problem's.
template <int kDim>
__host__ __device__ __forceinline__ int KeyDim(const CudaProblem& p) {
  return kDim > 0 ? kDim : p.key_dim;
}
template <int kDim>
__host__ __device__ __forceinline__ int ValueDim(const CudaProblem& p) {
  return kDim > 0 ? kDim : p.value_dim;
}

__device__ __forceinline__ float Score(const float* q, const float* key, int dim, float scale,
                                       float slope, int distance) {
  float lanes[8] = {};
#pragma unroll 8
  for (int i = 0; i < dim; i += 8) {
    const float4 q_low = *reinterpret_cast<const float4*>(q + i);
    const float4 q_high = *reinterpret_cast<const float4*>(q + i + 4);
    const float4 k_low = *reinterpret_cast<const float4*>(key + i);
    const float4 k_high = *reinterpret_cast<const float4*>(key + i + 4);
    lanes[0] = fmaf(q_low.x, k_low.x, lanes[0]);
    lanes[1] = fmaf(q_low.y, k_low.y, lanes[1]);
    lanes[2] = fmaf(q_low.z, k_low.z, lanes[2]);
    lanes[3] = fmaf(q_low.w, k_low.w, lanes[3]);
    lanes[4] = fmaf(q_high.x, k_high.x, lanes[4]);
    lanes[5] = fmaf(q_high.y, k_high.y, lanes[5]);
    lanes[6] = fmaf(q_high.z, k_high.z, lanes[6]);
    lanes[7] = fmaf(q_high.w, k_high.w, lanes[7]);
  }
  return fmaf(-slope, static_cast<float>(distance), cuda::SumTree(lanes) * scale);
}

// Turns a block's scores into weights and returns their sum: the lanes and the tree of kernels/math's
// Sum. All threads; `warp_values` has kWarps floats.
__device__ __forceinline__ float Weigh(int count, float* weights, float* warp_values) {
  const int thread = static_cast<int>(threadIdx.x);
  float largest = -INFINITY;
  for (int j = thread; j < count; j += kThreads) largest = fmaxf(largest, weights[j]);
#pragma unroll
  for (int mask = 16; mask >= 1; mask /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, mask));
  }
  if (thread % 32 == 0) warp_values[thread / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) largest = fmaxf(largest, warp_values[warp]);
  for (int j = thread; j < count; j += kThreads) weights[j] = cuda::Exp(weights[j] - largest);
  __syncthreads();
  float lane = 0.0f;
  // Every eight lanes of every warp do the same.
#pragma unroll 8
  for (int j = thread % 8; j < count; j += 8) lane += weights[j];
  return cuda::SumTree(lane);
}

// Shared memory of DecodeKernel, in floats.
template <int kDim>
struct DecodeLayout {
  int key_stride;  // of a staged key
  int values;      // where the values begin, the query, the weights
  int query;
  int weights;
  __host__ __device__ explicit DecodeLayout(const CudaProblem& p)
      : key_stride(KeyDim<kDim>(p) + kKeyPad),
        values(p.window * key_stride),
        query(values + p.window * ValueDim<kDim>(p)),
        weights(query + KeyDim<kDim>(p)) {}
};

// A sequence's one token and one head, and where their window lies.
struct DecodeItem {
  Query query;
  bool is_there;  // the sequence has a token
  float* pool_keys;
  float* pool_values;

  __device__ DecodeItem(const CudaProblem& p, int64_t item) {
    const int64_t sequence = item / p.num_heads;
    query = MakeQuery(p, sequence, 0, static_cast<int>(item % p.num_heads));
    is_there = p.sequences.offsets[sequence + 1] > query.row;
    const int64_t slot_head = static_cast<int64_t>(query.slot) * p.num_heads + query.head;
    pool_keys = p.pool.keys + slot_head * (p.window - 1) * p.key_dim;
    pool_values = p.pool.values + slot_head * (p.window - 1) * p.value_dim;
  }
  __device__ int num_stored() const { return query.count - 1; }
  __device__ int64_t row_head(const CudaProblem& p) const {
    return query.row * p.num_heads + query.head;
  }
};

// Rows of the pool and, behind them, the token's own, to `to`.
__device__ __forceinline__ void StageRows(const float* pool, const float* own, int num_stored,
                                          int dim, int stride, float* to) {
  const int chunks = dim / 4;
  for (int i = static_cast<int>(threadIdx.x); i < (num_stored + 1) * chunks; i += kThreads) {
    const int row = i / chunks;
    const int column = i % chunks * 4;
    const float* from = row < num_stored ? pool + row * dim : own;
    cuda::CopyAsync16(to + row * stride + column, from + column);
  }
}

// Until the ring is full its stored rows are the first ones. Query and keys are one group of copies, values
// the next.
template <int kDim>
__device__ __forceinline__ void StageItem(const CudaProblem& p, const DecodeLayout<kDim>& layout,
                                          const DecodeItem& item, float* shared) {
  const int key_dim = KeyDim<kDim>(p);
  const int value_dim = ValueDim<kDim>(p);
  const int64_t row_head = item.row_head(p);
  StageRows(nullptr, p.q + row_head * key_dim, 0, key_dim, key_dim, shared + layout.query);
  StageRows(item.pool_keys, p.k + row_head * key_dim, item.num_stored(), key_dim, layout.key_stride,
            shared);
  cuda::CommitCopies();
  StageRows(item.pool_values, p.v + row_head * value_dim, item.num_stored(), value_dim, value_dim,
            shared + layout.values);
  cuda::CommitCopies();
}

// grid: items, a sequence's one token and one head each; dynamic shared memory: DecodeLayout.
template <int kDim>
__global__ void __launch_bounds__(kThreads) DecodeKernel(const CudaProblem p) {
  extern __shared__ float4 shared_bytes[];
  __shared__ float warp_values[kWarps];
  auto* shared = reinterpret_cast<float*>(shared_bytes);
  const DecodeItem item(p, blockIdx.x);
  if (!item.is_there) return;
  const DecodeLayout<kDim> layout(p);
  const int key_dim = KeyDim<kDim>(p);
  const int value_dim = ValueDim<kDim>(p);
  const float* values = shared + layout.values;
  float* weights = shared + layout.weights;
  const int thread = static_cast<int>(threadIdx.x);
  const int num_places = p.window - 1;
  const int count = item.query.count;
  const int own = item.num_stored();
  StageItem(p, layout, item, shared);
  // Staged row `own` is the query's; the one before it in rank is at place rank - 1.
  const int newest =
      num_places > 0 ? static_cast<int>((item.query.rank + num_places - 1) % num_places) : 0;
  const float slope = p.slopes[item.query.head];
  cuda::WaitForCopies<1>();
  __syncthreads();
  for (int j = thread; j < count; j += kThreads) {
    int row = newest - (j - 1);
    if (row < 0) row += num_places;
    if (j == 0) row = own;
    weights[j] =
        Score(shared + layout.query, shared + row * layout.key_stride, key_dim, p.scale, slope, j);
  }
  const float total = Weigh(count, weights, warp_values);
  cuda::WaitForCopies<0>();
  __syncthreads();
  for (int c = thread; c < value_dim; c += kThreads) {
    float sum = 0.0f;
    int row = own;
    int next = newest;
#pragma unroll 8
    for (int j = 0; j < count; ++j) {
      sum = fmaf(weights[j], values[row * value_dim + c], sum);
      row = next;
      next = next > 0 ? next - 1 : num_places - 1;
    }
    p.o[item.row_head(p) * value_dim + c] = sum / total;
  }
  if (num_places == 0) return;
  // The oldest row's place: it was copied before.
  const int place = static_cast<int>(item.query.rank % num_places);
  for (int i = thread; i < key_dim; i += kThreads) {
    item.pool_keys[place * key_dim + i] = shared[own * layout.key_stride + i];
  }
  for (int i = thread; i < value_dim; i += kThreads) {
    item.pool_values[place * value_dim + i] = values[own * value_dim + i];
  }
}

// Room for a window's weights: the compiler loads four at a time, past the last one too.
int NumWeights(const CudaProblem& p) { return (p.window + 7) / 8 * 8; }

size_t DecodeSharedBytes(const CudaProblem& p) {
  return static_cast<size_t>(DecodeLayout<0>(p).weights + NumWeights(p)) * sizeof(float);
}

// grid: [H x longest][sequences]; dynamic shared memory: weights [window].
__global__ void __launch_bounds__(kThreads) RowsKernel(const CudaProblem p) {
  extern __shared__ float4 shared[];
  __shared__ float warp_values[kWarps];
  const int64_t sequence = blockIdx.y;
  const int64_t token = blockIdx.x / static_cast<unsigned>(p.num_heads);
  if (token >= p.sequences.offsets[sequence + 1] - p.sequences.offsets[sequence]) return;
  const Query query = MakeQuery(p, sequence, token,
                                static_cast<int>(blockIdx.x % static_cast<unsigned>(p.num_heads)));
  auto* weights = reinterpret_cast<float*>(shared);
  const int64_t row_head = query.row * p.num_heads + query.head;
  const float slope = p.slopes[query.head];
  const int thread = static_cast<int>(threadIdx.x);
  for (int j = thread; j < query.count; j += kThreads) {
    weights[j] = Score(p.q + row_head * p.key_dim, RowAt(p, query, p.k, p.pool.keys, p.key_dim, j),
                       p.key_dim, p.scale, slope, j);
  }
  const float total = Weigh(query.count, weights, warp_values);
  for (int c = thread; c < p.value_dim; c += kThreads) {
    float sum = 0.0f;
    for (int j = 0; j < query.count; ++j) {
      sum = fmaf(weights[j], RowAt(p, query, p.v, p.pool.values, p.value_dim, j)[c], sum);
    }
    p.o[row_head * p.value_dim + c] = sum / total;
  }
}

// grid: [window-1][sequences]: block i stores the i-th last token of the call.
__global__ void __launch_bounds__(kThreads) UpdateKernel(const CudaProblem p) {
  const int64_t sequence = blockIdx.y;
  const int64_t end = p.sequences.offsets[sequence + 1];
  const int64_t row = end - 1 - static_cast<int64_t>(blockIdx.x);
  if (row < p.sequences.offsets[sequence]) return;
  const int64_t rank = p.sequences.ranks[sequence] + row - p.sequences.offsets[sequence];
  const int num_places = p.window - 1;
  const int64_t place = rank % num_places;
  const int64_t slot = p.sequences.slots[sequence];
  const auto store = [&](const float* packed, int dim, float* pool) {
    for (int i = static_cast<int>(threadIdx.x); i < p.num_heads * dim; i += kThreads) {
      const int64_t head = i / dim;
      pool[((slot * p.num_heads + head) * num_places + place) * dim + i % dim] =
          packed[row * p.num_heads * dim + i];
    }
  };
  store(p.k, p.key_dim, p.pool.keys);
  store(p.v, p.value_dim, p.pool.values);
}

dim3 Grid(int64_t x, int64_t y) { return dim3(static_cast<unsigned>(x), static_cast<unsigned>(y)); }

}  // namespace

bool FitsDecode(const CudaProblem& p) {
  return p.sequences.longest == 1 && DecodeSharedBytes(p) <= kSharedBytesMax;
}

template <int kDim>
void LaunchDecode(Queue* queue, const CudaProblem& p) {
  const size_t bytes = DecodeSharedBytes(p);
  // Once; where the device has less the launch fails.
  [[maybe_unused]] static const cudaError_t allowed =
      cudaFuncSetAttribute(DecodeKernel<kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(kSharedBytesMax));
  const int64_t num_items = p.sequences.num_sequences * p.num_heads;
  DecodeKernel<kDim><<<static_cast<unsigned>(num_items), kThreads, bytes, queue->stream()>>>(p);
}

absl::Status DecodeCuda(Queue* queue, const CudaProblem& p) {
  if (p.key_dim == 64 && p.value_dim == 64) {
    LaunchDecode<64>(queue, p);
  } else {
    LaunchDecode<0>(queue, p);
  }
  return queue->LaunchStatus("window attention, one token");
}

absl::Status RowsCuda(Queue* queue, const CudaProblem& p) {
  const size_t bytes = static_cast<size_t>(NumWeights(p)) * sizeof(float);
  [[maybe_unused]] static const cudaError_t allowed = cudaFuncSetAttribute(
      RowsKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kWindowBytesMax);
  RowsKernel<<<Grid(p.sequences.longest * p.num_heads, p.sequences.num_sequences), kThreads, bytes,
               queue->stream()>>>(p);
  return queue->LaunchStatus("window attention, rows");
}

absl::Status UpdateCuda(Queue* queue, const CudaProblem& p) {
  if (p.window == 1) return absl::OkStatus();
  const int64_t num_rows = std::min<int64_t>(p.window - 1, p.sequences.longest);
  UpdateKernel<<<Grid(num_rows, p.sequences.num_sequences), kThreads, 0, queue->stream()>>>(p);
  return queue->LaunchStatus("window attention, state");
}

absl::Status WindowAttentionCuda(Queue* queue, const CudaProblem& p) {
  if (FitsDecode(p)) return DecodeCuda(queue, p);
  LETHE_RETURN_IF_ERROR(FitsTiles(p) ? TilesCuda(queue, p) : RowsCuda(queue, p));
  return UpdateCuda(queue, p);
}

}  // namespace lethe::window_attention
