// Goal: the erasure ledger keeps every entry whose Begin returned, in order; loses nothing but what a power loss tore at
// its end; and is refused when it is missing, another's, changed or older than the data directory.
// Method: the file is cut at every length and every bit of it is flipped.
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/store/erasure_ledger.h"
#include "tests/audit/temp_directory.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

Erasure Inputs(int number) {
  Erasure erasure;
  erasure.id = audit::Sha256Of(std::to_string(number));
  erasure.session_id = "session";
  erasure.token_ids = {{5, 9}, {11, 12}};
  return erasure;
}

std::vector<std::string> Ids(const ErasureLedger& ledger) {
  std::vector<std::string> ids;
  for (const Erasure& erasure : ledger.Unsettled()) {
    ids.emplace_back(audit::AsStringView(erasure.id));
  }
  return ids;
}

std::vector<std::string> IdsOf(const std::vector<int>& numbers) {
  std::vector<std::string> ids;
  for (const int number : numbers) ids.emplace_back(audit::AsStringView(Inputs(number).id));
  return ids;
}

class ErasureLedgerTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<ErasureLedger>> Open(const LedgerPosition& position = {}) {
    return ErasureLedger::Open({path_, position.offset > 0, position, {}}, key_);
  }
  // The positions behind 0, 1, … entries.
  std::vector<LedgerPosition> Fill(int count) {
    auto ledger = *Open();
    ledger->SettleAll();
    std::vector<LedgerPosition> positions = {ledger->settled()};
    for (int k = 0; k < count; ++k) {
      EXPECT_TRUE(ledger->Begin(Inputs(k)).ok());
      ledger->Settle(Inputs(k).id);
      positions.push_back(ledger->settled());
    }
    return positions;
  }

  audit::TempDirectory directory_{audit::TempDirectory::Where::kMemory};
  const std::string path_ = directory_.path() + "/ledger";
  const std::string file_ = path_ + "/erasures";
  const audit::Secret32 key_ = audit::Secret32::Random();
};

TEST_F(ErasureLedgerTest, EntriesComeBackFromThePositionOn) {
  const std::vector<LedgerPosition> positions = Fill(3);
  EXPECT_EQ(Ids(**Open()), IdsOf({0, 1, 2}));
  EXPECT_EQ(Ids(**Open(positions[1])), IdsOf({1, 2}));
  const auto ledger = *Open(positions[2]);
  EXPECT_EQ(Ids(*ledger), IdsOf({2}));
  EXPECT_EQ(ledger->settled(), positions[2]);
  const Erasure found = ledger->Unsettled()[0];
  EXPECT_EQ(found.session_id, "session");
  ASSERT_EQ(found.token_ids.size(), 2u);
  EXPECT_EQ(found.token_ids[1].first, 11u);
  ledger->SettleAll();
  EXPECT_TRUE(ledger->Unsettled().empty());
  EXPECT_EQ(ledger->settled(), positions[3]);
}

TEST_F(ErasureLedgerTest, OnlyWhatIsBeforeEveryOpenErasureIsSettled) {
  const auto ledger = *Open();
  ledger->SettleAll();
  const LedgerPosition start = ledger->settled();
  for (int k = 0; k < 3; ++k) ASSERT_OK(ledger->Begin(Inputs(k)));
  ledger->Settle(Inputs(1).id);
  ledger->Settle(Inputs(2).id);
  EXPECT_EQ(ledger->settled(), start);
  ledger->Settle(Inputs(0).id);
  EXPECT_GT(ledger->settled().offset, start.offset);
}

TEST_F(ErasureLedgerTest, AVoidEntryIsNotReplayed) {
  {
    const auto ledger = *Open();
    ledger->SettleAll();
    for (int k = 0; k < 3; ++k) ASSERT_OK(ledger->Begin(Inputs(k)));
    ASSERT_OK(ledger->Void(Inputs(1).id));
  }
  const auto ledger = *Open();
  EXPECT_EQ(Ids(*ledger), IdsOf({0, 2}));
  // At start: one that it knows is voided, another's id is nothing to it.
  ASSERT_OK(ledger->Void(Inputs(7).id));
  ASSERT_OK(ledger->Void(Inputs(2).id));
  EXPECT_EQ(Ids(*ledger), IdsOf({0}));
}

TEST_F(ErasureLedgerTest, IsRefusedWhenItIsMissingOrAnothersOrOlder) {
  const std::vector<LedgerPosition> positions = Fill(2);
  const std::string whole = audit::ReadFile(file_);
  audit::WriteFile(file_, whole.substr(0, positions[1].offset));
  EXPECT_THAT(Open(positions[2]).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "older than"));
  // Another history of the same length.
  ASSERT_OK((*Open())->Begin(Inputs(9)));
  EXPECT_THAT(Open(positions[2]).status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  audit::WriteFile(file_, whole);
  EXPECT_OK(Open(positions[2]));
  EXPECT_THAT(
      ErasureLedger::Open({path_, true, positions[2], {}}, audit::Secret32::Random()).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, "another data directory"));
  {
    const auto held = *Open();
    EXPECT_THAT(Open().status(),
                StatusIs(absl::StatusCode::kFailedPrecondition, "another process"));
  }
  std::filesystem::remove(file_);
  EXPECT_THAT(Open(positions[2]).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "is missing"));
}

TEST_F(ErasureLedgerTest, ATornEndIsCutAndNothingElse) {
  const std::vector<LedgerPosition> positions = Fill(3);
  const std::string whole = audit::ReadFile(file_);
  for (size_t length = positions[0].offset; length <= whole.size(); ++length) {
    audit::WriteFile(file_, whole.substr(0, length));
    size_t num_whole = 0;
    while (num_whole < 3 && positions[num_whole + 1].offset <= length) ++num_whole;
    const auto ledger = Open();
    ASSERT_OK(ledger.status()) << length;
    ASSERT_EQ(Ids(**ledger).size(), num_whole) << length;
    ASSERT_EQ(std::filesystem::file_size(file_), positions[num_whole].offset);
  }
  // The length of a file may be on disk before its bytes, or some of them without those before.
  audit::WriteFile(file_, whole + std::string(300, '\0'));
  EXPECT_EQ(Ids(**Open()).size(), 3u);
  for (size_t lost = 1; lost <= whole.size() - positions[2].offset; lost += 7) {
    std::string torn = whole;
    torn.replace(positions[2].offset, lost, lost, '\0');
    audit::WriteFile(file_, torn);
    EXPECT_EQ(Ids(**Open()).size(), 2u) << lost;
  }
}

TEST_F(ErasureLedgerTest, EveryFlippedBitIsRefused) {
  const std::vector<LedgerPosition> positions = Fill(2);
  const std::string whole = audit::ReadFile(file_);
  size_t num_cut = 0;
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string changed = whole;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    audit::WriteFile(file_, changed);
    // The data directory knows of both: it is told from an older one.
    const absl::Status status = Open(positions[2]).status();
    if (bit / 8 < positions[0].offset) {
      EXPECT_FALSE(status.ok()) << bit;
    } else {
      ASSERT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, "damaged")) << bit;
    }
    audit::WriteFile(file_, changed);
    const auto older = Open(positions[0]);
    // In the last entry it cannot be told from a torn end.
    if (older.ok()) ++num_cut;
  }
  EXPECT_EQ(num_cut, (positions[2].offset - positions[1].offset) * 8);
}

}  // namespace
}  // namespace lethe::testing
