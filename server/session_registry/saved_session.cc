#include "server/session_registry/saved_session.h"

#include <utility>

#include "audit/certificate/opening.h"
#include "kernels/base/status_macros.h"
#include "server/model/model.h"
#include "server/model/numerics_id.h"
#include "server/session_registry/saved_fields.h"
#include "server/session_registry/tenant_text.h"

namespace lethe {
namespace {

constexpr uint64_t kSnapshotVersion = 3;
constexpr uint64_t kVersionWithoutTenant = 2;
enum class EntryTag : uint64_t { kSnapshot = 1, kDelta = 2 };

void WriteOptional(const std::optional<double>& value, ByteWriter* writer) {
  writer->U64(value.has_value() ? 1 : 0);
  if (value.has_value()) writer->F64(*value);
}

absl::Status ReadOptional(ByteReader* reader, std::optional<double>* value) {
  bool present = false;
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &present));
  return present ? reader->F64(&value->emplace()) : absl::OkStatus();
}

void WriteModel(const SavedModel& model, ByteWriter* writer) {
  writer->String(model.name);
  WriteDigest(model.digest, writer);
  writer->U64(model.memory.ovq_slots.has_value() ? 1 : 0);
  if (model.memory.ovq_slots.has_value()) writer->I64(*model.memory.ovq_slots);
  WriteOptional(model.memory.sv_box_mass, writer);
  WriteOptional(model.memory.sv_sigma, writer);
  WriteOptional(model.memory.sv_ridge, writer);
}

absl::Status ReadModel(ByteReader* reader, SavedModel* model) {
  bool has_slots = false;
  LETHE_RETURN_IF_ERROR(reader->String(&model->name));
  LETHE_RETURN_IF_ERROR(ReadDigest(reader, &model->digest));
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &has_slots));
  if (has_slots) LETHE_RETURN_IF_ERROR(reader->I64(&model->memory.ovq_slots.emplace()));
  LETHE_RETURN_IF_ERROR(ReadOptional(reader, &model->memory.sv_box_mass));
  LETHE_RETURN_IF_ERROR(ReadOptional(reader, &model->memory.sv_sigma));
  return ReadOptional(reader, &model->memory.sv_ridge);
}

void WriteVectors(const SavedSession& session, ByteWriter* writer) {
  const VectorOptions& options = session.vectors;
  writer->F64(options.params.sigma);
  writer->F64(options.params.box_mass);
  writer->F64(options.params.ridge);
  writer->I64(options.params.key_dim);
  writer->I64(options.value_dim);
  writer->U64(options.selection ? 1 : 0);
  writer->I64(options.max_inputs);
  writer->U64(session.selected ? 1 : 0);
}

absl::Status ReadVectors(ByteReader* reader, SavedSession* session) {
  VectorOptions& options = session->vectors;
  LETHE_RETURN_IF_ERROR(reader->F64(&options.params.sigma));
  LETHE_RETURN_IF_ERROR(reader->F64(&options.params.box_mass));
  LETHE_RETURN_IF_ERROR(reader->F64(&options.params.ridge));
  LETHE_RETURN_IF_ERROR(reader->I64(&options.params.key_dim));
  LETHE_RETURN_IF_ERROR(reader->I64(&options.value_dim));
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &options.selection));
  LETHE_RETURN_IF_ERROR(reader->I64(&options.max_inputs));
  return ReadBool(reader, &session->selected);
}

void WriteRequest(const RequestTable::Saved& request, ByteWriter* writer) {
  writer->String(request.request_id);
  WriteOptionalDigest(request.content, writer);
  writer->String(request.answer);
}

absl::Status ReadRequest(ByteReader* reader, RequestTable::Saved* request) {
  LETHE_RETURN_IF_ERROR(reader->String(&request->request_id));
  LETHE_RETURN_IF_ERROR(ReadOptionalDigest(reader, &request->content));
  return reader->String(&request->answer);
}

void WriteCounters(const SavedCounters& counters, ByteWriter* writer) {
  writer->U64(counters.next_token_id);
  writer->U64(counters.vector_epoch);
  writer->I64(counters.num_exports);
}

absl::Status ReadCounters(ByteReader* reader, SavedCounters* counters) {
  LETHE_RETURN_IF_ERROR(reader->U64(&counters->next_token_id));
  LETHE_RETURN_IF_ERROR(reader->U64(&counters->vector_epoch));
  return reader->I64(&counters->num_exports);
}

