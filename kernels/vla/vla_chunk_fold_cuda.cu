// VlaChunk's stage fold: S from chunk to chunk, the only chain of the chunk form.
//
// A block folds kRows of the D value rows of one head of one sequence; rows of S do not meet. With keys
// along the matrix unit's rows: S^T [D x kRows] <- S^T - H^T S^T + G^T, H = (T K^)^T alpha. A warp has 16
// keys of S^T in its registers; for the others S passes through shared memory, in f16, from one place to
// the other: a barrier a chunk. What comes from stage keys, in the order of the registers that use it,
// other warps copy some chunks ahead into a ring: at the barrier the next chunk is there.
#include "kernels/base/early_launch_cuda.cuh"
#include "kernels/base/queue.h"
#include "kernels/vla/vla_chunk_cuda.h"
#include "kernels/vla/vla_chunk_half_cuda.cuh"

namespace lethe {
namespace {

using namespace vla_chunk;  // NOLINT(google-build-using-namespace): the kernels' vocabulary

struct FoldArguments {
  const int32_t* offsets;
  const int32_t* slots;
  int chunk_begin;
  int chunk_end;
  int num_heads;
  const uint4* transitions;
  const uint4* gains;
  const float2* gain_scales;
  uint2* states;  // null: no reads
  float* state_scales;
  float* pool;  // [slots][H][D value][D key]
};

template <int kDim, int kRows, int kRing>
struct FoldLayout {
  static constexpr int kBlocks = kDim / kTile;
  static constexpr int kWarps = kBlocks;
  static constexpr int kCopiers = kDim == 64 ? 1 : 4;  // more warps, which copy
  static constexpr int kThreads = (kWarps + kCopiers) * 32;
  static constexpr int kParts = kRows / 8;             // of 8 values
  static constexpr int kGains = (kRows + 15) / kTile;  // blocks
  // S^T: [parts][keys] half blocks, 16 keys x 8 values as two 8 x 8 tiles, and their scales.
  static constexpr int kStateWords = kParts * kBlocks * (64 + 1);
  // Of a chunk: the transition's blocks, each warp's gains, their scales.
  static constexpr int kGainsAt = kBlocks * kBlocks * 512;
  static constexpr int kScalesAt = kGainsAt + kBlocks * kGains * 512;
  static constexpr int kStageBytes = kScalesAt + kBlocks * kGains * 8;
  static constexpr int kRingAt = (2 * kStateWords * 4 + 15) / 16 * 16;
  static constexpr int kBytes = kRingAt + kRing * kStageBytes;
  static_assert(kStageBytes % 16 == 0 && kBlocks * kGains <= 32);
};

__device__ __forceinline__ void CopyPairAsync(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(SharedAddress(to)), "l"(from));
}

template <int kDim, int kRows, int kRing>
class RowFold {
 public:
  using Layout = FoldLayout<kDim, kRows, kRing>;
  static constexpr int kBlocks = Layout::kBlocks;
  static constexpr int kParts = Layout::kParts;
  static constexpr int kGains = Layout::kGains;

  __device__ __forceinline__ RowFold(const FoldArguments& arguments, char* shared, int first_part)
      : arguments_(arguments),
        states_(reinterpret_cast<uint32_t*>(shared)),
        warp_(Warp()),
        ring_(shared + Layout::kRingAt),
        first_part_(first_part) {}

  __device__ __forceinline__ void Fold(int head, int begin, int end, float* state) {
    const bool copies = warp_ >= Layout::kWarps;
    Point(static_cast<int64_t>(begin - arguments_.chunk_begin) * arguments_.num_heads + head);
    uint32_t* now = states_;
    uint32_t* next = states_ + Layout::kStateWords;
    if (copies) {
#pragma unroll
      for (int n = 0; n < kRing - 1; ++n) Copy(begin + n < end, n);
      AwaitCopies<kRing - 2>();
    } else {
      ForEachOfState([&](int key, int row, float& first, float& second) {
        first = state[row * kDim + key];
        second = state[(row + 1) * kDim + key];
      });
      Share(now);
    }
    int stage = 0;
    for (int chunk = begin; chunk < end; ++chunk) {
      __syncthreads();
      if (copies) {
        Copy(chunk + kRing - 1 < end, stage == 0 ? kRing - 1 : stage - 1);
        AwaitCopies<kRing - 2>();
      } else {
        Advance(ring_ + stage * Layout::kStageBytes, now);
        Share(next);
      }
      uint32_t* const other = now;
      now = next;
      next = other;
      stage = stage + 1 == kRing ? 0 : stage + 1;
    }
    if (copies) return;
    ForEachOfState([&](int key, int row, float first, float second) {
      state[row * kDim + key] = first;
      state[(row + 1) * kDim + key] = second;
    });
  }

