// SvddBatch on CUDA: a block is a team, and takes one job after the other.
#include <string>

#include <cuda_runtime_api.h>

#include "absl/status/status.h"

#include "kernels/base/status_macros.h"
#include "kernels/math/math_cuda.cuh"
#include "memory/svdd/svdd_batch_device.h"
#include "memory/svdd/svdd_block_edit.h"

namespace lethe::svdd {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kTile = 64;   // keys of a side of a tile of the Gram matrix
constexpr int kDepth = 16;  // components in shared memory at a time
constexpr int kPitch = kTile + 1;
static_assert(2 * kDepth * kPitch <= static_cast<int>(kSmallFactorDoubles));

struct TeamShared {
  // Two of each in turn: a reduction needs one barrier then.
  double first[2][kWarps];
  double second[2][kWarps];
  int32_t index[2][kWarps];
  int32_t count;
  int32_t job;
};

class BlockTeam {
 public:
  __device__ explicit BlockTeam(TeamShared* shared) : shared_(shared) {}
  __device__ __forceinline__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ constexpr int size() const { return kThreads; }
  __device__ __forceinline__ int lane() const { return rank() % 32; }
  __device__ __forceinline__ constexpr int lanes() const { return 32; }
  __device__ __forceinline__ int warp() const { return rank() / 32; }
  __device__ __forceinline__ constexpr int warps() const { return kWarps; }
  __device__ __forceinline__ void Sync() { __syncthreads(); }

  __device__ __forceinline__ BestAndMost LeastAndMost(BestAndMost own) {
    for (int distance = 16; distance > 0; distance /= 2) {
      const Best other = {__shfl_xor_sync(~0u, own.best.value, distance),
                          __shfl_xor_sync(~0u, own.best.index, distance)};
      own.best = Lesser(own.best, other);
      own.most = fmax(own.most, __shfl_xor_sync(~0u, own.most, distance));
    }
    const int turn = Take(own.best.value, own.most, own.best.index);
    own = BestAndMost{};
    for (int w = 0; w < kWarps; ++w) {
      own.best = Lesser(own.best, {shared_->first[turn][w], shared_->index[turn][w]});
      own.most = fmax(own.most, shared_->second[turn][w]);
    }
    return own;
  }
  __device__ __forceinline__ Best Least(Best own) {
    for (int distance = 16; distance > 0; distance /= 2) {
      const Best other = {__shfl_xor_sync(~0u, own.value, distance),
                          __shfl_xor_sync(~0u, own.index, distance)};
      own = Lesser(own, other);
    }
    const int turn = Take(own.value, 0.0, own.index);
    own = Best{};
    for (int w = 0; w < kWarps; ++w) {
      own = Lesser(own, {shared_->first[turn][w], shared_->index[turn][w]});
    }
    return own;
  }
  __device__ __forceinline__ TwoSums Sum(TwoSums own) {
    for (int distance = 16; distance > 0; distance /= 2) {
      own.first += __shfl_xor_sync(~0u, own.first, distance);
      own.second += __shfl_xor_sync(~0u, own.second, distance);
    }
    const int turn = Take(own.first, own.second, 0);
    own = TwoSums{};
    for (int w = 0; w < kWarps; ++w) {
      own.first += shared_->first[turn][w];
      own.second += shared_->second[turn][w];
    }
    return own;
  }
  // The first warp does it.
  template <typename Value>
  __device__ __forceinline__ int Compact(int count, const Value& value, int32_t* out) {
    if (warp() == 0) {
      int kept = 0;
      for (int first = 0; first < count; first += 32) {
        const int32_t v = first + lane() < count ? value(first + lane()) : -1;
        const unsigned takes = __ballot_sync(~0u, v >= 0);
        __syncwarp();  // all have read before one writes
        if (v >= 0) out[kept + __popc(takes & ((1u << lane()) - 1))] = v;
        kept += __popc(takes);
      }
      if (lane() == 0) shared_->count = kept;
    }
    Sync();
    const int kept = shared_->count;
    Sync();
    return kept;
  }

