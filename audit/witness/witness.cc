#include "audit/witness/witness.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "audit/crypto/encoding.h"
#include "audit/log/cosignature.h"
#include "audit/log/merkle_tree.h"
#include "audit/log/merkle_verify.h"
#include "audit/log/note.h"
#include "audit/witness/add_checkpoint.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

std::string StateFile(const VerifierKey& log) { return HexEncode(Sha256Of(log.name)); }

HttpAnswer Refuse(int status, absl::string_view why) {
  return {status, "text/plain", absl::StrCat(why, "\n")};
}

// Where the log has to go on from.
HttpAnswer Conflict(uint64_t size) { return {409, kTreeSizeType, absl::StrCat(size, "\n")}; }

}  // namespace

absl::StatusOr<std::unique_ptr<Witness>> Witness::Open(const WitnessOptions& options) {
  LETHE_RETURN_IF_ERROR(ValidateKeyName(options.name));
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<DurableDirectory> directory,
                         DurableDirectory::Lock(options.directory, "lock", "witness"));
  return std::unique_ptr<Witness>(new Witness(options, std::move(directory)));
}

absl::StatusOr<Checkpoint> Witness::LastHead(const VerifierKey& log) const {
  const absl::StatusOr<std::string> note = directory_->Read(StateFile(log).c_str(), kNoteBytesMax);
  if (absl::IsNotFound(note.status())) return Checkpoint{log.name, 0, MerkleEmptyRoot()};
  if (!note.ok()) return note.status();
  return OpenCheckpoint(*note, log);
}

HttpAnswer Witness::AddCheckpoint(absl::string_view body) {
  const absl::StatusOr<AddCheckpointRequest> request = ParseAddCheckpoint(body);
  if (!request.ok()) return Refuse(400, request.status().message());
  const absl::StatusOr<SignedNote> note = ParseNote(request->checkpoint);
  if (!note.ok()) return Refuse(400, note.status().message());
  const std::string origin = note->text.substr(0, note->text.find('\n'));
  const auto log = std::find_if(options_.logs.begin(), options_.logs.end(),
                                [&](const VerifierKey& known) { return known.name == origin; });
  if (log == options_.logs.end()) return Refuse(404, "no such log");
  const absl::StatusOr<Checkpoint> head = OpenCheckpoint(request->checkpoint, *log);
  if (!head.ok()) return Refuse(403, "no signature by the log's key");
  if (request->old_size > head->tree_size)
    return Refuse(400, "old: want at most the checkpoint's size");
  MutexLock lock(&mutex_);
  const absl::StatusOr<Checkpoint> last = LastHead(*log);
  if (!last.ok()) return Refuse(500, "the state cannot be read");
  if (request->old_size != last->tree_size) return Conflict(last->tree_size);
  if (head->tree_size == last->tree_size) {
    if (head->root_hash != last->root_hash) return Conflict(last->tree_size);
    if (!request->proof.empty()) return Refuse(422, "want no hashes between equal sizes");
  } else if (last->tree_size == 0) {
    if (!request->proof.empty()) return Refuse(422, "want no hashes behind an empty log");
  } else if (!VerifyConsistency(
                  {last->tree_size, head->tree_size, last->root_hash, head->root_hash},
                  request->proof)
                  .ok()) {
    return Refuse(422, "the proof does not lead from the last head to this one");
  }
  // Our line of the log's signature alone: what else a note carries is not ours to keep.
  SignedNote kept = *note;
  kept.signatures.erase(std::remove_if(kept.signatures.begin(), kept.signatures.end(),
                                       [&](const NoteSignature& line) {
                                         return line.name != log->name ||
                                                line.key_id != log->key_id;
                                       }),
                        kept.signatures.end());
  if (!directory_->Replace(StateFile(*log).c_str(), WriteNote(kept), 0600).ok()) {
    return Refuse(500, "the state cannot be written");
  }
  SignedNote cosigned;
  cosigned.signatures = {
      SignCosignature(note->text, options_.now_s(), options_.name, *options_.key)};
  // Without the text and the empty line behind it.
  return {200, "text/plain", WriteNote(cosigned).substr(1)};
}

HttpAnswer Witness::Handle(const std::string& path, const std::string& body) {
  return path == kAddCheckpointPath ? AddCheckpoint(body) : Refuse(404, "want /add-checkpoint");
}

}  // namespace lethe::audit
