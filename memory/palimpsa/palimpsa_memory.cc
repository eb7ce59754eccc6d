#include "memory/palimpsa/palimpsa_memory.h"

#include <cmath>
#include <utility>

#include "absl/memory/memory.h"

#include "kernels/base/check.h"
#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "memory/palimpsa/palimpsa_tree.h"
#include "memory/stream_checks.h"

namespace lethe {
namespace {

class PalimpsaSnapshot final : public MemorySnapshot {
 public:
  PalimpsaSnapshot(int64_t num_tokens, std::vector<float> m_in, std::vector<float> i_bar_in)
      : m(std::move(m_in)), i_bar(std::move(i_bar_in)), num_tokens_(num_tokens) {}
  int64_t num_tokens() const override { return num_tokens_; }
  size_t state_bytes() const override { return (m.size() + i_bar.size()) * sizeof(float); }
  void AppendTo(ByteWriter* out) const override {
    out->I64(num_tokens_);
    out->Array<float>(m);
    out->Array<float>(i_bar);
  }

  const std::vector<float> m;
  const std::vector<float> i_bar;

 private:
  const int64_t num_tokens_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PalimpsaMemory>> PalimpsaMemory::Create(
    const PalimpsaOptions& options) {
  const PalimpsaShape& shape = options.shape;
  LETHE_RETURN_IF_ERROR(CheckHeadOptions(shape.num_heads, shape.key_dim, shape.value_dim));
  if (!std::isfinite(options.read_scale)) {
    return absl::InvalidArgumentError("read_scale must be finite");
  }
  return absl::WrapUnique(new PalimpsaMemory(options));
}

PalimpsaMemory::PalimpsaMemory(const PalimpsaOptions& options)
    : options_(options),
      m_(static_cast<size_t>(options.shape.num_heads * options.shape.value_dim *
                             options.shape.key_dim)),
      i_bar_(options.metaplasticity ? m_.size() : 0) {}

absl::Status PalimpsaMemory::Step(const MemoryInputs& inputs, int64_t count,
                                  absl::Span<float> out) {
  LETHE_CHECK(count >= 1 && inputs.write_direction.empty());
  const PalimpsaInputs tokens{inputs.q, inputs.k, inputs.v, inputs.log_decay, inputs.precision};
  if (FaultActive(Fault::kTreeOverChunks)) {
    std::vector<float> m = m_;
    std::vector<float> i_bar = i_bar_;
    PalimpsaRecurrent(options_.shape, tokens, count, options_.read_scale, absl::MakeSpan(m),
                      absl::MakeSpan(i_bar), out);
    LETHE_RETURN_IF_ERROR(Write(inputs, count));
  } else {
    PalimpsaRecurrent(options_.shape, tokens, count, options_.read_scale, absl::MakeSpan(m_),
                      absl::MakeSpan(i_bar_), out);
    num_tokens_ += count;
  }
  return CheckReads("palimpsa", out);
}

absl::Status PalimpsaMemory::Write(const MemoryInputs& inputs, int64_t count) {
  LETHE_CHECK(count >= 1 && inputs.write_direction.empty());
  const PalimpsaInputs tokens{{}, inputs.k, inputs.v, inputs.log_decay, inputs.precision};
  const auto fold = FaultActive(Fault::kTreeOverChunks) ? &PalimpsaTree : &PalimpsaWrite;
  fold(options_.shape, tokens, count, absl::MakeSpan(m_), absl::MakeSpan(i_bar_));
  num_tokens_ += count;
  return absl::OkStatus();
}

std::unique_ptr<MemorySnapshot> PalimpsaMemory::Snapshot() const {
  return std::make_unique<PalimpsaSnapshot>(num_tokens_, m_, i_bar_);
}

absl::Status PalimpsaMemory::Restore(const MemorySnapshot& snapshot) {
  LETHE_ASSIGN_OR_RETURN(const PalimpsaSnapshot* saved,
                         SnapshotAs<PalimpsaSnapshot>("palimpsa", snapshot));
  if (saved->m.size() != m_.size() || saved->i_bar.size() != i_bar_.size()) {
    return absl::InvalidArgumentError("snapshot is of a palimpsa memory of another shape");
  }
  m_ = saved->m;
  i_bar_ = saved->i_bar;
  num_tokens_ = saved->num_tokens();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MemorySnapshot>> PalimpsaMemory::ReadSnapshot(ByteReader* in) const {
  int64_t num_tokens = 0;
  std::vector<float> m;
  std::vector<float> i_bar;
  LETHE_RETURN_IF_ERROR(in->I64(&num_tokens));
  LETHE_RETURN_IF_ERROR(in->Array(&m));
  LETHE_RETURN_IF_ERROR(in->Array(&i_bar));
  if (m.size() != m_.size() || i_bar.size() != i_bar_.size()) {
    return absl::DataLossError("palimpsa: a snapshot of another shape");
  }
  return std::make_unique<PalimpsaSnapshot>(num_tokens, std::move(m), std::move(i_bar));
}

std::unique_ptr<Memory> PalimpsaMemory::Clone() const {
  return absl::WrapUnique(new PalimpsaMemory(*this));
}

void PalimpsaMemory::AppendCanonicalState(ByteWriter* out) const {
  out->String("palimpsa");
  out->I64(num_tokens_);
  out->Array<float>(m_);
  out->Array<float>(i_bar_);
}

size_t PalimpsaMemory::state_bytes() const {
  return (m_.capacity() + i_bar_.capacity()) * sizeof(float);
}

}  // namespace lethe
