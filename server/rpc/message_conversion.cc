#include "server/rpc/message_conversion.h"

#include "server/error/error_info.h"
#include "server/rpc/vector_conversion.h"

namespace lethe {
namespace {

v1::PartitionClass ToMessage(svdd::Partition partition) {
  switch (partition) {
    case svdd::Partition::kMargin:
      return v1::PARTITION_CLASS_MARGIN;
    case svdd::Partition::kError:
      return v1::PARTITION_CLASS_ERROR;
    case svdd::Partition::kReserve:
      break;
  }
  return v1::PARTITION_CLASS_RESERVE;
}

}  // namespace

std::string DigestBytes(const audit::Sha256Digest& digest) {
  return std::string(digest.begin(), digest.end());
}

void SetRange(const TokenIdRange& range, v1::TokenRange* message) {
  message->set_first(range.first);
  message->set_end(range.end);
}

void SetRanges(const std::vector<TokenIdRange>& ranges,
               google::protobuf::RepeatedPtrField<v1::TokenRange>* messages) {
  for (const TokenIdRange& range : ranges) SetRange(range, messages->Add());
}

void SetDigest(const audit::Sha256Digest& digest, const std::vector<audit::StatePart>& parts,
               v1::StateDigest* message) {
  message->set_sha256(DigestBytes(digest));
  for (const audit::StatePart& part : parts) {
    v1::StateDigestPart* added = message->add_parts();
    added->set_name(part.name);
    added->set_sha256(DigestBytes(part.hash));
  }
}

void SetSession(const SessionEntry& entry, v1::Session* message) {
  const SessionInfo info = entry.Info();
  const MemoryOverrides& memory = entry.options.memory;
  message->set_session_id(entry.session_id);
  if (const auto info_of = GetErrorInfo(entry.Availability()); info_of.has_value()) {
    message->set_unavailable_reason(info_of->reason);
  }
  if (entry.model != nullptr) message->set_model(entry.model->config().name);
  if (entry.vector_options.has_value()) {
    SetVectorOptions(*entry.vector_options, message->mutable_vector_options());
    message->set_epoch(info.epoch);
    message->set_num_slow_solves(info.num_slow_solves);
  }
  message->set_display_name(entry.display_name);
  v1::MemoryOptions* options = message->mutable_memory_options();
  if (memory.ovq_slots) options->set_ovq_slots(static_cast<int32_t>(*memory.ovq_slots));
  if (memory.sv_box_mass) options->set_sv_box_mass(*memory.sv_box_mass);
  if (memory.sv_sigma) options->set_sv_sigma(*memory.sv_sigma);
  if (memory.sv_ridge) options->set_sv_ridge(*memory.sv_ridge);
  message->set_num_inputs(info.num_inputs);
  message->set_num_forgotten(info.num_forgotten);
  message->set_state_bytes(info.state_bytes);
  message->set_snapshot_bytes(info.snapshot_bytes);
  message->set_stored_input_bytes(info.stored_input_bytes);
  message->set_num_snapshots(info.num_snapshots);
  message->set_num_support_vectors(info.num_support_vectors);
  message->set_audit_seq(info.audit_seq);
  message->set_num_exports(info.num_exports);
  message->mutable_create_time()->set_seconds(entry.create_time_us / 1'000'000);
  message->mutable_create_time()->set_nanos(
      static_cast<int32_t>(entry.create_time_us % 1'000'000 * 1'000));
}

void SetPartitionRow(const PartitionEntry& row, v1::PartitionRow* message) {
  message->set_token_id(row.token_id);
  message->set_partition_class(ToMessage(row.partition));
  message->set_alpha(row.alpha);
  message->set_g(row.g);
}

void SetCertificateRef(const std::string& session_id, const RecordRef& ref,
                       v1::CertificateRef* message) {
  message->set_session_id(session_id);
  message->set_seq(ref.seq);
  message->set_leaf_index(ref.leaf_index);
}

void SetCertificate(const std::string& session_id, const CertificateText& text,
                    v1::Certificate* message) {
  SetCertificateRef(session_id, text.ref, message->mutable_ref());
  message->set_envelope(text.envelope);
  message->set_log_proof(text.log_proof);
  message->set_opening(text.opening);
  message->set_kind(std::string(audit::RecordKindName(text.ref.kind)));
}

}  // namespace lethe
