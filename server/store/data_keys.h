// DataKeys: the file of the keys that session data is encrypted under; destroying a key destroys what it sealed.
//
// Equation:  check = first 16 bytes of SHA-256("lethe-data-key-v1" || u64 slot || u64 generation || key).
// Shapes:    docs/data-directory.md: one header of 4096 bytes, then slots of 64 bytes: u64 generation, key 32, check
//            16, zeros 8. A free slot is all zeros. A slot is never moved, and never copied into another file, so that
//            overwriting it in place is all that is needed.
// Units:     slots from 0. A generation is random: a reference to a destroyed key never fits a later one.
// Requires:  one object per file.
// Rejects:   Open: FAILED_PRECONDITION: the file belongs to another store; DATA_LOSS: its header is damaged;
//            UNAVAILABLE, RESOURCE_EXHAUSTED for input/output errors. Find: NOT_FOUND: the key was destroyed;
//            DATA_LOSS: its slot is damaged.
// Effects:   NewKey writes a slot and syncs nothing: Sync must have returned before anything durable refers to the
//            key. Destroy overwrites slots with zeros and syncs. Keys are read when asked for and not kept.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_SERVER_STORE_DATA_KEYS_H_
#define LETHE_SERVER_STORE_DATA_KEYS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "audit/crypto/secret.h"

namespace lethe {

using StoreId = std::array<uint8_t, 16>;

struct DataKeyRef {
  uint64_t slot = 0;
  uint64_t generation = 0;  // 0: no key
  bool operator==(const DataKeyRef& other) const {
    return slot == other.slot && generation == other.generation;
  }
  bool operator<(const DataKeyRef& other) const {
    return std::tie(slot, generation) < std::tie(other.slot, other.generation);
  }
};

class DataKeys {
 public:
  static absl::StatusOr<std::unique_ptr<DataKeys>> Create(const std::string& path,
                                                          const StoreId& store);
  static absl::StatusOr<std::unique_ptr<DataKeys>> Open(const std::string& path,
                                                        const StoreId& store);
  ~DataKeys();
  DataKeys(const DataKeys&) = delete;
  DataKeys& operator=(const DataKeys&) = delete;

  absl::StatusOr<DataKeyRef> NewKey();
  absl::Status Sync();
  bool has_unsynced() const { return dirty_; }
  absl::StatusOr<audit::Secret32> Find(const DataKeyRef& ref) const;
  absl::Status Destroy(absl::Span<const DataKeyRef> refs);
  // Destroys every key, and whatever else is in a slot, that `used` does not name.
  absl::Status DestroyAllBut(const std::set<DataKeyRef>& used);

  size_t num_keys() const;

 private:
  explicit DataKeys(int descriptor) : descriptor_(descriptor) {}
  absl::Status Load();
  absl::Status Grow();
  absl::Status Clear(uint64_t slot);

  const int descriptor_;
  // What each slot holds: 0 is free, kDamaged no key.
  std::vector<uint64_t> generations_;
  std::set<uint64_t> free_;
  bool dirty_ = false;
};

}  // namespace lethe

#endif  // LETHE_SERVER_STORE_DATA_KEYS_H_
