// MatmulCuda: the CUDA form of MatmulBatch and the order in which it keeps weights; internal to
// kernels/matmul and its benchmark.
//
// Equation:  as in matmul_batch.h.
// Shapes:    tiles: [num_tiles][num_steps] blocks of kTileOutputs outputs x kStepInputs inputs, zeros
//            past the matrix. A block is what the 32 lanes of a warp feed to one mma.m16n8k16 as its
//            first operand: lane l holds outputs l/4 and l/4 + 8, inputs 4(l%4) … 4(l%4) + 3, in the
//            order of TileElement; BF16 weights 16 bytes a lane, f32 weights 16 bytes a lane twice.
// Units:     none.
// Requires:  what MatmulBatch checks.
// Rejects:   INTERNAL when the launch fails.
// Effects:   enqueues the work that writes y.
// Numerics:  every MatmulPlan but kUnsliced and kFinerSlices gives the same bits.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_MATMUL_MATMUL_CUDA_H_
#define LETHE_KERNELS_MATMUL_MATMUL_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/queue.h"

namespace lethe::matmul {

inline constexpr int kTileOutputs = 16;
inline constexpr int kStepInputs = 16;
inline constexpr int kStepsPerStage = 2;   // num_steps is a multiple
inline constexpr int kSliceInputs = 64;    // summed by the tensor cores before an f32 addition
inline constexpr int kWeightsPerLane = 8;  // of a block
inline constexpr int kLanesPerWarp = 32;

struct CudaProblem {
  const float* x;     // [num_rows][num_inputs]
  const void* tiles;  // [num_tiles][num_steps] blocks
  float* y;           // [num_rows][num_outputs]
  int64_t num_rows;
  int num_outputs;
  int num_inputs;
  int num_tiles;
  int num_steps;
  bool is_bf16;  // the weights
  int terms;     // of an activation
};

// Which output and input, within its block, weight `element` of lane `lane` is.
struct TileElement {
  int output;
  int input;
};
constexpr TileElement ElementOfLane(int lane, int element) {
  // Registers 0 … 3 of the operand, two weights each: rows l/4 and l/4 + 8 alternate.
  const int reg = element / 2;
  return {lane / 4 + 8 * (reg % 2), 4 * (lane % 4) + 2 * (reg / 2) + element % 2};
}

// How the work is laid on the device.
enum class MatmulPlan {
  kAuto,        // by num_rows and num_outputs
  kFewRows8,    // a warp a slice, 16 outputs x 8 rows a block
  kFewRows16,   //   … x 16
  kSmallTiles,  // 64 outputs x 64 rows a block
  kLargeTiles,  // 128 x 128
  kWgmma,       // 128 x 128 by warpgroups, where FitsWgmma
  // For benchmarks, what exactness costs: other sums, not for sessions. BF16 weights, two terms.
  kUnsliced,     // kLargeTiles, one sum over all inputs
  kFinerSlices,  // kFewRows8, 32 inputs a slice, twice the warps
};

absl::Status MatmulCuda(Queue* queue, const CudaProblem& problem, MatmulPlan plan);

// The families of kernels behind it.
absl::Status MatmulFewRowsCuda(Queue* queue, const CudaProblem& problem, MatmulPlan plan);
absl::Status MatmulTilesCuda(Queue* queue, const CudaProblem& problem, MatmulPlan plan);

// Whether the build and the device have warpgroup products, and the problem is one for them.
bool FitsWgmma(const Queue& queue, const CudaProblem& problem);
absl::Status MatmulWgmmaCuda(Queue* queue, const CudaProblem& problem);

}  // namespace lethe::matmul

#endif  // LETHE_KERNELS_MATMUL_MATMUL_CUDA_H_
