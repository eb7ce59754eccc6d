#include <algorithm>

#include "kernels/elementwise/elementwise_cuda.h"
#include "kernels/math/math.h"
#include "kernels/math/math_cuda.cuh"
#include "kernels/math/row_norm_cuda.cuh"

namespace lethe::elementwise {
namespace {

constexpr int kThreads = 256;

// y[i] = op(x[i], operand[i], i); operand may be null, op then does not look at it. In fours where sizes
// and addresses allow. grid: fours (or elements) by kThreads.
template <class Op>
__global__ void __launch_bounds__(kThreads)
    ForEachKernel(const float* x, const float* operand, int64_t size, bool in_fours, Op op,
                  float* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (!in_fours) {
    if (i < size) y[i] = op(x[i], operand != nullptr ? operand[i] : 0.0f, i);
    return;
  }
  if (4 * i >= size) return;
  const float4 v = reinterpret_cast<const float4*>(x)[i];
  float4 w = {0.0f, 0.0f, 0.0f, 0.0f};
  if (operand != nullptr) w = reinterpret_cast<const float4*>(operand)[i];
  reinterpret_cast<float4*>(y)[i] = {op(v.x, w.x, 4 * i), op(v.y, w.y, 4 * i + 1),
                                     op(v.z, w.z, 4 * i + 2), op(v.w, w.w, 4 * i + 3)};
}

template <class Op>
absl::Status ForEach(Queue* queue, const char* name, const float* x, const float* operand,
                     int64_t size, Op op, float* y) {
  const uintptr_t addresses = reinterpret_cast<uintptr_t>(x) |
                              reinterpret_cast<uintptr_t>(operand) | reinterpret_cast<uintptr_t>(y);
  const bool in_fours = size % 4 == 0 && addresses % sizeof(float4) == 0;
  const int64_t num_threads = in_fours ? size / 4 : size;
  const auto blocks = static_cast<unsigned>((num_threads + kThreads - 1) / kThreads);
  ForEachKernel<<<blocks, kThreads, 0, queue->stream()>>>(x, operand, size, in_fours, op, y);
  return queue->LaunchStatus(name);
}

template <Function function>
struct ApplyOp {
  __device__ float operator()(float x, float /*unused*/, int64_t /*i*/) const {
    switch (function) {
      case Function::kExp:
        return cuda::Exp(x);
      case Function::kLog:
        return cuda::Log(x);
      case Function::kSigmoid:
        return cuda::Sigmoid(x);
      case Function::kSilu:
        return cuda::Silu(x);
      case Function::kSoftplus:
        return cuda::Softplus(x);
      case Function::kElu:
        return cuda::Elu(x);
      case Function::kEluPlusOne:
        return cuda::EluPlusOne(x);
    }
    return x;
  }
};

struct SwigluOp {
  __device__ float operator()(float gate, float up, int64_t /*i*/) const {
    return cuda::Silu(gate) * up;
  }
};
struct AddOp {
  __device__ float operator()(float x, float y, int64_t /*i*/) const { return x + y; }
};
struct MultiplyOp {
  __device__ float operator()(float x, float y, int64_t /*i*/) const { return x * y; }
};

struct AddRowOp {
  const float* row;
  int64_t num_columns;
  __device__ float operator()(float x, float /*unused*/, int64_t i) const {
    return x + row[i % num_columns];
  }
};
struct ScaleColumnsOp {
  const float* row;
  int64_t num_columns;
  __device__ float operator()(float x, float /*unused*/, int64_t i) const {
    return x * row[i % num_columns];
  }
};
struct ScaleRowsOp {
  const float* factor;
  int64_t num_columns;
  __device__ float operator()(float x, float /*unused*/, int64_t i) const {
    return factor[i / num_columns] * x;
  }
};
struct AddSkipOp {
  const float* skip;
  int64_t num_columns;
  int64_t head_columns;
  __device__ float operator()(float y, float x, int64_t i) const {
    return fmaf(skip[i % num_columns / head_columns], x, y);
  }
};

struct RootOfSquares {
  __device__ float operator()(float sum) const { return sqrtf(sum + kL2Epsilon); }
};
struct DivideTwice {
  float divisor;
  __device__ float operator()(float x, float root, int /*column*/) const {
    return x / root / divisor;
  }
};

// grid: elements by kThreads. Several threads may mark a row: they write the same.
__global__ void __launch_bounds__(kThreads)
    MarkNonFiniteKernel(const float* x, int64_t size, int64_t num_columns, uint8_t* is_bad) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  constexpr uint32_t kExponent = 0x7f800000u;
  if (i < size && (__float_as_uint(x[i]) & kExponent) == kExponent) is_bad[i / num_columns] = 1;
}

}  // namespace

