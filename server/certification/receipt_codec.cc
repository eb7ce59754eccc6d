#include "server/certification/receipt_codec.h"

#include <utility>

#include "kernels/base/status_macros.h"
#include "server/session_registry/saved_fields.h"

namespace lethe {
namespace {

constexpr uint64_t kHeadsReadMax = 65536;

ByteWriter Start(AnswerKind kind) {
  ByteWriter writer;
  writer.U64(static_cast<uint64_t>(kind));
  return writer;
}

absl::StatusOr<RecordRef> ReadRecord(ByteReader* reader, absl::Span<const RecordRef> records) {
  uint64_t seq = 0;
  LETHE_RETURN_IF_ERROR(ReadUpTo(reader, records.size(), &seq));
  if (seq == 0) return absl::DataLossError("stored answer: has no record");
  return records[seq - 1];
}

void WriteMethods(const std::vector<GroupMethod>& methods, ByteWriter* writer) {
  writer->U64(methods.size());
  for (const GroupMethod& method : methods) {
    writer->String(method.group);
    writer->U64(static_cast<uint64_t>(method.method));
    writer->U64(method.bounded ? 1 : 0);
  }
}

absl::Status ReadMethods(ByteReader* reader, std::vector<GroupMethod>* methods) {
  uint64_t count = 0;
  LETHE_RETURN_IF_ERROR(ReadUpTo(reader, kHeadsReadMax, &count));
  methods->resize(count);
  for (GroupMethod& method : *methods) {
    uint64_t number = 0;
    LETHE_RETURN_IF_ERROR(reader->String(&method.group));
    LETHE_RETURN_IF_ERROR(
        ReadUpTo(reader, static_cast<uint64_t>(audit::LayerMethod::kCanonicalResolve), &number));
    method.method = static_cast<audit::LayerMethod>(number);
    LETHE_RETURN_IF_ERROR(ReadBool(reader, &method.bounded));
  }
  return absl::OkStatus();
}

void WriteBounds(const svdd::OptimalityBounds& bounds, ByteWriter* writer) {
  for (const double value :
       {bounds.gap, bounds.kernel_sum_bound, bounds.alpha_bound, bounds.alpha_norm_bound,
        bounds.rho_bound, bounds.decision_bound, bounds.delta, bounds.weight_ratio_bound,
        bounds.readout_bound, bounds.smallest_margin}) {
    writer->F64(value);
  }
  writer->U64(bounds.partition_proved ? 1 : 0);
  writer->I64(bounds.num_margin);
  writer->I64(bounds.num_error);
  writer->I64(bounds.num_reserve);
}

absl::Status ReadBounds(ByteReader* reader, svdd::OptimalityBounds* bounds) {
  for (double* value :
       {&bounds->gap, &bounds->kernel_sum_bound, &bounds->alpha_bound, &bounds->alpha_norm_bound,
        &bounds->rho_bound, &bounds->decision_bound, &bounds->delta, &bounds->weight_ratio_bound,
        &bounds->readout_bound, &bounds->smallest_margin}) {
    LETHE_RETURN_IF_ERROR(reader->F64(value));
  }
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &bounds->partition_proved));
  LETHE_RETURN_IF_ERROR(reader->I64(&bounds->num_margin));
  LETHE_RETURN_IF_ERROR(reader->I64(&bounds->num_error));
  return reader->I64(&bounds->num_reserve);
}

absl::Status ReadHead(ByteReader* reader, HeadReport* head) {
  bool has_bounds = false;
  LETHE_RETURN_IF_ERROR(reader->String(&head->head));
  LETHE_RETURN_IF_ERROR(reader->I64(&head->num_keys));
  LETHE_RETURN_IF_ERROR(reader->I64(&head->num_margin));
  LETHE_RETURN_IF_ERROR(reader->I64(&head->num_error));
  LETHE_RETURN_IF_ERROR(reader->I64(&head->num_reserve));
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &head->partition_proved));
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &has_bounds));
  return has_bounds ? ReadBounds(reader, &head->bounds.emplace()) : absl::OkStatus();
}

std::optional<audit::Sha256Digest> Kept(const std::optional<audit::Sha256Digest>& digest,
                                        bool keep_openings) {
  return keep_openings ? digest : std::nullopt;
}

}  // namespace

