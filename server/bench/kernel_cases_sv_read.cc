// Reads of support-vector heads.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/sv_read/sv_read_batch.h"
#include "server/bench/kernel_bench.h"
#include "server/bench/kernel_cases_local.h"

namespace lethe::bench {
namespace {

constexpr int64_t kHeads = 4;
constexpr int64_t kHeadDim = 64;
constexpr double kFloatBytes = sizeof(float);

// B sessions of T tokens each with a support of S rows a head.
class SvReadCase : public KernelCase {
 public:
  SvReadCase(int64_t num_sequences, int64_t length, int64_t num_support)
      : num_sequences_(num_sequences), length_(length), num_support_(num_support) {}
  std::string kernel() const override {
    return length_ == 1 ? "sv read decode" : "sv read prefill";
  }
  std::string shape() const override {
    return absl::StrCat("B", num_sequences_, length_ == 1 ? "" : absl::StrCat(" T", length_), " S",
                        num_support_, " H", kHeads, " D", kHeadDim);
  }
  double tokens() const override { return static_cast<double>(num_tokens()); }
  double state_bytes() const override {
    // Keys and values once a sequence and head, gates and places of keys.
    const double rows = static_cast<double>(num_support_ + rank() + length_);
    return static_cast<double>(num_sequences_ * kHeads) *
           (rows * 2.0 * kHeadDim + 2.0 * static_cast<double>(num_support_)) * kFloatBytes;
  }

  absl::Status Prepare(Queue* queue) override {
    LETHE_RETURN_IF_ERROR(PrepareSequences(queue));
    const int64_t size = num_tokens() * kHeads * kHeadDim;
    LETHE_ASSIGN_OR_RETURN(scales_, RandomArray(queue, kHeads, 1));
    LETHE_ASSIGN_OR_RETURN(q_, RandomArray(queue, size, 2));
    LETHE_ASSIGN_OR_RETURN(k_, RandomArray(queue, size, 3));
    LETHE_ASSIGN_OR_RETURN(v_, RandomArray(queue, size, 4));
    LETHE_ASSIGN_OR_RETURN(o_, DeviceArray<float>::Zeros(queue, v_.size()));
    const int64_t num_heads = num_sequences_ * kHeads;
    LETHE_ASSIGN_OR_RETURN(keys_, RandomArray(queue, num_heads * num_support_ * kHeadDim, 5));
    LETHE_ASSIGN_OR_RETURN(values_, RandomArray(queue, num_heads * num_support_ * kHeadDim, 6));
    LETHE_ASSIGN_OR_RETURN(
        gates_,
        DeviceArray<float>::From(
            queue, std::vector<float>(static_cast<size_t>(num_heads * num_support_), 0.25f)));
    LETHE_ASSIGN_OR_RETURN(tail_keys_, RandomArray(queue, num_heads * kSvTailTokens * kHeadDim, 7));
    LETHE_ASSIGN_OR_RETURN(tail_values_,
                           RandomArray(queue, num_heads * kSvTailTokens * kHeadDim, 8));
    std::vector<int32_t> key_of;
    std::vector<SvReadHead> heads;
    for (int64_t h = 0; h < num_heads; ++h) {
      for (int64_t i = 0; i < num_support_; ++i) key_of.push_back(static_cast<int32_t>(i));
    }
    LETHE_ASSIGN_OR_RETURN(key_of_, DeviceArray<int32_t>::From(queue, key_of));
    for (int64_t h = 0; h < num_heads; ++h) {
      const int64_t row = h * num_support_;
      heads.push_back({keys_.data() + row * kHeadDim, key_of_.data() + row, gates_.data() + row,
                       values_.data() + row * kHeadDim,
                       tail_keys_.data() + h * kSvTailTokens * kHeadDim,
                       tail_values_.data() + h * kSvTailTokens * kHeadDim,
                       static_cast<int32_t>(num_support_), static_cast<int32_t>(num_support_)});
    }
    LETHE_ASSIGN_OR_RETURN(heads_, DeviceArray<SvReadHead>::From(queue, heads));
    return absl::OkStatus();
  }
  absl::Status Run(Queue* queue) override {
    return SvReadBatch(
        queue, {kHeads, kHeadDim, kHeadDim}, scales_.data(), q_.data(), k_.data(), v_.data(),
        {num_sequences_, num_tokens(), length_, offsets_.data(), slots_.data(), ranks_.data()},
        heads_.data(), num_support_, o_.data());
  }

 private:
  int64_t num_tokens() const { return num_sequences_ * length_; }
  // Behind the boundary: half a tail in decode.
  int64_t rank() const { return length_ == 1 ? kSvTailTokens / 2 : 0; }

  absl::Status PrepareSequences(Queue* queue) {
    std::vector<int64_t> offsets = {0};
    std::vector<int32_t> slots;
    for (int64_t s = 0; s < num_sequences_; ++s) {
      offsets.push_back((s + 1) * length_);
      slots.push_back(static_cast<int32_t>(s));
    }
    const std::vector<int64_t> ranks(slots.size(), 1024 + rank());
    LETHE_ASSIGN_OR_RETURN(offsets_, DeviceArray<int64_t>::From(queue, offsets));
    LETHE_ASSIGN_OR_RETURN(slots_, DeviceArray<int32_t>::From(queue, slots));
    LETHE_ASSIGN_OR_RETURN(ranks_, DeviceArray<int64_t>::From(queue, ranks));
    return absl::OkStatus();
  }

  int64_t num_sequences_;
  int64_t length_;
  int64_t num_support_;  // a multiple of 4
  DeviceArray<int64_t> offsets_, ranks_;
  DeviceArray<int32_t> slots_, key_of_;
  DeviceArray<float> scales_, q_, k_, v_, o_;
  DeviceArray<float> keys_, gates_, values_, tail_keys_, tail_values_;
  DeviceArray<SvReadHead> heads_;
};

}  // namespace

void AddSvReadCases(KernelCases* cases) {
  for (const int64_t num_sequences : {1, 16, 256}) {
    cases->push_back(std::make_unique<SvReadCase>(num_sequences, 1, 300));
  }
  cases->push_back(std::make_unique<SvReadCase>(16, 1, 4000));
  cases->push_back(std::make_unique<SvReadCase>(1, 64, 300));
  cases->push_back(std::make_unique<SvReadCase>(64, 64, 300));
}

}  // namespace lethe::bench
