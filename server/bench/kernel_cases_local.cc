// The kernels of a model's local layers.
#include "server/bench/kernel_cases_local.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/causal_conv/causal_conv_batch.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/rms_norm/rms_norm_batch.h"
#include "kernels/window_attention/window_attention_batch.h"

namespace lethe::bench {

// By a multiplicative congruence.
std::vector<float> RandomValues(int64_t count, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  uint32_t state = seed * 2654435761u + 1u;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return values;
}

absl::StatusOr<DeviceArray<float>> RandomArray(Queue* queue, int64_t count, uint32_t seed) {
  return DeviceArray<float>::From(queue, RandomValues(count, seed));
}

namespace {

constexpr int64_t kHeads = 16;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kWindow = 64;
constexpr int64_t kConvWidth = 4;
constexpr double kFloatBytes = sizeof(float);
// B sequences of T tokens each behind `rank` earlier ones; slot s is sequence s's.
class PackedCase : public KernelCase {
 public:
  PackedCase(int64_t num_sequences, int64_t length)
      : num_sequences_(num_sequences), length_(length) {}
  double tokens() const override { return static_cast<double>(num_tokens()); }

 protected:
  static constexpr int64_t kRank = 1000;
  int64_t num_sequences() const { return num_sequences_; }
  int64_t length() const { return length_; }
  int64_t num_tokens() const { return num_sequences_ * length_; }
  std::string BatchShape() const {
    return length_ == 1 ? absl::StrCat("B", num_sequences_)
                        : absl::StrCat("B", num_sequences_, " T", length_);
  }

  absl::Status PrepareSequences(Queue* queue) {
    std::vector<int64_t> offsets = {0};
    std::vector<int32_t> slots;
    for (int64_t s = 0; s < num_sequences_; ++s) {
      offsets.push_back((s + 1) * length_);
      slots.push_back(static_cast<int32_t>(s));
    }
    const std::vector<int64_t> ranks(static_cast<size_t>(num_sequences_), kRank);
    LETHE_ASSIGN_OR_RETURN(offsets_, DeviceArray<int64_t>::From(queue, offsets));
    LETHE_ASSIGN_OR_RETURN(slots_, DeviceArray<int32_t>::From(queue, slots));
    LETHE_ASSIGN_OR_RETURN(ranks_, DeviceArray<int64_t>::From(queue, ranks));
    return absl::OkStatus();
  }
  PackedSequences sequences() const {
    return {num_sequences_, num_tokens(), length_, offsets_.data(), slots_.data(), ranks_.data()};
  }

 private:
  int64_t num_sequences_;
  int64_t length_;
  DeviceArray<int64_t> offsets_;
  DeviceArray<int32_t> slots_;
  DeviceArray<int64_t> ranks_;
};

class WindowAttentionCase : public PackedCase {
 public:
  using PackedCase::PackedCase;
  std::string kernel() const override {
    return length() == 1 ? "window attention decode" : "window attention prefill";
  }
  std::string shape() const override {
    return absl::StrCat(BatchShape(), " D", kHeadDim, " W", kWindow);
  }
  double state_bytes() const override {
    // The window once and the new row; in prefill q, k, v and o.
    const double row = 2.0 * kHeads * kHeadDim * kFloatBytes;
    return length() == 1 ? static_cast<double>(num_tokens()) * row * kWindow : 2.0 * row * tokens();
  }

  absl::Status Prepare(Queue* queue) override {
    LETHE_RETURN_IF_ERROR(PrepareSequences(queue));
    const int64_t size = num_tokens() * kHeads * kHeadDim;
    const int64_t places = num_sequences() * kHeads * (kWindow - 1) * kHeadDim;
    LETHE_ASSIGN_OR_RETURN(slopes_, RandomArray(queue, kHeads, 1));
    LETHE_ASSIGN_OR_RETURN(q_, RandomArray(queue, size, 2));
    LETHE_ASSIGN_OR_RETURN(k_, RandomArray(queue, size, 3));
    LETHE_ASSIGN_OR_RETURN(v_, RandomArray(queue, size, 4));
    LETHE_ASSIGN_OR_RETURN(keys_, RandomArray(queue, places, 5));
    LETHE_ASSIGN_OR_RETURN(values_, RandomArray(queue, places, 6));
    LETHE_ASSIGN_OR_RETURN(o_, DeviceArray<float>::Zeros(queue, static_cast<size_t>(size)));
    return absl::OkStatus();
  }
  absl::Status Run(Queue* queue) override {
    return WindowAttentionBatch(queue, {kHeads, kHeadDim, kHeadDim, kWindow}, slopes_.data(),
                                q_.data(), k_.data(), v_.data(), sequences(),
                                {keys_.data(), values_.data()}, o_.data());
  }

 private:
  DeviceArray<float> slopes_;
  DeviceArray<float> q_;
  DeviceArray<float> k_;
  DeviceArray<float> v_;
  DeviceArray<float> keys_;
  DeviceArray<float> values_;
  DeviceArray<float> o_;
};

class CausalConvCase : public PackedCase {
 public:
  CausalConvCase(int64_t num_sequences, int64_t length, int64_t num_channels)
      : PackedCase(num_sequences, length), num_channels_(num_channels) {}
  std::string kernel() const override {
    return length() == 1 ? "convolution decode" : "convolution prefill";
  }
  std::string shape() const override { return absl::StrCat(BatchShape(), " C", num_channels_); }
  double state_bytes() const override {
    const double row = static_cast<double>(num_channels_) * kFloatBytes;
    return row * (2.0 * tokens() + static_cast<double>(num_sequences()) * kConvWidth);
  }