 private:
  // One number of each warp, for all to see; the place where they are.
  __device__ __forceinline__ int Take(double first, double second, int32_t index) {
    turn_ ^= 1;
    if (lane() == 0) {
      shared_->first[turn_][warp()] = first;
      shared_->second[turn_][warp()] = second;
      shared_->index[turn_][warp()] = index;
    }
    Sync();
    return turn_;
  }

  TeamShared* shared_;
  int turn_ = 0;
};

// Squared differences in one chain of components, exp of kernels/math.
class BlockGram {
 public:
  // stage: shared memory, 2 kDepth kPitch doubles.
  __device__ explicit BlockGram(double* stage) : stage_(stage) {}

  __device__ __forceinline__ void Fill(const BlockProblem& problem, int32_t n) {
    for (int32_t row = 0; row < n; row += kTile) {
      for (int32_t column = 0; column <= row; column += kTile) FillTile(problem, n, row, column);
    }
    __syncthreads();
  }

  __device__ __forceinline__ void Row(const BlockProblem& problem, int32_t row) {
    const int32_t n = problem.head->num_keys;
    const double sigma = problem.head->sigma;
    const double* x = problem.keys + static_cast<int64_t>(row) * problem.dim;
    for (int32_t j = static_cast<int32_t>(threadIdx.x); j < n; j += kThreads) {
      const double* y = problem.keys + static_cast<int64_t>(j) * problem.dim;
      double sum = 0.0;
      for (int32_t c = 0; c < problem.dim; ++c) {
        const double difference = x[c] - y[c];
        sum = fma(difference, difference, sum);
      }
      const double value = cuda::Exp(-(sum / (sigma * sigma)));
      problem.Row(row)[j] = value;
      problem.Row(j)[row] = value;
    }
    __syncthreads();
  }

 private:
  // kDepth components from `first` on of kTile keys from `key` on, by component; zeros beyond.
  __device__ __forceinline__ static void Stage(const BlockProblem& problem, int32_t n, int32_t key,
                                               int32_t first, double* to) {
#pragma unroll
    for (int e = static_cast<int>(threadIdx.x); e < kTile * kDepth; e += kThreads) {
      const int32_t i = key + e / kDepth;
      const int32_t c = first + e % kDepth;
      const bool is_there = i < n && c < problem.dim;
      to[e % kDepth * kPitch + e / kDepth] =
          is_there ? problem.keys[static_cast<int64_t>(i) * problem.dim + c] : 0.0;
    }
  }

  // Thread (x, y) of 16 by 16 has rows 4 y + 0 … 3, whose mirror images share a sector, and columns x, x + 16 … .
  __device__ __forceinline__ void FillTile(const BlockProblem& problem, int32_t n, int32_t row,
                                           int32_t column) {
    const int x = static_cast<int>(threadIdx.x) % 16;
    const int y = static_cast<int>(threadIdx.x) / 16;
    double* rows = stage_;
    double* columns = stage_ + kDepth * kPitch;
    double sums[4][4] = {};
    for (int32_t first = 0; first < problem.dim; first += kDepth) {
      __syncthreads();
      Stage(problem, n, row, first, rows);
      Stage(problem, n, column, first, columns);
      __syncthreads();
#pragma unroll 4
      for (int k = 0; k < kDepth; ++k) {
        double a[4];
        double b[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          a[r] = rows[k * kPitch + 4 * y + r];
          b[r] = columns[k * kPitch + x + 16 * r];
        }
#pragma unroll
        for (int r = 0; r < 4; ++r) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const double difference = a[r] - b[c];
            sums[r][c] = fma(difference, difference, sums[r][c]);
          }
        }
      }
    }
    const double sigma = problem.head->sigma;
    const double scale = sigma * sigma;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int32_t j = column + x + 16 * c;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int32_t i = row + 4 * y + r;
        if (i >= n || j >= n) continue;
        const double value = cuda::Exp(-(sums[r][c] / scale));
        problem.Row(i)[j] = value;
        if (row != column) problem.Row(j)[i] = value;
      }
    }
  }

  double* stage_;
};

