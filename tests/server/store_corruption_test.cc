// Goal: whatever happens to the bytes of a data directory's sessions, a session is served as it was or not at all, says
// so under its own name, can be deleted, and takes no other one with it.
// Method: a directory of three sessions, closed or killed, whose files are changed bit by bit (a sample; every byte with
// LETHE_TEST_LONG=1), opened again and compared.
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/store/secret_file.h"
#include "tests/server/durable_world.h"
#include "tests/server/store_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr char kDatabase[] = "sessions.db";
constexpr char kWal[] = "sessions.db-wal";
constexpr char kKeys[] = "data.keys";
constexpr char kCommits[] = "commits";

struct Outcomes {
  int refused = 0;      // the server does not start
  int quarantined = 0;  // sessions that say so
  int unnamed = 0;      // sessions that cannot even do that
  int served = 0;       // sessions, as they were
};

class StoreCorruptionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(world_.Open());
    const std::string first = world_.NewModelSession(Key("create"))->session_id;
    ASSERT_OK(world_.Append(first, "the first visit", "", "a1"));
    ASSERT_OK(world_.Append(first, "patient seventeen", "patient", "a2"));
    ASSERT_OK(world_.Forget(first, "patient", "f1"));
    ASSERT_OK(world_.Generate(first, "and", "g1", 10));
    ids_.push_back(first);
    ids_.push_back(world_.NewVectorSession()->session_id);
    ASSERT_OK(world_.AppendRows(ids_[1], 12, 1, "", "a1"));
    ASSERT_OK(world_.RunCertify(ids_[1], "c1"));
    ids_.push_back(world_.NewModelSession()->session_id);
    ASSERT_OK(world_.Append(ids_[2], "another one", "", "a1"));
  }

  void Execute(const std::string& sql) {
    world_.Close();
    sqlite3* database = nullptr;
    const std::string path = world_.data_path() + "/sessions/sessions.db";
    ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sql;
    sqlite3_close(database);
  }

  // What is on disk now is what every change starts from.
  void Keep() {
    world_.Close();
    pristine_.clear();
    for (const auto& file : std::filesystem::directory_iterator(Folder())) {
      pristine_[file.path().filename()] = audit::ReadFile(file.path());
    }
    ASSERT_OK(world_.Open());
    views_.clear();
    for (const std::string& id : ids_) views_.push_back(world_.View(id));
    world_.Close();
  }
  std::string Folder() const { return world_.data_path() + "/sessions"; }
  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(Folder() + "/" + name, std::ios::binary) << bytes;
  }
  void PutBack() {
    world_.Close();
    for (const auto& file : std::filesystem::directory_iterator(Folder())) {
      std::filesystem::remove(file.path());
    }
    for (const auto& [name, bytes] : pristine_) {
      Write(name, bytes);
      std::filesystem::permissions(Folder() + "/" + name, std::filesystem::perms(0600));
    }
  }
  // Opens the changed directory: every session is as it was, or says that it is not served.
  void Judge(const std::string& what) {
    const absl::Status opened = world_.Open();
    if (!opened.ok()) {
      EXPECT_THAT(opened.code(),
                  AnyOf(absl::StatusCode::kDataLoss, absl::StatusCode::kFailedPrecondition,
                        absl::StatusCode::kUnavailable))  // SQLite does not understand its schema
          << what << ": " << opened;
      ++outcomes_.refused;
      return;
    }
    outcomes_.unnamed += static_cast<int>(world_.summary.num_unnamed);
    for (size_t i = 0; i < ids_.size(); ++i) {
      const auto found = world_.registry().Find(ids_[i]);
      if (!found.ok()) {
        EXPECT_EQ(found.status().code(), absl::StatusCode::kNotFound) << what;
        EXPECT_GT(world_.summary.num_unnamed, 0) << what << ": a session is gone without a word";
        continue;
      }
      absl::Status live;
      {
        FairMutexLock lock(&(*found)->mutex);
        live = (*found)->LiveSession().status();
      }
      if (live.ok()) {
        EXPECT_TRUE(world_.View(ids_[i]) == views_[i]) << what << ": session " << i;
        ++outcomes_.served;
        continue;
      }
      EXPECT_EQ(ReasonOf(live), "SESSION_QUARANTINED") << what << ": " << live;
      EXPECT_EQ(ReasonOf((*found)->Availability()), "SESSION_QUARANTINED") << what;
      ++outcomes_.quarantined;
    }
  }
  void FlipBit(const std::string& name, size_t byte, int bit) {
    PutBack();
    std::string bytes = pristine_[name];
    bytes[byte] = static_cast<char>(bytes[byte] ^ (1 << bit));
    Write(name, bytes);
    Judge(absl::StrCat(name, " byte ", byte, " bit ", bit));
  }
  // Every byte in [begin, end) once with --long, else `sample` of them.
  void FlipIn(const std::string& name, size_t begin, size_t end, int sample) {
    std::mt19937 random(7);
    const bool all = std::getenv("LETHE_TEST_LONG") != nullptr &&
                     std::string(std::getenv("LETHE_TEST_LONG")) == "1";
    for (size_t i = 0; i < (all ? end - begin : static_cast<size_t>(sample)); ++i) {
      const size_t byte = all ? begin + i : begin + random() % (end - begin);
      FlipBit(name, byte, static_cast<int>(random() % 8));
    }
  }

  DurableWorld world_;
  std::vector<std::string> ids_;
  std::vector<SessionView> views_;
  std::map<std::string, std::string> pristine_;
  Outcomes outcomes_;
};

