// The reads of a prefill: a block reads one chunk's tokens, first against the chunk itself, then
// against the slots at its start, part by part. A slot's row is where its last change before the
// chunk put it (row_index), so that blocks depend on the merges before them only: they wait for
// `progress`, which lets them run beside the merges of later chunks.
//
// What differs between devices is Engine, the products of a tile: see ovq_read_cuda.cu.
#ifndef LETHE_KERNELS_OVQ_OVQ_READ_CUDA_CUH_
#define LETHE_KERNELS_OVQ_OVQ_READ_CUDA_CUH_

#include <cstdint>

#include "kernels/ovq/ovq_cuda.cuh"

namespace lethe::ovq {

// Reads of one token come through OvqLaunchStep.
__device__ inline bool IsPrefill(const Sequence& sequence) { return sequence.length > 1; }

// Sixteen elements of a row as halves: a key's in the order of KeyPosition, a value's as they are.
template <bool kFull>
__device__ inline void LoadKeyStep(const float* row, int step, int size, uint4 (&halves)[2]) {
  float4 x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = LoadRow<kFull>(row, 16 * step + 4 * i, size);
  halves[0] = make_uint4(PackHalves(x[0].x, x[0].y), PackHalves(x[1].x, x[1].y),
                         PackHalves(x[2].x, x[2].y), PackHalves(x[3].x, x[3].y));
  halves[1] = make_uint4(PackHalves(x[0].z, x[0].w), PackHalves(x[1].z, x[1].w),
                         PackHalves(x[2].z, x[2].w), PackHalves(x[3].z, x[3].w));
}
template <bool kFull>
__device__ inline void LoadValueStep(const float* row, int step, int size, uint4 (&halves)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float4 x = LoadRow<kFull>(row, 16 * step + 8 * half, size);
    const float4 y = LoadRow<kFull>(row, 16 * step + 8 * half + 4, size);
    halves[half] = make_uint4(PackHalves(x.x, x.y), PackHalves(x.z, x.w), PackHalves(y.x, y.y),
                              PackHalves(y.z, y.w));
  }
}

// Matrices of halves in shared memory: blocks of 64 columns, whose rows of 128 bytes have their
// 16-byte pieces exchanged within groups of 8 rows, as the copy engine's 128-byte swizzle does;
// they begin at multiples of 1024 bytes.
constexpr int kBlockColumns = 64;
__device__ inline int SwizzledPiece(int row, int piece) {  // in halves
  return row * kBlockColumns + ((piece ^ (row & 7)) << 3);
}
// Piece `piece` of a row of any length, of a matrix of num_rows.
__device__ inline uint4* MatrixPiece(uint16_t* matrix, int num_rows, int row, int piece) {
  return reinterpret_cast<uint4*>(matrix + (piece >> 3) * num_rows * kBlockColumns +
                                  SwizzledPiece(row, piece & 7));
}

template <int kDim, int kTokens>
struct ReadShared {
  uint16_t queries[kTokens * kDim];
  struct Stage {
    uint16_t keys[kPartSlots<kDim> * kDim];
    uint16_t values[kPartSlots<kDim> * kDim];
  } stages[2];
  float biases[2][kPartSlots<kDim>];
  int rows[2][kPartSlots<kDim>];  // of the slots of a part
};
// Dynamic shared memory is aligned by hand.
template <int kDim, int kTokens>
constexpr int kReadBytes = static_cast<int>(sizeof(ReadShared<kDim, kTokens>)) + 1024;

