// Goal: a server that was told something and forgot it cannot be told from one that was never told it, by anything but
// the ids that it gave out and its audit log: same state digests, same logits, same answers drawn later, and, decrypted,
// the same inputs on disk, before and after a restart.
// Method: two worlds get the same random requests, one of them also what will be forgotten; sessions of models and of
// vectors. Control: a world that keeps a trace of it (a mutant) differs.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/server/durable_world.h"
#include "tests/testing/fault_switch.h"

namespace lethe::testing {
namespace {

std::string BitsOf(absl::Span<const double> numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()),
                     numbers.size() * sizeof(double));
}

// The stored inputs of all sessions in the order they were made, without ids.
std::string StoredInputsOf(DurableWorld* world) {
  std::string all;
  const auto by_session = world->data->store()->AllRows().value();
  for (const auto& [session, rows] : by_session) {
    DecodedInputs decoded;
    for (const StoredRow& row : rows) {
      if (row.kind != RowKind::kInputs) continue;
      EXPECT_TRUE(DecodeInputs(world->data->store()->Read(session, row).value(), &decoded).ok());
    }
    absl::StrAppend(&all, "session\n");
    for (int64_t rank = 0; rank < decoded.inputs.size(); ++rank) {
      const Input& input = decoded.inputs.at(rank);
      absl::StrAppend(&all, input.vocab_id, " ", static_cast<int>(input.kind), " ",
                      static_cast<int>(input.derived_from_forgotten), " ",
                      decoded.inputs.subject(rank), "\n");
    }
    all += BitsOf(decoded.keys) + BitsOf(decoded.values);
  }
  return all;
}

class TwoWorlds {
 public:
  TwoWorlds() {
    EXPECT_TRUE(told_.Open().ok());
    EXPECT_TRUE(untold_.Open().ok());
  }

  // One session in each.
  void PlayModelSession(uint64_t seed) {
    std::mt19937_64 random(seed);
    const Ids ids = {told_.NewModelSession()->session_id, untold_.NewModelSession()->session_id};
    for (int step = 0; step < 8; ++step) {
      const std::string text = absl::StrCat("what both are told, ", random() % 100000);
      if (random() % 2 == 0) {
        const std::string secret = absl::StrCat("only one of them: ", random());
        EXPECT_TRUE(told_.Append(ids.told, secret, "secret", absl::StrCat("s", step)).ok());
      }
      if (random() % 3 == 0 || step == 7) Forget(ids.told, seed, step);
      Append(ids, text, random() % 2 == 0 ? "subject" : "", step);
      // What is drawn while the secret is there depends on it: only a world without it may draw.
      if (random() % 3 == 0) {
        Forget(ids.told, seed, 100 + step);
        Generate(ids, step);
      }
    }
    Forget(ids.told, seed, 200);
    Generate(ids, 200);
    ids_.push_back(ids);
  }

  void PlayVectorSession(uint64_t seed) {
    std::mt19937_64 random(seed);
    const Ids ids = {told_.NewVectorSession()->session_id, untold_.NewVectorSession()->session_id};
    for (int step = 0; step < 6; ++step) {
      const auto rows = static_cast<unsigned>(random() % 1000);
      if (step % 2 == 0) {
        EXPECT_TRUE(
            told_.AppendRows(ids.told, 3, rows + 5000, "secret", absl::StrCat("s", step)).ok());
      }
      if (step == 3 || step == 5) Forget(ids.told, seed, step);
      EXPECT_TRUE(told_.AppendRows(ids.told, 5, rows, "", absl::StrCat("a", step)).ok());
      EXPECT_TRUE(untold_.AppendRows(ids.untold, 5, rows, "", absl::StrCat("a", step)).ok());
    }
    ids_.push_back(ids);
  }

  void Reopen() {
    EXPECT_TRUE(told_.Open().ok());
    EXPECT_TRUE(untold_.Open().ok());
  }

  // Empty: they cannot be told apart.
  std::string Difference() {
    for (size_t k = 0; k < ids_.size(); ++k) {
      if (told_.View(ids_[k].told).digest != untold_.View(ids_[k].untold).digest) {
        return absl::StrCat("the digest of session ", k);
      }
      if (LogitsOf(&told_, ids_[k].told) != LogitsOf(&untold_, ids_[k].untold)) {
        return absl::StrCat("the logits of session ", k);
      }
    }
    if (StoredInputsOf(&told_) != StoredInputsOf(&untold_)) return "the stored inputs";
    return "";
  }

 private:
  struct Ids {
    std::string told;
    std::string untold;
  };

  void Append(const Ids& ids, const std::string& text, const std::string& label, int step) {
    EXPECT_TRUE(told_.Append(ids.told, text, label, absl::StrCat("a", step)).ok());
    EXPECT_TRUE(untold_.Append(ids.untold, text, label, absl::StrCat("a", step)).ok());
  }
  void Generate(const Ids& ids, int step) {
    const std::string request = absl::StrCat("g", step);
    EXPECT_TRUE(told_.Generate(ids.told, "and so ", request, 6).ok());
    EXPECT_TRUE(untold_.Generate(ids.untold, "and so ", request, 6).ok());
  }
  void Forget(const std::string& id, uint64_t seed, int step) {
    const auto forgotten = told_.Forget(id, "secret", absl::StrCat("f", seed, "-", step));
    EXPECT_TRUE(forgotten.ok() || absl::IsNotFound(forgotten.status())) << forgotten.status();
  }
  static std::vector<float> LogitsOf(DurableWorld* world, const std::string& id) {
    const std::shared_ptr<SessionEntry> entry = world->Find(id);
    FairMutexLock lock(&entry->mutex);
    if (entry->model == nullptr) return {};
    const absl::Span<const float> logits = entry->LiveModelSession().value()->logits();
    return {logits.begin(), logits.end()};
  }

  DurableWorld told_;
  DurableWorld untold_;
  std::vector<Ids> ids_;
};

TEST(TwoWorldsTest, CannotBeToldApart) {
  TwoWorlds worlds;
  for (uint64_t seed = 1; seed <= 20; ++seed) worlds.PlayModelSession(seed);
  for (uint64_t seed = 1; seed <= 10; ++seed) worlds.PlayVectorSession(seed);
  EXPECT_EQ(worlds.Difference(), "");
  worlds.Reopen();
  EXPECT_EQ(worlds.Difference(), "");
}

TEST(TwoWorldsTest, ATraceTellsThemApart) {
  const ScopedFault fault(Fault::kChangedFeaturesKept);
  TwoWorlds worlds;
  for (uint64_t seed = 1; seed <= 5; ++seed) worlds.PlayModelSession(seed);
  EXPECT_NE(worlds.Difference(), "");
}

}  // namespace
}  // namespace lethe::testing