absl::Status ReadHistory(ByteReader* reader, SavedSession* session) {
  uint64_t count = 0;
  LETHE_RETURN_IF_ERROR(ReadCounters(reader, &session->counters));
  LETHE_RETURN_IF_ERROR(reader->U64(&session->mark.epoch));
  LETHE_RETURN_IF_ERROR(reader->I64(&session->mark.num_forgotten));
  LETHE_RETURN_IF_ERROR(ReadUpTo(reader, reader->remaining(), &count));
  session->record_refs.resize(count);
  for (RecordRef& ref : session->record_refs) LETHE_RETURN_IF_ERROR(ReadRecordRef(reader, &ref));
  LETHE_RETURN_IF_ERROR(ReadUpTo(reader, reader->remaining(), &count));
  session->openings.resize(count);
  for (std::string& opening : session->openings) LETHE_RETURN_IF_ERROR(reader->String(&opening));
  LETHE_RETURN_IF_ERROR(ReadUpTo(reader, reader->remaining(), &count));
  session->requests.resize(count);
  for (RequestTable::Saved& request : session->requests) {
    LETHE_RETURN_IF_ERROR(ReadRequest(reader, &request));
  }
  return absl::OkStatus();
}

absl::Status ReadSnapshot(ByteReader* reader, SavedSession* session) {
  uint64_t version = 0;
  bool has_model = false;
  LETHE_RETURN_IF_ERROR(reader->U64(&version));
  if (version != kSnapshotVersion && version != kVersionWithoutTenant) {
    return absl::DataLossError("stored session: of another version");
  }
  LETHE_RETURN_IF_ERROR(reader->String(&session->session_id));
  session->tenant = kLocalTenant;
  if (version == kSnapshotVersion) LETHE_RETURN_IF_ERROR(reader->String(&session->tenant));
  LETHE_RETURN_IF_ERROR(reader->String(&session->display_name));
  LETHE_RETURN_IF_ERROR(reader->I64(&session->create_time_us));
  LETHE_RETURN_IF_ERROR(ReadDigest(reader, &session->numerics_id));
  LETHE_RETURN_IF_ERROR(reader->String(&session->device_kind));
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &has_model));
  LETHE_RETURN_IF_ERROR(has_model ? ReadModel(reader, &session->model.emplace())
                                  : ReadVectors(reader, session));
  return ReadHistory(reader, session);
}

absl::Status ReadDelta(ByteReader* reader, SavedSession* session) {
  LETHE_RETURN_IF_ERROR(ReadCounters(reader, &session->counters));
  bool present = false;
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &present));
  if (present) LETHE_RETURN_IF_ERROR(ReadRequest(reader, &session->requests.emplace_back()));
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &present));
  if (!present) return absl::OkStatus();
  LETHE_RETURN_IF_ERROR(ReadRecordRef(reader, &session->record_refs.emplace_back()));
  return reader->String(&session->openings.emplace_back());
}

}  // namespace

void WriteRecordRef(const RecordRef& ref, ByteWriter* writer) {
  writer->U64(ref.seq);
  writer->U64(static_cast<uint64_t>(ref.kind));
  WriteDigest(ref.leaf_hash, writer);
  writer->U64(ref.mark.epoch);
  writer->I64(ref.mark.num_forgotten);
  writer->I64(ref.num_inputs);
  writer->U64(ref.partition_proved ? 1 : 0);
}

absl::Status ReadRecordRef(ByteReader* reader, RecordRef* ref) {
  uint64_t kind = 0;
  LETHE_RETURN_IF_ERROR(reader->U64(&ref->seq));
  LETHE_RETURN_IF_ERROR(
      ReadUpTo(reader, static_cast<uint64_t>(audit::RecordKind::kDisclose), &kind));
  ref->kind = static_cast<audit::RecordKind>(kind);
  LETHE_RETURN_IF_ERROR(ReadDigest(reader, &ref->leaf_hash));
  LETHE_RETURN_IF_ERROR(reader->U64(&ref->mark.epoch));
  LETHE_RETURN_IF_ERROR(reader->I64(&ref->mark.num_forgotten));
  LETHE_RETURN_IF_ERROR(reader->I64(&ref->num_inputs));
  return ReadBool(reader, &ref->partition_proved);
}

