#include "audit/log/log_check.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "audit/crypto/encoding.h"
#include "audit/log/leaf.h"
#include "audit/log/tiles.h"

namespace lethe::audit {
namespace {

constexpr char kTileFolder[] = "tile/";

// A size that the files cannot have would be a loop without end.
constexpr uint64_t kTreeSizeMax = uint64_t{1} << 32;

// The tree over the hashes of the tiles of level 0; false when they do not make one of `tree_size` leaves.
bool ReadLeafHashes(const LogFiles& files, uint64_t tree_size, MerkleTree* tree,
                    Findings* findings) {
  for (const Tile& tile : EntryBundlesOf(tree_size)) {
    const std::string path = TilePath(tile);
    const absl::StatusOr<std::string> bytes = files.Read(path);
    if (!bytes.ok()) {
      findings->Add(path, "is missing or cannot be read");
      return false;
    }
    if (bytes->size() != tile.width * kSha256Bytes) {
      findings->Add(
          path, absl::StrCat("has ", bytes->size(), " bytes, want ", tile.width * kSha256Bytes));
      return false;
    }
    for (size_t at = 0; at < bytes->size(); at += kSha256Bytes) {
      tree->Append(*DigestFromBytes(absl::string_view(*bytes).substr(at, kSha256Bytes)));
    }
  }
  return true;
}

void CheckUpperTiles(const LogFiles& files, const MerkleTree& tree, Findings* findings) {
  for (const Tile& tile : TilesOf(tree.num_leaves())) {
    if (tile.level == 0) continue;
    const std::string path = TilePath(tile);
    const absl::StatusOr<std::string> bytes = files.Read(path);
    if (!bytes.ok()) {
      findings->Add(path, "is missing or cannot be read");
    } else if (*bytes != WriteTile(tree, tile)) {
      findings->Add(path, "has other hashes than the level below gives");
    }
  }
}

void ReadEntries(const LogFiles& files, const MerkleTree& tree, std::vector<std::string>* entries,
                 Findings* findings) {
  for (const Tile& bundle : EntryBundlesOf(tree.num_leaves())) {
    const std::string path = EntryBundlePath(bundle);
    const absl::StatusOr<std::string> bytes = files.Read(path);
    if (!bytes.ok()) {
      findings->Add(path, "is missing or cannot be read");
      return;
    }
    const absl::StatusOr<std::vector<absl::string_view>> parsed = ParseEntryBundle(*bytes);
    if (!parsed.ok() || parsed->size() != bundle.width) {
      findings->Add(path, parsed.ok() ? absl::StrCat("holds ", parsed->size(), " entries, want ",
                                                     bundle.width)
                                      : std::string(parsed.status().message()));
      return;
    }
    for (const absl::string_view entry : *parsed) {
      const uint64_t leaf_index = entries->size();
      if (const absl::Status status = CheckEntry(tree, leaf_index, entry); !status.ok()) {
        findings->Add(absl::StrCat(path, ", leaf ", leaf_index), status.message());
      }
      entries->emplace_back(entry);
    }
  }
}

// Of a file of the tile folder that is none of the present tree: a narrower tile of an earlier checkpoint may stay.
bool IsEarlierTile(const LogFiles& files, const std::string& path,
                   const std::set<std::string>& wanted) {
  const size_t mark = path.rfind(".p/");
  if (mark == std::string::npos) return false;
  // What the wanted tile of this place is called: full, or of another width.
  const auto wider = wanted.lower_bound(path.substr(0, mark));
  if (wider == wanted.end() || !absl::StartsWith(*wider, path.substr(0, mark)) ||
      (wider->size() > mark && wider->substr(mark, 3) != ".p/")) {
    return false;
  }
  const absl::StatusOr<std::string> narrow = files.Read(path);
  const absl::StatusOr<std::string> wide = files.Read(*wider);
  return narrow.ok() && wide.ok() && !narrow->empty() && absl::StartsWith(*wide, *narrow);
}

void CheckNoOtherFiles(const LogFiles& files, uint64_t tree_size, Findings* findings) {
  std::set<std::string> wanted;
  for (const Tile& tile : TilesOf(tree_size)) wanted.insert(TilePath(tile));
  for (const Tile& bundle : EntryBundlesOf(tree_size)) wanted.insert(EntryBundlePath(bundle));
  const absl::StatusOr<std::vector<std::string>> paths = files.List();
  if (!paths.ok()) {
    findings->Add("tile", paths.status().message());
    return;
  }
  for (const std::string& path : *paths) {
    if (absl::StartsWith(path, kTileFolder) && wanted.count(path) == 0 &&
        !IsEarlierTile(files, path, wanted)) {
      findings->Add(path, "belongs to no tree of this checkpoint");
    }
  }
}

}  // namespace

void Findings::Add(absl::string_view place, absl::string_view what) {
  ++num_findings_;
  if (listed_.size() < kFindingsMax) listed_.push_back({std::string(place), std::string(what)});
}

absl::Status CheckEntry(const MerkleTree& tree, uint64_t leaf_index, absl::string_view entry) {
  if (leaf_index >= tree.num_leaves()) return absl::InvalidArgumentError("is behind the last leaf");
  if (MerkleLeafHash(entry) != tree.leaf_hash(leaf_index)) {
    return absl::InvalidArgumentError("the entry has another hash than its leaf");
  }
  return ParseLogLeaf(entry).status();
}

LogImage ReadExport(const LogFiles& files, const VerifierKey& vkey, Findings* findings) {
  LogImage image;
  absl::StatusOr<std::string> note = files.Read(kCheckpointFile);
  if (!note.ok()) {
    findings->Add(kCheckpointFile, "is missing or cannot be read");
    return image;
  }
  image.checkpoint = *std::move(note);
  const absl::StatusOr<Checkpoint> head = OpenCheckpoint(image.checkpoint, vkey);
  if (!head.ok() || head->tree_size > kTreeSizeMax) {
    findings->Add(kCheckpointFile, head.ok() ? absl::string_view("covers over 2^32 leaves")
                                             : head.status().message());
    return image;
  }
  image.head = *head;
  if (!ReadLeafHashes(files, head->tree_size, &image.tree, findings)) return image;
  if (image.tree.Root() != head->root_hash) {
    findings->Add("tile/0", "the hashes have another root than the checkpoint signs");
  }
  CheckUpperTiles(files, image.tree, findings);
  ReadEntries(files, image.tree, &image.entries, findings);
  CheckNoOtherFiles(files, head->tree_size, findings);
  return image;
}

void CheckHeads(const std::vector<std::string>& heads, const VerifierKey& vkey,
                const MerkleTree& tree, Findings* findings) {
  for (size_t i = 0; i < heads.size(); ++i) {
    const absl::StatusOr<Checkpoint> head = OpenCheckpoint(heads[i], vkey);
    if (!head.ok()) {
      findings->Add(absl::StrCat("signed head ", i + 1), head.status().message());
      continue;
    }
    const std::string place = absl::StrCat("head of ", head->tree_size);
    const absl::StatusOr<Sha256Digest> root = tree.RootAt(head->tree_size);
    if (!root.ok()) {
      findings->Add(place, absl::StrCat("only ", tree.num_leaves(), " leaves are there"));
    } else if (*root != head->root_hash) {
      findings->Add(place, "the leaves have another root than it signs");
    }
  }
}

}  // namespace lethe::audit
