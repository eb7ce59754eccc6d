// DiskTrace: what was written to the files of a directory, in order, and what of it a loss of power may leave.
//
// Equation:  an operation is durable once its file (a change of names: its directory) was synced after it, unless a sync
//            failed in between. A loss of power leaves every durable operation and any part of the others: writes are
//            dropped, reordered, torn, or leave rubbish where they would have written; names (create, rename,
//            remove) and sizes likewise. What no operation covered stays as it was.
// Shapes:    directories and files are nodes, numbered from 0, the directory itself.
// Units:     bytes; positions in the trace count operations.
// Requires:  nobody else writes there.
// Rejects:   none.
// Effects:   the constructor reads the directory: what is there is durable. WriteImage replaces `directory` (elsewhere).
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_TESTS_CRASH_DISK_TRACE_H_
#define LETHE_TESTS_CRASH_DISK_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lethe::testing {

// The first eight are fixed, the rest draw each operation's fate: kept, dropped, torn at a byte, by sectors, rubbish.
inline constexpr int kNumTearPatterns = 20;
inline constexpr int kAllDropped = 0;
inline constexpr int kAllKept = 1;  // what a killed process leaves

struct TearPattern {
  int number = kAllDropped;
  uint64_t seed = 0;
};

// The files of a directory; nothing stands for a name that leads nowhere.
struct DiskNode {
  bool is_directory = false;
  std::string bytes;
  std::map<std::string, int> entries;
};
using DiskImage = std::vector<DiskNode>;  // of the root node on

struct NameChange {
  int directory = 0;
  std::string name;
  int node = -1;  // -1: removed
};

class DiskTrace {
 public:
  explicit DiskTrace(const std::string& directory);

  int NewNode(bool is_directory);
  void Write(int node, uint64_t offset, absl::string_view bytes);
  void Truncate(int node, uint64_t size);
  // All or none of them.
  void Rename(std::vector<NameChange> changes);
  void Sync(int node);
  void FailSync(int node);

  // The node at a path in the directory as it is now ("" is the directory), -1 for none.
  int Find(const std::string& path) const;

  size_t num_operations() const { return operations_.size(); }
  // Positions just before a sync has its effect, and the end.
  std::vector<size_t> SyncPoints() const;
  DiskImage ImageAt(size_t position, const TearPattern& pattern) const;

 private:
  enum class Kind { kWrite, kTruncate, kRename, kSync, kFailSync };
  struct Operation {
    Kind kind = Kind::kWrite;
    int node = 0;
    uint64_t offset = 0;  // of a truncation: the size
    std::string bytes;
    std::vector<NameChange> names;
  };
  struct Fate;

  void ReadIn(const std::string& path, int node);
  std::vector<bool> DurableAt(size_t position) const;
  static void Apply(const Operation& operation, const Fate& fate, DiskImage* image);

  DiskImage start_;
  DiskImage now_;
  std::vector<Operation> operations_;
};

void WriteImage(const DiskImage& image, const std::string& directory);
// Of everything that can be reached from the root.
uint64_t HashOf(const DiskImage& image);

}  // namespace lethe::testing

#endif  // LETHE_TESTS_CRASH_DISK_TRACE_H_
