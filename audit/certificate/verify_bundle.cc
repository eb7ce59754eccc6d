#include "audit/certificate/verify_bundle.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "audit/certificate/bundle.h"
#include "audit/certificate/commitment.h"
#include "audit/certificate/head_proof.h"
#include "audit/state/state_digest.h"
#include "kernels/base/byte_io.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

constexpr char kSupportSuffix[] = ".support";

std::string HeadName(const BundleHead& head) {
  return absl::StrCat("layer ", head.layer, " group ", head.group, " head ", head.head);
}

absl::Status Wrong(const BundleHead& head, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(HeadName(head), ": ", what));
}

const StatePart* FindPart(const ProofBundle& bundle, absl::string_view name) {
  for (const StatePart& part : bundle.parts) {
    if (part.name == name) return &part;
  }
  return nullptr;
}

absl::StatusOr<ProofBundle> OpenBundle(absl::string_view bytes, const BundleContext& context) {
  LETHE_ASSIGN_OR_RETURN(ProofBundle bundle, ParseBundle(bytes));
  if (bundle.leaf_hash != context.leaf_hash) {
    return absl::InvalidArgumentError("bundle belongs to another record");
  }
  const Statement& statement = *context.statement;
  const bool same_heads = std::equal(
      statement.memories.begin(), statement.memories.end(), bundle.heads.begin(),
      bundle.heads.end(), [](const MemoryReport& memory, const BundleHead& head) {
        return memory.layer == head.layer && memory.group == head.group && memory.head == head.head;
      });
  if (!same_heads) return absl::InvalidArgumentError("bundle holds other heads than the statement");
  return bundle;
}

// The memory part of a group holds its heads' tails, whose values a readout weighs.
absl::Status CheckTails(const ProofBundle& bundle) {
  for (size_t begin = 0; begin < bundle.heads.size();) {
    const BundleHead& first = bundle.heads[begin];
    ByteWriter memory;
    size_t end = begin;
    for (; end < bundle.heads.size(); ++end) {
      const BundleHead& head = bundle.heads[end];
      if (head.layer != first.layer || head.group != first.group) break;
      if (head.tail.has_value() != first.tail.has_value()) {
        return Wrong(head, "the heads of a group have tails or have none");
      }
      if (head.tail.has_value()) AppendHeadMemory(head, &memory);
    }
    begin = end;
    if (!first.tail.has_value()) continue;
    const StatePart* part = FindPart(bundle, MemoryPartName(first.layer, first.group));
    if (part == nullptr || part->hash != Sha256Of(memory.bytes())) {
      return Wrong(first, "the tails of its group do not hash to the digest's part");
    }
  }
  return absl::OkStatus();
}

// Every support part of the digest is that of a head in the bundle, and the parts hash to the
// digest.
absl::Status CheckPath(const ProofBundle& bundle, const BundleContext& context) {
  if (StateDigest(bundle.parts) != context.opening->state_digest) {
    return absl::InvalidArgumentError("the parts do not hash to the opening's state digest");
  }
  const auto num_support = std::count_if(
      bundle.parts.begin(), bundle.parts.end(),
      [](const StatePart& part) { return absl::EndsWith(part.name, kSupportSuffix); });
  if (static_cast<size_t>(num_support) != bundle.heads.size()) {
    return absl::InvalidArgumentError("the digest has another number of support parts than heads");
  }
  for (const BundleHead& head : bundle.heads) {
    const StatePart* part = FindPart(bundle, SupportPartName(head.layer, head.group, head.head));
    if (part == nullptr) return Wrong(head, "the digest has no such part");
    if (part->hash != Sha256Of(SupportStateBytes(HeadSupportState(head)))) {
      return Wrong(head, "keys, values or solution do not hash to the digest's part");
    }
  }
  return CheckTails(bundle);
}