absl::Status ApplyCuda(Queue* queue, Function function, const float* x, int64_t size, float* y) {
  const auto apply = [&](auto op) { return ForEach(queue, "map", x, nullptr, size, op, y); };
  switch (function) {
    case Function::kExp:
      return apply(ApplyOp<Function::kExp>());
    case Function::kLog:
      return apply(ApplyOp<Function::kLog>());
    case Function::kSigmoid:
      return apply(ApplyOp<Function::kSigmoid>());
    case Function::kSilu:
      return apply(ApplyOp<Function::kSilu>());
    case Function::kSoftplus:
      return apply(ApplyOp<Function::kSoftplus>());
    case Function::kElu:
      return apply(ApplyOp<Function::kElu>());
    case Function::kEluPlusOne:
      return apply(ApplyOp<Function::kEluPlusOne>());
  }
  return absl::InternalError("unknown function");
}

absl::Status BinaryCuda(Queue* queue, Binary op, const float* x, const float* operand, int64_t size,
                        float* y) {
  switch (op) {
    case Binary::kSwiglu:
      return ForEach(queue, "swiglu", x, operand, size, SwigluOp(), y);
    case Binary::kAdd:
      return ForEach(queue, "add", x, operand, size, AddOp(), y);
    case Binary::kMultiply:
      return ForEach(queue, "multiply", x, operand, size, MultiplyOp(), y);
  }
  return absl::InternalError("unknown operation");
}

absl::Status BroadcastCuda(Queue* queue, Broadcast op, const float* x, const float* operand,
                           const Matrix& shape, float* y) {
  const int64_t size = shape.size();
  const int64_t columns = shape.num_columns;
  switch (op) {
    case Broadcast::kAddRow:
      return ForEach(queue, "add row", x, nullptr, size, AddRowOp{operand, columns}, y);
    case Broadcast::kScaleColumns:
      return ForEach(queue, "scale columns", x, nullptr, size, ScaleColumnsOp{operand, columns}, y);
    case Broadcast::kScaleRows:
      return ForEach(queue, "scale rows", x, nullptr, size, ScaleRowsOp{operand, columns}, y);
  }
  return absl::InternalError("unknown operation");
}

absl::Status AddSkipCuda(Queue* queue, const float* skip, const float* x, const Matrix& shape,
                         int64_t head_columns, float* y) {
  return ForEach(queue, "add skip", y, x, shape.size(),
                 AddSkipOp{skip, shape.num_columns, head_columns}, y);
}

absl::Status L2NormalizeRowsCuda(Queue* queue, const float* x, const Matrix& shape, float divisor,
                                 float* y) {
  cuda::RowNorm(queue, x, shape.num_rows, static_cast<int>(shape.num_columns), RootOfSquares(),
                DivideTwice{divisor}, y);
  return queue->LaunchStatus("l2 normalisation");
}

absl::Status MarkNonFiniteCuda(Queue* queue, const float* x, const Matrix& shape, uint8_t* is_bad) {
  const auto blocks = static_cast<unsigned>((shape.size() + kThreads - 1) / kThreads);
  MarkNonFiniteKernel<<<blocks, kThreads, 0, queue->stream()>>>(x, shape.size(), shape.num_columns,
                                                                is_bad);
  return queue->LaunchStatus("mark non-finite");
}

}  // namespace lethe::elementwise
