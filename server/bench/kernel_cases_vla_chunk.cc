#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/base/on_cuda.h"
#include "kernels/vla/vla_chunk.h"
#include "kernels/vla/vla_chunk_cuda.h"
#include "server/bench/kernel_bench.h"

namespace lethe::bench {
namespace {

constexpr int64_t kHeads = 16;

struct Shape {
  int64_t num_sequences;
  int64_t num_tokens;  // of each
  int64_t dim;
  VlaVariant variant;
};

std::string Name(const Shape& shape) {
  return absl::StrCat("B", shape.num_sequences, " T", shape.num_tokens, " D", shape.dim);
}

// VlaChunk of whole sequences from where the last run left them.
class ChunkCase : public KernelCase {
 public:
  explicit ChunkCase(const Shape& shape) : shape_(shape) {
    options_.num_heads = kHeads;
    options_.key_dim = options_.value_dim = shape.dim;
    options_.variant = shape.variant;
  }

  std::string kernel() const override {
    return shape_.variant == VlaVariant::kRls ? "vla prefill, rls" : "vla prefill";
  }
  std::string shape() const override { return Name(shape_); }
  double tokens() const override { return static_cast<double>(NumTokens()); }
  double state_bytes() const override { return 0.0; }

  absl::Status Prepare(Queue* queue) override {
    const int64_t rows = NumTokens() * kHeads;
    std::mt19937_64 engine(5);
    LETHE_ASSIGN_OR_RETURN(q_, Uniform(queue, rows, 0.0f, 2.0f, &engine));
    LETHE_ASSIGN_OR_RETURN(k_, Uniform(queue, rows, 0.0f, 2.0f, &engine));
    LETHE_ASSIGN_OR_RETURN(v_, Uniform(queue, rows, -1.0f, 1.0f, &engine));
    if (shape_.variant == VlaVariant::kVla) {
      // Of length about 1 / sqrt(K).
      const float bound = 1.7f / static_cast<float>(shape_.dim);
      LETHE_ASSIGN_OR_RETURN(u_, Uniform(queue, rows, -bound, bound, &engine));
    }
    LETHE_ASSIGN_OR_RETURN(out_, DeviceArray<float>::Zeros(queue, v_.size()));
    LETHE_RETURN_IF_ERROR(PrepareStates(queue));
    workspace_bytes_ = VlaChunkWorkspaceBytes(options_, NumTokens());
    LETHE_ASSIGN_OR_RETURN(workspace_,
                           DeviceArray<char>::Zeros(queue, static_cast<size_t>(workspace_bytes_)));
    return Run(queue);
  }

  absl::Status Run(Queue* queue) override {
    return VlaChunk(queue, options_, Batch(), workspace_.data(), workspace_bytes_);
  }

 protected:
  int64_t NumTokens() const { return shape_.num_sequences * shape_.num_tokens; }

  VlaChunkBatch Batch() {
    return {shape_.num_sequences,
            NumTokens(),
            offsets_.data(),
            slots_.data(),
            q_.data(),
            k_.data(),
            v_.data(),
            u_.data(),
            gram_.data(),
            s_.data(),
            a_.data(),
            out_.data()};
  }

  const Shape shape_;
  VlaOptions options_;
  DeviceArray<char> workspace_;

 private:
  // Repeats itself after kPeriod floats, which is some thousand tokens: drawing all takes minutes.
  absl::StatusOr<DeviceArray<float>> Uniform(Queue* queue, int64_t rows, float low, float high,
                                             std::mt19937_64* engine) const {
    constexpr size_t kPeriod = size_t{1} << 22;
    const auto size = static_cast<size_t>(rows * shape_.dim);
    std::vector<float> x(std::min(size, kPeriod));
    const float step = (high - low) * 0x1p-24f;
    for (float& element : x) element = low + static_cast<float>((*engine)() >> 40) * step;
    LETHE_ASSIGN_OR_RETURN(DeviceArray<float> array, DeviceArray<float>::Zeros(queue, size));
    LETHE_RETURN_IF_ERROR(queue->CopyToDevice(x.data(), x.size() * sizeof(float), array.data()));
    for (size_t begin = x.size(); begin < size; begin += x.size()) {
      const size_t count = std::min(x.size(), size - begin);
      LETHE_RETURN_IF_ERROR(
          queue->CopyOnDevice(array.data(), count * sizeof(float), array.data() + begin));
    }
    return array;
  }

