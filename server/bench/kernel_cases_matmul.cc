// Products of weights and activations: decode, prefill, and what exactness costs.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/matmul/matmul_batch.h"
#include "kernels/matmul/matmul_cuda.h"
#include "server/bench/kernel_cases_local.h"

namespace lethe::bench {
namespace {

// What a run's weights are cycled through, so that no run finds its own in the cache.
constexpr size_t kCycledBytes = size_t{256} << 20;

struct Product {
  std::string kernel;
  int64_t num_rows;
  int64_t num_outputs;
  int64_t num_inputs;
  bool is_bf16;
  ActivationTerms terms = ActivationTerms::kTwo;
  matmul::MatmulPlan plan = matmul::MatmulPlan::kAuto;
};

class MatmulCase : public KernelCase {
 public:
  explicit MatmulCase(Product product) : product_(std::move(product)) {}
  std::string kernel() const override { return product_.kernel; }
  std::string shape() const override {
    return absl::StrCat("M", product_.num_rows, " N", product_.num_outputs, " K",
                        product_.num_inputs);
  }
  double tokens() const override { return static_cast<double>(product_.num_rows); }
  double state_bytes() const override {
    const double weights = static_cast<double>(product_.num_outputs * product_.num_inputs);
    return product_.num_rows <= 256 ? weights * (product_.is_bf16 ? 2.0 : 4.0) : 0.0;
  }

  absl::Status Prepare(Queue* queue) override {
    std::vector<float> w = RandomValues(product_.num_outputs * product_.num_inputs, 1);
    if (product_.is_bf16) {
      for (float& value : w) value = static_cast<float>(static_cast<int>(value * 128.0f)) / 128.0f;
    }
    do {
      LETHE_ASSIGN_OR_RETURN(
          DeviceMatrix matrix,
          DeviceMatrix::Create(queue, w, product_.num_outputs, product_.num_inputs));
      matrices_.push_back(std::move(matrix));
    } while (product_.num_rows <= 256 &&
             matrices_.size() * matrices_[0].size_bytes() < kCycledBytes);
    LETHE_ASSIGN_OR_RETURN(x_, RandomArray(queue, product_.num_rows * product_.num_inputs, 2));
    LETHE_ASSIGN_OR_RETURN(
        y_, DeviceArray<float>::Zeros(
                queue, static_cast<size_t>(product_.num_rows * product_.num_outputs)));
    return absl::OkStatus();
  }
  absl::Status Run(Queue* queue) override {
    const DeviceMatrix& matrix = matrices_[next_++ % matrices_.size()];
#ifdef LETHE_CUDA
    if (product_.plan != matmul::MatmulPlan::kAuto) {
      const matmul::CudaProblem problem = {x_.data(),
                                           matrix.tiles(),
                                           y_.data(),
                                           product_.num_rows,
                                           static_cast<int>(product_.num_outputs),
                                           static_cast<int>(product_.num_inputs),
                                           static_cast<int>((product_.num_outputs + 15) / 16),
                                           static_cast<int>((product_.num_inputs + 31) / 32 * 2),
                                           product_.is_bf16,
                                           product_.is_bf16 ? static_cast<int>(product_.terms) : 3};
      return matmul::MatmulCuda(queue, problem, product_.plan);
    }
#endif
    return MatmulBatch(queue, x_.data(), product_.num_rows, matrix, product_.terms, y_.data());
  }

 private:
  Product product_;
  std::vector<DeviceMatrix> matrices_;
  size_t next_ = 0;
  DeviceArray<float> x_;
  DeviceArray<float> y_;
};

}  // namespace

void AddMatmulCases(KernelCases* cases) {
  const auto add = [cases](Product product) {
    cases->push_back(std::make_unique<MatmulCase>(std::move(product)));
  };
  const std::pair<int64_t, int64_t> kDecodeShapes[] = {
      {1024, 1024}, {4096, 1024}, {3352, 768}, {50280, 1024}};
  for (const auto& [outputs, inputs] : kDecodeShapes) {
    for (const int64_t rows : {1, 16, 64, 256}) {
      add({"matmul bf16", rows, outputs, inputs, true});
      add({"matmul f32", rows, outputs, inputs, false});
    }
  }
  add({"matmul bf16, without exactness", 1, 1024, 1024, true, ActivationTerms::kTwo,
       matmul::MatmulPlan::kFinerSlices});
  add({"matmul bf16, without exactness", 1, 4096, 1024, true, ActivationTerms::kTwo,
       matmul::MatmulPlan::kFinerSlices});
  for (const int64_t rows : {4096, 32768}) {
    for (const int64_t outputs : {1024, 4096}) {
      add({"matmul bf16, one term", rows, outputs, 1024, true, ActivationTerms::kOne});
      add({"matmul bf16", rows, outputs, 1024, true});
      add({"matmul bf16, three terms", rows, outputs, 1024, true, ActivationTerms::kThree});
      add({"matmul f32", rows, outputs, 1024, false});
      add({"matmul bf16, without exactness", rows, outputs, 1024, true, ActivationTerms::kTwo,
           matmul::MatmulPlan::kUnsliced});
    }
  }
}

}  // namespace lethe::bench
