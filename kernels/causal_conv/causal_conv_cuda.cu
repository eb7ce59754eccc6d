#include <algorithm>

#include <cuda_runtime.h>

#include "kernels/causal_conv/causal_conv_cuda.h"

namespace lethe::causal_conv {
namespace {

constexpr int kThreads = 256;
// Tokens that a thread takes in a row: the inputs before them are read once for all.
constexpr int kRun = 16;

template <int kChannels>
struct Channels {
  float value[kChannels];
};

template <int kChannels>
__device__ __forceinline__ Channels<kChannels> Load(const float* from) {
  Channels<kChannels> x;
  if constexpr (kChannels == 4) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    x.value[0] = four.x;
    x.value[1] = four.y;
    x.value[2] = four.z;
    x.value[3] = four.w;
  } else {
    x.value[0] = *from;
  }
  return x;
}

template <int kChannels>
__device__ __forceinline__ void Store(const Channels<kChannels>& x, float* to) {
  if constexpr (kChannels == 4) {
    *reinterpret_cast<float4*>(to) = {x.value[0], x.value[1], x.value[2], x.value[3]};
  } else {
    *to = x.value[0];
  }
}

// A thread's sequence and channels.
template <int kWidth, int kChannels>
struct Lane {
  const float* z;  // of the sequence's first token, at the channels
  float* y;
  float* slot;  // its pool rows, at the channels
  int64_t num_channels;
  int64_t length;
  int64_t rank;
  int phase;  // the first token's place in the pool
  int channel;

  // Of token t of the call, t > -kWidth.
  __device__ float* Place(int t) const {
    return slot + (phase + t + kWidth - 1) % (kWidth - 1) * num_channels;
  }
  // The input of token t of the call, t < 0 from the pool; zero where the sequence has none.
  __device__ Channels<kChannels> Input(int64_t t) const {
    if (t >= 0) return Load<kChannels>(z + t * num_channels);
    if constexpr (kWidth > 1) {
      if (rank + t >= 0) return Load<kChannels>(Place(static_cast<int>(t)));
    }
    return {};
  }
};

// y of tokens first … end - 1, whose inputs pass through inputs[]: [j] is j tokens back.
template <int kWidth, int kChannels>
__device__ __forceinline__ void Convolve(const CudaProblem& p, const Lane<kWidth, kChannels>& lane,
                                         int64_t first, int64_t end) {
  Channels<kChannels> taps[kWidth];
  Channels<kChannels> bias = {};
  if (p.bias != nullptr) bias = Load<kChannels>(p.bias + lane.channel);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    taps[j] = Load<kChannels>(p.taps + j * lane.num_channels + lane.channel);
  }
  Channels<kChannels> inputs[kWidth];
#pragma unroll
  for (int j = 1; j < kWidth; ++j) inputs[j] = lane.Input(first - j);
  const auto convolve = [&](int64_t t, int num_present) {
    inputs[0] = Load<kChannels>(lane.z + t * lane.num_channels);
    Channels<kChannels> sum = bias;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        if (j < num_present) {
          sum.value[i] = fmaf(taps[j].value[i], inputs[j].value[i], sum.value[i]);
        }
      }
    }
    Store(sum, lane.y + t * lane.num_channels);
#pragma unroll
    for (int j = kWidth - 1; j >= 1; --j) inputs[j] = inputs[j - 1];
  };
  int64_t t = first;
  for (; t < end && lane.rank + t + 1 < kWidth; ++t) {
    convolve(t, static_cast<int>(lane.rank + t + 1));
  }
#pragma unroll 8
  for (; t < end; ++t) convolve(t, kWidth);
}

template <int kWidth, int kChannels>
__device__ __forceinline__ void MoveOn(const Lane<kWidth, kChannels>& lane) {
  if constexpr (kWidth > 1) {
    const int end = static_cast<int>(lane.length % (kWidth - 1));
#pragma unroll
    for (int i = 1; i < kWidth; ++i) {
      const int64_t t = lane.length - i;
      if (t >= 0) Store(Load<kChannels>(lane.z + t * lane.num_channels), lane.Place(end - i));
    }
  }
}

