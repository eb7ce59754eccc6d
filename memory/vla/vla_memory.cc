#include "memory/vla/vla_memory.h"

#include <utility>

#include "absl/memory/memory.h"

#include "kernels/base/check.h"
#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "memory/stream_checks.h"

namespace lethe {
namespace {

constexpr double kLambda0Min = 1e-6;
constexpr double kLambda0Max = 1e6;

class VlaSnapshot final : public MemorySnapshot {
 public:
  VlaSnapshot(int64_t num_tokens, int64_t step_count_in, std::vector<float> a_in,
              std::vector<float> s_in, std::vector<float> key_sum_in)
      : step_count(step_count_in),
        a(std::move(a_in)),
        s(std::move(s_in)),
        key_sum(std::move(key_sum_in)),
        num_tokens_(num_tokens) {}
  int64_t num_tokens() const override { return num_tokens_; }
  size_t state_bytes() const override {
    return (a.size() + s.size() + key_sum.size()) * sizeof(float);
  }
  void AppendTo(ByteWriter* out) const override {
    out->I64(num_tokens_);
    out->I64(step_count);
    out->Array<float>(a);
    out->Array<float>(s);
    out->Array<float>(key_sum);
  }

  const int64_t step_count;
  const std::vector<float> a;
  const std::vector<float> s;
  const std::vector<float> key_sum;

 private:
  const int64_t num_tokens_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<VlaMemory>> VlaMemory::Create(const VlaOptions& options) {
  LETHE_RETURN_IF_ERROR(CheckHeadOptions(options.num_heads, options.key_dim, options.value_dim));
  if (!(options.lambda0 >= kLambda0Min && options.lambda0 <= kLambda0Max)) {
    return absl::InvalidArgumentError("lambda0 must be in [1e-6, 1e6]");
  }
  return absl::WrapUnique(new VlaMemory(options));
}

VlaMemory::VlaMemory(const VlaOptions& options)
    : options_(options),
      a_(static_cast<size_t>(options.num_heads * options.key_dim * options.key_dim)),
      s_(static_cast<size_t>(options.num_heads * options.value_dim * options.key_dim)),
      key_sum_(options.read_norm == VlaReadNorm::kPaper
                   ? static_cast<size_t>(options.num_heads * options.key_dim)
                   : 0) {
  VlaInitialState(options_, State());
}

VlaState VlaMemory::State() {
  return {absl::MakeSpan(a_), absl::MakeSpan(s_), absl::MakeSpan(key_sum_)};
}

absl::Status VlaMemory::Step(const MemoryInputs& inputs, int64_t count, absl::Span<float> out) {
  LETHE_CHECK(count >= 1 && inputs.log_decay.empty() && inputs.precision.empty());
  VlaRecurrent(options_, {inputs.q, inputs.k, inputs.v, inputs.write_direction}, count, step_count_,
               State(), out);
  num_tokens_ += count;
  step_count_ += count;
  return CheckReads("vla", out);
}

absl::Status VlaMemory::Write(const MemoryInputs& inputs, int64_t count) {
  LETHE_CHECK(count >= 1 && inputs.log_decay.empty() && inputs.precision.empty());
  VlaWrite(options_, {{}, inputs.k, inputs.v, inputs.write_direction}, count, step_count_, State());
  num_tokens_ += count;
  step_count_ += count;
  return absl::OkStatus();
}

std::unique_ptr<MemorySnapshot> VlaMemory::Snapshot() const {
  return std::make_unique<VlaSnapshot>(num_tokens_, step_count_, a_, s_, key_sum_);
}

absl::Status VlaMemory::Restore(const MemorySnapshot& snapshot) {
  LETHE_ASSIGN_OR_RETURN(const VlaSnapshot* saved, SnapshotAs<VlaSnapshot>("vla", snapshot));
  if (saved->a.size() != a_.size() || saved->s.size() != s_.size() ||
      saved->key_sum.size() != key_sum_.size()) {
    return absl::InvalidArgumentError("snapshot is of a vla memory of another shape");
  }
  a_ = saved->a;
  s_ = saved->s;
  key_sum_ = saved->key_sum;
  num_tokens_ = saved->num_tokens();
  if (!FaultActive(Fault::kVlaStepCountKept)) step_count_ = saved->step_count;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MemorySnapshot>> VlaMemory::ReadSnapshot(ByteReader* in) const {
  int64_t num_tokens = 0;
  int64_t step_count = 0;
  std::vector<float> a;
  std::vector<float> s;
  std::vector<float> key_sum;
  LETHE_RETURN_IF_ERROR(in->I64(&num_tokens));
  LETHE_RETURN_IF_ERROR(in->I64(&step_count));
  LETHE_RETURN_IF_ERROR(in->Array(&a));
  LETHE_RETURN_IF_ERROR(in->Array(&s));
  LETHE_RETURN_IF_ERROR(in->Array(&key_sum));
  if (a.size() != a_.size() || s.size() != s_.size() || key_sum.size() != key_sum_.size()) {
    return absl::DataLossError("vla: a snapshot of another shape");
  }
  return std::make_unique<VlaSnapshot>(num_tokens, step_count, std::move(a), std::move(s),
                                       std::move(key_sum));
}

std::unique_ptr<Memory> VlaMemory::Clone() const { return absl::WrapUnique(new VlaMemory(*this)); }

void VlaMemory::AppendCanonicalState(ByteWriter* out) const {
  out->String("vla");
  out->I64(num_tokens_);
  out->I64(step_count_);
  out->Array<float>(a_);
  out->Array<float>(s_);
  out->Array<float>(key_sum_);
}

size_t VlaMemory::state_bytes() const {
  return (a_.capacity() + s_.capacity() + key_sum_.capacity()) * sizeof(float);
}

}  // namespace lethe
