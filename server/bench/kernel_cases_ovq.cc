#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/ovq/ovq_batch.h"
#include "server/bench/kernel_bench.h"

namespace lethe::bench {
namespace {

constexpr int64_t kHeads = 16;
constexpr int64_t kMaxSlots = 2048;    // N where the case does not say
constexpr int64_t kChunkTokens = 128;  // L likewise

struct OvqSizes {
  int64_t batch = 1;
  int64_t length = 1;  // tokens of each sequence in a run
  int64_t tokens_before = 0;
  OvqShape shape;
};

// Uniform numbers in [-1, 1): fast enough for gigabytes.
class Uniforms {
 public:
  std::vector<float> Next(int64_t size) {
    std::vector<float> x(static_cast<size_t>(size));
    for (float& element : x) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      element = static_cast<float>(static_cast<int32_t>(state_ >> 32)) * 0x1p-31f;
    }
    return x;
  }
  std::vector<float> NextUnits(int64_t num_rows, int64_t length) {
    std::vector<float> x = Next(num_rows * length);
    for (float* row = x.data(); row < x.data() + x.size(); row += length) {
      float squares = 0.0f;
      for (int64_t i = 0; i < length; ++i) squares += row[i] * row[i];
      const float scale = 1.0f / std::sqrt(squares);
      for (int64_t i = 0; i < length; ++i) row[i] *= scale;
    }
    return x;
  }

 private:
  uint64_t state_ = 1;
};

class OvqCase : public KernelCase {
 public:
  explicit OvqCase(const OvqSizes& sizes) : sizes_(sizes) {}

  double tokens() const override { return static_cast<double>(sizes_.batch * sizes_.length); }

  absl::Status Prepare(Queue* queue) override {
    const OvqShape& shape = sizes_.shape;
    std::vector<int32_t> offsets;
    std::vector<int32_t> states;
    for (int64_t i = 0; i <= sizes_.batch; ++i) {
      offsets.push_back(static_cast<int32_t>(i * sizes_.length));
      if (i < sizes_.batch) states.push_back(static_cast<int32_t>(i));
    }
    const std::vector<int64_t> before(states.size(), sizes_.tokens_before);
    const std::vector<float> scales(kHeads, std::sqrt(static_cast<float>(shape.key_dim)));
    Uniforms uniforms;
    const int64_t rows = sizes_.batch * sizes_.length * kHeads;
    LETHE_ASSIGN_OR_RETURN(offsets_, DeviceArray<int32_t>::From(queue, offsets));
    LETHE_ASSIGN_OR_RETURN(states_, DeviceArray<int32_t>::From(queue, states));
    LETHE_ASSIGN_OR_RETURN(before_, DeviceArray<int64_t>::From(queue, before));
    LETHE_ASSIGN_OR_RETURN(scales_, DeviceArray<float>::From(queue, scales));
    LETHE_ASSIGN_OR_RETURN(
        q_, DeviceArray<float>::From(queue, uniforms.NextUnits(rows, shape.key_dim)));
    LETHE_ASSIGN_OR_RETURN(
        k_, DeviceArray<float>::From(queue, uniforms.NextUnits(rows, shape.key_dim)));
    LETHE_ASSIGN_OR_RETURN(v_,
                           DeviceArray<float>::From(queue, uniforms.Next(rows * shape.value_dim)));
    LETHE_ASSIGN_OR_RETURN(out_, DeviceArray<float>::Zeros(queue, v_.size()));
    LETHE_ASSIGN_OR_RETURN(workspace_, DeviceArray<char>::Zeros(
                                           queue, OvqWorkspaceBytes(queue->kind(), shape, Size())));
    return PrepareStates(queue, &uniforms);
  }

  absl::Status Run(Queue* queue) override {
    const OvqInputs inputs = {offsets_.data(), states_.data(), before_.data(), scales_.data(),
                              q_.data(),       k_.data(),      v_.data()};
    const OvqStates states = {sizes_.batch,   keys_.data(),         values_.data(),
                              counts_.data(), pending_keys_.data(), pending_values_.data()};
    return OvqBatch(queue, sizes_.shape, Size(), inputs, states, out_.data(), nullptr,
                    {workspace_.data(), workspace_.size()});
  }

 protected:
  const OvqSizes& sizes() const { return sizes_; }

 private:
  OvqBatchSize Size() const {
    return {kHeads,
            sizes_.batch,
            sizes_.batch * sizes_.length,
            sizes_.length,
            sizes_.tokens_before + sizes_.length,
            0};
  }

