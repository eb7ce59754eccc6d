#include "server/session_export/export_content.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/crypto/secret.h"
#include "audit/log/utf8.h"
#include "kernels/base/byte_io.h"
#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/session_registry/saved_fields.h"

namespace lethe {
namespace {

constexpr char kFormat[] = "lethe-session-v1";
constexpr size_t kNameBytesMax = 128;
constexpr int64_t kDimMax = 65536;
constexpr double kBoxMassMax = 65536.0;

absl::Status NoSuchValue(absl::string_view field, absl::string_view accepted) {
  return WithErrorInfo(
      absl::InvalidArgumentError(absl::StrCat("data: ", field, ": want ", accepted)),
      {"EXPORT_CONTENT", {{"field", "data"}}});
}

// Rows of a history in one piece, of nothing where it is empty.
VectorRows RowsOf(const ExportedSession& session) {
  VectorRows rows;
  if (session.model.has_value()) return rows;
  rows.keys = session.history.keys;
  rows.values = session.history.values;
  rows.key_dim = static_cast<size_t>(session.vectors.params.key_dim);
  rows.value_dim = static_cast<size_t>(session.vectors.value_dim);
  return rows;
}

// Whether it is there, and its value or 0.
void WriteNumber(const std::optional<double>& value, ByteWriter* writer) {
  writer->U64(value.has_value() ? 1 : 0);
  writer->F64(value.value_or(0.0));
}

absl::Status ReadNumber(ByteReader* reader, double min, double max, std::optional<double>* value) {
  bool present = false;
  double number = 0.0;
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &present));
  LETHE_RETURN_IF_ERROR(reader->F64(&number));
  if (!present) return number == 0.0 ? absl::OkStatus() : NoSuchValue("memory_options", "0");
  if (!(number >= min && number <= max)) {
    return NoSuchValue("memory_options", absl::StrCat(min, " to ", max));
  }
  *value = number;
  return absl::OkStatus();
}

void WriteModel(const SavedModel& model, ByteWriter* writer) {
  writer->String(model.name);
  WriteDigest(model.digest, writer);
  writer->I64(model.memory.ovq_slots.value_or(0));  // 0: the model's own
  WriteNumber(model.memory.sv_box_mass, writer);
  WriteNumber(model.memory.sv_sigma, writer);
  WriteNumber(model.memory.sv_ridge, writer);
}

// The ranges of CreateSession.
absl::Status ReadModel(ByteReader* reader, SavedModel* model) {
  int64_t ovq_slots = 0;
  LETHE_RETURN_IF_ERROR(reader->String(&model->name));
  LETHE_RETURN_IF_ERROR(ReadDigest(reader, &model->digest));
  LETHE_RETURN_IF_ERROR(reader->I64(&ovq_slots));
  if (ovq_slots != 0) {
    if (ovq_slots < 2 || ovq_slots > 65536) return NoSuchValue("ovq_slots", "2 to 65536");
    model->memory.ovq_slots = ovq_slots;
  }
  LETHE_RETURN_IF_ERROR(ReadNumber(reader, 1.0, 0x1.0p20, &model->memory.sv_box_mass));
  LETHE_RETURN_IF_ERROR(ReadNumber(reader, 0x1.0p-20, 0x1.0p20, &model->memory.sv_sigma));
  return ReadNumber(reader, 1e-8, 1.0, &model->memory.sv_ridge);
}

void WriteVectorOptions(const ExportedSession& session, ByteWriter* writer) {
  writer->F64(session.vectors.params.sigma);
  writer->F64(session.vectors.params.box_mass);
  writer->F64(session.vectors.params.ridge);
  writer->I64(session.vectors.params.key_dim);
  writer->I64(session.vectors.value_dim);
  writer->U64(session.vectors.selection ? 1 : 0);
  writer->U64(session.selected ? 1 : 0);
}

absl::Status ReadVectorOptions(ByteReader* reader, ExportedSession* session) {
  svdd::Params params;
  VectorOptions& options = session->vectors;
  LETHE_RETURN_IF_ERROR(reader->F64(&params.sigma));
  LETHE_RETURN_IF_ERROR(reader->F64(&params.box_mass));
  LETHE_RETURN_IF_ERROR(reader->F64(&params.ridge));
  LETHE_RETURN_IF_ERROR(reader->I64(&params.key_dim));
  LETHE_RETURN_IF_ERROR(reader->I64(&options.value_dim));
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &options.selection));
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &session->selected));
  const absl::StatusOr<svdd::Params> made =
      svdd::MakeParams(params.sigma, params.box_mass, params.ridge, params.key_dim);
  if (!made.ok() || !(params.box_mass <= kBoxMassMax) || options.value_dim < 0 ||
      options.value_dim > kDimMax || (session->selected && !options.selection)) {
    return NoSuchValue("vector_options", "what CreateVectorSession takes");
  }
  options.params = *made;
  return absl::OkStatus();
}

bool IsLabel(absl::string_view text) {
  return text.size() <= kNameBytesMax && audit::IsUtf8Text(text);
}