__device__ inline void CopyAsync16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void CopyAsync4(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// What the copies and stores of this thread put into shared memory is for the tensor cores too.
__device__ inline void ShowToTensorCores() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

template <typename Engine, int kDim, bool kFull, int kTokens>
class ChunkReader {
  using Shared = ReadShared<kDim, kTokens>;
  static constexpr int kThreads = 2 * kTokens;  // a warp has 16 tokens
  static constexpr int kParts = kPartSlots<kDim>;
  static constexpr int kTile = kTileSlots<kDim>;
  static constexpr int kColumns = kTile / 8;
  // Eight threads copy a row's 128 bytes.
  static constexpr int kRowsAtOnce = kThreads / 8;
  static constexpr int kCopies = kParts / kRowsAtOnce;
  // The chunk's own tokens lie in the first stages; the parts follow them.
  static constexpr int kOwnStages = (kTokens + kParts - 1) / kParts;

 public:
  __device__ ChunkReader(const OvqKernelArgs& args, const Sequence& sequence, int64_t chain,
                         int chunk, Shared* shared)
      : args_(args),
        sequence_(sequence),
        chain_(chain),
        head_(static_cast<int>(chain % args.num_heads)),
        chunk_(chunk),
        shared_(*shared),
        first_row_(static_cast<int>(threadIdx.x) / 32 * 16),
        lane_(ThisLane()),
        logit_scale_(args.inputs.logit_scales[head_] * kLog2E) {}

  __device__ void Run() {
    num_filled_ = FilledBefore(args_, sequence_, chunk_);
    if (num_filled_ > 0) {
      WaitForMerges();
      CopyRowIndex(0);
    }
    LoadTokens();
    WaitForCopies();
    __syncthreads();
    if (kOwnStages == 1) BeginSlots();
    Reads<kDim> reads;
    ReadChunk(&reads);
    if (kOwnStages > 1) {
      __syncthreads();  // the stages are free
      BeginSlots();
    }
    ReadSlots(&reads);
    Store(reads);
  }

 private:
  // The chunk's tokens: queries, and keys and values as if they were slots of the stages. Tokens
  // that there are not are zero.
  __device__ void LoadTokens() {
    constexpr int kSteps = kDim / 16;
    const int first_token = chunk_ * kTokens;
    const int size = sequence_.pending + sequence_.length;
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * kSteps; i += kThreads) {
      const int row = i / kSteps;
      const int step = i % kSteps;
      const int token = first_token + row;
      const bool is_set = token < size;
      const float* key = is_set ? KeyRow(args_, sequence_, head_, token) : nullptr;
      const float* value = is_set ? ValueRow(args_, sequence_, head_, token) : nullptr;
      uint4 halves[3][2];
      LoadKeyStep<kFull>(QueryRow(args_, sequence_, head_, token), step, args_.key_dim, halves[0]);
      LoadKeyStep<kFull>(key, step, args_.key_dim, halves[1]);
      LoadValueStep<kFull>(value, step, args_.value_dim, halves[2]);
      auto& stage = shared_.stages[row / kParts];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int piece = 2 * step + half;
        *MatrixPiece(shared_.queries, kTokens, row, piece) = halves[0][half];
        *MatrixPiece(stage.keys, kParts, row % kParts, piece) = halves[1][half];
        *MatrixPiece(stage.values, kParts, row % kParts, piece) = halves[2][half];
      }
    }
    ShowToTensorCores();
  }

  __device__ void ReadChunk(Reads<kDim>* reads) {
    int first = 0;
    const auto bias = [&](int column, int r) {
      const int last = first_row_ + 8 * r + lane_.g - first;
      return make_float2(column <= last ? 0.0f : -Infinity(),
                         column + 1 <= last ? 0.0f : -Infinity());
    };
    ReadTile<true>(shared_.stages[0], 0, bias, reads);
    // The products of several warps may be made together.
    const int end = first_row_ / Engine::kRows * Engine::kRows + Engine::kRows;
#pragma unroll 1
    for (first = kTile; first < end; first += kTile) {
      ReadTile<false>(shared_.stages[first / kParts], first % kParts, bias, reads);
    }
    reads->Finish();
  }

  // Of the chunks before. The rows of the segment's first chunk were there before the merges.
  __device__ void WaitForMerges() {
    const int block = static_cast<int>(threadIdx.x);
    if (block < args_.merge_blocks && chunk_ > args_.first_chunk) {
      int progress = 0;
      while (true) {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                     : "=r"(progress)
                     : "l"(args_.progress + chain_ * kOvqMaxMergeBlocks + block)
                     : "memory");
        if (progress >= chunk_) break;
        __nanosleep(500);
      }
    }
    __syncthreads();
    index_ = chunk_ > args_.first_chunk
                 ? args_.row_index +
                       (chain_ * args_.segment_chunks + chunk_ - args_.first_chunk) * args_.capacity
                 : nullptr;
    const int64_t row = RowsOfChain(args_, chain_);
    rows_ = args_.rows + row * (2 * kDim);
    biases_ = args_.row_biases + row;
  }

  // Parts take the stages in turn, from the one behind the chunk's own.
  __device__ static int StageOf(int part) { return (part + kOwnStages) & 1; }

  __device__ void BeginSlots() {
    if (num_filled_ == 0) return;
    CopyPart(0);
    CopyRowIndex(1);
  }

  // The first part is on its way.
  __device__ void ReadSlots(Reads<kDim>* reads) {
    const int num_parts = (num_filled_ + kParts - 1) / kParts;
#pragma unroll 1
    for (int part = 0; part < num_parts; ++part) {
      WaitForCopies();
      ShowToTensorCores();
      __syncthreads();  // the part is there, and nobody reads the one before
      if (part + 1 < num_parts) {
        CopyPart(part + 1);
        CopyRowIndex(part + 2);
      }
      ReadPart(part, reads);
    }
  }

  // Slots that there are not are the last one again, with no weight.
  __device__ void CopyRowIndex(int part) {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread >= kParts) return;
    const int slot = min(part * kParts + thread, num_filled_ - 1);
    int* row = &shared_.rows[part & 1][thread];
    if (index_ == nullptr) {
      *row = slot;
    } else {
      CopyAsync4(SharedAddress(row), index_ + slot);
    }
  }

  // The part's row index is there.
  __device__ void CopyPart(int part) {
    const int thread = static_cast<int>(threadIdx.x);
    auto& stage = shared_.stages[StageOf(part)];
    const int* rows = shared_.rows[part & 1];
    // Rows that the thread copies differ by multiples of 8: their pieces lie at the same place.
    const uint32_t place = SharedAddress(MatrixPiece(stage.keys, kParts, thread / 8, thread & 7));
    constexpr uint32_t kMatrixBytes = kParts * kDim * sizeof(uint16_t);
    const uint16_t* from = rows_ + 8 * (thread & 7);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const uint16_t* row =
          from + static_cast<int64_t>(rows[i * kRowsAtOnce + thread / 8]) * (2 * kDim);
#pragma unroll
      for (int block = 0; block < kDim / kBlockColumns; ++block) {
        const uint32_t to =
            place + static_cast<uint32_t>((block * kParts + i * kRowsAtOnce) * kBlockColumns) *
                        static_cast<uint32_t>(sizeof(uint16_t));
        CopyAsync16(to, row + block * kBlockColumns);
        CopyAsync16(to + kMatrixBytes, row + kDim + block * kBlockColumns);
      }
    }
    if (thread >= kParts) return;
    float* bias = &shared_.biases[part & 1][thread];
    if (part * kParts + thread < num_filled_) {
      CopyAsync4(SharedAddress(bias), biases_ + rows[thread]);
    } else {
      *bias = -Infinity();
    }
  }

  __device__ void ReadPart(int part, Reads<kDim>* reads) {
    Reads<kDim> part_reads;
    auto& stage = shared_.stages[StageOf(part)];
    const float* biases = shared_.biases[part & 1];
    const auto bias = [&](int column, int) {
      return *reinterpret_cast<const float2*>(biases + column);
    };
    ReadTile<true>(stage, 0, bias, &part_reads);
    if (num_filled_ - part * kParts > kTile) {
      biases += kTile;
      ReadTile<false>(stage, kTile, bias, &part_reads);
    }
    part_reads.Finish();
    reads->Join(part_reads);
  }

  // A tile against the warp's tokens. bias(column, r) is the pair of biases of the tile's slots
  // column and column + 1 for the token of row 8 r + g. kFirst: of the tiles that make up `reads`.
  template <bool kFirst, typename Stage, typename Bias>
  __device__ __forceinline__ void ReadTile(Stage& stage, int first, const Bias& bias,
                                           Reads<kDim>* reads) {
    float logits[kColumns][4];
    Engine::template Logits<kDim, kTokens, kParts>(shared_.queries, first_row_, stage.keys, first,
                                                   logits);
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float2 two = bias(8 * n + 2 * lane_.t, r);
        logits[n][2 * r] = fmaf(logit_scale_, logits[n][2 * r], two.x);
        logits[n][2 * r + 1] = fmaf(logit_scale_, logits[n][2 * r + 1], two.y);
      }
    }
    reads->template Softmax<kColumns, 2, kFirst>(logits);
    uint32_t weights[kColumns / 2][4];