// The hashed bytes of a key and its value do not say where one ends, nor how wide a number is. The
// digest's parts do: only a model's state has options, and only a vector session has none, whose model
// digest is that of its parameters.
absl::Status CheckVectorModel(const ProofBundle& bundle, const BundleContext& context) {
  const bool has_model = FindPart(bundle, "options") != nullptr;
  for (const BundleHead& head : bundle.heads) {
    if (!head.keys.empty() && (head.format == NumberFormat::kF64) == has_model) {
      return Wrong(head, has_model ? "a model's keys are f32" : "a vector session's keys are f64");
    }
    if (has_model) continue;
    const VectorParams params = {head.key_dim, head.value_dim, head.sigma, head.box_mass,
                                 head.ridge};
    if (VectorModelDigest(params) != context.statement->engine.model_digest) {
      return Wrong(head, "its parameters are not those of the statement's vector session");
    }
  }
  return absl::OkStatus();
}

// The state's own first parts name the model, the numerics and the device it was evaluated with.
absl::Status CheckEngine(const ProofBundle& bundle, const BundleContext& context) {
  const EngineIdentity& engine = context.statement->engine;
  const std::pair<const char*, Sha256Digest> wants[] = {
      {"model", Sha256Of(AsStringView(engine.model_digest))},
      {"numerics", Sha256Of(AsStringView(engine.numerics_id))},
      {"device", Sha256Of(engine.device_kind)}};
  for (const auto& [name, hash] : wants) {
    const StatePart* part = FindPart(bundle, name);
    if (part == nullptr || part->hash != hash) {
      return absl::InvalidArgumentError(
          absl::StrCat("the digest's ", name, " is not the statement's"));
    }
  }
  return CheckVectorModel(bundle, context);
}

// The part "tokens" is the number of retained inputs as u64 little-endian (docs/state-digest.md).
absl::Status CheckRetainedCount(const ProofBundle& bundle, const BundleContext& context) {
  ByteWriter count;
  count.U64(context.statement->retained.count);
  const StatePart* part = FindPart(bundle, "tokens");
  if (part == nullptr || part->hash != Sha256Of(count.bytes())) {
    return absl::InvalidArgumentError("the digest holds another number of inputs than stated");
  }
  return absl::OkStatus();
}

