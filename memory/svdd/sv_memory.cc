#include "memory/svdd/sv_memory.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/wiped.h"
#include "kernels/sv_read/sv_read.h"
#include "memory/svdd/sv_edit.h"
#include "memory/svdd/sv_head.h"

namespace lethe::svdd {
namespace {

size_t Size(int64_t count) { return static_cast<size_t>(count); }

int64_t GatedTokens(int64_t num_tokens) { return num_tokens / kChunkTokens * kChunkTokens; }

bool AllFinite(absl::Span<const float> values) {
  bool finite = true;
  for (const float x : values) finite &= std::abs(x) <= std::numeric_limits<float>::max();
  return finite;
}

absl::Status InRange(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is outside ", low, "..", high, ", got ", value));
}

}  // namespace

absl::Status SvMemory::Head::Append(absl::Span<const float> key, absl::Span<const float> value) {
  if (!AllFinite(key)) return absl::OutOfRangeError("sv: a key component is not finite");
  if (!AllFinite(value)) return absl::OutOfRangeError("sv: a value component is not finite");
  keys.insert(keys.end(), key.begin(), key.end());
  values.insert(values.end(), value.begin(), value.end());
  return absl::OkStatus();
}

// The last appended token is the reader.
absl::Status SvMemory::Head::Read(absl::Span<const float> q, absl::Span<float> out) {
  const size_t local_begin = num_gated();
  SvRead(scale, q,
         {support(), absl::MakeConstSpan(keys).subspan(local_begin * key_dim),
          absl::MakeConstSpan(values).subspan(local_begin * value_dim)},
         &workspace, out);
  if (!AllFinite(out)) return absl::OutOfRangeError("sv: a read is not finite");
  return absl::OkStatus();
}

absl::Status SvMemory::Head::SolveGate() {
  const size_t begin = num_gated() * key_dim;
  const WipedVector<double> wide(keys.begin() + static_cast<std::ptrdiff_t>(begin), keys.end());
  LETHE_RETURN_IF_ERROR(solver.Append(wide));
  LETHE_RETURN_IF_ERROR(solver.Solve());
  SetGate(std::make_shared<Solution>(solver.solution()));
  return absl::OkStatus();
}

void SvMemory::Head::SetGate(std::shared_ptr<const Solution> solution) {
  gate = std::move(solution);
  WipeFrom(&support_keys, 0);
  WipeFrom(&support_values, 0);
  WipeFrom(&support_gate, 0);
  WipeFrom(&workspace.logits, 0);
  WipeFrom(&support_key_of, 0);
  const KeyGroups& groups = solver.key_groups();
  constexpr size_t kUnseen = std::numeric_limits<size_t>::max();
  std::vector<size_t> place(Size(groups.num_groups()), kUnseen);  // in support_keys
  for (size_t i = 0; i < num_gated(); ++i) {
    if (gate->classes[i] == Partition::kReserve) continue;
    size_t& at = place[Size(groups.GroupOf(static_cast<int64_t>(i)))];
    if (at == kUnseen) {
      at = support_keys.size() / key_dim;
      const auto key = keys.begin() + static_cast<std::ptrdiff_t>(i * key_dim);
      support_keys.insert(support_keys.end(), key, key + static_cast<std::ptrdiff_t>(key_dim));
    }
    support_key_of.push_back(static_cast<int32_t>(at));
    const auto value = values.begin() + static_cast<std::ptrdiff_t>(i * value_dim);
    support_values.insert(support_values.end(), value,
                          value + static_cast<std::ptrdiff_t>(value_dim));
    support_gate.push_back(static_cast<float>(gate->a[i]));
  }
}

void SvMemory::Head::Truncate(int64_t num_tokens_kept,
                              const std::shared_ptr<const Solution>& solution) {
  WipeFrom(&keys, Size(num_tokens_kept) * key_dim);
  WipeFrom(&values, Size(num_tokens_kept) * value_dim);
  WipeFrom(&workspace.weights, 0);
  solver.Truncate(solution->num_keys, *solution);
  SetGate(solution);
}

absl::Status SvMemory::Head::SetEdited(const Head& before, const SvEdit& edit, size_t index,
                                       size_t num_heads, absl::Span<const Successor> successors,
                                       int64_t num_gated_after) {
  keys.reserve(successors.size() * key_dim);
  values.reserve(successors.size() * value_dim);
  KeyEdit key_edit;
  for (const Successor& successor : successors) {
    const absl::Span<const float> old_key = before.Key(Size(successor.rank));
    absl::Span<const float> key = old_key;
    absl::Span<const float> value = before.Value(Size(successor.rank));
    if (successor.new_key != Successor::kKept) {
      const size_t at = Size(successor.new_key) * num_heads + index;
      key = edit.keys.subspan(at * key_dim, key_dim);
      value = edit.values.subspan(at * value_dim, value_dim);
    }
    keys.insert(keys.end(), key.begin(), key.end());
    values.insert(values.end(), value.begin(), value.end());
    if (key_edit.kept.size() == Size(num_gated_after)) continue;
    // A tail token's key may not be the solver's yet.
    const bool is_known = successor.rank < before.solver.num_keys() &&
                          std::equal(key.begin(), key.end(), old_key.begin());
    key_edit.kept.push_back(is_known ? successor.rank : KeyEdit::kNone);
    key_edit.heir_of.push_back(successor.rank);
    if (!is_known) key_edit.keys.insert(key_edit.keys.end(), key.begin(), key.end());
  }
  LETHE_RETURN_IF_ERROR(solver.SetEdited(before.solver, key_edit));
  SetGate(std::make_shared<Solution>(solver.solution()));
  return absl::OkStatus();
}

SvMemory::SvMemory(const SvOptions& options) : options_(options) {}

SvMemory::~SvMemory() = default;

absl::StatusOr<std::unique_ptr<SvMemory>> SvMemory::Create(const SvOptions& options) {
  LETHE_RETURN_IF_ERROR(InRange("num_heads", options.num_heads, 1, 64));
  LETHE_RETURN_IF_ERROR(InRange("value_dim", options.value_dim, 1, 4096));
  if (options.beta.size() != Size(options.num_heads)) {
    return absl::InvalidArgumentError("beta: one per head expected");
  }
  if (!AllFinite(options.beta)) return absl::InvalidArgumentError("beta is not finite");
  LETHE_ASSIGN_OR_RETURN(const Params params, MakeParams(options.sigma, options.box_mass,
                                                         options.ridge, options.key_dim));
  std::unique_ptr<SvMemory> memory(new SvMemory(options));
  for (const float beta : options.beta) {
    memory->heads_.push_back(std::make_unique<Head>(params, options.value_dim, beta));
  }
  return memory;
}

absl::Status SvMemory::Step(const MemoryInputs& inputs, int64_t count, absl::Span<float> out) {
  LETHE_CHECK(inputs.q.size() == inputs.k.size() && out.size() == inputs.v.size());
  if (!AllFinite(inputs.q)) return absl::OutOfRangeError("sv: a query component is not finite");
  return Advance(inputs, count, out);
}

absl::Status SvMemory::Write(const MemoryInputs& inputs, int64_t count) {
  return Advance(inputs, count, {});
}

absl::Status SvMemory::Advance(const MemoryInputs& inputs, int64_t count, absl::Span<float> out) {
  const size_t num_heads = heads_.size();
  const size_t key_dim = Size(options_.key_dim);
  const size_t value_dim = Size(options_.value_dim);
  LETHE_CHECK(count >= 1 && inputs.k.size() == Size(count) * num_heads * key_dim &&
              inputs.v.size() == Size(count) * num_heads * value_dim);
  for (size_t h = 0; h < num_heads; ++h) {
    Head& head = *heads_[h];
    for (size_t t = 0; t < Size(count); ++t) {
      const size_t at = t * num_heads + h;
      LETHE_RETURN_IF_ERROR(head.Append(inputs.k.subspan(at * key_dim, key_dim),
                                        inputs.v.subspan(at * value_dim, value_dim)));
      if (!out.empty()) {
        LETHE_RETURN_IF_ERROR(head.Read(inputs.q.subspan(at * key_dim, key_dim),
                                        out.subspan(at * value_dim, value_dim)));
      }
      const int64_t reached = num_tokens_ + static_cast<int64_t>(t) + 1;
      if (reached % kChunkTokens == 0) LETHE_RETURN_IF_ERROR(head.SolveGate());
    }
  }
  num_tokens_ += count;
  return absl::OkStatus();
}

std::unique_ptr<MemorySnapshot> SvMemory::Snapshot() const {
  std::vector<std::shared_ptr<const Solution>> gates;
  for (const auto& head : heads_) gates.push_back(head->gate);
  return std::make_unique<SvSnapshot>(num_tokens_, std::move(gates));
}

absl::Status SvMemory::Restore(const MemorySnapshot& snapshot) {
  const auto* sv = dynamic_cast<const SvSnapshot*>(&snapshot);
  if (sv == nullptr || sv->gates().size() != heads_.size()) {
    return absl::InvalidArgumentError("snapshot is not one of this sv memory");
  }
  for (size_t h = 0; h < heads_.size(); ++h) {
    if (sv->num_tokens() > static_cast<int64_t>(heads_[h]->num_tokens()) ||
        sv->gates()[h]->num_keys > heads_[h]->solver.num_keys()) {
      return absl::InvalidArgumentError("snapshot is of more tokens than this sv memory holds");
    }
  }
  for (size_t h = 0; h < heads_.size(); ++h) {
    heads_[h]->Truncate(sv->num_tokens(), sv->gates()[h]);
  }
  num_tokens_ = sv->num_tokens();
  return absl::OkStatus();
}

std::unique_ptr<Memory> SvMemory::Clone() const {
  std::unique_ptr<SvMemory> clone(new SvMemory(options_));
  clone->num_tokens_ = num_tokens_;
  for (const auto& head : heads_) clone->heads_.push_back(std::make_unique<Head>(*head));
  return clone;
}

absl::StatusOr<std::unique_ptr<SvMemory>> SvMemory::Edited(const SvEdit& edit) const {
  const size_t num_heads = heads_.size();
  const size_t num_new = edit.replaced.size() * num_heads;
  if (edit.keys.size() != num_new * Size(options_.key_dim) ||
      edit.values.size() != num_new * Size(options_.value_dim)) {
    return absl::InvalidArgumentError("keys, values: one a head for every replaced rank expected");
  }
  if (!AllFinite(edit.keys)) return absl::OutOfRangeError("sv: a key component is not finite");
  if (!AllFinite(edit.values)) return absl::OutOfRangeError("sv: a value component is not finite");
  size_t num_present = 0;
  for (const auto& head : heads_) num_present = std::max(num_present, head->num_tokens());
  LETHE_ASSIGN_OR_RETURN(
      const std::vector<Successor> successors,
      SuccessorsOf(edit.removed, edit.replaced, num_tokens_, static_cast<int64_t>(num_present)));
  std::unique_ptr<SvMemory> edited(new SvMemory(options_));
  edited->num_tokens_ = static_cast<int64_t>(successors.size());
  for (size_t h = 0; h < num_heads; ++h) {
    const Head& before = *heads_[h];
    auto head = std::make_unique<Head>(before.params, options_.value_dim, options_.beta[h]);
    const int64_t num_gated = FaultActive(Fault::kGateBoundaryKept)
                                  ? NumRetained(successors, before.gate->num_keys)
                                  : GatedTokens(edited->num_tokens_);
    LETHE_RETURN_IF_ERROR(head->SetEdited(before, edit, h, num_heads, successors, num_gated));
    edited->heads_.push_back(std::move(head));
  }
  return edited;
}

void SvMemory::AppendCanonicalState(ByteWriter* out) const {
  for (int64_t h = 0; h < num_heads(); ++h) {
    const SvHeadView view = head(h);
    out->F64(view.params->sigma);
    out->F64(view.params->box_mass);
    out->F64(view.params->ridge);
    out->U64(static_cast<uint64_t>(view.solution->num_keys));
    out->F64(view.solution->rho);
    const std::vector<Partition>& classes = view.solution->classes;
    out->U64(classes.size() -
             Size(std::count(classes.begin(), classes.end(), Partition::kReserve)));
    for (size_t i = 0; i < classes.size(); ++i) {
      if (classes[i] == Partition::kReserve) continue;
      out->U64(i);
      out->U64(static_cast<uint64_t>(classes[i]));
      out->F64(view.solution->a[i]);
    }
    out->Array(view.tail_keys);
    out->Array(view.tail_values);
  }
}

size_t SvMemory::state_bytes() const {
  size_t bytes = sizeof(*this);
  for (const auto& head : heads_) {
    bytes += sizeof(Head) + head->solver.state_bytes() +
             head->gate->a.capacity() * (sizeof(double) + sizeof(Partition)) +
             sizeof(float) *
                 (head->keys.capacity() + head->values.capacity() + head->support_keys.capacity() +
                  head->support_values.capacity() + head->support_gate.capacity() +
                  head->workspace.weights.capacity() + head->workspace.logits.capacity()) +
             sizeof(int32_t) * head->support_key_of.capacity();
  }
  return bytes;
}

SvHeadView SvMemory::head(int64_t head) const {
  LETHE_CHECK(head >= 0 && head < num_heads());
  const Head& h = *heads_[Size(head)];
  LETHE_DCHECK(h.gate->num_keys == GatedTokens(num_tokens_) ||
               FaultActive(Fault::kGateBoundaryKept));
  const absl::Span<const float> keys = h.keys;
  const absl::Span<const float> values = h.values;
  const size_t gated = h.num_gated();
  return {&h.params,
          h.gate.get(),
          keys.first(gated * h.key_dim),
          values.first(gated * h.value_dim),
          keys.subspan(gated * h.key_dim),
          values.subspan(gated * h.value_dim)};
}

SvSupport SvMemory::support(int64_t head) const {
  LETHE_CHECK(head >= 0 && head < num_heads());
  return heads_[Size(head)]->support();
}

Counters SvMemory::counters() const {
  Counters sum;
  for (const auto& head : heads_) {
    const Counters each = head->solver.counters();
    sum.solves += each.solves;
    sum.accepted += each.accepted;
    sum.fallbacks += each.fallbacks;
    sum.ambiguous += each.ambiguous;
    sum.more_digits += each.more_digits;
    sum.pivot_failures += each.pivot_failures;
    sum.uncertified_gaps += each.uncertified_gaps;
    sum.kernel_values += each.kernel_values;
  }
  return sum;
}

}  // namespace lethe::svdd
