#include "audit/certificate/head_proof.h"

#include <string>
#include <vector>

#include "absl/types/span.h"

#include "audit/state/input_tree.h"
#include "kernels/base/byte_io.h"
#include "kernels/base/status_macros.h"
#include "memory/svdd/problem.h"

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
  return svdd::ProveOptimality(params, head.keys, classes, head.a, head.rho);
}

DeviationBounds ToDeviation(const svdd::OptimalityBounds& bounds) {
  DeviationBounds deviation;
  deviation.gap = bounds.gap;
  deviation.delta = bounds.delta;
  deviation.kernel_sum = bounds.kernel_sum_bound;
  deviation.alpha = bounds.alpha_bound;
  deviation.rho = bounds.rho_bound;
  deviation.decision = bounds.decision_bound;
  return deviation;
}

SupportState HeadSupportState(const BundleHead& head) {
  SupportState support;
  support.sigma = head.sigma;
  support.box_mass = head.box_mass;
  support.ridge = head.ridge;
  support.num_gated = head.token_ids.size();
  support.rho = head.rho;
  std::vector<Sha256Digest> leaves;
  const absl::Span<const double> keys(head.keys);
  const absl::Span<const double> values(head.values);
  for (size_t rank = 0; rank < head.token_ids.size(); ++rank) {
    leaves.push_back(InputTree::LeafHash(
        NumberBytes(keys.subspan(rank * head.key_dim, head.key_dim), head.format),
        NumberBytes(values.subspan(rank * head.value_dim, head.value_dim), head.format)));
    if (head.classes[rank] == KeyClass::kReserve) continue;
    const bool margin = head.classes[rank] == KeyClass::kMargin;
    support.rows.push_back(
        {rank, margin ? SupportClass::kMargin : SupportClass::kError, head.a[rank]});
  }
  support.inputs_root = InputTreeRoot(leaves);
  return support;
}

}  // namespace lethe::audit