  absl::Status Prepare(Queue* queue) override {
    LETHE_RETURN_IF_ERROR(PrepareSequences(queue));
    LETHE_ASSIGN_OR_RETURN(w_, RandomArray(queue, num_channels_ * kConvWidth, 1));
    LETHE_ASSIGN_OR_RETURN(z_, RandomArray(queue, num_tokens() * num_channels_, 2));
    LETHE_ASSIGN_OR_RETURN(
        pool_, RandomArray(queue, num_sequences() * (kConvWidth - 1) * num_channels_, 3));
    LETHE_ASSIGN_OR_RETURN(y_, DeviceArray<float>::Zeros(queue, z_.size()));
    return absl::OkStatus();
  }
  absl::Status Run(Queue* queue) override {
    return CausalConvBatch(queue, {num_channels_, kConvWidth, w_.data(), nullptr}, z_.data(),
                           sequences(), pool_.data(), y_.data());
  }

 private:
  int64_t num_channels_;
  DeviceArray<float> w_;
  DeviceArray<float> z_;
  DeviceArray<float> pool_;
  DeviceArray<float> y_;
};

// A map of [num_rows][num_columns] in place of one or two such arrays.
class RowsCase : public KernelCase {
 public:
  enum class Map { kRmsNorm, kL2Normalize, kSwiglu, kAdd };
  RowsCase(Map map, int64_t num_rows, int64_t num_columns)
      : map_(map), matrix_{num_rows, num_columns} {}
  std::string kernel() const override {
    switch (map_) {
      case Map::kRmsNorm:
        return "rms norm";
      case Map::kL2Normalize:
        return "l2 normalisation";
      case Map::kSwiglu:
        return "swiglu";
      case Map::kAdd:
        return "residual";
    }
    return "";
  }
  std::string shape() const override {
    return absl::StrCat(matrix_.num_rows, " rows of ", matrix_.num_columns);
  }
  double tokens() const override { return static_cast<double>(matrix_.num_rows); }
  double state_bytes() const override {
    const bool has_two = map_ == Map::kSwiglu || map_ == Map::kAdd;
    return static_cast<double>(matrix_.size()) * kFloatBytes * (has_two ? 3.0 : 2.0);
  }

  absl::Status Prepare(Queue* queue) override {
    LETHE_ASSIGN_OR_RETURN(x_, RandomArray(queue, matrix_.size(), 1));
    LETHE_ASSIGN_OR_RETURN(operand_, RandomArray(queue, matrix_.size(), 2));
    LETHE_ASSIGN_OR_RETURN(y_, DeviceArray<float>::Zeros(queue, x_.size()));
    return absl::OkStatus();
  }
  absl::Status Run(Queue* queue) override {
    switch (map_) {
      case Map::kRmsNorm:
        return RmsNormBatch(queue, x_.data(), matrix_.num_rows, operand_.data(),
                            matrix_.num_columns, 1e-6f, y_.data());
      case Map::kL2Normalize:
        return elementwise::L2NormalizeRows(queue, x_.data(), matrix_, 1.0f, y_.data());
      case Map::kSwiglu:
        return elementwise::Swiglu(queue, x_.data(), operand_.data(), matrix_.size(), y_.data());
      case Map::kAdd:
        return elementwise::Add(queue, operand_.data(), matrix_.size(), y_.data());
    }
    return absl::OkStatus();
  }

 private:
  Map map_;
  elementwise::Matrix matrix_;
  DeviceArray<float> x_;
  DeviceArray<float> operand_;
  DeviceArray<float> y_;
};

}  // namespace

void AddLocalCases(KernelCases* cases) {
  AddMatmulCases(cases);
  cases->push_back(std::make_unique<WindowAttentionCase>(256, 1));
  cases->push_back(std::make_unique<WindowAttentionCase>(1024, 1));
  cases->push_back(std::make_unique<WindowAttentionCase>(8, 4096));
  cases->push_back(std::make_unique<WindowAttentionCase>(1, 32768));
  cases->push_back(std::make_unique<CausalConvCase>(1024, 1, 8192));
  cases->push_back(std::make_unique<CausalConvCase>(8, 4096, 1024));
  cases->push_back(std::make_unique<CausalConvCase>(1, 32768, 1024));
  using Map = RowsCase::Map;
  cases->push_back(std::make_unique<RowsCase>(Map::kRmsNorm, 256, 1024));
  cases->push_back(std::make_unique<RowsCase>(Map::kRmsNorm, 32768, 1024));
  cases->push_back(std::make_unique<RowsCase>(Map::kL2Normalize, 32768 * kHeads, kHeadDim));
  cases->push_back(std::make_unique<RowsCase>(Map::kSwiglu, 32768, 1024));
  cases->push_back(std::make_unique<RowsCase>(Map::kAdd, 32768, 1024));
  AddSamplingCases(cases);
}

}  // namespace lethe::bench
