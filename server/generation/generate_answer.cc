#include "server/generation/generate_answer.h"

#include "audit/crypto/secret.h"
#include "kernels/base/status_macros.h"
#include "server/session_registry/saved_fields.h"

namespace lethe {
namespace {

constexpr uint64_t kStopStringsReadMax = 1024;

void WriteSampling(const SamplingParameters& sampling, ByteWriter* writer) {
  writer->F64(sampling.temperature);
  writer->I64(sampling.top_k);
  writer->F64(sampling.top_p);
  writer->F64(sampling.min_p);
  writer->F64(sampling.repetition_penalty);
  writer->U64(sampling.seed);
  writer->I64(sampling.top_logprobs);
  writer->U64(sampling.max_tokens.has_value() ? 1 : 0);
  writer->I64(sampling.max_tokens.value_or(0));
}

absl::Status ReadSampling(ByteReader* reader, SamplingParameters* sampling) {
  bool has_max_tokens = false;
  int64_t max_tokens = 0;
  LETHE_RETURN_IF_ERROR(reader->F64(&sampling->temperature));
  LETHE_RETURN_IF_ERROR(reader->I64(&sampling->top_k));
  LETHE_RETURN_IF_ERROR(reader->F64(&sampling->top_p));
  LETHE_RETURN_IF_ERROR(reader->F64(&sampling->min_p));
  LETHE_RETURN_IF_ERROR(reader->F64(&sampling->repetition_penalty));
  LETHE_RETURN_IF_ERROR(reader->U64(&sampling->seed));
  LETHE_RETURN_IF_ERROR(reader->I64(&sampling->top_logprobs));
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &has_max_tokens));
  LETHE_RETURN_IF_ERROR(reader->I64(&max_tokens));
  if (has_max_tokens) sampling->max_tokens = max_tokens;
  return absl::OkStatus();
}

}  // namespace

GenerateAnswer::GenerateAnswer(GenerateStage answer_stage, const GenerateCommand& command)
    : stage(answer_stage), is_kept_(command.remember) {
  parameters_ = Parameters{command.sampling, command.stop, command.subject, command.want_logprobs,
                           command.ignore_end_of_text};
}

GenerateAnswer::~GenerateAnswer() { DropOpenings(); }

void GenerateAnswer::DropOpenings() {
  if (!parameters_.has_value()) return;
  for (std::string& stop : parameters_->stop) audit::SecureWipe(&stop);
  audit::SecureWipe(&parameters_->subject);
  parameters_.reset();
}

std::string GenerateAnswer::Encode(bool keep_openings) const {
  if (!is_kept_ || stage == GenerateStage::kStarting) return "";
  ByteWriter writer;
  writer.U64(static_cast<uint64_t>(AnswerKind::kGenerate));
  const bool has_parameters = keep_openings && parameters_.has_value();
  writer.U64(has_parameters ? 1 : 0);
  if (!has_parameters) return writer.Take();
  WriteSampling(parameters_->sampling, &writer);
  writer.U64(parameters_->stop.size());
  for (const std::string& stop : parameters_->stop) writer.String(stop);
  writer.String(parameters_->subject);
  writer.U64(parameters_->want_logprobs ? 1 : 0);
  writer.U64(parameters_->ignore_end_of_text ? 1 : 0);
  return writer.Take();
}

absl::StatusOr<std::shared_ptr<StoredAnswer>> GenerateAnswer::Decode(ByteReader* reader) {
  std::shared_ptr<GenerateAnswer> answer(new GenerateAnswer());
  bool has_parameters = false;
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &has_parameters));
  if (!has_parameters) return answer;
  Parameters& parameters = answer->parameters_.emplace();
  LETHE_RETURN_IF_ERROR(ReadSampling(reader, &parameters.sampling));
  uint64_t num_stops = 0;
  LETHE_RETURN_IF_ERROR(ReadUpTo(reader, kStopStringsReadMax, &num_stops));
  parameters.stop.resize(num_stops);
  for (std::string& stop : parameters.stop) LETHE_RETURN_IF_ERROR(reader->String(&stop));
  LETHE_RETURN_IF_ERROR(reader->String(&parameters.subject));
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &parameters.want_logprobs));
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &parameters.ignore_end_of_text));
  return answer;
}

}  // namespace lethe