template <int kWidth, int kChannels>
__device__ __forceinline__ Lane<kWidth, kChannels> MakeLane(const CudaProblem& p, int channel) {
  const int64_t sequence = blockIdx.y;
  const int64_t first_row = p.sequences.offsets[sequence];
  Lane<kWidth, kChannels> lane;
  lane.z = p.z + first_row * p.num_channels + channel;
  lane.y = p.y + first_row * p.num_channels + channel;
  lane.num_channels = p.num_channels;
  lane.length = p.sequences.offsets[sequence + 1] - first_row;
  lane.rank = p.sequences.ranks[sequence];
  lane.channel = channel;
  lane.slot = nullptr;
  lane.phase = 0;
  if constexpr (kWidth > 1) {
    lane.slot = p.pool +
                static_cast<int64_t>(p.sequences.slots[sequence]) * (kWidth - 1) * p.num_channels +
                channel;
    lane.phase = static_cast<int>(lane.rank % (kWidth - 1));
  }
  return lane;
}

// grid: [runs of the longest sequence x groups of channels, by kThreads][sequences]. Where one run is the
// whole sequence (moves_on) its thread also moves the state on: it alone reads it.
template <int kWidth, int kChannels>
__global__ void __launch_bounds__(kThreads)
    CausalConvKernel(const CudaProblem p, const int64_t num_runs, const bool moves_on) {
  const int num_groups = p.num_channels / kChannels;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t run = index / num_groups;
  const auto lane =
      MakeLane<kWidth, kChannels>(p, static_cast<int>(index % num_groups) * kChannels);
  const int64_t first = run * kRun;
  if (run >= num_runs || first >= lane.length) return;
  Convolve(p, lane, first, min(first + kRun, lane.length));
  if (moves_on) MoveOn(lane);
}

// grid: [groups of channels, by kThreads][sequences].
template <int kWidth, int kChannels>
__global__ void __launch_bounds__(kThreads) MoveOnKernel(const CudaProblem p) {
  const int group = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (group >= p.num_channels / kChannels) return;
  MoveOn(MakeLane<kWidth, kChannels>(p, group * kChannels));
}

template <int kWidth, int kChannels>
absl::Status Launch(Queue* queue, const CudaProblem& p) {
  const int64_t num_groups = p.num_channels / kChannels;
  const int64_t num_runs = (p.sequences.longest + kRun - 1) / kRun;
  const auto blocks = [](int64_t threads) {
    return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  };
  const auto num_sequences = static_cast<unsigned>(p.sequences.num_sequences);
  CausalConvKernel<kWidth, kChannels>
      <<<dim3(blocks(num_runs * num_groups), num_sequences), kThreads, 0, queue->stream()>>>(
          p, num_runs, num_runs == 1);
  if (num_runs > 1 && kWidth > 1) {
    MoveOnKernel<kWidth, kChannels>
        <<<dim3(blocks(num_groups), num_sequences), kThreads, 0, queue->stream()>>>(p);
  }
  return queue->LaunchStatus("causal convolution");
}

template <int kWidth>
absl::Status LaunchWidth(Queue* queue, const CudaProblem& p) {
  if (p.width != kWidth) {
    if constexpr (kWidth < 8) return LaunchWidth<kWidth + 1>(queue, p);
  }
  const auto is_aligned = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % sizeof(float4) == 0;
  };
  const bool in_fours = p.num_channels % 4 == 0 && is_aligned(p.z) && is_aligned(p.y) &&
                        is_aligned(p.pool) && is_aligned(p.taps) && is_aligned(p.bias);
  return in_fours ? Launch<kWidth, 4>(queue, p) : Launch<kWidth, 1>(queue, p);
}

}  // namespace

absl::Status CausalConvCuda(Queue* queue, const CudaProblem& p) { return LaunchWidth<1>(queue, p); }

}  // namespace lethe::causal_conv
