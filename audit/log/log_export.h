// LogExporter: writes a log as static files that anybody can mirror, check and serve (tiles.h).
//
// Equation:  none.
// Shapes:    entries in order from leaf 0.
// Units:     none.
// Requires:  none.
// Rejects:   Add: INVALID_ARGUMENT for an entry over 65,535 bytes, errors of DirectoryFiles. Finish: DATA_LOSS
//            when the entries' root is not the checkpoint's, or when the folder holds an export of this log whose
//            signed head does not fit these entries: one of the two is a fork; INVALID_ARGUMENT for a checkpoint that does not
//            verify, and for a folder with another log's export; errors of DirectoryFiles.
// Effects:   Writes full bundles as they fill up. Finish writes the rest, the checkpoint last, and then removes
//            the narrower tiles of an earlier export: a reader finds a complete export at any moment.
// Numerics:  64 bytes of memory an entry.
// Threads:   compatible.
#ifndef LETHE_AUDIT_LOG_LOG_EXPORT_H_
#define LETHE_AUDIT_LOG_LOG_EXPORT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "audit/log/checkpoint.h"
#include "audit/log/log_files.h"
#include "audit/log/merkle_tree.h"

namespace lethe::audit {

class LogExporter {
 public:
  explicit LogExporter(const std::string& directory) : files_(directory) {}

  absl::Status Add(absl::string_view entry);
  // The envelope of a leaf, beside the log.
  absl::Status AddBody(const Sha256Digest& leaf_hash, absl::string_view body);
  // `checkpoint` is signed under `vkey` and covers exactly the entries added.
  absl::Status Finish(absl::string_view checkpoint, const VerifierKey& vkey);

  const MerkleTree& tree() const { return tree_; }

 private:
  absl::Status CheckEarlierExport(const VerifierKey& vkey) const;
  absl::Status WriteBundle();
  absl::Status RemoveNarrowerTiles() const;

  const DirectoryFiles files_;
  MerkleTree tree_;
  std::vector<std::string> bundle_;  // of the last, unfinished bundle
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_LOG_EXPORT_H_
