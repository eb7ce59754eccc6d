#include "audit/log/log_export.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "audit/log/tiles.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

constexpr size_t kEntryBytesMax = 65535;

}  // namespace

absl::Status LogExporter::WriteBundle() {
  const Tile bundle{0, (tree_.num_leaves() - 1) / kTileWidth, bundle_.size()};
  return files_.Replace(EntryBundlePath(bundle), WriteEntryBundle(bundle_));
}

absl::Status LogExporter::Add(absl::string_view entry) {
  if (entry.size() > kEntryBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("entry: got ", entry.size(), " bytes, want at most ", kEntryBytesMax));
  }
  tree_.Append(MerkleLeafHash(entry));
  bundle_.emplace_back(entry);
  if (bundle_.size() < kTileWidth) return absl::OkStatus();
  LETHE_RETURN_IF_ERROR(WriteBundle());
  bundle_.clear();
  return absl::OkStatus();
}

absl::Status LogExporter::AddBody(const Sha256Digest& leaf_hash, absl::string_view body) {
  return files_.Replace(BodyPath(leaf_hash), body);
}

absl::Status LogExporter::CheckEarlierExport(const VerifierKey& vkey) const {
  const absl::StatusOr<std::string> earlier = files_.Read(kCheckpointFile);
  if (absl::IsNotFound(earlier.status())) return absl::OkStatus();
  if (!earlier.ok()) return earlier.status();
  const absl::StatusOr<Checkpoint> head = OpenCheckpoint(*earlier, vkey);
  if (!head.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the folder holds the export of another log, or a damaged one: ", head.status().message()));
  }
  const absl::StatusOr<Sha256Digest> root = tree_.RootAt(head->tree_size);
  if (!root.ok()) {
    return absl::DataLossError(absl::StrCat("the log has ", tree_.num_leaves(),
                                            " entries, an earlier export's signed head covers ",
                                            head->tree_size));
  }
  if (*root != head->root_hash) {
    return absl::DataLossError(
        absl::StrCat("the log is a fork: an earlier export's signed head of ", head->tree_size,
                     " entries has another root"));
  }
  return absl::OkStatus();
}

// Each is contained in a wider one now.
absl::Status LogExporter::RemoveNarrowerTiles() const {
  std::set<std::string> wanted;
  for (const Tile& tile : TilesOf(tree_.num_leaves())) wanted.insert(TilePath(tile));
  for (const Tile& bundle : EntryBundlesOf(tree_.num_leaves())) {
    wanted.insert(EntryBundlePath(bundle));
  }
  LETHE_ASSIGN_OR_RETURN(const std::vector<std::string> paths, files_.List());
  for (const std::string& path : paths) {
    if (absl::StartsWith(path, "tile/") && absl::StrContains(path, ".p/") &&
        wanted.count(path) == 0) {
      LETHE_RETURN_IF_ERROR(files_.Remove(path));
    }
  }
  return absl::OkStatus();
}

absl::Status LogExporter::Finish(absl::string_view checkpoint, const VerifierKey& vkey) {
  LETHE_ASSIGN_OR_RETURN(const Checkpoint head, OpenCheckpoint(checkpoint, vkey));
  if (head.tree_size != tree_.num_leaves() || head.root_hash != tree_.Root()) {
    return absl::DataLossError("the entries have another root than the checkpoint signs");
  }
  LETHE_RETURN_IF_ERROR(CheckEarlierExport(vkey));
  if (!bundle_.empty()) LETHE_RETURN_IF_ERROR(WriteBundle());
  for (const Tile& tile : TilesOf(tree_.num_leaves())) {
    LETHE_RETURN_IF_ERROR(files_.Replace(TilePath(tile), WriteTile(tree_, tile)));
  }
  LETHE_RETURN_IF_ERROR(files_.Replace(kCheckpointFile, checkpoint));
  return RemoveNarrowerTiles();
}

}  // namespace lethe::audit
