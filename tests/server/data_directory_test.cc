// Goal: a start or a change of keys that is refused for its erasure ledger changes nothing and makes nothing, so that the right
// ledger still opens the directory and its log; and a log that froze for its anchor says where that was looked for.
// Method: a directory with a Forget; starts and changes with ledgers that are missing, older, damaged or another's, and
// every file compared with what it was.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/server/durable_world.h"
#include "tests/server/store_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

namespace fs = std::filesystem;

class DataDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(world_.Open());
    const std::string id = world_.NewVectorSession()->session_id;
    ASSERT_OK(world_.AppendRows(id, 3, 1, "patient", "a"));
    world_.Close();
    Copy(Ledger(), Wrong("older"));
    ASSERT_OK(world_.Open());
    ASSERT_OK(world_.Forget(id, "patient", "f"));
    // Until here the directory knows the ledger.
    ASSERT_OK(world_.Open());
    world_.Close();
    files_ = FileBytes(world_.data_path());

    Copy(Ledger(), Wrong("damaged"));
    std::string damaged = audit::ReadFile(Wrong("damaged") + "/erasures");
    damaged[damaged.size() - 20] ^= 1;
    audit::WriteFile(Wrong("damaged") + "/erasures", damaged);

    DurableWorld other(directory_.path() + "/other");
    ASSERT_OK(other.Open());
    other.Close();
    Copy(other.ledger_path(), Wrong("anothers"));

    // As where the place of the ledger is not mounted.
    fs::create_directory(Wrong("empty"));
  }
  static void Copy(const std::string& from, const std::string& to) {
    fs::copy(from, to, fs::copy_options::recursive);
  }
  std::string Ledger() const { return world_.ledger_path(); }
  std::string Wrong(const std::string& name) const { return directory_.path() + "/" + name; }
  absl::StatusOr<std::unique_ptr<DataDirectory>> Start(const std::string& ledger) {
    return DataDirectory::Open(world_.data_path(), "", {}, ledger);
  }
  // What is said of each wrong ledger.
  static const std::map<std::string, std::string>& Complaints() {
    static const auto* const complaints = new std::map<std::string, std::string>{
        {"older", "older than the data directory"},
        {"damaged", "damaged"},
        {"anothers", "belongs to another data directory: is --erasure-ledger right?"},
        {"empty", "is missing"},
        {"nowhere", "is missing"}};
    return *complaints;
  }
  void ExpectNothingChanged(const std::string& name, const std::map<std::string, std::string>& was,
                            bool was_there) const {
    const std::string ledger = Wrong(name);
    EXPECT_EQ(fs::exists(ledger), was_there) << name;
    EXPECT_TRUE(!was_there || FileBytes(ledger) == was) << name;
    for (const auto& [file, bytes] : FileBytes(world_.data_path())) {
      EXPECT_TRUE(files_.count(file) == 1 && files_.at(file) == bytes) << name << " " << file;
    }
    EXPECT_EQ(FileBytes(world_.data_path()).size(), files_.size()) << name;
  }

  audit::TempDirectory directory_{audit::TempDirectory::Where::kMemory};
  DurableWorld world_;
  std::map<std::string, std::string> files_;
};

TEST_F(DataDirectoryTest, AStartThatIsRefusedForItsLedgerChangesNothing) {
  for (const auto& [name, complaint] : Complaints()) {
    const bool was_there = fs::exists(Wrong(name));
    std::map<std::string, std::string> was;
    if (was_there) was = FileBytes(Wrong(name));
    const absl::Status status = Start(Wrong(name)).status();
    EXPECT_FALSE(status.ok()) << name;
    EXPECT_NE(status.message().find(complaint), absl::string_view::npos) << status;
    ExpectNothingChanged(name, was, was_there);
  }
  ASSERT_OK_AND_ASSIGN(const auto data, Start(Ledger()));
  EXPECT_OK(data->log()->frozen());
}

TEST_F(DataDirectoryTest, AChangeOfKeysNeedsTheLedgerAsAStartDoes) {
  for (const KeyChange::Kind kind :
       {KeyChange::Kind::kRotateRecordKey, KeyChange::Kind::kRotateLogKey,
        KeyChange::Kind::kRestoreLog}) {
    KeyChange change;
    change.kind = kind;
    change.new_origin = "lethe.dev/audit/next";
    for (const auto& [name, complaint] : Complaints()) {
      const bool was_there = fs::exists(Wrong(name));
      std::map<std::string, std::string> was;
      if (was_there) was = FileBytes(Wrong(name));
      const absl::Status status =
          DataDirectory::ChangeKey(world_.data_path(), Wrong(name), change).status();
      EXPECT_FALSE(status.ok()) << name;
      EXPECT_NE(status.message().find(complaint), absl::string_view::npos) << status;
      ExpectNothingChanged(name, was, was_there);
    }
  }
  KeyChange change;
  ASSERT_OK(DataDirectory::ChangeKey(world_.data_path(), Ledger(), change));
  ASSERT_OK_AND_ASSIGN(const auto data, Start(Ledger()));
  EXPECT_OK(data->log()->frozen());
}

TEST_F(DataDirectoryTest, ALogThatFrozeForItsAnchorSaysWhereThatWasLookedFor) {
  const std::string anchor = Ledger() + "/log.anchor";
  const std::string bytes = audit::ReadFile(anchor);
  const std::string question = "is --erasure-ledger right?";
  audit::WriteFile(anchor, audit::ReadFile(Wrong("older") + "/log.anchor"));
  {
    ASSERT_OK_AND_ASSIGN(const auto data, Start(Ledger()));
    EXPECT_FALSE(data->log()->frozen().ok());
  }
  audit::WriteFile(anchor, audit::ReadFile(Wrong("anothers") + "/log.anchor"));
  {
    ASSERT_OK_AND_ASSIGN(const auto data, Start(Ledger()));
    EXPECT_THAT(data->log()->frozen(),
                StatusIs(absl::StatusCode::kDataLoss, absl::StrCat(anchor, " belongs to")));
    EXPECT_THAT(data->log()->frozen(), StatusIs(absl::StatusCode::kDataLoss, question.c_str()));
  }
  fs::remove(anchor);
  {
    ASSERT_OK_AND_ASSIGN(const auto data, Start(Ledger()));
    EXPECT_THAT(data->log()->frozen(),
                StatusIs(absl::StatusCode::kDataLoss, absl::StrCat("looked for at ", anchor)));
    EXPECT_THAT(data->log()->frozen(), StatusIs(absl::StatusCode::kDataLoss, question.c_str()));
  }
  audit::WriteFile(anchor, bytes);
  ASSERT_OK_AND_ASSIGN(const auto data, Start(Ledger()));
  EXPECT_OK(data->log()->frozen());
}

}  // namespace
}  // namespace lethe::testing
