// LogImage, ReadExport, CheckHeads: a whole log as somebody keeps it, derived again from its entries.
//
// Equation:  every entry's hash is its leaf's in the tiles, the tiles of level 0 hash up to the root that the checkpoint
//            signs, every other tile is what they give; every signed head's root is the tree's at its size, so any two
//            heads are consistent.
// Shapes:    entries in order; hashes 32 bytes.
// Units:     none.
// Requires:  none.
// Rejects:   nothing is returned as an error: whatever bytes there are, the findings say what is wrong and where. A log
//            is whole exactly when there is no finding.
// Effects:   none.
// Numerics:  about 1 KB of memory an entry; one hash an entry and one a node.
// Threads:   safe.
#ifndef LETHE_AUDIT_LOG_LOG_CHECK_H_
#define LETHE_AUDIT_LOG_LOG_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/log/checkpoint.h"
#include "audit/log/log_files.h"
#include "audit/log/merkle_tree.h"

namespace lethe::audit {

struct Finding {
  std::string place;  // a path of the export, "leaf 17", "head of 17", …
  std::string what;
};

// What is wrong, the first kFindingsMax in full.
class Findings {
 public:
  static constexpr size_t kFindingsMax = 100;
  void Add(absl::string_view place, absl::string_view what);
  bool empty() const { return num_findings_ == 0; }
  size_t num_findings() const { return num_findings_; }
  const std::vector<Finding>& listed() const { return listed_; }

 private:
  size_t num_findings_ = 0;
  std::vector<Finding> listed_;
};

struct LogImage {
  std::optional<Checkpoint> head;    // that of the checkpoint file, once its signature held
  std::string checkpoint;            // its note
  MerkleTree tree;                   // of an export: over the hashes in its tiles
  std::vector<std::string> entries;  // in order
  std::vector<std::string> heads;    // of a log directory: every head that was ever signed
};

// Reads and checks everything in an export but what the entries say (audit/certificate/record_check.h).
LogImage ReadExport(const LogFiles& files, const VerifierKey& vkey, Findings* findings);

// OK iff `entry` is leaf `leaf_index` of the tree, in the one form that an entry of ours has.
absl::Status CheckEntry(const MerkleTree& tree, uint64_t leaf_index, absl::string_view entry);

// Signed heads of one log against a tree: signature, size, root.
void CheckHeads(const std::vector<std::string>& heads, const VerifierKey& vkey,
                const MerkleTree& tree, Findings* findings);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_LOG_CHECK_H_
