#include "kernels/sampling/philox_rounds.h"
#include "kernels/sampling/sampling_order_cuda.cuh"

namespace lethe::sampling {
namespace {

// A block's largest (logit, lowest id), and whether every logit is finite.
struct Greatest {
  double logit;
  int id;
  bool is_finite;
};

__device__ __forceinline__ Greatest FindGreatest(const Row& row, Shared* shared) {
  // The largest key's complement by atomicMin; then the lowest id that has it.
  if (threadIdx.x == 0) {
    shared->smallest_key = ~uint64_t{0};
    shared->found = row.vocab;
    shared->gathered = 0;
  }
  __syncthreads();
  uint64_t smallest = ~uint64_t{0};
  bool is_finite = true;
  for (int i = static_cast<int>(threadIdx.x); i < row.vocab; i += kThreads) {
    constexpr uint32_t kExponent = 0x7f800000u;
    is_finite = is_finite && (__float_as_uint(row.logits[i]) & kExponent) != kExponent;
    smallest = min(smallest, KeyOf(row.Penalized(i)));
  }
  atomicMin(reinterpret_cast<unsigned long long*>(&shared->smallest_key),
            static_cast<unsigned long long>(smallest));
  if (!is_finite) atomicOr(&shared->gathered, 1);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < row.vocab; i += kThreads) {
    if (KeyOf(row.Penalized(i)) == shared->smallest_key) {
      atomicMin(&shared->found, i);
      break;
    }
  }
  __syncthreads();
  const Greatest greatest = {row.Penalized(min(shared->found, row.vocab - 1)), shared->found,
                             shared->gathered == 0};
  __syncthreads();
  return greatest;
}

// The first `count` ids in order.
__device__ __forceinline__ const uint32_t* Order(const CudaProblem& p, const Row& row, int count,
                                                 Shared* shared) {
  if (row.vocab > kSortTile && count <= kSelectMax) return SelectLargest(row, count, shared);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * p.sort_size;
  return SortAll(row, p.keys + first, p.ids + first, p.sort_size, shared);
}

// The last candidate with weight, should rounding leave the target at the total.
__device__ __forceinline__ int LastWithWeight(const Row& row, const View& view, Shared* shared) {
  if (threadIdx.x == 0) shared->found = 0;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < view.count; i += kThreads) {
    if (view.Weight(row, i) > 0.0) atomicMax(&shared->found, i);
  }
  __syncthreads();
  return shared->found;
}

__device__ __forceinline__ int Draw(const Row& row, const View& view, double uniform,
                                    Shared* shared) {
  const double target = uniform * ChainSum(row, view, shared);
  int i = FirstPast(row, view, target, false, shared);
  if (i < 0) i = LastWithWeight(row, view, shared);
  return view.Id(i);
}

// The candidates of top_k, top_p and min_p, in the order of their sums.
__device__ __forceinline__ View Candidates(const CudaProblem& p, const Row& row, Shared* shared) {
  const SamplingRow& parameters = row.parameters;
  View view = {nullptr, row.vocab, 0.0};
  const bool has_top_k = parameters.top_k > 0 && parameters.top_k < row.vocab;
  if (has_top_k) view.count = parameters.top_k;
  if (has_top_k || parameters.top_p < 1.0) view.order = Order(p, row, view.count, shared);
  if (parameters.top_p < 1.0) {
    const double threshold = parameters.top_p * ChainSum(row, view, shared);
    const int last = FirstPast(row, view, threshold, true, shared);
    if (last >= 0) view.count = last + 1;
  }
  view.min_weight = parameters.min_p;
  return view;
}

// grid: rows; dynamic shared memory: Shared.
__global__ void __launch_bounds__(kThreads) SampleKernel(const CudaProblem p) {
  extern __shared__ double shared_bytes[];
  Shared* shared = reinterpret_cast<Shared*>(shared_bytes);
  const int64_t m = blockIdx.x;
  const SamplingRow& parameters = p.rows[m];
  Row row = {p.logits + m * p.vocab,
             parameters.count_slot >= 0
                 ? p.counts + static_cast<int64_t>(parameters.count_slot) * p.vocab
                 : nullptr,
             parameters, p.vocab, 0.0};
  const Greatest greatest = FindGreatest(row, shared);
  if (!greatest.is_finite) {
    if (threadIdx.x == 0) p.sampled[m] = {0.0, -1};
    return;
  }
  row.largest = greatest.logit;
  const double log_total = cuda::Log(ChainSum(row, {nullptr, row.vocab, 0.0}, shared));
  const auto logprob = [&](int id) {
    const double value = row.Scaled(id) - log_total;
    return value < 0.0 ? value : 0.0;
  };
  int id = greatest.id;
  if (parameters.temperature > 0.0) {
    const View view = Candidates(p, row, shared);
    id = Draw(row, view, PhiloxUniform53(parameters.seed, static_cast<uint64_t>(parameters.rank)),
              shared);
  }
  if (threadIdx.x == 0) p.sampled[m] = {logprob(id), id};
  const int num_top = min(parameters.top_logprobs, row.vocab);
  if (num_top == 0) return;
  __syncthreads();
  const uint32_t* order = Order(p, row, num_top, shared);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < num_top; i += kThreads) {
    const int of_order = static_cast<int>(order[i]);
    p.top[m * kTopLogprobsMax + i] = {of_order, logprob(of_order)};
  }
}

}  // namespace

absl::Status SampleCuda(Queue* queue, const CudaProblem& p) {
  // Once; where the device has less the launch fails.
  [[maybe_unused]] static const cudaError_t allowed = cudaFuncSetAttribute(
      SampleKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(sizeof(Shared)));
  SampleKernel<<<static_cast<unsigned>(p.num_rows), kThreads, sizeof(Shared), queue->stream()>>>(p);
  return queue->LaunchStatus("sampling");
}

}  // namespace lethe::sampling
