// LogStore: the rows of an audit log in SQLite: leaves, signed heads, erasable bodies.
//
// Equation:  none.
// Shapes:    leaves(leaf_index, leaf, leaf_hash), heads(tree_size, checkpoint), bodies(leaf_index,
//            body), identity(vkey). Bodies lie in a rowid table without an index, so that
//            secure_delete reaches every copy (a deleted body leaves no byte behind).
// Units:     leaf_index counts from 0.
// Requires:  Commit or Rollback after Begin.
// Rejects:   Open: as SqliteDatabase; FAILED_PRECONDITION: a database of another schema. Reads:
//            NOT_FOUND. LoadTree: DATA_LOSS: gaps in the indices, a leaf whose stored hash is not
//            its own, a leaf of another size.
// Effects:   none beyond the database.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_AUDIT_LOG_LOG_STORE_H_
#define LETHE_AUDIT_LOG_LOG_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/sha256.h"
#include "audit/log/merkle_tree.h"
#include "audit/log/sqlite.h"

namespace lethe::audit {

struct StoredHead {
  uint64_t tree_size = 0;
  std::string checkpoint;
};

struct LeafRow {
  uint64_t leaf_index = 0;
  absl::string_view leaf;
  Sha256Digest leaf_hash{};
  absl::string_view body;
};

class LogStore {
 public:
  static absl::StatusOr<std::unique_ptr<LogStore>> Open(const std::string& path);

  absl::Status Begin();
  absl::Status Commit();
  void Rollback();

  // The vkey the log was created under; NOT_FOUND in a new log.
  absl::StatusOr<std::string> Identity();
  absl::Status SetIdentity(absl::string_view vkey);

  absl::Status InsertLeaf(const LeafRow& row);
  absl::Status InsertHead(const StoredHead& head);
  absl::StatusOr<StoredHead> LastHead();
  // Every signed head, the smallest first.
  absl::StatusOr<std::vector<std::string>> Heads();

  // The tree over the stored leaves, every leaf hashed again.
  absl::StatusOr<MerkleTree> LoadTree();

  // Every row of a leaf as it is stored, by index.
  using LeafVisitor =
      std::function<void(uint64_t leaf_index, std::string leaf, const std::string& leaf_hash)>;
  absl::Status ForEachLeaf(const LeafVisitor& visit);

  absl::StatusOr<std::string> Leaf(uint64_t leaf_index);
  absl::StatusOr<uint64_t> FindLeaf(const Sha256Digest& leaf_hash);
  absl::StatusOr<std::string> Body(uint64_t leaf_index);
  absl::Status EraseBody(uint64_t leaf_index);

 private:
  explicit LogStore(std::unique_ptr<SqliteDatabase> database);
  std::unique_ptr<SqliteDatabase> database_;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_LOG_STORE_H_
