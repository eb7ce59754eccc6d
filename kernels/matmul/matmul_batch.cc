#include "kernels/matmul/matmul_batch.h"

#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/on_cuda.h"
#include "kernels/matmul/matmul_cuda.h"

namespace lethe {
namespace {

constexpr int64_t kInputsMax = int64_t{1} << 20;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t NumTiles(int64_t num_outputs) { return CeilDiv(num_outputs, matmul::kTileOutputs); }

int64_t NumSteps(int64_t num_inputs) {
  return matmul::kStepsPerStage *
         CeilDiv(num_inputs, int64_t{matmul::kStepInputs} * matmul::kStepsPerStage);
}

// Where weight `element` of a lane lies in its block, in bytes: BF16 lanes side by side; of f32 lanes
// first the first halves, then the second ones, so that a warp's 16-byte loads are contiguous.
size_t ByteInBlock(bool is_bf16, int lane, int element) {
  const int half = matmul::kWeightsPerLane / 2;
  if (is_bf16) return static_cast<size_t>(lane * matmul::kWeightsPerLane + element) * 2;
  return static_cast<size_t>((element / half * matmul::kLanesPerWarp + lane) * half +
                             element % half) *
         4;
}

void PackBlock(absl::Span<const float> w, int64_t num_inputs, int64_t first_output,
               int64_t first_input, bool is_bf16, std::byte* block) {
  const int64_t num_outputs = static_cast<int64_t>(w.size()) / num_inputs;
  for (int lane = 0; lane < matmul::kLanesPerWarp; ++lane) {
    for (int element = 0; element < matmul::kWeightsPerLane; ++element) {
      const matmul::TileElement at = matmul::ElementOfLane(lane, element);
      const int64_t output = first_output + at.output;
      const int64_t input = first_input + at.input;
      if (output >= num_outputs || input >= num_inputs) continue;
      const auto bits =
          std::bit_cast<uint32_t>(w[static_cast<size_t>(output * num_inputs + input)]);
      std::byte* to = block + ByteInBlock(is_bf16, lane, element);
      const auto high = static_cast<uint16_t>(bits >> 16);
      if (is_bf16) {
        std::memcpy(to, &high, sizeof high);
      } else {
        std::memcpy(to, &bits, sizeof bits);
      }
    }
  }
}

std::vector<std::byte> PackTiles(absl::Span<const float> w, int64_t num_outputs, int64_t num_inputs,
                                 bool is_bf16) {
  const size_t block_bytes = size_t{matmul::kLanesPerWarp} * matmul::kWeightsPerLane *
                             (is_bf16 ? sizeof(uint16_t) : sizeof(float));
  const int64_t num_steps = NumSteps(num_inputs);
  std::vector<std::byte> tiles(static_cast<size_t>(NumTiles(num_outputs) * num_steps) *
                               block_bytes);
  std::byte* block = tiles.data();
  for (int64_t tile = 0; tile < NumTiles(num_outputs); ++tile) {
    for (int64_t step = 0; step < num_steps; ++step) {
      PackBlock(w, num_inputs, tile * matmul::kTileOutputs, step * matmul::kStepInputs, is_bf16,
                block);
      block += block_bytes;
    }
  }
  return tiles;
}

}  // namespace

namespace matmul {

// Measured on one H200 (2026-11-30): up to about so many blocks the few rows' kernel is the fastest.
constexpr int64_t kFewRowsBlocks = 1536;

MatmulPlan ChoosePlan(const CudaProblem& problem, const Queue& queue) {
  if (problem.num_rows <= 8) return MatmulPlan::kFewRows8;
  if (CeilDiv(problem.num_rows, 16) * problem.num_tiles <= kFewRowsBlocks) {
    return MatmulPlan::kFewRows16;
  }
#ifdef LETHE_CUDA
  if (FitsWgmma(queue, problem)) return MatmulPlan::kWgmma;
#endif
  const int64_t num_large = CeilDiv(problem.num_rows, 128) * CeilDiv(problem.num_outputs, 128);
  return num_large < queue.num_multiprocessors() ? MatmulPlan::kSmallTiles
                                                 : MatmulPlan::kLargeTiles;
}

absl::Status MatmulCuda(Queue* queue, const CudaProblem& problem, MatmulPlan plan) {
  if (plan == MatmulPlan::kAuto) plan = ChoosePlan(problem, *queue);
  switch (plan) {
    case MatmulPlan::kFewRows8:
    case MatmulPlan::kFewRows16:
    case MatmulPlan::kFinerSlices:
      return LETHE_ON_CUDA(MatmulFewRowsCuda(queue, problem, plan));
    case MatmulPlan::kWgmma:
      return LETHE_ON_CUDA(MatmulWgmmaCuda(queue, problem));
    default:
      return LETHE_ON_CUDA(MatmulTilesCuda(queue, problem, plan));
  }
}

}  // namespace matmul

absl::StatusOr<DeviceMatrix> DeviceMatrix::Create(Queue* queue, absl::Span<const float> w,
                                                  int64_t num_outputs, int64_t num_inputs) {
  LETHE_CHECK(num_outputs >= 1 && num_inputs >= 1 && num_inputs <= kInputsMax);
  LETHE_CHECK(w.size() == static_cast<size_t>(num_outputs * num_inputs));
  DeviceMatrix matrix;
  matrix.num_outputs_ = num_outputs;
  matrix.num_inputs_ = num_inputs;
  PackedMatrix packed = PackedMatrix::Pack(w, num_outputs, num_inputs);
  matrix.storage_ = packed.storage();
  if (queue->kind() == DeviceKind::kCpu) {
    matrix.packed_ = std::move(packed);
    return matrix;
  }
  const bool is_bf16 = matrix.storage_ == PackedMatrix::Storage::kBf16;
  LETHE_ASSIGN_OR_RETURN(matrix.tiles_, DeviceArray<std::byte>::From(
                                            queue, PackTiles(w, num_outputs, num_inputs, is_bf16)));
  return matrix;
}

absl::Status MatmulBatch(Queue* queue, const float* x, int64_t num_rows, const DeviceMatrix& w,
                         ActivationTerms terms, float* y) {
  LETHE_CHECK(num_rows >= 0 && w.num_outputs() >= 1);
  if (num_rows == 0) return absl::OkStatus();
  if (queue->kind() == DeviceKind::kCuda) {
    LETHE_CHECK(w.tiles() != nullptr);
    const bool is_bf16 = w.storage() == PackedMatrix::Storage::kBf16;
    const matmul::CudaProblem problem = {.x = x,
                                         .tiles = w.tiles(),
                                         .y = y,
                                         .num_rows = num_rows,
                                         .num_outputs = static_cast<int>(w.num_outputs()),
                                         .num_inputs = static_cast<int>(w.num_inputs()),
                                         .num_tiles = static_cast<int>(NumTiles(w.num_outputs())),
                                         .num_steps = static_cast<int>(NumSteps(w.num_inputs())),
                                         .is_bf16 = is_bf16,
                                         .terms = is_bf16 ? static_cast<int>(terms) : 3};
    return matmul::MatmulCuda(queue, problem, matmul::MatmulPlan::kAuto);
  }
  Matmul(absl::MakeConstSpan(x, static_cast<size_t>(num_rows * w.num_inputs())), num_rows,
         w.packed(), absl::MakeSpan(y, static_cast<size_t>(num_rows * w.num_outputs())));
  return absl::OkStatus();
}

}  // namespace lethe
