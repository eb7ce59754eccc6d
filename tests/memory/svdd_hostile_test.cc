// Goal: whatever the keys and parameters, every way of forgetting a key ends in the bits, the digest and
// the partition of a solve that never saw it.
// Method: DeletionAudit over HostileKinds, at least 300 deletions a kind with LETHE_TEST_LONG=1, a share
// of them without; the same lists, in f32, as tokens of an SvMemory that is edited.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "memory/svdd/sv_memory.h"
#include "tests/memory/svdd_deletion_audit.h"
#include "tests/memory/svdd_edit_cases.h"
#include "tests/memory/svdd_hostile_cases.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

constexpr int64_t kShare = 8;  // of the cases without LETHE_TEST_LONG

TEST(SvddHostileTest, EveryDeletionEqualsRetraining) {
  int64_t fallbacks = 0;
  int64_t ambiguous = 0;
  for (const HostileKind& kind : HostileKinds()) {
    std::mt19937_64 random(11);
    DeletionTally tally;
    const int64_t cases = WantsAll() ? kind.num_cases : (kind.num_cases + kShare - 1) / kShare;
    for (int64_t trial = 0; trial < cases; ++trial) {
      SCOPED_TRACE(std::string(kind.name) + ", case " + std::to_string(trial));
      AuditDeletions(kind.make(trial, &random), WantsAll() || trial % 4 == 0, &random, &tally);
      if (HasFatalFailure()) return;
    }
    tally.Print(kind.name);
    EXPECT_GE(tally.deletions, WantsAll() ? 300 : 300 / kShare) << kind.name;
    EXPECT_EQ(tally.identical, tally.deletions + tally.additions) << kind.name;
    EXPECT_EQ(tally.matched, tally.compared) << kind.name;
    EXPECT_GT(tally.compared, 0) << kind.name;
    fallbacks += tally.fallbacks;
    ambiguous += tally.ambiguous;
  }
  EXPECT_GT(fallbacks, 50) << "the slow path was hardly taken";
  EXPECT_GT(ambiguous, 3);
}

Tokens TokensOf(const DeletionCase& deletions, std::mt19937_64* random) {
  std::normal_distribution<float> normal;
  const auto dim = static_cast<size_t>(deletions.params.key_dim);
  Tokens tokens(deletions.keys.size() / dim);
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (size_t c = 0; c < dim; ++c) {
      tokens[t].k.push_back(static_cast<float>(deletions.keys[t * dim + c]));
      tokens[t].q.push_back(normal(*random));
    }
    for (int c = 0; c < 3; ++c) tokens[t].v.push_back(normal(*random));
  }
  return tokens;
}

// Tokens past two boundaries: lists of a kind, one after another.
struct MemoryCase {
  Setting setting;
  Tokens tokens;
};

MemoryCase MakeMemoryCase(const HostileKind& kind, int64_t trial, std::mt19937_64* random) {
  const DeletionCase first = kind.make(trial, random);
  MemoryCase made;
  made.setting.key_dim = first.params.key_dim;
  made.setting.sigma = first.params.sigma;
  made.setting.box_mass = first.params.box_mass;
  made.setting.ridge = first.params.ridge;
  made.tokens = TokensOf(first, random);
  while (made.tokens.size() < 133) {
    DeletionCase more = kind.make(trial, random);
    more.params = first.params;
    more.keys.resize(more.keys.size() -
                     more.keys.size() % static_cast<size_t>(first.params.key_dim));
    const Tokens next = TokensOf(more, random);
    made.tokens.insert(made.tokens.end(), next.begin(), next.end());
  }
  return made;
}

// Puts M next to a change of the partition of what is gated once `gone` is.
void Tune(int64_t gone, MemoryCase* made) {
  Change change;
  change.removed = {gone};
  Tokens left = change.Of(made->tokens);
  left.resize(left.size() / 64 * 64);
  std::vector<double> keys;
  for (const Token& token : left) keys.insert(keys.end(), token.k.begin(), token.k.end());
  const Setting& setting = made->setting;
  const Params params = MakeParamsOrDie(setting.sigma, 4.0, setting.ridge, setting.key_dim);
  const double box_mass = BisectedMass(params, keys, 20.3, 50.7);
  if (box_mass > 0.0) made->setting.box_mass = box_mass;
}

TEST(SvddHostileTest, EveryEditOfAMemoryEqualsAFreshOne) {
  int64_t edits = 0;
  int64_t fallbacks = 0;
  for (const HostileKind& kind : HostileKinds()) {
    std::mt19937_64 random(12);
    for (int64_t trial = 0; trial < (WantsAll() ? 20 : 2); ++trial) {
      SCOPED_TRACE(std::string(kind.name) + ", case " + std::to_string(trial));
      MemoryCase made = MakeMemoryCase(kind, trial, &random);
      auto gone = static_cast<int64_t>(random() % made.tokens.size());
      if (trial % 2 == 1) Tune(gone, &made);
      Tokens tokens = made.tokens;
      std::unique_ptr<SvMemory> memory = Stepped(made.setting, tokens);
      for (int round = 0; round < 3; ++round) {
        Change change;
        change.removed = {gone};
        ASSERT_OK_AND_ASSIGN(std::unique_ptr<SvMemory> edited, change.Of(*memory));
        tokens = change.Of(tokens);
        ASSERT_EQ(State(*edited), State(*Stepped(made.setting, tokens)));
        fallbacks += edited->counters().fallbacks;
        ++edits;
        memory = std::move(edited);
        gone = static_cast<int64_t>(random() % tokens.size());
      }
    }
  }
  EXPECT_GT(fallbacks, 5);
  std::printf("%lld edits of memories equal fresh ones, slow path %lld times\n",
              static_cast<long long>(edits), static_cast<long long>(fallbacks));
}

}  // namespace
}  // namespace lethe::svdd