TEST_F(StoreCorruptionTest, AFlippedBitInTheDatabaseIsNeverServed) {
  Keep();
  const size_t size = pristine_[kDatabase].size();
  FlipIn(kDatabase, 0, size, 150);
  // The beginning of every page, where the tree is.
  for (size_t page = 0; page < size; page += 4096) FlipIn(kDatabase, page, page + 12, 6);
  EXPECT_GT(outcomes_.quarantined, 10);
  EXPECT_GT(outcomes_.served, 300);
  EXPECT_GT(outcomes_.refused, 0);
}

TEST_F(StoreCorruptionTest, AFlippedBitInTheKeysIsNeverServed) {
  Keep();
  const size_t size = pristine_[kKeys].size();
  FlipIn(kKeys, 0, 66, 10);
  EXPECT_EQ(outcomes_.refused, 10);  // whose keys they are
  FlipIn(kKeys, 4096, std::min(size, size_t{4096 + 64 * 10}), 60);
  EXPECT_GT(outcomes_.quarantined, 20);
  EXPECT_GT(outcomes_.served, 60);
}

TEST_F(StoreCorruptionTest, ADamagedPageTakesOnlyItsSessionsAlong) {
  // Sessions of many pages around the others.
  for (unsigned seed = 0; seed < 3; ++seed) {
    ids_.push_back(world_.NewVectorSession()->session_id);
    for (unsigned i = 0; i < 12; ++i) {
      ASSERT_OK(world_.AppendRows(ids_.back(), 30, seed * 100 + i, "", absl::StrCat("r", i)));
    }
  }
  Keep();
  const size_t num_pages = pristine_[kDatabase].size() / 4096;
  ASSERT_GT(num_pages, 12u);
  for (size_t page = 4; page < num_pages; ++page) {
    PutBack();
    std::string bytes = pristine_[kDatabase];
    bytes.replace(page * 4096, 4096, std::string(4096, page % 2 == 0 ? '\0' : '\x5a'));
    Write(kDatabase, bytes);
    Judge(absl::StrCat("page ", page));
  }
  EXPECT_GT(outcomes_.quarantined + outcomes_.unnamed, static_cast<int>(num_pages) / 2);
  EXPECT_GT(outcomes_.served, static_cast<int>(num_pages) * 2);
  EXPECT_LT(outcomes_.refused, static_cast<int>(num_pages) / 4);
}

