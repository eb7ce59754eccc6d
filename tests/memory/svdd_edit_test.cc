// Goal: SvMemory::Edited is, bit for bit, the memory stepped from empty through the tokens after the
// change, and leaves the edited one alone.
// Method: random and chosen edits of lists of many kinds against fresh memories: state bytes, reads
// of the next Step, further edits and boundaries; both mutants are seen.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "memory/svdd/sv_memory.h"
#include "tests/memory/svdd_edit_cases.h"
#include "tests/memory/svdd_testing.h"
#include "tests/testing/fault_switch.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

using ::lethe::testing::ScopedFault;
using ::lethe::testing::StatusIs;

class Edits {
 public:
  Edits(const Setting& setting, int64_t count, uint64_t seed)
      : setting_(setting), random_(seed), tokens_(MakeTokens(setting, count, &random_)) {
    memory_ = Stepped(setting, tokens_);
  }

  // Applies the change and compares with a fresh memory, now and after `more` tokens.
  void Expect(const Change& change, int64_t more) {
    const std::string before = State(*memory_);
    ASSERT_OK_AND_ASSIGN(std::unique_ptr<SvMemory> edited, change.Of(*memory_));
    EXPECT_EQ(State(*memory_), before) << "the edited memory changed";
    tokens_ = change.Of(tokens_);
    memory_ = std::move(edited);
    const std::unique_ptr<SvMemory> fresh = Stepped(setting_, tokens_);
    ASSERT_EQ(memory_->num_tokens(), fresh->num_tokens());
    ASSERT_EQ(State(*memory_), State(*fresh));
    if (more == 0) return;
    const Tokens next = MakeTokens(setting_, more, &random_);
    ASSERT_EQ(Step(memory_.get(), next), Step(fresh.get(), next));
    ASSERT_EQ(State(*memory_), State(*fresh));
    tokens_.insert(tokens_.end(), next.begin(), next.end());
  }

  Change Random(uint64_t one_in_removed, uint64_t one_in_replaced) {
    return RandomChange(setting_, tokens_, one_in_removed, one_in_replaced, &random_);
  }
  Change Replacing(int64_t begin, int64_t end) {
    return {{}, Range(begin, end), MakeTokens(setting_, end - begin, &random_)};
  }

  const SvMemory& memory() const { return *memory_; }
  const Tokens& tokens() const { return tokens_; }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  std::mt19937_64& random() { return random_; }

 private:
  Setting setting_;
  std::mt19937_64 random_;
  Tokens tokens_;
  std::unique_ptr<SvMemory> memory_;
};

TEST(SvEditTest, RandomEditsOfEveryKindEqualAFreshMemory) {
  uint64_t seed = 1;
  for (const KeyKind kind : kAllKinds) {
    for (const double box_mass : {20.0, 47.3}) {
      Setting setting;
      setting.kind = kind;
      setting.box_mass = box_mass;
      setting.key_dim = 1 + static_cast<int64_t>(seed % 4);
      setting.ridge = seed % 3 == 0 ? 1e-6 : 0x1.0p-11;
      Edits edits(setting, 150 + static_cast<int64_t>(seed * 37 % 90), seed);
      for (int round = 0; round < 5; ++round) {
        SCOPED_TRACE(std::string(KindName(kind)) + ", M " + std::to_string(box_mass) + ", round " +
                     std::to_string(round));
        edits.Expect(edits.Random(round == 2 ? 6 : 40, round == 3 ? 3 : 12),
                     static_cast<int64_t>(edits.random()() % 100));
        if (HasFatalFailure()) return;
      }
      ++seed;
    }
  }
}