  absl::Status PrepareStates(Queue* queue, Uniforms* uniforms) {
    const OvqShape& shape = sizes_.shape;
    const int64_t slots = kHeads * shape.max_slots;
    const int64_t pending = kHeads * shape.chunk_tokens;
    std::vector<int32_t> counts;
    for (float x : uniforms->Next(slots)) counts.push_back(1 + static_cast<int32_t>(500 + 500 * x));
    LETHE_RETURN_IF_ERROR(Repeat(queue, uniforms->NextUnits(slots, shape.key_dim), &keys_));
    LETHE_RETURN_IF_ERROR(Repeat(queue, uniforms->Next(slots * shape.value_dim), &values_));
    LETHE_RETURN_IF_ERROR(Repeat(queue, counts, &counts_));
    LETHE_RETURN_IF_ERROR(
        Repeat(queue, uniforms->NextUnits(pending, shape.key_dim), &pending_keys_));
    return Repeat(queue, uniforms->Next(pending * shape.value_dim), &pending_values_);
  }

  // The same state for every session: random numbers for all of them would take minutes.
  template <typename T>
  absl::Status Repeat(Queue* queue, const std::vector<T>& one, DeviceArray<T>* all) {
    const size_t size = one.size();
    LETHE_ASSIGN_OR_RETURN(const auto from, DeviceArray<T>::From(queue, one));
    LETHE_ASSIGN_OR_RETURN(*all,
                           DeviceArray<T>::Zeros(queue, size * static_cast<size_t>(sizes_.batch)));
    for (size_t i = 0; i < all->size(); i += size) {
      LETHE_RETURN_IF_ERROR(queue->CopyOnDevice(from.data(), size * sizeof(T), all->data() + i));
    }
    return queue->Finish();
  }

  const OvqSizes sizes_;
  DeviceArray<int32_t> offsets_, states_, counts_;
  DeviceArray<int64_t> before_;
  DeviceArray<float> scales_, q_, k_, v_, out_, keys_, values_, pending_keys_, pending_values_;
  DeviceArray<char> workspace_;
};

class OvqPrefillCase : public OvqCase {
 public:
  using OvqCase::OvqCase;

  std::string kernel() const override {
    const int64_t chunk = sizes().shape.chunk_tokens;
    return chunk == kChunkTokens ? "ovq prefill" : absl::StrCat("ovq prefill, L", chunk);
  }
  std::string shape() const override {
    return absl::StrCat("B", sizes().batch, " T", sizes().length, " D", sizes().shape.key_dim);
  }
  double state_bytes() const override { return 0.0; }
};

// One token a session; half a chunk is pending. The state's bytes are those of the slots in use and
// of the pending tokens.
class OvqDecodeCase : public OvqCase {
 public:
  using OvqCase::OvqCase;

  std::string kernel() const override {
    return sizes().shape.max_slots == kMaxSlots ? "ovq decode"
                                                : absl::StrCat("ovq decode, ", Filled(), " slots");
  }
  std::string shape() const override {
    return absl::StrCat("B", sizes().batch, " D", sizes().shape.key_dim);
  }
  double state_bytes() const override {
    const OvqShape& shape = sizes().shape;
    const int64_t pending = sizes().tokens_before % shape.chunk_tokens;
    const int64_t dims = (shape.key_dim + shape.value_dim) * static_cast<int64_t>(sizeof(float));
    const int64_t head = Filled() * (dims + static_cast<int64_t>(sizeof(int32_t))) + pending * dims;
    return static_cast<double>(sizes().batch * kHeads * head);
  }

 private:
  int64_t Filled() const { return OvqFilledSlots(sizes().shape, sizes().tokens_before); }
};

}  // namespace

void AddOvqCases(KernelCases* cases) {
  // 2044 of 2048 slots are in use after 2^20 tokens, 511 of 512.
  constexpr int64_t kTokensBefore = (int64_t{1} << 20) + kChunkTokens / 2;
  for (int64_t dim : {64, 128}) {
    const OvqShape shape{dim, dim, kMaxSlots, kChunkTokens};
    for (int64_t batch : {1, 16, 64, 256, 1024}) {
      cases->push_back(std::make_unique<OvqDecodeCase>(OvqSizes{batch, 1, kTokensBefore, shape}));
    }
    cases->push_back(std::make_unique<OvqDecodeCase>(
        OvqSizes{256, 1, kTokensBefore, {dim, dim, 512, kChunkTokens}}));
    cases->push_back(std::make_unique<OvqPrefillCase>(OvqSizes{1, 32768, 0, shape}));
    cases->push_back(std::make_unique<OvqPrefillCase>(OvqSizes{8, 4096, 0, shape}));
  }
  cases->push_back(std::make_unique<OvqPrefillCase>(OvqSizes{8, 4096, 0, {64, 64, kMaxSlots, 64}}));
}

}  // namespace lethe::bench