#pragma unroll
    for (int n = 0; n < kColumns; n += 2) WeightOperand(logits[n], logits[n + 1], weights[n / 2]);
    Engine::template Values<kFirst, kDim, kParts>(weights, stage.values, first, reads->out);
  }

  __device__ void Store(const Reads<kDim>& reads) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float* row = OutRow(args_, sequence_, head_, chunk_ * kTokens + first_row_ + 8 * r + lane_.g);
      if (row == nullptr) continue;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        const int dim = 8 * n + 2 * lane_.t;
        if (!kFull && dim >= args_.value_dim) continue;
        *reinterpret_cast<float2*>(row + dim) =
            make_float2(__fdiv_rn(reads.out[n][2 * r], reads.weights[r]),
                        __fdiv_rn(reads.out[n][2 * r + 1], reads.weights[r]));
      }
    }
  }

  const OvqKernelArgs& args_;
  const Sequence& sequence_;
  const int64_t chain_;
  const int head_;
  const int chunk_;
  Shared& shared_;
  const int first_row_;  // the warp's first token
  const Lane lane_;
  const float logit_scale_;
  int num_filled_ = 0;
  const int32_t* index_ = nullptr;
  const uint16_t* rows_ = nullptr;
  const float* biases_ = nullptr;
};

// The body of a kernel. Grid: chunks times heads of sequences, in the order of the chunks if merges
// run beside it, else heads' chunks together, which share rows; 2 L threads; shared memory:
// kReadBytes.
template <typename Engine, int kDim, bool kFull, int kTokens>
__device__ void ReadOneChunk(const OvqKernelArgs& args) {
  extern __shared__ unsigned char shared_memory[];
  const auto chains = static_cast<unsigned>(args.num_heads * args.num_sequences);
  const auto chunks = static_cast<unsigned>(args.segment_chunks);
  const unsigned index = args.is_overlapped ? blockIdx.x / chains : blockIdx.x % chunks;
  const unsigned chain = args.is_overlapped ? blockIdx.x % chains : blockIdx.x / chunks;
  const int chunk = args.first_chunk + static_cast<int>(index);
  const Sequence sequence = GetSequence(args, static_cast<int>(chain) / args.num_heads);
  if (IsPrefill(sequence) && chunk < sequence.num_chunks) {
    const uint32_t place = static_cast<uint32_t>(__cvta_generic_to_shared(shared_memory));
    auto* shared = reinterpret_cast<ReadShared<kDim, kTokens>*>(shared_memory +
                                                                ((1024 - (place & 1023)) & 1023));
    ChunkReader<Engine, kDim, kFull, kTokens>(args, sequence, chain, chunk, shared).Run();
  }
#if __CUDA_ARCH__ >= 900
  // Where this kernel began before the merges had ended, it must not end before them.
  if (blockIdx.x == gridDim.x - 1) asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <typename Kernel>
absl::Status LaunchReadKernel(Queue* queue, const OvqKernelArgs& args, const Kernel& kernel,
                              int bytes) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(args.num_heads * args.num_sequences) *
                        static_cast<unsigned>(args.segment_chunks));
  config.blockDim = dim3(static_cast<unsigned>(2 * args.chunk_tokens));
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = queue->stream();
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = queue->compute_capability() >= 90 ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, args);
  return queue->LaunchStatus("OvqReadKernel");
}

}  // namespace lethe::ovq

#endif  // LETHE_KERNELS_OVQ_OVQ_READ_CUDA_CUH_
