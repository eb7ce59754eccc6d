#include "server/recovery/stored_answers.h"

#include "kernels/base/status_macros.h"
#include "server/certification/certifier.h"
#include "server/certification/forgetter.h"
#include "server/certification/selection.h"
#include "server/generation/generate_answer.h"
#include "server/session_registry/append_answer.h"
#include "server/session_registry/saved_fields.h"
#include "server/session_registry/session_registry.h"

namespace lethe {
namespace {

absl::StatusOr<std::shared_ptr<StoredAnswer>> DecodeOf(AnswerKind kind, ByteReader* reader,
                                                       absl::Span<const RecordRef> records) {
  switch (kind) {
    case AnswerKind::kAppend:
      return AppendAnswer::Decode(reader);
    case AnswerKind::kForget:
      return DecodeForgetAnswer(reader, records);
    case AnswerKind::kEvict:
      return DecodeEvictAnswer(reader, records);
    case AnswerKind::kCertify:
      return DecodeCertifyAnswer(reader, records);
    case AnswerKind::kGenerate:
      return GenerateAnswer::Decode(reader);
    case AnswerKind::kCreate:
      return SessionRegistry::DecodeCreate(reader);
    case AnswerKind::kDelete:
      return SessionRegistry::DecodeDelete(reader);
  }
  return absl::DataLossError("stored answer: of an unknown kind");
}

}  // namespace

absl::StatusOr<std::shared_ptr<StoredAnswer>> DecodeAnswer(absl::string_view bytes,
                                                           absl::Span<const RecordRef> records) {
  ByteReader reader(bytes);
  uint64_t kind = 0;
  LETHE_RETURN_IF_ERROR(reader.U64(&kind));
  LETHE_ASSIGN_OR_RETURN(std::shared_ptr<StoredAnswer> answer,
                         DecodeOf(static_cast<AnswerKind>(kind), &reader, records));
  LETHE_RETURN_IF_ERROR(ReadEnd(reader));
  return answer;
}

}  // namespace lethe