TEST(SvEditTest, SmallListsAndListsAroundTheMassEqualAFreshMemory) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Setting setting;
    setting.kind = seed % 2 == 0 ? KeyKind::kGaussian : KeyKind::kFewKeys;
    setting.box_mass = seed % 3 == 0 ? 64.0 : seed % 3 == 1 ? 100.0 : 128.5;
    Edits edits(setting, static_cast<int64_t>(seed * 9 % 270), seed + 100);
    for (int round = 0; round < 6; ++round) {
      edits.Expect(edits.Random(round % 2 == 0 ? 3 : 30, 5),
                   static_cast<int64_t>(edits.random()() % 130));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(SvEditTest, TheGateMovesToTheBoundaryOfWhatIsLeft) {
  Setting setting;
  setting.num_heads = 3;
  Edits edits(setting, 64 * 5 + 40, 7);
  const auto gated = [&] { return edits.memory().head(2).solution->num_keys; };
  edits.Expect({{17}, {}, {}}, 0);
  EXPECT_EQ(gated(), 320) << "one of 40 tail tokens enters";
  edits.Expect({Range(3, 43), {}, {}}, 0);
  EXPECT_EQ(gated(), 256) << "63 keys leave";
  edits.Expect({Range(0, 10), Range(100, 160), edits.Replacing(100, 160).tokens}, 0);
  EXPECT_EQ(gated(), 256);
  edits.Expect({Range(40, 200), {}, {}}, 200);
}

TEST(SvEditTest, SuffixesAndExtremesEqualAFreshMemory) {
  for (const KeyKind kind : {KeyKind::kUnitSphere, KeyKind::kDuplicates}) {
    Setting setting;
    setting.kind = kind;
    setting.num_heads = 2;
    for (const int64_t kept : {0, 1, 30, 63, 64, 65, 128, 191, 192, 230, 250}) {
      SCOPED_TRACE(kept);
      Edits edits(setting, 250, 11);
      edits.Expect({Range(kept, 250), {}, {}}, 90);
    }
    Edits edits(setting, 250, 12);
    edits.Expect({}, 0);
    edits.Expect(edits.Replacing(0, 250), 0);
    edits.Expect(edits.Replacing(192, 250), 0);
    edits.Expect({Range(0, 250), {}, {}}, 70);
    edits.Expect({}, 0);
    Edits none(setting, 0, 13);
    none.Expect({}, 65);
  }
}

TEST(SvEditTest, CopiesVanishMoveAndMerge) {
  Setting setting;
  setting.num_heads = 2;
  Edits edits(setting, 200, 21);
  const auto with_key_of = [&](const std::vector<int64_t>& ranks, size_t of) {
    Change change{{}, ranks, {}};
    for (const int64_t rank : ranks) {
      change.tokens.push_back(edits.tokens()[static_cast<size_t>(rank)]);
      change.tokens.back().k = edits.tokens()[of].k;
    }
    return change;
  };
  edits.Expect(with_key_of({10, 11, 90, 91, 150, 195}, 40), 0);
  edits.Expect(with_key_of(Range(100, 140), 40), 0);
  edits.Expect({{10, 11}, {}, {}}, 0);  // the first copy moves
  edits.Expect(edits.Replacing(0, 40), 0);
  Change all = with_key_of({}, 0);
  for (int64_t rank = 0; rank < edits.size(); ++rank) {
    if (edits.tokens()[static_cast<size_t>(rank)].k == edits.tokens()[100].k) {
      all.removed.push_back(rank);
    }
  }
  EXPECT_GT(all.removed.size(), 30u);
  edits.Expect(all, 0);  // the last copy goes
  edits.Expect(with_key_of(Range(0, edits.size()), 5), 80);
  edits.Expect(edits.Random(20, 2), 80);
}

TEST(SvEditTest, UnchangedGatesAreNotSolved) {
  Edits edits({}, 300, 31);
  const auto solves = [&] { return edits.memory().counters().solves; };
  edits.Expect({{257, 290}, {299}, {edits.tokens()[3]}}, 0);
  EXPECT_EQ(solves(), 0);
  Change same_key = {{}, {5}, {edits.tokens()[5]}};
  same_key.tokens[0].v[0] += 1.0f;
  edits.Expect(same_key, 0);
  EXPECT_EQ(solves(), 0);
  EXPECT_EQ(edits.memory().counters().kernel_values, 0);
  edits.Expect({{5}, {}, {}}, 0);
  EXPECT_EQ(solves(), 1);
  EXPECT_EQ(edits.memory().counters().fallbacks, 0);
}

TEST(SvEditTest, RowsOfWhatStaysAreNotEvaluatedAgain) {
  Setting setting;
  setting.kind = KeyKind::kUnitSphere;
  setting.key_dim = 16;
  Edits edits(setting, 1000, 41);
  edits.Expect({}, 0);
  edits.Expect({{100}, Range(200, 230), edits.Replacing(200, 230).tokens}, 0);
  const Solution& solution = *edits.memory().head(0).solution;
  const auto support =
      static_cast<int64_t>(solution.classes.size()) -
      std::count(solution.classes.begin(), solution.classes.end(), Partition::kReserve);
  EXPECT_GT(support, 40);
  // 30 new keys against the support, and a few dozen rows.
  EXPECT_LT(edits.memory().counters().kernel_values, support * solution.num_keys / 2);
}

TEST(SvEditTest, ClonesAndTheEditedMemoryGoOnAlone) {
  Setting setting;
  setting.num_heads = 2;
  std::mt19937_64 random(51);
  const Tokens tokens = MakeTokens(setting, 260, &random);
  const Tokens more = MakeTokens(setting, 100, &random);
  const std::unique_ptr<SvMemory> memory = Stepped(setting, tokens);
  const Change change = RandomChange(setting, tokens, 20, 5, &random);
  const std::unique_ptr<Memory> clone = memory->Clone();
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SvMemory> of_clone,
                       change.Of(dynamic_cast<const SvMemory&>(*clone)));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SvMemory> edited, change.Of(*memory));
  const std::unique_ptr<SvMemory> fresh = Stepped(setting, change.Of(tokens));
  EXPECT_EQ(State(*of_clone), State(*fresh));
  const std::unique_ptr<MemorySnapshot> snapshot = edited->Snapshot();
  const std::vector<float> expected = Step(fresh.get(), more);
  EXPECT_EQ(Step(edited.get(), more), expected);
  EXPECT_EQ(Step(of_clone.get(), more), expected);
  ASSERT_OK(edited->Restore(*snapshot));
  EXPECT_EQ(Step(edited.get(), more), expected);
  EXPECT_EQ(Step(memory.get(), more), Step(Stepped(setting, tokens).get(), more));
}

