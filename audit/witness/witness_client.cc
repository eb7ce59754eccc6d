#include "audit/witness/witness_client.h"

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "audit/log/decimal.h"
#include "audit/witness/add_checkpoint.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

constexpr std::chrono::milliseconds kPause(300);

absl::Status Unavailable(const WitnessKey& witness, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("witness ", witness.name, ": ", why));
}

absl::Status Disagrees(const WitnessKey& witness, absl::string_view why) {
  return absl::DataLossError(absl::StrCat("witness ", witness.name, " ", why));
}

// The cosignature in a 200's body, if it is this witness's over this text.
absl::StatusOr<NoteSignature> ReadCosignature(absl::string_view body, const HeadToCosign& head,
                                              const WitnessKey& witness) {
  const std::string text = head.note.substr(0, head.note.find("\n\n") + 1);
  const absl::StatusOr<SignedNote> note = ParseNote(absl::StrCat(text, "\n", body));
  if (!note.ok()) return Unavailable(witness, "its answer is no cosignature");
  if (note->text != text || !VerifyCosignature(*note, witness).ok()) {
    return Unavailable(witness, "its answer is not its cosignature of this head");
  }
  for (const NoteSignature& line : note->signatures) {
    if (line.name == witness.name && line.key_id == witness.key_id) return line;
  }
  return Unavailable(witness, "its answer is no cosignature");
}

}  // namespace

absl::StatusOr<WitnessTarget> ParseWitnessTarget(absl::string_view text) {
  const size_t split = text.find("=http://");
  if (split == absl::string_view::npos) {
    return absl::InvalidArgumentError("witness: want <vkey>=http://HOST:PORT");
  }
  LETHE_ASSIGN_OR_RETURN(WitnessKey key, ParseWitnessKey(text.substr(0, split)));
  LETHE_ASSIGN_OR_RETURN(HttpUrl url, ParseHttpUrl(text.substr(split + 1)));
  return WitnessTarget{std::move(key), std::move(url)};
}

WitnessClient::WitnessClient(std::vector<WitnessTarget> targets, const WitnessPatience& patience)
    : patience_(patience) {
  for (WitnessTarget& target : targets) states_.push_back({std::move(target), 0});
}

absl::StatusOr<HttpAnswer> WitnessClient::Ask(const HeadToCosign& head, const State& state) const {
  AddCheckpointRequest request;
  request.old_size = state.size;
  request.checkpoint = head.note;
  if (state.size > 0 && state.size < head.tree_size) {
    LETHE_ASSIGN_OR_RETURN(request.proof, head.prove(state.size));
  }
  HttpUrl url = state.target.url;
  absl::StrAppend(&url.path, kAddCheckpointPath);
  absl::StatusOr<HttpAnswer> answer =
      HttpPost(url, WriteAddCheckpoint(request), patience_.timeout_s);
  if (!answer.ok()) return Unavailable(state.target.key, answer.status().message());
  return answer;
}

absl::StatusOr<NoteSignature> WitnessClient::CosignOne(const HeadToCosign& head,
                                                       State* state) const {
  const WitnessKey& witness = state->target.key;
  LETHE_ASSIGN_OR_RETURN(HttpAnswer answer, Ask(head, *state));
  if (answer.status == 409) {
    const absl::StatusOr<uint64_t> size = ParseDecimal(absl::StripSuffix(answer.body, "\n"));
    if (answer.content_type != kTreeSizeType || !size.ok()) {
      return Unavailable(witness, "its answer is no size");
    }
    if (*size > head.tree_size) {
      return Disagrees(witness, absl::StrCat("cosigned ", *size, " leaves, the log has ",
                                             head.tree_size, ": this is an older copy"));
    }
    if (*size == state->size)
      return Disagrees(witness, "cosigned another root of this size: a fork");
    state->size = *size;
    LETHE_ASSIGN_OR_RETURN(answer, Ask(head, *state));
    if (answer.status == 409 && state->size == head.tree_size) {
      return Disagrees(witness, "cosigned another root of this size: a fork");
    }
  }
  if (answer.status == 422 && state->size > 0) {
    return Disagrees(witness, "cosigned a head that this log does not extend: a fork");
  }
  if (answer.status != 200) return Unavailable(witness, absl::StrCat("answers ", answer.status));
  LETHE_ASSIGN_OR_RETURN(NoteSignature line, ReadCosignature(answer.body, head, witness));
  state->size = head.tree_size;
  return line;
}

absl::StatusOr<std::vector<NoteSignature>> WitnessClient::Cosign(const HeadToCosign& head) {
  std::vector<NoteSignature> lines;
  for (State& state : states_) {
    absl::StatusOr<NoteSignature> line = CosignOne(head, &state);
    for (int attempt = 1; absl::IsUnavailable(line.status()) && attempt < patience_.num_attempts;
         ++attempt) {
      std::this_thread::sleep_for(kPause * attempt);
      line = CosignOne(head, &state);
    }
    if (!line.ok()) return line.status();
    lines.push_back(*std::move(line));
  }
  return lines;
}

absl::Status WitnessClient::CheckIsThere() {
  for (const State& state : states_) {
    absl::Status status = HttpConnect(state.target.url, patience_.timeout_s);
    for (int attempt = 1; !status.ok() && attempt < patience_.num_attempts; ++attempt) {
      std::this_thread::sleep_for(kPause * attempt);
      status = HttpConnect(state.target.url, patience_.timeout_s);
    }
    if (!status.ok()) return Unavailable(state.target.key, status.message());
  }
  return absl::OkStatus();
}

}  // namespace lethe::audit
