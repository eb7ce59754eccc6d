// VLA's fold of steps: decode for many sessions, and prefill in all forms.
#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "kernels/vla/vla_fold.h"
#include "server/bench/kernel_bench.h"

namespace lethe::bench {
namespace {

constexpr int64_t kVlaHeads = 16;

// Uniform in [-scale, scale), cheaply: a linear congruential generator (Knuth's MMIX).
std::vector<float> VlaUniforms(int64_t size, float scale, uint64_t seed) {
  std::vector<float> x(static_cast<size_t>(size));
  for (float& element : x) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    element = scale * (static_cast<float>(seed >> 40) * 0x1p-23f - 1.0f);
  }
  return x;
}

class VlaFoldCase : public KernelCase {
 public:
  VlaFoldCase(std::string kernel, int64_t num_sequences, int64_t length, const VlaOptions& options,
              bool slots_shuffled)
      : kernel_(std::move(kernel)),
        slots_shuffled_(slots_shuffled),
        num_sequences_(num_sequences),
        length_(length),
        options_(options) {}

  std::string kernel() const override { return kernel_; }
  std::string shape() const override {
    return absl::StrCat("B", num_sequences_, length_ > 1 ? absl::StrCat(" T", length_) : "", " D",
                        options_.key_dim);
  }
  double tokens() const override { return static_cast<double>(num_sequences_ * length_); }
  double state_bytes() const override {
    if (length_ > 1) return 0.0;
    const int64_t floats = num_sequences_ * options_.num_heads * options_.key_dim *
                           (options_.key_dim + options_.value_dim);
    return 2.0 * static_cast<double>(floats) * sizeof(float);
  }

  absl::Status Prepare(Queue* queue) override {
    const int64_t num_tokens = num_sequences_ * length_;
    const int64_t num_keys = num_tokens * options_.num_heads * options_.key_dim;
    const int64_t num_values = num_tokens * options_.num_heads * options_.value_dim;
    std::vector<float> keys = VlaUniforms(num_keys, 1.0f, 1);
    for (float& k : keys) k += 1.0f;  // as elu + 1
    LETHE_ASSIGN_OR_RETURN(k_, DeviceArray<float>::From(queue, keys));
    std::reverse(keys.begin(), keys.end());
    LETHE_ASSIGN_OR_RETURN(q_, DeviceArray<float>::From(queue, keys));
    LETHE_ASSIGN_OR_RETURN(v_, DeviceArray<float>::From(queue, VlaUniforms(num_values, 1.0f, 2)));
    if (options_.variant == VlaVariant::kVla) {
      // Of length 1 / sqrt(K).
      const float scale = std::sqrt(3.0f) / static_cast<float>(options_.key_dim);
      LETHE_ASSIGN_OR_RETURN(u_, DeviceArray<float>::From(queue, VlaUniforms(num_keys, scale, 3)));
    }
    LETHE_ASSIGN_OR_RETURN(out_, DeviceArray<float>::Zeros(queue, static_cast<size_t>(num_values)));
    LETHE_RETURN_IF_ERROR(PrepareStates(queue));
    batch_ = {num_sequences_,      num_tokens, length_,   offsets_.data(), slots_.data(),
              step_counts_.data(), q_.data(),  k_.data(), v_.data(),       u_.data(),
              a_.data(),           s_.data(),  nullptr,   out_.data()};
    return absl::OkStatus();
  }

  absl::Status Run(Queue* queue) override { return VlaFold(queue, options_, batch_); }

 private:
  absl::Status PrepareStates(Queue* queue) {
    std::vector<int32_t> offsets(static_cast<size_t>(num_sequences_) + 1);
    std::vector<int32_t> slots(static_cast<size_t>(num_sequences_));
    for (size_t b = 0; b < slots.size(); ++b) {
      offsets[b + 1] = offsets[b] + static_cast<int32_t>(length_);
      slots[b] = static_cast<int32_t>(b);
    }
    if (slots_shuffled_) std::shuffle(slots.begin(), slots.end(), std::mt19937(1));
    LETHE_ASSIGN_OR_RETURN(offsets_, DeviceArray<int32_t>::From(queue, offsets));
    LETHE_ASSIGN_OR_RETURN(slots_, DeviceArray<int32_t>::From(queue, slots));
    LETHE_ASSIGN_OR_RETURN(step_counts_, DeviceArray<int64_t>::Zeros(queue, slots.size()));
    // One session's states at rank 0, copied to all: the runs before the timed ones fill them.
    const int64_t key_dim = options_.key_dim;
    std::vector<float> a(static_cast<size_t>(options_.num_heads * key_dim * key_dim));
    std::vector<float> s(static_cast<size_t>(options_.num_heads * options_.value_dim * key_dim));
    VlaInitialState(options_, {absl::MakeSpan(a), absl::MakeSpan(s), {}});
    LETHE_ASSIGN_OR_RETURN(a_, DeviceArray<float>::Zeros(queue, a.size() * slots.size()));
    LETHE_ASSIGN_OR_RETURN(s_, DeviceArray<float>::Zeros(queue, s.size() * slots.size()));
    for (size_t b = 0; b < slots.size(); ++b) {
      LETHE_RETURN_IF_ERROR(
          queue->CopyToDevice(a.data(), a.size() * sizeof(float), a_.data() + b * a.size()));
    }
    return queue->Finish();
  }

  const std::string kernel_;
  const bool slots_shuffled_;  // as in kernel_cases_palimpsa.cc
  const int64_t num_sequences_;
  const int64_t length_;
  const VlaOptions options_;
  DeviceArray<float> q_, k_, v_, u_, out_, a_, s_;
  DeviceArray<int32_t> offsets_, slots_;
  DeviceArray<int64_t> step_counts_;
  VlaBatch batch_;
};

}  // namespace

void AddVlaCases(KernelCases* cases) {
  const auto add = [&](const std::string& kernel, int64_t num_sequences, int64_t length,
                       int64_t dim, VlaVariant variant, bool nudge, bool slots_shuffled = false) {
    cases->push_back(std::make_unique<VlaFoldCase>(
        kernel, num_sequences, length,
        VlaOptions{kVlaHeads, dim, dim, variant, nudge, 0.1, VlaReadNorm::kRms}, slots_shuffled));
  };
  for (int64_t dim : {64, 128}) {
    for (int64_t num_sequences : {1, 16, 64, 256, 1024}) {
      add("vla decode", num_sequences, 1, dim, VlaVariant::kVla, false);
    }
    for (int64_t num_sequences : {256, 1024}) {
      add("vla decode, slots shuffled", num_sequences, 1, dim, VlaVariant::kVla, false, true);
    }
    add("vla decode, rls", 256, 1, dim, VlaVariant::kRls, false);
    for (const auto& [num_sequences, length] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 32768}, {8, 4096}, {64, 512}}) {
      add("vla prefill, nudge", num_sequences, length, dim, VlaVariant::kVla, true);
    }
    add("vla prefill, steps", 8, 4096, dim, VlaVariant::kVla, false);
    add("vla prefill, rls, steps", 8, 4096, dim, VlaVariant::kRls, false);
  }
}

}  // namespace lethe::bench