  absl::Status PrepareStates(Queue* queue) {
    const auto size = static_cast<size_t>(shape_.num_sequences * kHeads * shape_.dim * shape_.dim);
    const auto dim = static_cast<size_t>(shape_.dim);
    std::vector<float> gram(size);
    for (size_t i = 0; i < size; ++i) {
      if (i / dim % dim == i % dim) gram[i] = static_cast<float>(options_.lambda0);
    }
    LETHE_ASSIGN_OR_RETURN(gram_, DeviceArray<float>::From(queue, gram));
    LETHE_ASSIGN_OR_RETURN(s_, DeviceArray<float>::Zeros(queue, size));
    LETHE_ASSIGN_OR_RETURN(a_, DeviceArray<float>::Zeros(queue, size));
    std::vector<int32_t> offsets{0};
    std::vector<int32_t> slots;
    for (int64_t i = 0; i < shape_.num_sequences; ++i) {
      offsets.push_back(static_cast<int32_t>((i + 1) * shape_.num_tokens));
      slots.push_back(static_cast<int32_t>(i));
    }
    LETHE_ASSIGN_OR_RETURN(offsets_, DeviceArray<int32_t>::From(queue, offsets));
    LETHE_ASSIGN_OR_RETURN(slots_, DeviceArray<int32_t>::From(queue, slots));
    return absl::OkStatus();
  }

  int64_t workspace_bytes_ = 0;
  DeviceArray<float> q_, k_, v_, u_, gram_, s_, a_, out_;
  DeviceArray<int32_t> offsets_, slots_;
};

using Stage = absl::Status (*)(Queue* queue, const VlaChunkSegment& segment);

// One of its stages alone, on what a whole run has left.
class StageCase : public ChunkCase {
 public:
  StageCase(const Shape& shape, std::string name, Stage stage)
      : ChunkCase(shape), name_(std::move(name)), stage_(stage) {}

  std::string kernel() const override { return absl::StrCat(ChunkCase::kernel(), ", ", name_); }
  absl::Status Run(Queue* queue) override {
    if (!is_prepared_) {
      is_prepared_ = true;
      return ChunkCase::Run(queue);
    }
    const int64_t num_chunks = NumTokens() / kVlaChunkTokens;
    return stage_(queue, {options_, Batch(), VlaChunkCut(options_, workspace_.data(), num_chunks),
                          0, num_chunks});
  }

 private:
  const std::string name_;
  const Stage stage_;
  bool is_prepared_ = false;
};

#ifdef LETHE_CUDA
void AddStages(const Shape& shape, KernelCases* cases) {
  const std::pair<const char*, Stage> stages[] = {
      {"gram", VlaChunkGram}, {"prefix", VlaChunkPrefix}, {"invert", VlaChunkInvert},
      {"keys", VlaChunkKeys}, {"fold", VlaChunkFold},     {"read", VlaChunkRead}};
  for (const auto& [name, stage] : stages) {
    cases->push_back(std::make_unique<StageCase>(shape, name, stage));
  }
}
#endif

}  // namespace

void AddVlaChunkCases(KernelCases* cases) {
  for (const VlaVariant variant : {VlaVariant::kVla, VlaVariant::kRls}) {
    for (const int64_t dim : {64, 128}) {
      for (const auto& [num_sequences, num_tokens] : {std::pair{1, 32768}, std::pair{8, 4096}}) {
        const Shape shape{num_sequences, num_tokens, dim, variant};
        cases->push_back(std::make_unique<ChunkCase>(shape));
#ifdef LETHE_CUDA
        AddStages(shape, cases);
#endif
      }
    }
  }
}

}  // namespace lethe::bench
