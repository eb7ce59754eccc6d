#include "server/certification/audit_trail.h"

#include <array>
#include <optional>

#include "absl/strings/str_cat.h"

#include "audit/crypto/encoding.h"
#include "audit/crypto/secret.h"
#include "kernels/base/byte_io.h"
#include "kernels/base/wall_clock.h"
#include "server/model/numerics_id.h"

namespace lethe {
namespace {

// A record names a request also when the client did not.
std::string ServerRequestId() { return absl::StrCat("server-", audit::HexEncode(RandomNonce())); }

// Of a vector session: that it may select. What else its options fix is in the model's digest.
audit::Sha256Digest VectorConfigDigest(const VectorOptions& options) {
  ByteWriter writer;
  writer.String("vector-session");
  writer.U64(options.selection ? 1 : 0);
  return audit::Sha256Of(writer.bytes());
}

// One number per option: 0 = the model's own value, else 1 and the value.
audit::Sha256Digest ConfigDigest(const SessionEntry& entry) {
  if (entry.vector_options.has_value()) return VectorConfigDigest(*entry.vector_options);
  ByteWriter writer;
  const MemoryOverrides& memory = entry.options.memory;
  writer.String(entry.model->config().CanonicalJson());
  writer.U64(memory.ovq_slots.has_value() ? 1 : 0);
  writer.I64(memory.ovq_slots.value_or(0));
  for (const std::optional<double>& option :
       {memory.sv_box_mass, memory.sv_sigma, memory.sv_ridge}) {
    writer.U64(option.has_value() ? 1 : 0);
    writer.F64(option.value_or(0.0));
  }
  return audit::Sha256Of(writer.bytes());
}

}  // namespace

std::string RandomNonce() {
  std::array<uint8_t, audit::kNonceBytesMin> bytes{};
  audit::RandomBytes(absl::MakeSpan(bytes));
  return std::string(bytes.begin(), bytes.end());
}

audit::RecordDraft StartDraft(const AuditTrail& trail, audit::RecordKind kind,
                              const SessionEntry& entry, const std::string& nonce,
                              const std::string& request_id) {
  audit::RecordDraft draft;
  draft.kind = kind;
  draft.session_id = entry.session_id;
  draft.nonce = nonce.empty() ? RandomNonce() : nonce;
  draft.request_id = request_id.empty() ? ServerRequestId() : request_id;
  draft.issued_at = Rfc3339Now();
  draft.memory_wiped = trail.memory_wiped;
  draft.engine.binary = trail.binary;
  draft.engine.build = trail.build;
  draft.engine.config = ConfigDigest(entry);
  draft.engine.algorithm = kForgetAlgorithm;
  const Numerics numerics = NumericsOf(entry.model.get());
  draft.engine.device_kind = numerics.device_kind;
  draft.engine.model_digest =
      entry.vector_options.has_value() ? ModelDigest(*entry.vector_options) : entry.model->digest();
  draft.engine.numerics_id = numerics.id;
  return draft;
}

std::vector<uint64_t> RetainedIds(const Inputs& inputs) {
  std::vector<uint64_t> ids;
  ids.reserve(static_cast<size_t>(inputs.size()));
  for (int64_t rank = 0; rank < inputs.size(); ++rank) ids.push_back(inputs.at(rank).token_id);
  return ids;
}

std::vector<TokenIdRange> ToRanges(const std::vector<uint64_t>& ids) {
  std::vector<TokenIdRange> ranges;
  for (const uint64_t id : ids) {
    if (!ranges.empty() && ranges.back().end == id) {
      ++ranges.back().end;
    } else {
      ranges.push_back({id, id + 1});
    }
  }
  return ranges;
}

RecordRef MakeRecordRef(const audit::FinishedRecord& finished, audit::RecordKind kind,
                        const HistoryMark& mark, int64_t num_inputs) {
  RecordRef ref;
  ref.seq = finished.seq;
  ref.kind = kind;
  ref.leaf_index = finished.leaf_index;
  ref.leaf_hash = finished.leaf_hash;
  ref.mark = mark;
  ref.num_inputs = num_inputs;
  return ref;
}

}  // namespace lethe
