// Palimpsa's prefill and decode, with metaplasticity and without (mamba2).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/palimpsa/palimpsa_batch.h"
#include "server/bench/kernel_bench.h"

namespace lethe::bench {
namespace {

struct CaseOptions {
  std::string kernel;
  PalimpsaShape shape;
  int64_t num_sequences = 1;
  int64_t length = 1;
  bool has_precision = true;
  // 1, or in how many pieces of time a sequence is cut that are folded at once: first the pieces'
  // contributions to the state without reads, then all reads, from states that a tree would have
  // made of the contributions. The tree itself, over a few states, is left out. What it would give
  // depends on the cut: no form of ours.
  int64_t num_pieces = 1;
  // A batch whose sessions come in no order of their slots, as no server needs to call it.
  bool slots_shuffled = false;
};

// A million random numbers, then the same again.
absl::Status Fill(Queue* queue, int64_t size, float low, float high, DeviceArray<float>* array) {
  std::mt19937 engine(static_cast<unsigned>(size));
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> values(std::min(static_cast<size_t>(size), size_t{1} << 20));
  for (float& value : values) value = uniform(engine);
  LETHE_ASSIGN_OR_RETURN(*array, DeviceArray<float>::Zeros(queue, static_cast<size_t>(size)));
  LETHE_RETURN_IF_ERROR(
      queue->CopyToDevice(values.data(), values.size() * sizeof(float), array->data()));
  for (size_t filled = values.size(); filled < array->size(); filled *= 2) {
    const size_t count = std::min(filled, array->size() - filled);
    LETHE_RETURN_IF_ERROR(
        queue->CopyOnDevice(array->data(), count * sizeof(float), array->data() + filled));
  }
  return queue->Finish();
}

class PalimpsaCase : public KernelCase {
 public:
  explicit PalimpsaCase(CaseOptions options) : options_(std::move(options)) {}

  std::string kernel() const override { return options_.kernel; }
  std::string shape() const override {
    const PalimpsaShape& shape = options_.shape;
    std::string text = absl::StrCat("B", options_.num_sequences);
    if (options_.length > 1) absl::StrAppend(&text, " T", options_.length);
    if (shape.num_heads != 16) absl::StrAppend(&text, " H", shape.num_heads);
    if (shape.key_dim == shape.value_dim) return absl::StrCat(text, " D", shape.key_dim);
    return absl::StrCat(text, " K", shape.key_dim, " V", shape.value_dim);
  }
  double tokens() const override {
    return static_cast<double>(options_.num_sequences * options_.length);
  }
  double state_bytes() const override {
    if (options_.length > 1) return 0.0;
    const double states = options_.has_precision ? 2.0 : 1.0;
    return 2.0 * states * sizeof(float) *
           static_cast<double>(options_.num_sequences * options_.shape.num_heads *
                               options_.shape.key_dim * options_.shape.value_dim);
  }

  absl::Status Prepare(Queue* queue) override {
    const PalimpsaShape& shape = options_.shape;
    const int64_t heads = options_.num_sequences * options_.length * shape.num_heads;
    const int64_t num_states = options_.num_sequences * options_.num_pieces;
    const int64_t state = num_states * shape.num_heads * shape.key_dim * shape.value_dim;
    const float key_max = 1.7f / std::sqrt(static_cast<float>(shape.key_dim));  // norm about 1
    LETHE_RETURN_IF_ERROR(Fill(queue, heads * shape.key_dim, -key_max, key_max, &q_));
    LETHE_RETURN_IF_ERROR(Fill(queue, heads * shape.key_dim, -key_max, key_max, &k_));
    LETHE_RETURN_IF_ERROR(Fill(queue, heads * shape.value_dim, -1.7f, 1.7f, &value_));
    LETHE_RETURN_IF_ERROR(Fill(queue, heads, -0.2f, -0.001f, &log_decay_));
    LETHE_RETURN_IF_ERROR(Fill(queue, heads * shape.value_dim, 0.0f, 1.0f, &precision_));
    LETHE_RETURN_IF_ERROR(Fill(queue, state, -1.0f, 1.0f, &m_));
    LETHE_RETURN_IF_ERROR(Fill(queue, state, 0.0f, 1.0f, &i_bar_));
    LETHE_ASSIGN_OR_RETURN(out_, DeviceArray<float>::Zeros(queue, value_.size()));
    const int64_t length = options_.length / options_.num_pieces;
    std::vector<int32_t> offsets = {0};
    std::vector<int32_t> slots;
    for (int64_t s = 0; s < num_states; ++s) {
      offsets.push_back(static_cast<int32_t>((s + 1) * length));
      slots.push_back(static_cast<int32_t>(s));
    }
    if (options_.slots_shuffled) std::shuffle(slots.begin(), slots.end(), std::mt19937(1));
    LETHE_ASSIGN_OR_RETURN(offsets_, DeviceArray<int32_t>::From(queue, offsets));
    LETHE_ASSIGN_OR_RETURN(slots_, DeviceArray<int32_t>::From(queue, slots));
    return absl::OkStatus();
  }

  absl::Status Run(Queue* queue) override {
    PalimpsaBatch batch;
    batch.k = k_.data();
    batch.value = value_.data();
    batch.log_decay = log_decay_.data();
    batch.offsets = offsets_.data();
    batch.slots = slots_.data();
    batch.num_sequences = options_.num_sequences * options_.num_pieces;
    batch.num_tokens = options_.num_sequences * options_.length;
    batch.max_length = options_.length / options_.num_pieces;
    batch.m = m_.data();
    if (options_.has_precision) {
      batch.precision = precision_.data();
      batch.i_bar = i_bar_.data();
    }
    if (options_.num_pieces > 1) {
      LETHE_RETURN_IF_ERROR(PalimpsaFold(queue, options_.shape, batch, 0.0f));
    }
    batch.q = q_.data();
    batch.out = out_.data();
    return PalimpsaFold(queue, options_.shape, batch, 0.125f);
  }

 private:
  CaseOptions options_;
  DeviceArray<float> q_, k_, value_, log_decay_, precision_, m_, i_bar_, out_;
  DeviceArray<int32_t> offsets_, slots_;
};

}  // namespace

void AddPalimpsaCases(KernelCases* cases) {
  const auto add = [&](const CaseOptions& options) {
    cases->push_back(std::make_unique<PalimpsaCase>(options));
  };
  for (const bool has_precision : {true, false}) {
    const std::string name = has_precision ? "palimpsa" : "mamba2";
    for (const int64_t dim : {64, 128}) {
      const PalimpsaShape shape{16, dim, dim};
      add({name + " prefill", shape, 1, 32768, has_precision});
      add({name + " prefill, without exactness", shape, 1, 32768, has_precision, 8});
      add({name + " prefill", shape, 8, 4096, has_precision});
      for (const int64_t num_sequences : {1, 16, 64, 256, 1024}) {
        add({name + " decode", shape, num_sequences, 1, has_precision});
      }
      for (const int64_t num_sequences : {256, 1024}) {
        add({name + " decode, slots shuffled", shape, num_sequences, 1, has_precision, 1, true});
      }
    }
    // The layers of Mamba2-130m.
    add({name + " decode", {24, 128, 64}, 64, 1, has_precision});
  }
}

}  // namespace lethe::bench
