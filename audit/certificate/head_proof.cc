#include "audit/certificate/head_proof.h"

#include <string>
#include <vector>

#include "absl/types/span.h"

#include "audit/state/input_tree.h"
#include "kernels/base/byte_io.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "memory/svdd/problem.h"
#include "memory/svdd/readout_bound.h"

namespace lethe::audit {
namespace {

svdd::Partition ToPartition(KeyClass key_class) {
  if (key_class == KeyClass::kMargin) return svdd::Partition::kMargin;
  if (key_class == KeyClass::kError) return svdd::Partition::kError;
  return svdd::Partition::kReserve;
}

// The numbers' bytes, little-endian, as the digest hashes them.
std::string NumberBytes(absl::Span<const double> values, NumberFormat format) {
  ByteWriter bytes;
  for (const double value : values) {
    if (format == NumberFormat::kF64) {
      bytes.F64(value);
    } else {
      bytes.F32(static_cast<float>(value));
    }
  }
  return bytes.bytes();
}

// All but the root over keys and values.
SupportState SolutionOf(const BundleHead& head) {
  SupportState support;
  support.sigma = head.sigma;
  support.box_mass = head.box_mass;
  support.ridge = head.ridge;
  support.num_gated = head.token_ids.size();
  support.rho = head.rho;
  for (size_t rank = 0; rank < head.token_ids.size(); ++rank) {
    if (head.classes[rank] == KeyClass::kReserve) continue;
    const bool margin = head.classes[rank] == KeyClass::kMargin;
    support.rows.push_back(
        {rank, margin ? SupportClass::kMargin : SupportClass::kError, head.a[rank]});
  }
  return support;
}

}  // namespace

absl::StatusOr<svdd::OptimalityBounds> ProveHead(const BundleHead& head) {
  LETHE_ASSIGN_OR_RETURN(
      const svdd::Params params,
      svdd::MakeParams(head.sigma, head.box_mass, head.ridge, static_cast<int64_t>(head.key_dim)));
  // The digest covers the head's own figures: parameters that would be snapped are not the ones it
  // used.
  if (params.box_mass != head.box_mass) {
    return absl::InvalidArgumentError("box_mass: want an integer where it is within 1e-9 of one");
  }
  std::vector<svdd::Partition> classes;
  classes.reserve(head.classes.size());
  for (const KeyClass key_class : head.classes) classes.push_back(ToPartition(key_class));
  const svdd::Witness* witness = head.witness.has_value() ? &*head.witness : nullptr;
  LETHE_ASSIGN_OR_RETURN(
      svdd::OptimalityBounds bounds,
      svdd::ProveOptimality(params, head.keys, {classes, head.a, head.rho, witness}));
  // In a vector session every input is gated; elsewhere a readout weighs the tail's values too.
  if (head.tail.has_value() || head.format == NumberFormat::kF64) {
    svdd::ReadoutValues<double> values;
    values.gated = head.values;
    if (head.tail.has_value()) values.local = head.tail->values;
    values.dim = static_cast<int64_t>(head.value_dim);
    svdd::AddReadoutBound(absl::MakeConstSpan(classes), values, &bounds);
  }
  return bounds;
}

std::optional<Sha256Digest> WitnessHash(const std::optional<svdd::Witness>& witness) {
  if (!witness.has_value()) return std::nullopt;
  ByteWriter bytes;
  const auto append = [&bytes](const svdd::DoubleDouble& x) {
    // -0 as +0, like the bundle.
    bytes.F64(x.hi + 0.0);
    bytes.F64(x.lo + 0.0);
  };
  append(witness->lambda);
  bytes.U64(witness->a.size());
  for (const svdd::DoubleDouble& x : witness->a) append(x);
  return Sha256Of(bytes.bytes());
}

DeviationBounds ToDeviation(const svdd::OptimalityBounds& bounds) {
  DeviationBounds deviation;
  deviation.gap = bounds.gap;
  deviation.delta = bounds.delta;
  deviation.kernel_sum = bounds.kernel_sum_bound;
  deviation.alpha = bounds.alpha_bound;
  deviation.rho = bounds.rho_bound;
  deviation.decision = bounds.decision_bound;
  deviation.weight_ratio = bounds.weight_ratio_bound;
  deviation.readout = bounds.readout_bound;
  return deviation;
}

SupportState HeadSupportState(const BundleHead& head) {
  std::vector<Sha256Digest> leaves;
  const absl::Span<const double> keys(head.keys);
  const absl::Span<const double> values(head.values);
  for (size_t rank = 0; rank < head.token_ids.size(); ++rank) {
    leaves.push_back(InputTree::LeafHash(
        NumberBytes(keys.subspan(rank * head.key_dim, head.key_dim), head.format),
        NumberBytes(values.subspan(rank * head.value_dim, head.value_dim), head.format)));
  }
  SupportState support = SolutionOf(head);
  support.inputs_root = InputTreeRoot(leaves);
  return support;
}

void AppendHeadMemory(const BundleHead& head, ByteWriter* out) {
  LETHE_CHECK(head.tail.has_value());
  // The memory writes its solution as the support part does, less the root at the end.
  const std::string solution = SupportStateBytes(SolutionOf(head));
  out->Raw(solution.data(), solution.size() - sizeof(Sha256Digest));
  for (const std::vector<double>* numbers : {&head.tail->keys, &head.tail->values}) {
    const std::string bytes = NumberBytes(*numbers, head.format);
    out->U64(numbers->size());
    out->Raw(bytes.data(), bytes.size());
  }
}

}  // namespace lethe::audit
