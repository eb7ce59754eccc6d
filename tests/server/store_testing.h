// StoreWorld, FileBytes: a session store in a fresh directory, and what its files hold.
//
// Threads: compatible.
#ifndef LETHE_TESTS_SERVER_STORE_TESTING_H_
#define LETHE_TESTS_SERVER_STORE_TESTING_H_

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "audit/crypto/secret.h"
#include "server/store/session_store.h"
#include "tests/audit/temp_directory.h"

namespace lethe::testing {

// Every file under `directory` by name.
inline std::map<std::string, std::string> FileBytes(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) {
      files[entry.path().filename()] = audit::ReadFile(entry.path().string());
    }
  }
  return files;
}

// How many of `markers` any file holds.
inline int CountFound(const std::map<std::string, std::string>& files,
                      const std::vector<std::string>& markers) {
  return static_cast<int>(
      std::count_if(markers.begin(), markers.end(), [&](const std::string& marker) {
        return std::any_of(files.begin(), files.end(), [&](const auto& file) {
          return file.second.find(marker) != std::string::npos;
        });
      }));
}

inline std::string RandomText(size_t size) {
  std::string text(size, '\0');
  audit::RandomBytes(absl::MakeSpan(reinterpret_cast<uint8_t*>(text.data()), text.size()));
  return text;
}

class StoreWorld {
 public:
  explicit StoreWorld(audit::TempDirectory::Where where = audit::TempDirectory::Where::kMemory)
      : directory_(where) {}

  const std::string& path() const { return directory_.path(); }
  // Closes and opens; `recorded`: what the log is said to hold.
  absl::Status Open(bool recorded = false) {
    store.reset();
    absl::StatusOr<std::unique_ptr<SessionStore>> opened =
        SessionStore::Open({directory_.path(), [this](const absl::Status&) { ++failures; }});
    if (!opened.ok()) return opened.status();
    store = *std::move(opened);
    const auto settled = store->Recover(
        [&](const audit::Sha256Digest&) -> absl::StatusOr<bool> { return recorded; });
    if (!settled.ok()) return settled.status();
    report = *settled;
    return absl::OkStatus();
  }
  // One row of `session` under its own key.
  absl::StatusOr<StoredRow> Put(int64_t session, const std::string& body) {
    absl::StatusOr<DataKeyRef> key = store->NewKey();
    if (!key.ok()) return key.status();
    std::vector<StoreChange> changes(1);
    changes[0].session = session;
    changes[0].add.emplace_back(RowKind::kInputs, *key, RowSpan{1, 2, 1}, body);
    auto rows = store->Apply(changes, Durability::kSynced);
    if (!rows.ok()) return rows.status();
    return rows->front();
  }
  // The bodies of a session in row order.
  std::vector<std::string> Bodies(int64_t session) {
    std::vector<std::string> bodies;
    auto rows = store->AllRows();
    EXPECT_TRUE(rows.ok());
    for (const StoredRow& row : (*rows)[session]) {
      bodies.push_back(store->Read(session, row).value_or("unreadable"));
    }
    return bodies;
  }

  std::unique_ptr<SessionStore> store;
  RecoveryReport report;
  int failures = 0;

 private:
  audit::TempDirectory directory_;
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_SERVER_STORE_TESTING_H_