__global__ void __launch_bounds__(kThreads, 2)
    SvddKernel(SvddPool pool, SvddWork work, SvddOperation operation, const SvddJob* jobs,
               int32_t num_jobs, SvddArguments arguments) {
  extern __shared__ double dynamic[];
  __shared__ TeamShared shared;
  const int64_t team_index = blockIdx.x;
  std::byte* vectors = work.vectors != nullptr
                           ? work.vectors + team_index * BlockVectorBytes(pool.max_keys)
                           : reinterpret_cast<std::byte*>(dynamic + kSmallFactorDoubles);
  const BlockWorkspace space = PlaceWorkspace(
      pool.max_keys, work.doubles + team_index * WorkDoubles(pool.max_keys), dynamic, vectors);
  BlockTeam team(&shared);
  BlockGram gram(dynamic);
  while (true) {
    if (threadIdx.x == 0) shared.job = atomicAdd(work.next_job, 1);
    __syncthreads();
    const int32_t index = shared.job;
    __syncthreads();
    if (index >= num_jobs) break;
    RunJob(&team, &gram, pool, space, operation, jobs[index], index, arguments);
  }
  // The rest was wiped job by job.
  for (int w = static_cast<int>(threadIdx.x); w < kWarps; w += kThreads) {
    for (int turn = 0; turn < 2; ++turn) shared.first[turn][w] = shared.second[turn][w] = 0.0;
  }
}

size_t SharedBytes(const SvddWork& work, int64_t max_keys) {
  const size_t vectors = work.vectors != nullptr ? 0 : BlockVectorBytes(max_keys);
  return kSmallFactorDoubles * sizeof(double) + vectors;
}

absl::Status Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(std::string("SvddBatch, ") + what + ": " + cudaGetErrorString(error));
}

}  // namespace

absl::Status SvddTeamsCuda(Queue* queue, int64_t max_keys, SvddTeams* teams) {
  int device = 0;
  int shared_max = 0;
  cudaFuncAttributes attributes;
  LETHE_RETURN_IF_ERROR(Check(cudaGetDevice(&device), "device"));
  LETHE_RETURN_IF_ERROR(
      Check(cudaDeviceGetAttribute(&shared_max, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
            "shared memory"));
  LETHE_RETURN_IF_ERROR(Check(cudaFuncGetAttributes(&attributes, SvddKernel), "kernel"));
  shared_max -= static_cast<int>(attributes.sharedSizeBytes);
  const size_t all = SharedBytes({}, max_keys);
  teams->has_shared_vectors = all <= static_cast<size_t>(shared_max);
  const size_t bytes = teams->has_shared_vectors ? all : kSmallFactorDoubles * sizeof(double);
  LETHE_RETURN_IF_ERROR(Check(
      cudaFuncSetAttribute(SvddKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_max),
      "size of shared memory"));
  int blocks = 0;
  LETHE_RETURN_IF_ERROR(
      Check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, SvddKernel, kThreads, bytes),
            "occupancy"));
  if (blocks < 1) return absl::InternalError("SvddBatch: the device has no room for a block");
  teams->num_teams = blocks * queue->num_multiprocessors();
  return absl::OkStatus();
}

absl::Status RunSvddCuda(Queue* queue, const SvddPool& pool, const SvddWork& work,
                         SvddOperation operation, const SvddJob* jobs, int32_t num_jobs,
                         const SvddArguments& arguments) {
  const int grid = num_jobs < work.num_teams ? num_jobs : work.num_teams;
  SvddKernel<<<static_cast<unsigned>(grid), kThreads, SharedBytes(work, pool.max_keys),
               queue->stream()>>>(pool, work, operation, jobs, num_jobs, arguments);
  return queue->LaunchStatus("SvddBatch");
}

}  // namespace lethe::svdd