TEST_F(StoreCorruptionTest, ADamagedSessionIsQuarantinedAndTheOthersAreServed) {
  const std::string first = ids_[0];
  const std::string second = ids_[1];
  const std::string third = ids_[2];
  const SessionView view = world_.View(third);
  Execute("UPDATE rows SET body = substr(body, 2) WHERE session = 1 AND kind = 2");
  ASSERT_OK(world_.Open());
  // Inputs are read when they are needed, or by the check that follows a start.
  EXPECT_EQ(world_.summary.num_sessions, 3);
  EXPECT_OK(world_.Find(first)->Availability());
  EXPECT_EQ(CheckStoredSessions(world_.registry(), [] { return true; }), 1);
  EXPECT_EQ(ReasonOf(world_.Find(first)->Availability()), "SESSION_QUARANTINED");
  EXPECT_EQ(ReasonOf(world_.Append(first, "more", "", "").status()), "SESSION_QUARANTINED");
  EXPECT_EQ(ReasonOf(world_.Forget(first, "label", "").status()), "SESSION_QUARANTINED");
  EXPECT_TRUE(world_.View(third) == view);
  ASSERT_OK(world_.Open());
  EXPECT_EQ(ReasonOf(world_.RunCertify(first, "").status()), "SESSION_QUARANTINED");
  EXPECT_EQ(ReasonOf(world_.Find(first)->Availability()), "SESSION_QUARANTINED");
  // Rows that are gone are missed like rows that have changed.
  Execute("DELETE FROM rows WHERE session = 2 AND kind = 1");
  ASSERT_OK(world_.Open());
  EXPECT_EQ(world_.summary.num_quarantined, 1);
  EXPECT_EQ(ReasonOf(world_.Find(second)->Availability()), "SESSION_QUARANTINED");
  EXPECT_TRUE(world_.View(third) == view);
  Execute("DELETE FROM rows WHERE session = 3 AND kind = 2");
  ASSERT_OK(world_.Open());
  EXPECT_EQ(world_.summary.num_quarantined, 2);
}

TEST(SecretFileTest, AFlippedBitIsRefused) {
  const audit::TempDirectory directory(audit::TempDirectory::Where::kMemory);
  const std::string path = directory.path() + "/request.key";
  ASSERT_OK_AND_ASSIGN(const audit::Secret32 made, LoadOrCreateSecret(path));
  ASSERT_OK_AND_ASSIGN(const audit::Secret32 again, LoadOrCreateSecret(path));
  EXPECT_EQ(made.bytes(), again.bytes());
  const std::string bytes = audit::ReadFile(path);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    std::ofstream(path, std::ios::binary) << changed;
    EXPECT_EQ(LoadOrCreateSecret(path).status().code(), absl::StatusCode::kDataLoss) << bit;
  }
}

