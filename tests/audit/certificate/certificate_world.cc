#include "tests/audit/certificate/certificate_world.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/certificate/commitment.h"
#include "audit/certificate/dsse.h"
#include "audit/certificate/head_proof.h"
#include "audit/crypto/encoding.h"
#include "audit/log/leaf.h"
#include "audit/log/merkle_tree.h"
#include "kernels/base/byte_io.h"
#include "kernels/base/check.h"
#include "memory/svdd/canonical.h"
#include "memory/svdd/witness.h"

namespace lethe::audit {
namespace {

constexpr size_t kNumGated = 6;
constexpr size_t kNumTail = 10;
constexpr uint64_t kKeyDim = 3;
constexpr uint64_t kValueDim = 2;

Ed25519PrivateKey KeyFromSeed(char seed) {
  return Ed25519PrivateKey::FromSeed(AsByteSpan(std::string(32, seed))).value();
}

// Fixed numbers in [-1, 1) by a linear congruence.
float NextFloat(uint32_t* state) {
  *state = *state * 1664525u + 1013904223u;
  return static_cast<float>(*state >> 8) / static_cast<float>(1 << 23) - 1.0f;
}

BundleHead MakeHead(uint64_t head_index, double box_mass, absl::Span<const uint64_t> token_ids) {
  BundleHead head;
  head.layer = 3;
  head.head = head_index;
  head.sigma = 2.0;
  head.box_mass = box_mass;
  head.ridge = 0x1.0p-11;
  head.key_dim = kKeyDim;
  head.value_dim = kValueDim;
  head.token_ids.assign(token_ids.begin(), token_ids.end());
  uint32_t state = 7 + static_cast<uint32_t>(head_index);
  for (size_t i = 0; i < token_ids.size() * kKeyDim; ++i) head.keys.push_back(NextFloat(&state));
  for (size_t i = 0; i < token_ids.size() * kValueDim; ++i) {
    head.values.push_back(NextFloat(&state));
  }
  const svdd::Params params =
      svdd::MakeParams(head.sigma, box_mass, head.ridge, static_cast<int64_t>(kKeyDim)).value();
  const std::vector<double> keys(head.keys.begin(), head.keys.end());
  const svdd::Solution solution = svdd::SolveCanonical(params, keys).value();
  head.rho = solution.rho;
  head.a = solution.a;
  head.witness =
      svdd::RefineWitness(params, keys, {solution.classes, solution.a, solution.rho, nullptr});
  head.tail.emplace();
  for (size_t i = 0; i < kNumTail * kKeyDim; ++i) head.tail->keys.push_back(NextFloat(&state));
  for (size_t i = 0; i < kNumTail * kValueDim; ++i) head.tail->values.push_back(NextFloat(&state));
  for (const svdd::Partition p : solution.classes) {
    head.classes.push_back(p == svdd::Partition::kMargin  ? KeyClass::kMargin
                           : p == svdd::Partition::kError ? KeyClass::kError
                                                          : KeyClass::kReserve);
  }
  return head;
}

std::vector<uint64_t> Retained() {
  std::vector<uint64_t> ids;
  for (uint64_t id = 1; id <= 20; ++id) {
    if (id < 5 || id > 8) ids.push_back(id);
  }
  return ids;
}

}  // namespace

ServerKeys TestKeys() {
  std::array<uint8_t, 32> pseudonym_key;
  pseudonym_key.fill('p');
  return ServerKeys{std::make_shared<const Ed25519PrivateKey>(KeyFromSeed('r')),
                    std::make_shared<const Ed25519PrivateKey>(KeyFromSeed('l')),
                    Secret32::FromBytes(pseudonym_key)};
}

std::vector<BundleHead> CertificateWorld::MakeHeads() {
  const std::vector<uint64_t> retained = Retained();
  const absl::Span<const uint64_t> gated = absl::MakeConstSpan(retained).first(kNumGated);
  return {MakeHead(0, 2.5, gated), MakeHead(1, 8.0, gated)};
}

StateParts CertificateWorld::MakeParts(const std::vector<BundleHead>& heads) {
  StateParts parts;
  parts.Add("model", AsStringView(Sha256Of("model")));
  parts.Add("numerics", AsStringView(Sha256Of("numerics")));
  parts.Add("device", "cpu");
  parts.Add("options", "options");
  ByteWriter num_retained;
  num_retained.U64(Retained().size());
  parts.Add("tokens", num_retained.bytes());
  for (const BundleHead& head : heads) {
    parts.Add(SupportPartName(head.layer, head.group, head.head),
              SupportStateBytes(HeadSupportState(head)));
  }
  ByteWriter memory;
  for (const BundleHead& head : heads) AppendHeadMemory(head, &memory);
  parts.Add(MemoryPartName(heads[0].layer, heads[0].group), memory.bytes());
  parts.Add("layer.4.group.0.state", "recurrent state");
  return parts;
}

RecordDraft CertificateWorld::Draft(RecordKind kind) const {
  RecordDraft draft;
  draft.kind = kind;
  draft.session_id = "session-1";
  draft.nonce = kTestNonce;
  draft.request_id = "request-7";
  draft.issued_at = "2026-09-20T12:34:56Z";
  draft.engine = {
      Sha256Of("binary"), "lethe test build",  Sha256Of("config"), "lethe-replay-v1", "cpu",
      Sha256Of("model"),  Sha256Of("numerics")};
  draft.digest_after = parts_.Digest();
  draft.retained = Retained();
  draft.layers = {{3, "svdd", LayerMethod::kReplay}, {4, "palimpsa", LayerMethod::kReplay}};
  for (const BundleHead& head : heads_) {
    MemoryDraft memory;
    memory.layer = head.layer;
    memory.group = head.group;
    memory.head = head.head;
    memory.token_ids = head.token_ids;
    memory.classes = head.classes;
    memory.a = head.a;
    memory.part_hash = Sha256Of(SupportStateBytes(HeadSupportState(head)));
    memory.witness_hash = WitnessHash(head.witness);
    memory.smallest_margin = 0.25;
    if (kind == RecordKind::kCertify) {
      const svdd::OptimalityBounds bounds = ProveHead(head).value();
      memory.deviation = ToDeviation(bounds);
      memory.smallest_margin = bounds.smallest_margin;
      memory.partition_proved = bounds.partition_proved;
    }
    draft.memories.push_back(std::move(memory));
  }
  draft.proves_optimality = kind == RecordKind::kCertify;
  if (kind == RecordKind::kForget) {
    draft.digest_before = Sha256Of("state before");
    draft.forgotten = {5, 6, 7, 8};
    draft.derived_policy = DerivedPolicy::kKeepAndReport;
    draft.derived_kept = {12};
    draft.stores = {{"session-memory", "replaced"}};
  }
  return draft;
}

CertificateWorld::CertificateWorld()
    : keys_(TestKeys()), heads_(MakeHeads()), parts_(MakeParts(heads_)) {
  log_ = AuditLog::Open({directory_.path() + "/log", kTestOrigin, keys_.log_key}).value();
  trust_ = keys_.Trust(kTestOrigin).value();
  Recorder recorder(keys_, log_.get());
  for (const RecordKind kind : {RecordKind::kCertify, RecordKind::kForget, RecordKind::kCertify}) {
    records_.push_back(recorder.Record(Draft(kind), &session_).value());
  }
  bundle_ = ProofBundle{records_[kCertifyRecord].leaf_hash, parts_.parts(), heads_};
}

CertificateFiles CertificateWorld::Files(size_t i, bool with_bundle) const {
  CertificateFiles files{records_[i].envelope, records_[i].proof_file, std::nullopt,
                         records_[i].opening, std::nullopt};
  LETHE_CHECK(!with_bundle || i == kCertifyRecord);
  if (with_bundle) files.bundle = WriteBundle(bundle_).value();
  return files;
}

CertificateFiles CertificateWorld::Relog(const std::string& payload, const Ed25519PrivateKey& key,
                                         const CertificateFiles& of) {
  const DsseEnvelope envelope = SignEnvelope(kPayloadType, payload, key);
  const std::string leaf = WriteLogLeaf(LogLeaf{Sha256Of(PreAuthEncoding(kPayloadType, payload)),
                                                envelope.signature, key.public_key()});
  CertificateFiles files;
  files.envelope = WriteEnvelope(envelope);
  const AppendedLeaf appended = log_->Append(leaf, files.envelope).value();
  files.proof_file = appended.proof_file;
  if (of.opening.has_value()) {
    Opening opening = ParseOpening(*of.opening).value();
    opening.leaf_hash = appended.leaf_hash;
    files.opening = WriteOpening(opening);
  }
  if (of.bundle.has_value()) {
    ProofBundle bundle = ParseBundle(*of.bundle).value();
    bundle.leaf_hash = appended.leaf_hash;
    files.bundle = WriteBundle(bundle).value();
  }
  return files;
}

CertificateWorld& SharedWorld() {
  static CertificateWorld* const kWorld = new CertificateWorld();
  return *kWorld;
}

}  // namespace lethe::audit