absl::Status CheckHistory(const ExportedSession& session) {
  const Inputs& inputs = session.history.inputs;
  const int64_t count = inputs.size();
  const bool has_vectors = !session.model.has_value();
  const int64_t key_dim = has_vectors ? session.vectors.params.key_dim : 0;
  const int64_t value_dim = has_vectors ? session.vectors.value_dim : 0;
  if (static_cast<int64_t>(session.history.keys.size()) != count * key_dim ||
      static_cast<int64_t>(session.history.values.size()) != count * value_dim) {
    return NoSuchValue("history", "one key and one value for each vector, none for tokens");
  }
  if (session.next_token_id == 0 || session.next_token_id > kImportedTokenIdMax ||
      (count > 0 && inputs.at(count - 1).token_id >= session.next_token_id)) {
    return NoSuchValue("next_token_id", "above every token_id, at most 2^62");
  }
  for (int64_t rank = 0; rank < count; ++rank) {
    const Input& input = inputs.at(rank);
    if (!IsLabel(inputs.subject(rank))) return NoSuchValue("subject", "128 bytes of UTF-8");
    if (input.derived_from_forgotten && input.kind != InputKind::kGenerated) {
      return NoSuchValue("history", "derived tokens among the generated ones");
    }
    if (has_vectors && (input.kind != InputKind::kAppended || input.vocab_id != 0)) {
      return NoSuchValue("history", "vectors that were appended");
    }
  }
  if (has_vectors && count > 0) {
    const bool fits =
        CheckVectorRows("keys", session.history.keys, key_dim).ok() &&
        (value_dim == 0 || CheckVectorRows("values", session.history.values, value_dim).ok());
    if (!fits) return NoSuchValue("history", "finite numbers of at most 2^400 in magnitude");
  }
  return absl::OkStatus();
}

}  // namespace

std::string EncodeExport(const ExportedSession& session, const Inputs& inputs,
                         const VectorRows& vectors) {
  ByteWriter writer;
  writer.String(kFormat);
  writer.String(session.display_name);
  writer.U64(session.model.has_value() ? 1 : 0);
  if (session.model.has_value()) {
    WriteModel(*session.model, &writer);
  } else {
    WriteVectorOptions(session, &writer);
  }
  WriteDigest(session.numerics_id, &writer);
  writer.String(session.device_kind);
  WriteDigest(session.state_digest, &writer);
  writer.U64(session.next_token_id);
  std::string history = EncodeInputs({inputs, 0, inputs.size()}, vectors);
  writer.String(history);
  audit::SecureWipe(&history);
  return writer.Take();
}

absl::StatusOr<ExportedSession> DecodeExport(absl::string_view bytes) {
  ByteReader reader(bytes);
  ExportedSession session;
  std::string format;
  bool has_model = false;
  LETHE_RETURN_IF_ERROR(reader.String(&format));
  if (format != kFormat) return absl::DataLossError("session export: of another version");
  LETHE_RETURN_IF_ERROR(reader.String(&session.display_name));
  if (!IsLabel(session.display_name)) return NoSuchValue("display_name", "128 bytes of UTF-8");
  LETHE_RETURN_IF_ERROR(ReadBool(&reader, &has_model));
  LETHE_RETURN_IF_ERROR(has_model ? ReadModel(&reader, &session.model.emplace())
                                  : ReadVectorOptions(&reader, &session));
  LETHE_RETURN_IF_ERROR(ReadDigest(&reader, &session.numerics_id));
  LETHE_RETURN_IF_ERROR(reader.String(&session.device_kind));
  LETHE_RETURN_IF_ERROR(ReadDigest(&reader, &session.state_digest));
  LETHE_RETURN_IF_ERROR(reader.U64(&session.next_token_id));
  std::string history;
  LETHE_RETURN_IF_ERROR(reader.String(&history));
  const absl::Status decoded = DecodeInputs(history, &session.history);
  audit::SecureWipe(&history);
  LETHE_RETURN_IF_ERROR(decoded);
  LETHE_RETURN_IF_ERROR(ReadEnd(reader));
  LETHE_RETURN_IF_ERROR(CheckHistory(session));
  return session;
}

void MoveTokenIds(uint64_t offset, ExportedSession* session) {
  Inputs moved;
  for (int64_t rank = 0; rank < session->history.inputs.size(); ++rank) {
    Input input = session->history.inputs.at(rank);
    input.token_id += offset;
    moved.AppendStored(input, session->history.inputs.subject(rank));
  }
  session->history.inputs = std::move(moved);
  session->next_token_id += offset;
}

std::string CanonicalContent(const ExportedSession& session) {
  ExportedSession plain;
  plain.model = session.model;
  plain.vectors = session.vectors;
  plain.selected = session.selected;
  plain.state_digest = session.state_digest;
  Inputs renumbered;
  for (int64_t rank = 0; rank < session.history.inputs.size(); ++rank) {
    Input input = session.history.inputs.at(rank);
    input.token_id = static_cast<uint64_t>(rank) + 1;
    renumbered.AppendStored(input, session.history.inputs.subject(rank));
  }
  plain.next_token_id = static_cast<uint64_t>(renumbered.size()) + 1;
  return EncodeExport(plain, renumbered, RowsOf(session));
}

}  // namespace lethe