// As after kill -9: nothing is closed.
class KilledStoreTest : public StoreCorruptionTest {
 protected:
  void SetUp() override {
    StoreCorruptionTest::SetUp();
    world_.Close();
    const pid_t child = fork();
    if (child == 0) {
      const bool worked = world_.Open().ok() && world_.Append(ids_[0], "more", "", "k1").ok() &&
                          world_.AppendRows(ids_[1], 3, 9, "", "k2").ok() &&
                          world_.RunCertify(ids_[1], "k3").ok() &&
                          world_.Append(ids_[2], "and more", "", "k4").ok();
      _exit(worked ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
    Keep();
    ASSERT_GT(pristine_[kWal].size(), 4096u);
  }
};

TEST_F(KilledStoreTest, AnIntactLogIsTaken) {
  PutBack();
  Judge("intact");
  EXPECT_EQ(outcomes_.served, 3);
}

TEST_F(KilledStoreTest, ACutOrDamagedLogIsRefused) {
  const std::string wal = pristine_[kWal];
  for (size_t size = 0; size < wal.size(); size += wal.size() / 12) {
    PutBack();
    Write(kWal, wal.substr(0, size));
    Judge(absl::StrCat("cut at ", size));
  }
  EXPECT_EQ(outcomes_.refused, 12 + (wal.size() % 12 != 0 ? 1 : 0));
  outcomes_ = Outcomes();
  FlipIn(kWal, 32, wal.size(), 30);
  EXPECT_GT(outcomes_.refused, 20);  // the last frames may hold no more than the one before
}

TEST_F(KilledStoreTest, WithoutTheMarkACutLogWouldPass) {
  PutBack();
  Write(kWal, "");
  const absl::Status refused = world_.Open();
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("sessions/commits"));
  PutBack();
  Write(kWal, "");
  std::filesystem::remove(Folder() + "/" + kCommits);
  ASSERT_OK(world_.Open());
  EXPECT_FALSE(world_.View(ids_[0]) == views_[0]);
  EXPECT_FALSE(world_.View(ids_[2]) == views_[2]);
}

TEST_F(KilledStoreTest, ADamagedMarkSaysLessAndHarmsNothing) {
  for (size_t byte = 0; byte < pristine_[kCommits].size(); byte += 9) FlipBit(kCommits, byte, 3);
  EXPECT_EQ(outcomes_.served, 3 * static_cast<int>((pristine_[kCommits].size() + 8) / 9));
}

TEST_F(StoreCorruptionTest, ADamagedSessionCanBeDeleted) {
  Keep();
  PutBack();
  std::string keys = pristine_[kKeys];
  // Every key but the registry's own, which is the first.
  for (size_t slot = 1; 4096 + 64 * slot < keys.size(); ++slot) {
    // A slot in use: any of its bytes may be zero by chance.
    if (keys.find_first_not_of('\0', 4096 + 64 * slot) < 4096 + 64 * (slot + 1)) {
      keys[4096 + 64 * slot + 9] ^= 1;
    }
  }
  Write(kKeys, keys);
  ASSERT_OK(world_.Open());
  EXPECT_EQ(world_.summary.num_quarantined, 3);
  EXPECT_EQ(world_.summary.num_unnamed, 0);
  for (const std::string& id : ids_) {
    ASSERT_OK(world_.registry().Delete(id, Key("delete-" + id)).status());
    EXPECT_EQ(world_.registry().Find(id).status().code(), absl::StatusCode::kNotFound);
  }
  ASSERT_OK_AND_ASSIGN(const auto rows, world_.data->store()->AllRows());
  EXPECT_EQ(rows.size(), 1u);  // the registry's
  ASSERT_OK(world_.Open());
  EXPECT_EQ(world_.summary.num_quarantined, 0);
  EXPECT_EQ(world_.data->store()->num_keys(), 1u);
  // A repeat is recognised.
  ASSERT_OK(world_.registry().Delete(ids_[0], Key("delete-" + ids_[0])).status());
  ASSERT_OK(world_.Append(world_.NewModelSession()->session_id, "goes on", "", "").status());
}

TEST_F(StoreCorruptionTest, TheRegistrysRequestsMayBeLostAlone) {
  Keep();
  PutBack();
  std::string keys = pristine_[kKeys];
  keys[4096 + 9] ^= 1;  // the registry's key
  Write(kKeys, keys);
  ASSERT_OK(world_.Open());
  EXPECT_TRUE(world_.summary.requests_lost);
  ASSERT_EQ(world_.summary.num_quarantined, 0);
  // Names are under this key; what is whole has its name in its own rows.
  for (size_t i = 0; i < ids_.size(); ++i) {
    EXPECT_TRUE(world_.View(ids_[i]) == views_[i]) << i;
  }
  ASSERT_OK(world_.Append(ids_[0], "goes on", "", "a9").status());
  const SessionView after = world_.View(ids_[0]);
  ASSERT_OK(world_.Open());
  EXPECT_FALSE(world_.summary.requests_lost);
  EXPECT_TRUE(world_.View(ids_[0]) == after);
}

}  // namespace
}  // namespace lethe::testing
