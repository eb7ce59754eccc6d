// SvMemory: snapshots and inputs as bytes.
#include <algorithm>

#include "kernels/base/status_macros.h"
#include "memory/svdd/sv_head.h"

namespace lethe::svdd {
namespace {

constexpr uint64_t kMaxGatedKeys = uint64_t{1} << 32;

absl::Status MalformedSnapshot() { return absl::DataLossError("sv: a snapshot of another shape"); }

absl::Status ReadGate(ByteReader* in, Solution* gate) {
  uint64_t num_keys = 0;
  uint64_t ambiguous = 0;
  std::vector<uint8_t> classes;
  LETHE_RETURN_IF_ERROR(in->U64(&num_keys));
  LETHE_RETURN_IF_ERROR(in->F64(&gate->mass));
  LETHE_RETURN_IF_ERROR(in->F64(&gate->rho));
  LETHE_RETURN_IF_ERROR(in->Array(&classes));
  LETHE_RETURN_IF_ERROR(in->Array(&gate->a));
  LETHE_RETURN_IF_ERROR(in->U64(&ambiguous));
  LETHE_RETURN_IF_ERROR(in->F64(&gate->smallest_margin));
  const bool known = std::all_of(classes.begin(), classes.end(), [](uint8_t c) {
    return c <= static_cast<uint8_t>(Partition::kError);
  });
  if (num_keys >= kMaxGatedKeys || classes.size() != num_keys || gate->a.size() != num_keys ||
      ambiguous > 1 || !known) {
    return MalformedSnapshot();
  }
  gate->num_keys = static_cast<int64_t>(num_keys);
  gate->ambiguous = ambiguous == 1;
  for (const uint8_t c : classes) gate->classes.push_back(static_cast<Partition>(c));
  return absl::OkStatus();
}

}  // namespace

void SvSnapshot::AppendTo(ByteWriter* out) const {
  out->I64(num_tokens_);
  for (const auto& gate : gates_) {
    out->U64(static_cast<uint64_t>(gate->num_keys));
    out->F64(gate->mass);
    out->F64(gate->rho);
    std::vector<uint8_t> classes;
    for (const Partition c : gate->classes) classes.push_back(static_cast<uint8_t>(c));
    out->Array<uint8_t>(classes);
    out->Array<double>(gate->a);
    out->U64(gate->ambiguous ? 1 : 0);
    out->F64(gate->smallest_margin);
  }
}

absl::StatusOr<std::unique_ptr<MemorySnapshot>> SvMemory::ReadSnapshot(ByteReader* in) const {
  int64_t num_tokens = 0;
  LETHE_RETURN_IF_ERROR(in->I64(&num_tokens));
  std::vector<std::shared_ptr<const Solution>> gates;
  for (size_t h = 0; h < heads_.size(); ++h) {
    auto gate = std::make_shared<Solution>();
    LETHE_RETURN_IF_ERROR(ReadGate(in, gate.get()));
    if (gate->num_keys > num_tokens) return MalformedSnapshot();
    gates.push_back(std::move(gate));
  }
  return std::make_unique<SvSnapshot>(num_tokens, std::move(gates));
}

void SvMemory::AppendInputs(int64_t first, int64_t end, ByteWriter* out) const {
  const auto begin = static_cast<size_t>(first);
  const auto count = static_cast<size_t>(end - first);
  for (const auto& head : heads_) {
    out->Array(
        absl::MakeConstSpan(head->keys).subspan(begin * head->key_dim, count * head->key_dim));
    out->Array(absl::MakeConstSpan(head->values)
                   .subspan(begin * head->value_dim, count * head->value_dim));
  }
}

absl::Status SvMemory::ReadInputs(ByteReader* in) {
  const size_t before = heads_.front()->num_tokens();
  for (const auto& head : heads_) {
    std::vector<float> keys;
    std::vector<float> values;
    LETHE_RETURN_IF_ERROR(in->Array(&keys));
    LETHE_RETURN_IF_ERROR(in->Array(&values));
    const size_t count = keys.size() / head->key_dim;
    if (keys.size() != count * head->key_dim || values.size() != count * head->value_dim) {
      return MalformedSnapshot();
    }
    const WipedVector<double> wide(keys.begin(), keys.end());
    const absl::Status known = head->solver.Append(wide);
    head->keys.insert(head->keys.end(), keys.begin(), keys.end());
    head->values.insert(head->values.end(), values.begin(), values.end());
    WipeFrom(&keys, 0);
    WipeFrom(&values, 0);
    if (!known.ok()) return MalformedSnapshot();
    if (head->num_tokens() != heads_.front()->num_tokens() || head->num_tokens() < before) {
      return MalformedSnapshot();
    }
  }
  return absl::OkStatus();
}

}  // namespace lethe::svdd
