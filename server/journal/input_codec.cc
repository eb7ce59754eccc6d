#include "server/journal/input_codec.h"

#include <map>
#include <vector>

#include "audit/crypto/secret.h"
#include "kernels/base/byte_io.h"
#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

constexpr uint64_t kVersion = 1;
constexpr uint64_t kDerived = 1;

absl::Status Malformed() { return absl::DataLossError("stored inputs: malformed"); }

// The labels of a run, each once, and where each input finds its own.
struct Labels {
  explicit Labels(const InputRun& run) {
    std::map<uint32_t, uint64_t> places;
    for (int64_t rank = run.first; rank < run.end; ++rank) {
      const auto [place, is_new] =
          places.try_emplace(run.inputs.at(rank).subject_index, texts.size());
      if (is_new) texts.push_back(run.inputs.subject(rank));
      of_input.push_back(place->second);
    }
  }
  std::vector<absl::string_view> texts;
  std::vector<uint64_t> of_input;
};

absl::Span<const double> RowsOf(absl::Span<const double> all, const InputRun& run, size_t width) {
  return all.subspan(static_cast<size_t>(run.first) * width,
                     static_cast<size_t>(run.end - run.first) * width);
}

absl::Status DecodeLabels(ByteReader* reader, std::vector<std::string>* labels) {
  uint64_t count = 0;
  LETHE_RETURN_IF_ERROR(reader->U64(&count));
  if (count > reader->remaining()) return Malformed();
  labels->resize(count);
  for (std::string& label : *labels) {
    LETHE_RETURN_IF_ERROR(reader->String(&label));
    if (label.size() > kMaxSubjectBytes) return Malformed();
  }
  return absl::OkStatus();
}

absl::Status DecodeOne(ByteReader* reader, const std::vector<std::string>& labels, Inputs* inputs) {
  Input input;
  int64_t vocab_id = 0;
  uint64_t kind = 0;
  uint64_t flags = 0;
  uint64_t label = 0;
  LETHE_RETURN_IF_ERROR(reader->U64(&input.token_id));
  LETHE_RETURN_IF_ERROR(reader->I64(&vocab_id));
  LETHE_RETURN_IF_ERROR(reader->U64(&kind));
  LETHE_RETURN_IF_ERROR(reader->U64(&flags));
  LETHE_RETURN_IF_ERROR(reader->U64(&label));
  input.vocab_id = static_cast<int32_t>(vocab_id);
  input.kind = static_cast<InputKind>(kind);
  input.derived_from_forgotten = flags == kDerived;
  const bool follows =
      inputs->size() == 0 || inputs->at(inputs->size() - 1).token_id < input.token_id;
  if (input.token_id == 0 || input.vocab_id != vocab_id || flags > kDerived || !follows ||
      kind > static_cast<uint64_t>(InputKind::kGenerated) || label >= labels.size()) {
    return Malformed();
  }
  inputs->AppendStored(input, labels[label]);
  return absl::OkStatus();
}

absl::Status DecodeNumbers(ByteReader* reader, uint64_t count, WipedVector<double>* numbers) {
  if (count > reader->remaining() / sizeof(double)) return Malformed();
  const size_t before = numbers->size();
  numbers->resize(before + count);
  return reader->Raw(numbers->data() + before, count * sizeof(double));
}

}  // namespace

std::string EncodeInputs(const InputRun& run, const VectorRows& vectors) {
  const Labels labels(run);
  ByteWriter writer;
  writer.U64(kVersion);
  writer.U64(static_cast<uint64_t>(run.end - run.first));
  writer.U64(vectors.key_dim);
  writer.U64(vectors.value_dim);
  writer.U64(labels.texts.size());
  for (const absl::string_view text : labels.texts) writer.String(text);
  for (int64_t rank = run.first; rank < run.end; ++rank) {
    const Input& input = run.inputs.at(rank);
    writer.U64(input.token_id);
    writer.I64(input.vocab_id);
    writer.U64(static_cast<uint64_t>(input.kind));
    writer.U64(input.derived_from_forgotten ? kDerived : 0);
    writer.U64(labels.of_input[static_cast<size_t>(rank - run.first)]);
  }
  for (const double number : RowsOf(vectors.keys, run, vectors.key_dim)) writer.F64(number);
  for (const double number : RowsOf(vectors.values, run, vectors.value_dim)) writer.F64(number);
  return writer.Take();
}

absl::Status DecodeInputs(absl::string_view bytes, DecodedInputs* decoded) {
  ByteReader reader(bytes);
  uint64_t version = 0;
  uint64_t count = 0;
  uint64_t key_dim = 0;
  uint64_t value_dim = 0;
  LETHE_RETURN_IF_ERROR(reader.U64(&version));
  LETHE_RETURN_IF_ERROR(reader.U64(&count));
  LETHE_RETURN_IF_ERROR(reader.U64(&key_dim));
  LETHE_RETURN_IF_ERROR(reader.U64(&value_dim));
  constexpr uint64_t kMost = uint64_t{1} << 24;
  if (version != kVersion || count > kMost || key_dim > kMost || value_dim > kMost) {
    return Malformed();
  }
  std::vector<std::string> labels;
  LETHE_RETURN_IF_ERROR(DecodeLabels(&reader, &labels));
  for (uint64_t i = 0; i < count; ++i) {
    LETHE_RETURN_IF_ERROR(DecodeOne(&reader, labels, &decoded->inputs));
  }
  LETHE_RETURN_IF_ERROR(DecodeNumbers(&reader, count * key_dim, &decoded->keys));
  LETHE_RETURN_IF_ERROR(DecodeNumbers(&reader, count * value_dim, &decoded->values));
  for (std::string& label : labels) audit::SecureWipe(&label);
  return reader.remaining() == 0 ? absl::OkStatus() : Malformed();
}

}  // namespace lethe