 private:
  // To what the thread has of chunk and head `index`.
  __device__ __forceinline__ void Point(int64_t index) {
    const int64_t first = index * kBlocks * kBlocks;
    copier_ = warp_ - Layout::kWarps;
    transitions_ = arguments_.transitions + (first + copier_) * 32 + Lane();
    gains_ = arguments_.gains + (first + first_part_ / 2) * 32 + Lane();
    gain_scales_ = arguments_.gain_scales + first + first_part_ / 2 + Lane() / kGains * kBlocks +
                   Lane() % kGains;
    const int64_t state = (index * kBlocks * 2 + first_part_) * kBlocks + warp_;
    states_out_ = arguments_.states + state * 32 + Lane();
    state_scales_ = arguments_.state_scales + state;
  }

  // Calls f(key, value, first, second) for each pair of neighbouring values.
  template <typename F>
  __device__ __forceinline__ void ForEachOfState(F f) {
    const int key = warp_ * kTile + (Lane() >> 2);
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const int value = (first_part_ + p) * 8 + 2 * (Lane() & 3);
      f(key, value, s_[p][0], s_[p][1]);
      f(key + 8, value, s_[p][2], s_[p][3]);
    }
  }

  // The next chunk to come. Always commits a group, so that the waits count chunks.
  __device__ __forceinline__ void Copy(bool is_there, int stage) {
    if (is_there) {
      char* place = ring_ + stage * Layout::kStageBytes;
      uint4* to = reinterpret_cast<uint4*>(place) + copier_ * 32 + Lane();
#pragma unroll
      for (int n = 0; n < kBlocks * kBlocks; n += Layout::kCopiers) {
        CopyAsync(to + 32 * n, transitions_ + 32 * n);
      }
      to += Layout::kGainsAt / 16;
#pragma unroll
      for (int n = 0; n < kBlocks * kGains; n += Layout::kCopiers) {
        const int block = copier_ + n;
        CopyAsync(to + 32 * n, gains_ + 32 * (block / kGains * kBlocks + block % kGains));
      }
      if (copier_ == 0 && Lane() < kBlocks * kGains) {
        CopyPairAsync(place + Layout::kScalesAt + Lane() * 8, gain_scales_);
      }
      const int64_t blocks = static_cast<int64_t>(arguments_.num_heads) * kBlocks * kBlocks;
      transitions_ += blocks * 32;
      gains_ += blocks * 32;
      gain_scales_ += blocks;
    }
    CommitCopies();
  }

  // To shared memory, each half block in f16 times a power of 2 of its own.
  __device__ __forceinline__ void Share(uint32_t* to) {
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const float(&s)[4] = s_[p];
      const uint32_t largest =
          max(max(Magnitude(s[0]), Magnitude(s[1])), max(Magnitude(s[2]), Magnitude(s[3])));
      const Scale scale = ScaleOf<8>(LargestOfWarp(largest));
      shared_[p][0] = PackHalf(s[0] * scale.to, s[1] * scale.to);
      shared_[p][1] = PackHalf(s[2] * scale.to, s[3] * scale.to);
      scales_[p] = scale.from;
      const int block = p * kBlocks + warp_;
      to[block * 64 + Lane()] = shared_[p][0];
      to[block * 64 + 32 + Lane()] = shared_[p][1];
      if (Lane() == 0) Scales(to)[block] = scale.from;
    }
  }

  static __device__ __forceinline__ float* Scales(uint32_t* states) {
    return reinterpret_cast<float*>(states + kParts * kBlocks * 64);
  }

  // S^T - H^T S^T + G^T, from S in shared memory, which is written out for the reads.
  __device__ __forceinline__ void Advance(const char* stage, uint32_t* states) {
    const uint4* blocks = reinterpret_cast<const uint4*>(stage) + warp_ * kBlocks * 32 + Lane();
    const uint4* gains =
        reinterpret_cast<const uint4*>(stage + Layout::kGainsAt) + warp_ * kGains * 32 + Lane();
    const float2* gain_scales =
        reinterpret_cast<const float2*>(stage + Layout::kScalesAt) + warp_ * kGains;
    const uint32_t* operands = states + (Lane() >> 3) * 32 + (Lane() & 7) * 4;
    const float* scales = Scales(states);
    float sum[kParts][4];
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[p][e] = 0.0f;
    }
