#include "server/generation/generate_answer.h"

#include "audit/crypto/secret.h"
#include "kernels/base/status_macros.h"
#include "server/session_registry/saved_fields.h"

namespace lethe {
namespace {

constexpr uint64_t kStopStringsReadMax = 1024;

// What Encode wrote behind the kind. kAsked is of servers that could not go on with an answer.
enum class Form : uint64_t { kBare = 0, kAsked = 1, kWhole = 2 };

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

void WritePlace(const AnswerPlace& place, ByteWriter* writer) {
  writer->U64(place.prompt_first);
  writer->U64(place.first);
  writer->U64(place.end);
  writer->I64(place.max_tokens);
  writer->U64(place.context_limited ? 1 : 0);
}

absl::Status ReadPlace(ByteReader* reader, AnswerPlace* place) {
  LETHE_RETURN_IF_ERROR(reader->U64(&place->prompt_first));
  LETHE_RETURN_IF_ERROR(reader->U64(&place->first));
  LETHE_RETURN_IF_ERROR(reader->U64(&place->end));
  LETHE_RETURN_IF_ERROR(reader->I64(&place->max_tokens));
  return ReadBool(reader, &place->context_limited);
}

}  // namespace

GenerateAnswer::GenerateAnswer(const GenerateCommand& command)
    : stage_(GenerateStage::kStarting),
      is_kept_(command.remember),
      parameters_(Parameters{command.sampling, command.stop, command.subject, command.want_logprobs,
                             command.ignore_end_of_text}) {}

GenerateAnswer::GenerateAnswer(const GenerateCommand& command, const AnswerPlace& place)
    : GenerateAnswer(command) {
  stage_ = GenerateStage::kRunning;
  place_ = place;
}

GenerateAnswer::~GenerateAnswer() { DropOpenings(); }

void GenerateAnswer::DropOpenings() {
  if (!parameters_.has_value()) return;
  for (std::string& stop : parameters_->stop) audit::SecureWipe(&stop);
  audit::SecureWipe(&parameters_->subject);
  parameters_.reset();
}

bool GenerateAnswer::EndAt(uint64_t end_id) {
  stage_ = GenerateStage::kEnded;
  if (place_.end != 0 || !parameters_.has_value()) return false;
  place_.end = end_id;
  return true;
}

void GenerateAnswer::RunAgain(bool draws) {
  stage_ = GenerateStage::kRunning;
  if (draws) place_.end = 0;
}

std::optional<GenerateCommand> GenerateAnswer::Command() const {
  if (!parameters_.has_value()) return std::nullopt;
  GenerateCommand command;
  command.sampling = parameters_->sampling;
  command.stop = parameters_->stop;
  command.subject = parameters_->subject;
  command.want_logprobs = parameters_->want_logprobs;
  command.ignore_end_of_text = parameters_->ignore_end_of_text;
  command.remember = is_kept_;
  return command;
}

std::string GenerateAnswer::Encode(bool keep_openings) const {
  if (!is_kept_ || stage_ == GenerateStage::kStarting) return "";
  ByteWriter writer;
  writer.U64(static_cast<uint64_t>(AnswerKind::kGenerate));
  const bool is_whole = keep_openings && parameters_.has_value();
  writer.U64(static_cast<uint64_t>(is_whole ? Form::kWhole : Form::kBare));
  if (!is_whole) return writer.Take();
  WriteSampling(parameters_->sampling, &writer);
  writer.U64(parameters_->stop.size());
  for (const std::string& stop : parameters_->stop) writer.String(stop);
  writer.String(parameters_->subject);
  writer.U64(parameters_->want_logprobs ? 1 : 0);
  writer.U64(parameters_->ignore_end_of_text ? 1 : 0);
  WritePlace(place_, &writer);
  return writer.Take();
}

absl::StatusOr<std::shared_ptr<StoredAnswer>> GenerateAnswer::Decode(ByteReader* reader) {
  std::shared_ptr<GenerateAnswer> answer(new GenerateAnswer());
  uint64_t form = 0;
  LETHE_RETURN_IF_ERROR(ReadUpTo(reader, static_cast<uint64_t>(Form::kWhole), &form));
  if (form == static_cast<uint64_t>(Form::kBare)) return answer;
  answer->parameters_ =
      Parameters();  // clang 14 takes no emplace() of a nested type with initialisers
  Parameters& parameters = *answer->parameters_;
  LETHE_RETURN_IF_ERROR(ReadSampling(reader, &parameters.sampling));
  uint64_t num_stops = 0;
  LETHE_RETURN_IF_ERROR(ReadUpTo(reader, kStopStringsReadMax, &num_stops));
  parameters.stop.resize(num_stops);
  for (std::string& stop : parameters.stop) LETHE_RETURN_IF_ERROR(reader->String(&stop));
  LETHE_RETURN_IF_ERROR(reader->String(&parameters.subject));
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &parameters.want_logprobs));
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &parameters.ignore_end_of_text));
  if (form == static_cast<uint64_t>(Form::kAsked)) {
    answer->DropOpenings();
    return answer;
  }
  LETHE_RETURN_IF_ERROR(ReadPlace(reader, &answer->place_));
  if (answer->place_.end == 0) answer->stage_ = GenerateStage::kRunning;
  return answer;
}

}  // namespace lethe
