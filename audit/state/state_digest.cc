#include "audit/state/state_digest.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "kernels/base/byte_io.h"

namespace lethe::audit {
namespace {

constexpr char kVectorModelTag[] = "lethe-vector-session-v1";

}  // namespace

void StateParts::Add(absl::string_view name, absl::string_view bytes) {
  AddHash(name, Sha256Of(bytes));
}

void StateParts::AddHash(absl::string_view name, const Sha256Digest& hash_of_bytes) {
  parts_.push_back({std::string(name), hash_of_bytes});
}

Sha256Digest StateParts::Digest() const { return StateDigest(parts_); }

Sha256Digest StateDigest(const std::vector<StatePart>& parts) {
  constexpr char kDomain[] = "lethe-state-v1";  // its terminating NUL is part of the format
  ByteWriter writer;
  writer.Raw(kDomain, sizeof kDomain);
  writer.U64(parts.size());
  for (const StatePart& part : parts) {
    writer.String(part.name);
    writer.Raw(part.hash.data(), part.hash.size());
  }
  return Sha256Of(writer.bytes());
}

std::string ExplainDifference(const std::vector<StatePart>& a, const std::vector<StatePart>& b) {
  const size_t common = std::min(a.size(), b.size());
  for (size_t i = 0; i < common; ++i) {
    if (a[i].name != b[i].name) {
      return absl::StrCat("part ", i, " is \"", a[i].name, "\" in one and \"", b[i].name,
                          "\" in the other");
    }
    if (a[i].hash != b[i].hash) return absl::StrCat("part ", i, " \"", a[i].name, "\" differs");
  }
  if (a.size() == b.size()) return std::string();
  const StatePart& extra = a.size() > b.size() ? a[common] : b[common];
  return absl::StrCat("part ", common, " \"", extra.name, "\" is in one only");
}

std::string SupportStateBytes(const SupportState& support) {
  ByteWriter writer;
  writer.F64(support.sigma);
  writer.F64(support.box_mass);
  writer.F64(support.ridge);
  writer.U64(support.num_gated);
  writer.F64(support.rho);
  writer.U64(support.rows.size());
  for (const SupportRow& row : support.rows) {
    writer.U64(row.rank);
    writer.U64(static_cast<uint64_t>(row.support_class));
    writer.F64(row.a);
  }
  writer.Raw(support.inputs_root.data(), support.inputs_root.size());
  return writer.Take();
}

std::string SupportPartName(uint64_t layer, uint64_t group, uint64_t head) {
  return absl::StrCat("layer.", layer, ".group.", group, ".head.", head, ".support");
}

std::string MemoryPartName(uint64_t layer, uint64_t group) {
  return absl::StrCat("layer.", layer, ".group.", group, ".memory");
}

Sha256Digest VectorModelDigest(const VectorParams& params) {
  ByteWriter writer;
  writer.Raw(kVectorModelTag, sizeof kVectorModelTag);  // with its NUL
  writer.U64(params.key_dim);
  writer.U64(params.value_dim);
  writer.F64(params.sigma);
  writer.F64(params.box_mass);
  writer.F64(params.ridge);
  return Sha256Of(writer.bytes());
}

}  // namespace lethe::audit