TEST(SvEditTest, TokensOfAFailedStepAreLeftOut) {
  Setting setting;
  setting.num_heads = 3;
  std::mt19937_64 random(61);
  const Tokens tokens = MakeTokens(setting, 200, &random);
  for (const int64_t bad : {0, 5, 70}) {
    SCOPED_TRACE(bad);
    const std::unique_ptr<SvMemory> memory = Stepped(setting, tokens);
    Tokens failing = MakeTokens(setting, 140, &random);
    // The first head takes all 140 and two boundaries, the second some, the third none.
    failing[static_cast<size_t>(bad)].k[static_cast<size_t>(setting.key_dim)] =
        std::numeric_limits<float>::infinity();
    std::vector<float> out;
    EXPECT_FALSE(TryStep(memory.get(), failing, &out).ok());
    EXPECT_EQ(memory->num_tokens(), 200);
    Change change = RandomChange(setting, tokens, 30, 9, &random);
    const std::unique_ptr<SvMemory> fresh = Stepped(setting, change.Of(tokens));
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SvMemory> edited, change.Of(*memory));
    EXPECT_EQ(State(*edited), State(*fresh));
    for (const int64_t rank : Range(200, 340)) change.removed.push_back(rank);
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SvMemory> named, change.Of(*memory));
    EXPECT_EQ(State(*named), State(*fresh));
    const Tokens more = MakeTokens(setting, 70, &random);
    EXPECT_EQ(Step(named.get(), more), Step(fresh.get(), more));
    EXPECT_EQ(State(*named), State(*fresh));
  }
}

TEST(SvEditTest, MutantsAreSeen) {
  std::mt19937_64 random(71);
  const Setting setting;
  const Tokens tokens = MakeTokens(setting, 300, &random);
  const std::unique_ptr<SvMemory> memory = Stepped(setting, tokens);
  const Change removal = {{10, 20}, {}, {}};
  const Change replacement = {{}, {40}, MakeTokens(setting, 1, &random)};
  const Change long_removal = {Range(0, 70), {}, {}};
  const auto differs = [&](const Change& change) {
    return State(*change.Of(*memory).value()) != State(*Stepped(setting, change.Of(tokens)));
  };
  for (const Change& change : {removal, replacement, long_removal}) EXPECT_FALSE(differs(change));
  {
    const ScopedFault fault(Fault::kGateBoundaryKept);
    EXPECT_TRUE(differs(removal));
    EXPECT_TRUE(differs(long_removal));
  }
  const ScopedFault fault(Fault::kKeyAddedAtEnd);
  EXPECT_TRUE(differs(replacement));
}

TEST(SvEditTest, BadEditsAreRefused) {
  Setting setting;
  setting.num_heads = 2;
  std::mt19937_64 random(81);
  const Tokens tokens = MakeTokens(setting, 70, &random);
  const std::unique_ptr<SvMemory> memory = Stepped(setting, tokens);
  const Tokens one = {tokens[0]};
  const auto status = [&](const Change& change) { return change.Of(*memory).status(); };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(status({{70}, {}, {}}), StatusIs(invalid, "removed"));
  EXPECT_THAT(status({{-1}, {}, {}}), StatusIs(invalid, "removed"));
  EXPECT_THAT(status({{3, 3}, {}, {}}), StatusIs(invalid, "removed"));
  EXPECT_THAT(status({{3, 2}, {}, {}}), StatusIs(invalid, "removed"));
  EXPECT_THAT(status({{}, {70}, one}), StatusIs(invalid, "replaced"));
  EXPECT_THAT(status({{5}, {5}, one}), StatusIs(invalid, "replaced"));
  EXPECT_THAT(status({{}, {5}, {}}), StatusIs(invalid, "keys"));
  EXPECT_THAT(status({{}, {}, one}), StatusIs(invalid, "keys"));
  Tokens bad = one;
  bad[0].k[1] = std::nanf("");
  EXPECT_THAT(status({{}, {5}, bad}), StatusIs(absl::StatusCode::kOutOfRange, "key"));
  bad = one;
  bad[0].v[1] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(status({{}, {5}, bad}), StatusIs(absl::StatusCode::kOutOfRange, "value"));
}

}  // namespace
}  // namespace lethe::svdd