absl::Status CheckEvidence(const ProofBundle& bundle, const BundleContext& context) {
  for (size_t i = 0; i < bundle.heads.size(); ++i) {
    const BundleHead& head = bundle.heads[i];
    const MemoryReport& memory = context.statement->memories[i];
    if (!memory.deviation.has_value()) continue;
    const StatePart* part = FindPart(bundle, SupportPartName(head.layer, head.group, head.head));
    const Sha256Digest evidence =
        CommitEvidence(context.opening->salt, part->hash, WitnessHash(head.witness));
    if (memory.deviation->evidence != evidence) {
      return Wrong(head, "the evidence is not that of the digest's part and the witness");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCounts(const ProofBundle& bundle, const BundleContext& context) {
  for (size_t i = 0; i < bundle.heads.size(); ++i) {
    const BundleHead& head = bundle.heads[i];
    const MemoryReport& memory = context.statement->memories[i];
    const auto count = [&head](KeyClass key_class) {
      return static_cast<uint64_t>(std::count(head.classes.begin(), head.classes.end(), key_class));
    };
    if (count(KeyClass::kMargin) != memory.num_margin ||
        count(KeyClass::kError) != memory.num_error ||
        count(KeyClass::kReserve) != memory.num_reserve) {
      return Wrong(head, "the counts of margin, error and reserve keys differ");
    }
  }
  return absl::OkStatus();
}

// What is not gated is in the tail. Bundles of earlier versions have none, and prove no partition.
absl::Status CheckAllInputs(const BundleHead& head, size_t num_retained) {
  if (head.format != NumberFormat::kF64 && !head.tail.has_value()) return absl::OkStatus();
  const size_t tail = head.tail.has_value() ? head.tail->keys.size() / head.key_dim : 0;
  if (head.token_ids.size() + tail == num_retained) return absl::OkStatus();
  return Wrong(head, "gated keys and tail are not all retained inputs");
}

absl::Status CheckRows(const ProofBundle& bundle, const BundleContext& context) {
  const std::vector<uint64_t>& retained = context.opening->retained;
  for (size_t i = 0; i < bundle.heads.size(); ++i) {
    const BundleHead& head = bundle.heads[i];
    const bool first_retained =
        head.token_ids.size() <= retained.size() &&
        std::equal(head.token_ids.begin(), head.token_ids.end(), retained.begin());
    if (!first_retained) return Wrong(head, "the token ids are not the first retained ones");
    LETHE_RETURN_IF_ERROR(CheckAllInputs(head, retained.size()));
    if (CommitPartition(context.opening->salt, {head.token_ids, head.classes, head.a}) !=
        context.statement->memories[i].rows_root) {
      return Wrong(head, "the rows do not hash to the statement's root");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBound(const BundleHead& head, absl::string_view name, double computed,
                        double stated) {
  if (computed <= stated) return absl::OkStatus();
  return Wrong(head, absl::StrCat("the bound on ", name, " is larger than stated"));
}

absl::Status CheckHeadOptimality(const BundleHead& head, const MemoryReport& memory) {
  if (!memory.deviation.has_value()) return absl::OkStatus();  // a head without keys
  absl::StatusOr<svdd::OptimalityBounds> proof = ProveHead(head);
  if (!proof.ok()) return Wrong(head, proof.status().message());
  // First: where it is not proved, the bounds that rest on it are larger as well.
  if (memory.partition_proved && !proof->partition_proved) {
    return Wrong(head, "the partition is stated as proved and is not");
  }
  const DeviationBounds computed = ToDeviation(*proof);
  const DeviationBounds& stated = *memory.deviation;
  LETHE_RETURN_IF_ERROR(CheckBound(head, "the gap", computed.gap, stated.gap));
  LETHE_RETURN_IF_ERROR(CheckBound(head, "delta", computed.delta, stated.delta));
  LETHE_RETURN_IF_ERROR(CheckBound(head, "kernel sums", computed.kernel_sum, stated.kernel_sum));
  LETHE_RETURN_IF_ERROR(CheckBound(head, "alpha", computed.alpha, stated.alpha));
  LETHE_RETURN_IF_ERROR(CheckBound(head, "rho", computed.rho, stated.rho));
  LETHE_RETURN_IF_ERROR(CheckBound(head, "the decision", computed.decision, stated.decision));
  LETHE_RETURN_IF_ERROR(CheckBound(head, "weights", computed.weight_ratio, stated.weight_ratio));
  LETHE_RETURN_IF_ERROR(CheckBound(head, "the readout", computed.readout, stated.readout));
  if (!(proof->smallest_margin >= memory.smallest_margin)) {
    return Wrong(head, "the smallest margin is below the stated one");
  }
  return absl::OkStatus();
}

void CheckOptimality(const ProofBundle& bundle, const BundleContext& context,
                     ReportBuilder* report) {
  int64_t num_proved = 0;
  for (size_t i = 0; i < bundle.heads.size(); ++i) {
    const MemoryReport& memory = context.statement->memories[i];
    const absl::Status status = CheckHeadOptimality(bundle.heads[i], memory);
    if (!status.ok()) {
      report->Set("optimality", status);
      return;
    }
    num_proved += memory.partition_proved ? 1 : 0;
  }
  report->Ok("optimality", absl::StrCat(num_proved, " of ", bundle.heads.size(),
                                        " partitions proved to be the exact optimum's"));
}

}  // namespace

void VerifyBundle(absl::string_view bundle_bytes, const BundleContext& context,
                  ReportBuilder* report) {
  const absl::StatusOr<ProofBundle> bundle = OpenBundle(bundle_bytes, context);
  if (!report->Set("bundle", bundle.status())) return;
  if (!report->Set("bundle path", CheckPath(*bundle, context))) return;
  report->Set("engine identity", CheckEngine(*bundle, context));
  report->Set("retained count", CheckRetainedCount(*bundle, context));
  report->Set("evidence", CheckEvidence(*bundle, context));
  report->Set("partition counts", CheckCounts(*bundle, context));
  report->Set("partition rows", CheckRows(*bundle, context));
  if (context.statement->proves_optimality) {
    CheckOptimality(*bundle, context, report);
  } else {
    report->Skip("optimality", "the record does not carry P2");
  }
}

}  // namespace lethe::audit
