#include "audit/log/closed_log.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/log/tlog_proof.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {

ClosedLog::ClosedLog(VerifierKey vkey, std::unique_ptr<LogDirectory> directory,
                     std::unique_ptr<LogStore> store)
    : vkey_(std::move(vkey)), directory_(std::move(directory)), store_(std::move(store)) {
  absl::StatusOr<MerkleTree> tree = store_->LoadTree();
  const absl::StatusOr<StoredHead> last = store_->LastHead();
  if (tree.ok()) tree_ = *std::move(tree);
  whole_ = absl::DataLossError("a closed log's leaves do not have the root of its last head");
  if (!last.ok()) return;
  const absl::StatusOr<Checkpoint> head = OpenCheckpoint(last->checkpoint, vkey_);
  if (!head.ok() || head->tree_size != tree_.num_leaves() || head->root_hash != tree_.Root())
    return;
  // The published note of the same head has the cosignatures too.
  head_ = last->checkpoint;
  const absl::StatusOr<std::string> published = directory_->ReadHead();
  const absl::StatusOr<Checkpoint> published_head =
      published.ok() ? OpenCheckpoint(*published, vkey_) : published.status();
  if (published_head.ok() && published_head->tree_size == head->tree_size &&
      published_head->root_hash == head->root_hash) {
    head_ = *published;
  }
  whole_ = absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ClosedLog>> ClosedLog::Open(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(absl::StrCat(path, "/log.db"), error)) {
    return absl::NotFoundError(absl::StrCat("no log in ", path));
  }
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<LogDirectory> directory, LogDirectory::Lock(path));
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<LogStore> store,
                         LogStore::Open(directory->database_path()));
  LETHE_ASSIGN_OR_RETURN(const std::string identity, store->Identity());
  LETHE_ASSIGN_OR_RETURN(VerifierKey vkey, ParseVerifierKey(identity));
  return std::unique_ptr<ClosedLog>(
      new ClosedLog(std::move(vkey), std::move(directory), std::move(store)));
}

absl::StatusOr<uint64_t> ClosedLog::FindLeaf(const Sha256Digest& leaf_hash) const {
  MutexLock lock(&mutex_);
  return store_->FindLeaf(leaf_hash);
}

absl::StatusOr<std::string> ClosedLog::Body(uint64_t leaf_index) const {
  MutexLock lock(&mutex_);
  return store_->Body(leaf_index);
}

absl::StatusOr<std::string> ClosedLog::ProofFile(uint64_t leaf_index) const {
  if (!whole_.ok()) return whole_;
  TlogProof proof;
  proof.leaf_index = leaf_index;
  LETHE_ASSIGN_OR_RETURN(proof.hashes, tree_.InclusionProof(leaf_index, tree_.num_leaves()));
  proof.checkpoint = head_;
  return WriteTlogProof(proof);
}

absl::StatusOr<Checkpoint> ClosedLog::NewestHead() const {
  MutexLock lock(&mutex_);
  absl::StatusOr<Checkpoint> newest = absl::NotFoundError("no signed head");
  const absl::StatusOr<StoredHead> last = store_->LastHead();
  const absl::StatusOr<std::string> published = directory_->ReadHead();
  for (const absl::StatusOr<std::string>& note :
       {last.ok() ? absl::StatusOr<std::string>(last->checkpoint) : last.status(), published}) {
    if (!note.ok()) continue;
    absl::StatusOr<Checkpoint> head = OpenCheckpoint(*note, vkey_);
    if (head.ok() && (!newest.ok() || head->tree_size > newest->tree_size)) newest = head;
  }
  return newest;
}

LogImage ClosedLog::Read(Findings* findings) const {
  MutexLock lock(&mutex_);
  LogImage image;
  const absl::Status read =
      store_->ForEachLeaf([&](uint64_t leaf_index, std::string leaf, const std::string& leaf_hash) {
        const std::string place = absl::StrCat("leaf ", leaf_index);
        if (leaf_index != image.tree.num_leaves()) {
          findings->Add(place, absl::StrCat("want leaf ", image.tree.num_leaves(), " here"));
        }
        const Sha256Digest hash = MerkleLeafHash(leaf);
        if (leaf_hash != AsStringView(hash)) findings->Add(place, "its stored hash is not its own");
        image.tree.Append(hash);
        if (const absl::Status entry = CheckEntry(image.tree, image.tree.num_leaves() - 1, leaf);
            !entry.ok()) {
          findings->Add(place, entry.message());
        }
        image.entries.push_back(std::move(leaf));
      });
  if (!read.ok()) findings->Add("log.db", read.message());
  const absl::StatusOr<std::vector<std::string>> heads = store_->Heads();
  if (heads.ok()) {
    image.heads = *heads;
  } else {
    findings->Add("log.db", heads.status().message());
  }
  const absl::StatusOr<std::string> published = directory_->ReadHead();
  if (published.ok()) {
    image.checkpoint = *published;
    const absl::StatusOr<Checkpoint> head = OpenCheckpoint(*published, vkey_);
    if (head.ok()) {
      image.head = *head;
      CheckHeads({*published}, vkey_, image.tree, findings);
    } else {
      findings->Add(kCheckpointFile, head.status().message());
    }
  } else {
    findings->Add(kCheckpointFile, "is missing or cannot be read");
  }
  CheckHeads(image.heads, vkey_, image.tree, findings);
  const absl::StatusOr<StoredHead> last = store_->LastHead();
  if (last.ok() && last->tree_size != image.tree.num_leaves()) {
    findings->Add("heads", absl::StrCat("the last one covers ", last->tree_size, " of ",
                                        image.tree.num_leaves(), " leaves"));
  }
  return image;
}

}  // namespace lethe::audit
