#include "server/rpc/transfer_calls.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/rpc/message_conversion.h"
#include "server/rpc/validation.h"
#include "server/session_export/export_stream.h"
#include "server/session_export/session_transfer.h"

namespace lethe {
namespace {

absl::StatusOr<audit::Secret32> ReadKey(const std::string& key) {
  std::array<uint8_t, 32> bytes{};
  if (key.size() != bytes.size()) return InvalidFieldError("key", "32 bytes");
  std::copy(key.begin(), key.end(), bytes.begin());
  const audit::Secret32 secret = audit::Secret32::FromBytes(bytes);
  audit::SecureWipe(bytes.data(), bytes.size());
  return secret;
}

absl::Status CheckHeader(const v1::ImportHeader& header) {
  LETHE_RETURN_IF_ERROR(CheckRequestId(header.request_id()));
  LETHE_RETURN_IF_ERROR(CheckLabel("display_name", header.display_name()));
  if (header.session_id().empty() != !header.replace()) {
    return InvalidFieldError("replace", "true exactly with the session_id to replace");
  }
  return header.replace() ? CheckSessionId(header.session_id()) : absl::OkStatus();
}

// Of header and file; the key is no part of what is asked.
RequestKey KeyOf(v1::ImportHeader header, const audit::Sha256Digest& file) {
  audit::SecureWipe(header.mutable_key());
  header.set_key(std::string(audit::AsStringView(file)));
  return MakeRequestKey(header, header.request_id());
}

// Everything that comes after the header.
absl::StatusOr<std::string> ReadFile(const audit::Secret32& key, const Call& call,
                                     grpc::ServerReader<v1::ImportSessionRequest>* reader,
                                     audit::Sha256Digest* file) {
  ExportOpener opener(key);
  audit::Sha256 hash;
  v1::ImportSessionRequest part;
  while (reader->Read(&part)) {
    LETHE_RETURN_IF_ERROR(call.Check());
    if (part.part_case() != v1::ImportSessionRequest::kData) {
      return InvalidFieldError("part", "data after the header");
    }
    hash.Update(part.data());
    LETHE_RETURN_IF_ERROR(opener.Add(part.data()));
  }
  // The stream of a client that went away ends as well.
  LETHE_RETURN_IF_ERROR(call.Check());
  *file = hash.Finish();
  return opener.Finish();
}

}  // namespace

absl::Status ServeExport(const v1::ExportSessionRequest& request, const Call& call,
                         ServerCore* core, grpc::ServerWriter<v1::ExportSessionResponse>* writer) {
  LETHE_ASSIGN_OR_RETURN(const auto entry, FindSession(*core, call, request.session_id()));
  LETHE_ASSIGN_OR_RETURN(const audit::Secret32 key, ReadKey(request.key()));
  return ExportSession(key, call, &core->scheduler, entry, [&](std::string piece) -> absl::Status {
    v1::ExportSessionResponse response;
    response.set_data(std::move(piece));
    return writer->Write(response) ? absl::OkStatus()
                                   : absl::CancelledError("the client went away");
  });
}

absl::Status ServeImport(const Call& call, ServerCore* core,
                         grpc::ServerReader<v1::ImportSessionRequest>* reader,
                         v1::ImportSessionResponse* response) {
  v1::ImportSessionRequest first;
  if (!reader->Read(&first) || !first.has_header()) {
    return InvalidFieldError("part", "a header first");
  }
  const v1::ImportHeader& header = first.header();
  LETHE_RETURN_IF_ERROR(CheckHeader(header));
  LETHE_ASSIGN_OR_RETURN(const audit::Secret32 key, ReadKey(header.key()));
  // A session that is not there is not worth the reading.
  if (header.replace()) {
    LETHE_RETURN_IF_ERROR(FindSession(*core, call, header.session_id()).status());
  }
  audit::Sha256Digest file{};
  LETHE_ASSIGN_OR_RETURN(std::string plain, ReadFile(key, call, reader, &file));
  absl::StatusOr<ExportedSession> exported = DecodeExport(plain);
  audit::SecureWipe(&plain);
  if (!exported.ok()) return WithDefaultReason(exported.status(), "EXPORT_CONTENT");
  LETHE_ASSIGN_OR_RETURN(
      const ImportReceipt receipt,
      ImportSession(*std::move(exported),
                    {header.session_id(), header.display_name(), KeyOf(header, file)}, call,
                    {&core->sessions, &core->scheduler, &core->models, core->stored_input_bytes,
                     core->max_vectors}));
  SetSession(*receipt.entry, response->mutable_session());
  SetDigest(receipt.digest, {}, response->mutable_digest());
  SetDigest(receipt.exported_digest, {}, response->mutable_exported_digest());
  response->set_reevaluated(receipt.reevaluated);
  return absl::OkStatus();
}

}  // namespace lethe