std::string EncodeForgetReceipt(const ForgetReceipt& receipt, bool keep_openings) {
  ByteWriter writer = Start(AnswerKind::kForget);
  WriteRanges(receipt.forgotten, &writer);
  WriteRanges(receipt.derived_kept, &writer);
  WriteRanges(receipt.derived_forgotten, &writer);
  for (const int64_t number :
       {receipt.num_forgotten, receipt.first_rank, receipt.num_inputs, receipt.num_reevaluated,
        receipt.num_local_reevaluated, receipt.num_replayed, receipt.num_snapshots_destroyed,
        receipt.duration_us}) {
    writer.I64(number);
  }
  WriteMethods(receipt.methods, &writer);
  WriteOptionalDigest(Kept(receipt.digest_after, keep_openings), &writer);
  writer.U64(receipt.record->seq);
  return writer.Take();
}

absl::StatusOr<ForgetReceipt> DecodeForgetReceipt(ByteReader* reader,
                                                  absl::Span<const RecordRef> records) {
  ForgetReceipt receipt;
  LETHE_RETURN_IF_ERROR(ReadRanges(reader, &receipt.forgotten));
  LETHE_RETURN_IF_ERROR(ReadRanges(reader, &receipt.derived_kept));
  LETHE_RETURN_IF_ERROR(ReadRanges(reader, &receipt.derived_forgotten));
  for (int64_t* number :
       {&receipt.num_forgotten, &receipt.first_rank, &receipt.num_inputs, &receipt.num_reevaluated,
        &receipt.num_local_reevaluated, &receipt.num_replayed, &receipt.num_snapshots_destroyed,
        &receipt.duration_us}) {
    LETHE_RETURN_IF_ERROR(reader->I64(number));
  }
  LETHE_RETURN_IF_ERROR(ReadMethods(reader, &receipt.methods));
  LETHE_RETURN_IF_ERROR(ReadOptionalDigest(reader, &receipt.digest_after));
  LETHE_ASSIGN_OR_RETURN(receipt.record, ReadRecord(reader, records));
  return receipt;
}

std::string EncodeEvictReceipt(const EvictReceipt& receipt, bool keep_openings) {
  ByteWriter writer = Start(AnswerKind::kEvict);
  WriteRanges(receipt.evicted, &writer);
  writer.I64(receipt.num_evicted);
  writer.I64(receipt.num_inputs);
  writer.U64(receipt.epoch);
  WriteOptionalDigest(Kept(receipt.digest_after, keep_openings), &writer);
  writer.U64(receipt.record.seq);
  return writer.Take();
}

absl::StatusOr<EvictReceipt> DecodeEvictReceipt(ByteReader* reader,
                                                absl::Span<const RecordRef> records) {
  EvictReceipt receipt;
  LETHE_RETURN_IF_ERROR(ReadRanges(reader, &receipt.evicted));
  LETHE_RETURN_IF_ERROR(reader->I64(&receipt.num_evicted));
  LETHE_RETURN_IF_ERROR(reader->I64(&receipt.num_inputs));
  LETHE_RETURN_IF_ERROR(reader->U64(&receipt.epoch));
  LETHE_RETURN_IF_ERROR(ReadOptionalDigest(reader, &receipt.digest_after));
  LETHE_ASSIGN_OR_RETURN(receipt.record, ReadRecord(reader, records));
  return receipt;
}

std::string EncodeCertifiedHeads(const CertifiedHeads& certified, bool keep_openings) {
  ByteWriter writer = Start(AnswerKind::kCertify);
  writer.U64(certified.seq);
  WriteOptionalDigest(Kept(certified.digest, keep_openings), &writer);
  writer.U64(certified.heads.size());
  for (const HeadReport& head : certified.heads) {
    writer.String(head.head);
    for (const int64_t number :
         {head.num_keys, head.num_margin, head.num_error, head.num_reserve}) {
      writer.I64(number);
    }
    writer.U64(head.partition_proved ? 1 : 0);
    writer.U64(head.bounds.has_value() ? 1 : 0);
    if (head.bounds.has_value()) WriteBounds(*head.bounds, &writer);
  }
  return writer.Take();
}

absl::StatusOr<CertifiedHeads> DecodeCertifiedHeads(ByteReader* reader,
                                                    absl::Span<const RecordRef> records) {
  CertifiedHeads certified;
  LETHE_ASSIGN_OR_RETURN(const RecordRef ref, ReadRecord(reader, records));
  certified.seq = ref.seq;
  LETHE_RETURN_IF_ERROR(ReadOptionalDigest(reader, &certified.digest));
  uint64_t count = 0;
  LETHE_RETURN_IF_ERROR(ReadUpTo(reader, kHeadsReadMax, &count));
  certified.heads.resize(count);
  for (HeadReport& head : certified.heads) LETHE_RETURN_IF_ERROR(ReadHead(reader, &head));
  return certified;
}

}  // namespace lethe