#pragma unroll
    for (int n = 0; n < kBlocks; n += 2) {
      const uint4 even = blocks[32 * n];
      const uint4 odd = blocks[32 * (n + 1)];
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        uint32_t b[4];  // of both blocks of keys
        LoadMatrix<true>(operands + (p * kBlocks + n) * 64, b);
        const float2 scale = *reinterpret_cast<const float2*>(scales + p * kBlocks + n);
        AddScaled(even, b[0], b[1], scale.x, sum[p]);
        AddScaled(odd, b[2], b[3], scale.y, sum[p]);
      }
    }
    if (arguments_.states != nullptr) WriteState();
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const int half = kParts == 1 ? first_part_ % 2 : p % 2;
      const uint4 gain = gains[32 * (p / 2)];
      const float2 by = gain_scales[p / 2];
      const float2 upper = UnpackHalf(half == 0 ? gain.x : gain.z);
      const float2 lower = UnpackHalf(half == 0 ? gain.y : gain.w);
      const float g[4] = {upper.x, upper.y, lower.x, lower.y};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s_[p][e] = __fmaf_rn(-by.x, sum[p][e], __fmaf_rn(g[e], by.y, s_[p][e]));
      }
    }
  }

  static __device__ __forceinline__ void AddScaled(const uint4& a, uint32_t b0, uint32_t b1,
                                                   float scale, float (&sum)[4]) {
    float product[4] = {};
    MmaHalf({{a.x, a.y, a.z, a.w}}, b0, b1, product);
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[e] = __fmaf_rn(product[e], scale, sum[e]);
  }

  __device__ __forceinline__ void WriteState() {
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      states_out_[p * kBlocks * 32] =
          make_uint2(Transposed8x8(shared_[p][0]), Transposed8x8(shared_[p][1]));
      if (Lane() == 0) state_scales_[p * kBlocks] = scales_[p];
    }
    const int64_t blocks = static_cast<int64_t>(arguments_.num_heads) * kBlocks * kBlocks * 2;
    states_out_ += blocks * 32;
    state_scales_ += blocks;
  }

  const FoldArguments& arguments_;
  uint32_t* states_;
  int warp_;
  char* ring_;
  int first_part_;
  int copier_;
  const uint4* transitions_;
  const uint4* gains_;
  const float2* gain_scales_;
  uint2* states_out_;
  float* state_scales_;
  float s_[kParts][4];          // as accumulators: keys g and g + 8, values 2t and 2t + 1
  uint32_t shared_[kParts][2];  // s_ as it is in shared memory
  float scales_[kParts];
};

template <int kDim, int kRows, int kRing>
__global__ void __launch_bounds__(FoldLayout<kDim, kRows, kRing>::kThreads)
    FoldKernel(const FoldArguments arguments) {
  extern __shared__ __align__(16) char shared_bytes[];
  cuda::WaitForEarlierKernels();
  const int sequence = static_cast<int>(blockIdx.y);
  const int begin = max(arguments.offsets[sequence] / kTokens, arguments.chunk_begin);
  const int end = min(arguments.offsets[sequence + 1] / kTokens, arguments.chunk_end);
  if (begin >= end) return;
  constexpr int kOfHead = kDim / kRows;
  const int head = static_cast<int>(blockIdx.x) / kOfHead;
  float* state =
      arguments.pool +
      (static_cast<int64_t>(arguments.slots[sequence]) * arguments.num_heads + head) * kDim * kDim;
  RowFold<kDim, kRows, kRing> fold(arguments, shared_bytes,
                                   static_cast<int>(blockIdx.x) % kOfHead * (kRows / 8));
  fold.Fold(head, begin, end, state);
}

template <int kDim, int kRows, int kRing>
void Launch(Queue* queue, const VlaChunkSegment& segment, const FoldArguments& arguments) {
  using Layout = FoldLayout<kDim, kRows, kRing>;
  const auto kernel = FoldKernel<kDim, kRows, kRing>;
  // An error shows in the launch that follows.
  static_cast<void>(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Layout::kBytes));
  const dim3 grid(static_cast<unsigned>(arguments.num_heads * kDim / kRows),
                  static_cast<unsigned>(segment.batch.num_sequences));
  kernel<<<grid, Layout::kThreads, Layout::kBytes, queue->stream()>>>(arguments);
}

}  // namespace

absl::Status VlaChunkFold(Queue* queue, const VlaChunkSegment& segment) {
  const VlaChunkWork& work = segment.work;
  const FoldArguments arguments{
      segment.batch.offsets,
      segment.batch.slots,
      static_cast<int>(segment.chunk_begin),
      static_cast<int>(segment.chunk_begin + segment.num_chunks),
      static_cast<int>(segment.options.num_heads),
      reinterpret_cast<const uint4*>(work.transitions),
      reinterpret_cast<const uint4*>(work.gains),
      reinterpret_cast<const float2*>(work.gain_scales),
      segment.batch.out == nullptr ? nullptr : reinterpret_cast<uint2*>(work.states),
      work.state_scales,
      segment.batch.s};
  // Rows and depth do not reach the bits. Few rows a block make the chain short, many save loads; a block
  // for each multiprocessor is enough. Before 9.0 a block has less shared memory.
  const int64_t heads = segment.batch.num_sequences * segment.options.num_heads;
  const bool is_large = queue->compute_capability() >= 90;
  if (segment.options.key_dim == 64) {
    heads >= 128 ? Launch<64, 64, 4>(queue, segment, arguments)
                 : Launch<64, 8, 8>(queue, segment, arguments);
  } else if (is_large) {
    heads >= 64 ? Launch<128, 64, 3>(queue, segment, arguments)
                : Launch<128, 16, 5>(queue, segment, arguments);
  } else {
    Launch<128, 16, 2>(queue, segment, arguments);
  }
  return queue->LaunchStatus("vla chunk fold");
}

}  // namespace lethe