std::string WriteSnapshot(const SavedSession& session) {
  ByteWriter writer;
  writer.U64(static_cast<uint64_t>(EntryTag::kSnapshot));
  writer.U64(kSnapshotVersion);
  writer.String(session.session_id);
  writer.String(session.tenant);
  writer.String(session.display_name);
  writer.I64(session.create_time_us);
  WriteDigest(session.numerics_id, &writer);
  writer.String(session.device_kind);
  writer.U64(session.model.has_value() ? 1 : 0);
  if (session.model.has_value()) {
    WriteModel(*session.model, &writer);
  } else {
    WriteVectors(session, &writer);
  }
  WriteCounters(session.counters, &writer);
  writer.U64(session.mark.epoch);
  writer.I64(session.mark.num_forgotten);
  writer.U64(session.record_refs.size());
  for (const RecordRef& ref : session.record_refs) WriteRecordRef(ref, &writer);
  writer.U64(session.openings.size());
  for (const std::string& opening : session.openings) writer.String(opening);
  writer.U64(session.requests.size());
  for (const RequestTable::Saved& request : session.requests) WriteRequest(request, &writer);
  return writer.Take();
}

std::string WriteDelta(const SavedDelta& delta) {
  ByteWriter writer;
  writer.U64(static_cast<uint64_t>(EntryTag::kDelta));
  WriteCounters(delta.counters, &writer);
  writer.U64(delta.request.has_value() ? 1 : 0);
  if (delta.request.has_value()) WriteRequest(*delta.request, &writer);
  writer.U64(delta.record.has_value() ? 1 : 0);
  if (delta.record.has_value()) {
    WriteRecordRef(*delta.record, &writer);
    writer.String(delta.opening);
  }
  return writer.Take();
}

absl::StatusOr<SavedSession> ReadMeta(absl::Span<const std::string> rows) {
  SavedSession session;
  for (size_t i = 0; i < rows.size(); ++i) {
    ByteReader reader(rows[i]);
    const EntryTag want = i == 0 ? EntryTag::kSnapshot : EntryTag::kDelta;
    uint64_t tag = 0;
    LETHE_RETURN_IF_ERROR(reader.U64(&tag));
    if (tag != static_cast<uint64_t>(want)) {
      return absl::DataLossError("stored session: a row is out of place");
    }
    LETHE_RETURN_IF_ERROR(i == 0 ? ReadSnapshot(&reader, &session) : ReadDelta(&reader, &session));
    LETHE_RETURN_IF_ERROR(ReadEnd(reader));
  }
  if (rows.empty()) return absl::DataLossError("stored session: has no snapshot");
  for (size_t i = 0; i < session.record_refs.size(); ++i) {
    if (session.record_refs[i].seq != i + 1) {
      return absl::DataLossError("stored session: a record is missing");
    }
  }
  return session;
}

SavedCounters CountersOf(const SessionEntry& entry) {
  if (entry.model != nullptr) {
    return {static_cast<const Session&>(*entry.session).next_token_id(), 0, entry.num_exports};
  }
  const auto& vectors = static_cast<const VectorSession&>(*entry.session);
  return {vectors.next_token_id(), vectors.epoch(), entry.num_exports};
}

SavedSession SaveEntry(const SessionEntry& entry) {
  SavedSession saved;
  saved.session_id = entry.session_id;
  saved.tenant = entry.tenant;
  saved.display_name = entry.display_name;
  saved.create_time_us = entry.create_time_us;
  const Numerics numerics = NumericsOf(entry.model.get());
  saved.numerics_id = numerics.id;
  saved.device_kind = numerics.device_kind;
  if (entry.model != nullptr) {
    saved.model =
        SavedModel{entry.model->config().name, entry.model->digest(), entry.options.memory};
  } else {
    saved.vectors = *entry.vector_options;
    saved.selected = static_cast<const VectorSession&>(*entry.session).selected();
  }
  saved.counters = CountersOf(entry);
  saved.mark = entry.mark;
  saved.record_refs = entry.record_refs;
  for (const audit::Opening& opening : entry.records.openings()) {
    saved.openings.push_back(audit::WriteOpening(opening));
  }
  saved.requests = entry.requests.Save();
  return saved;
}

std::optional<RequestTable::Saved> SaveRequest(const RequestKey& request,
                                               const StoredAnswer& answer) {
  std::string bytes = answer.Encode(true);
  if (request.request_id.empty() || bytes.empty()) return std::nullopt;
  return RequestTable::Saved{request.request_id, request.content, std::move(bytes)};
}

std::optional<RequestTable::Saved> SaveOwnRequest(const std::string& tenant,
                                                  const RequestKey& request,
                                                  const StoredAnswer& answer) {
  std::optional<RequestTable::Saved> saved = SaveRequest(request, answer);
  if (saved.has_value()) saved->request_id = WithTenant(tenant, saved->request_id);
  return saved;
}

}  // namespace lethe
