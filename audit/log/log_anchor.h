// LogAnchor: the newest head of a log, kept outside its directory, so that an older copy or a clone of that directory
// notices what it is and signs nothing.
//
// Equation:  a head of tree_size leaves with root_hash may be signed, and no other of this size ever: the anchor is written
//            before the signature exists. `leaf` is the last of these leaves: whoever stopped between anchor and
//            log completes it with exactly this leaf, and gets exactly that head.
//            `ticket` is drawn anew at every start and kept in the log's directory too, so a directory that was
//            copied before another's start holds an old one. `previous_ticket` is set only while a start exchanges
//            them, when nothing was signed under the new one yet.
// Shapes:    directory holds log.anchor and log.anchor.lock; the file is text (docs/audit-log.md) with its own SHA-256.
// Units:     tree_size in leaves.
// Requires:  none.
// Rejects:   Open: FAILED_PRECONDITION while another object holds the lock; UNAVAILABLE. Read: NOT_FOUND; DATA_LOSS for any
//            bytes but Write's; UNAVAILABLE. Write: UNAVAILABLE.
// Effects:   Open makes the directory (0700). Write replaces the file and syncs file and directory before it returns.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_AUDIT_LOG_LOG_ANCHOR_H_
#define LETHE_AUDIT_LOG_LOG_ANCHOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/sha256.h"
#include "audit/log/durable_directory.h"

namespace lethe::audit {

struct AnchorState {
  std::string vkey;  // of the log
  uint64_t tree_size = 0;
  Sha256Digest root_hash{};
  std::string ticket;           // 32 hex digits
  std::string previous_ticket;  // likewise, or empty
  std::string leaf;             // empty in an empty tree
  std::string body;
};

std::string WriteAnchorText(const AnchorState& state);
absl::StatusOr<AnchorState> ParseAnchorText(absl::string_view text);

class LogAnchor {
 public:
  static absl::StatusOr<std::unique_ptr<LogAnchor>> Open(const std::string& directory);

  // Of the file.
  std::string path() const;
  absl::StatusOr<AnchorState> Read() const;
  absl::Status Write(const AnchorState& state) const;

 private:
  explicit LogAnchor(std::unique_ptr<DurableDirectory> directory)
      : directory_(std::move(directory)) {}
  const std::unique_ptr<DurableDirectory> directory_;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_LOG_ANCHOR_H_
