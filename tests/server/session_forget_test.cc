// Goal: after any Forget a session is, byte for byte, a fresh one that was given the retained history
// (contract C1, C2), and each mutant of kernels/base/fault.h that the session owns breaks that.
// Method: small models with every memory kind; digest parts and logits against a fresh session.

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "server/session/session.h"
#include "tests/testing/fault_switch.h"
#include "tests/testing/small_model.h"
#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

using ::lethe::testing::IsOk;

std::unique_ptr<Session> NewSession(const std::shared_ptr<const Model>& model) {
  auto session = Session::Create(model, SessionOptions());
  EXPECT_THAT(session, IsOk());
  return std::move(session).value();
}

void AppendIds(const std::vector<int32_t>& ids, Session* session,
               InputKind kind = InputKind::kAppended) {
  if (ids.empty()) return;
  ASSERT_OK(session->Append(ids, "", kind));
}

// Empty when the session equals a fresh one of its history, else what differs.
std::string DifferenceFromFresh(Session* session) {
  const auto fresh = NewSession(session->shared_model());
  AppendIds(session->vocab_ids(), fresh.get());
  const std::string parts =
      audit::ExplainDifference(fresh->StateParts().parts(), session->StateParts().parts());
  if (!parts.empty()) return parts;
  const absl::Span<const float> a = fresh->logits();
  const absl::Span<const float> b = session->logits();
  if (a.size() != b.size()) return "number of logits";
  if (!a.empty() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) != 0) return "logits";
  return "";
}

std::vector<uint64_t> Range(uint64_t first, uint64_t end) {
  std::vector<uint64_t> ids;
  for (uint64_t id = first; id < end; ++id) ids.push_back(id);
  return ids;
}

struct Case {
  std::string name;
  int64_t num_tokens;
  std::vector<uint64_t> forget;  // token_ids: rank + 1
};

class SessionForgetTest : public ::testing::TestWithParam<Case> {};

TEST_P(SessionForgetTest, EqualsAFreshSession) {
  for (const auto& [model, way] :
       {std::pair(testing::SmallModel(), ForgetWay::kReplay),
        std::pair(testing::SmallModel(), ForgetWay::kReevaluation),
        std::pair(testing::ContextualModel(), ForgetWay::kReevaluation)}) {
    const auto session = NewSession(model);
    AppendIds(testing::SampleIds(GetParam().num_tokens), session.get());
    ASSERT_OK_AND_ASSIGN(std::unique_ptr<StagedForget> staged,
                         session->StageForget(ForgetSelector::Ids(GetParam().forget),
                                              DerivedPolicy::kFail, {}, way));
    ASSERT_OK_AND_ASSIGN(const ForgetResult result, session->Commit(std::move(staged)));
    const bool emptied = result.num_tokens_after == 0;
    EXPECT_EQ(result.way, emptied ? ForgetWay::kReevaluation : way);
    EXPECT_EQ(result.forgotten_ids, GetParam().forget);
    EXPECT_EQ(result.first_rank, static_cast<int64_t>(GetParam().forget[0]) - 1);
    EXPECT_EQ(result.digest_after, session->Digest());
    EXPECT_NE(result.digest_before, result.digest_after);
    EXPECT_EQ(DifferenceFromFresh(session.get()), "");
    // The session goes on as the fresh one would.
    AppendIds(testing::SampleIds(70, 4), session.get());
    EXPECT_EQ(DifferenceFromFresh(session.get()), "");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, SessionForgetTest,
    ::testing::Values(Case{"OnlyToken", 1, {1}}, Case{"First", 150, {1}}, Case{"Last", 150, {150}},
                      Case{"LastOfAChunk", 128, {128}}, Case{"FirstOfAChunk", 129, {129}},
                      Case{"Middle", 200, {100}}, Case{"WholeChunk", 200, Range(65, 129)},
                      Case{"AcrossChunks", 200, Range(60, 140)}, Case{"InTheTail", 150, {140, 142}},
                      Case{"Scattered", 200, {2, 65, 130, 199}},
                      Case{"Everything", 130, Range(1, 131)}, Case{"AllButOne", 130, Range(2, 131)},
                      Case{"LastHalf", 256, Range(129, 257)}, Case{"GateMovesBack", 128, {5}},
                      Case{"TailKeysEnter", 190, Range(1, 61)},
                      Case{"GateMovesBackToNothing", 64, {64}}, Case{"LastOnTheGrid", 193, {1}},
                      Case{"AllButTwo", 200, Range(3, 201)}),
    [](const auto& tested) { return tested.param.name; });

TEST(SessionForgetHistoryTest, RepeatedForgetsAndAppends) {
  const auto session = NewSession(testing::ContextualModel());
  AppendIds(testing::SampleIds(190), session.get());
  const std::vector<std::vector<uint64_t>> steps = {{5}, {190}, Range(60, 66), {1, 2, 3}, {100}};
  for (size_t i = 0; i < steps.size(); ++i) {
    ASSERT_OK(session->Forget(ForgetSelector::Ids(steps[i]), DerivedPolicy::kKeepAndReport));
    ASSERT_EQ(DifferenceFromFresh(session.get()), "") << i;
    for (int32_t token = 0; token < 20; ++token) ASSERT_OK(session->AppendGenerated(token));
    ASSERT_EQ(DifferenceFromFresh(session.get()), "") << i;
  }
}

TEST(SessionForgetHistoryTest, ForgetCostStaysWithinTheLadderBudget) {
  const auto session = NewSession(testing::StreamingModel());
  AppendIds(testing::SampleIds(8000), session.get());
  ASSERT_OK_AND_ASSIGN(
      const ForgetResult half,
      session->Forget(ForgetSelector::Ranges({{4001, 8001}}), DerivedPolicy::kFail));
  EXPECT_LE(half.tokens_evaluated, 2 * 4000 + 128);
  for (const int64_t distance : {10, 100, 1700}) {
    const uint64_t id = session->inputs().at(session->num_tokens() - distance).token_id;
    ASSERT_OK_AND_ASSIGN(const ForgetPlan plan,
                         session->PlanForget(ForgetSelector::Ids({id}), DerivedPolicy::kFail));
    ASSERT_OK_AND_ASSIGN(const ForgetResult result,
                         session->Forget(ForgetSelector::Ids({id}), DerivedPolicy::kFail));
    EXPECT_LE(result.tokens_evaluated, 2 * distance + 128) << distance;
    EXPECT_EQ(result.tokens_evaluated, plan.tokens_to_evaluate);
    EXPECT_EQ(result.snapshots_destroyed, plan.snapshots_destroyed);
  }
  EXPECT_EQ(DifferenceFromFresh(session.get()), "");
}

TEST(SessionForgetHistoryTest, ReLaidSnapshotsAreRightToo) {
  // Shrinks the history step by step: later Forgets restore snapshots that earlier ones re-laid.
  const auto session = NewSession(testing::ContextualModel());
  AppendIds(testing::SampleIds(1500), session.get());
  int steps_with_more_runs = 0;
  while (session->num_tokens() > 500) {
    const int64_t count = session->num_tokens() / 5;
    const uint64_t first = session->inputs().at(session->num_tokens() - count).token_id;
    ASSERT_OK_AND_ASSIGN(
        const ForgetResult result,
        session->Forget(ForgetSelector::Ranges({{first, UINT64_MAX}}), DerivedPolicy::kFail));
    const int64_t main_run = session->num_tokens() - result.snapshot_rank;
    if (result.tokens_evaluated > main_run) ++steps_with_more_runs;
    ASSERT_EQ(DifferenceFromFresh(session.get()), "");
  }
  EXPECT_GT(steps_with_more_runs, 0);
}

TEST(SessionForgetHistoryTest, DroppedInputsAreEvaluatedAgain) {
  SessionOptions options;
  options.stored_input_bytes = 1;  // none
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Session> session,
                       Session::Create(testing::SmallModel(), options));
  AppendIds(testing::SampleIds(400), session.get());
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<StagedForget> staged,
                       session->StageForget(ForgetSelector::Ids({80}), DerivedPolicy::kFail, {},
                                            ForgetWay::kReplay));
  EXPECT_GT(staged->result().dropped_inputs, 250);
  ASSERT_OK(session->Commit(std::move(staged)));
  EXPECT_EQ(DifferenceFromFresh(session.get()), "");
  EXPECT_LT(session->bytes().stored_inputs, size_t{20} << 10);
}

// A replay's snapshots lack what the model needs; evaluating again puts complete ones in their place,
// so that the next Forget of that kind need not go back to the start.
TEST(SessionForgetHistoryTest, CompleteSnapshotsReplaceThoseOfAReplay) {
  const auto session = NewSession(testing::SmallModel());
  AppendIds(testing::SampleIds(1500), session.get());
  const auto forget = [&](uint64_t id, ForgetWay way) {
    auto staged = session->StageForget(ForgetSelector::Ids({id}), DerivedPolicy::kFail, {}, way);
    EXPECT_THAT(staged, IsOk());
    return session->Commit(std::move(staged).value())->tokens_evaluated;
  };
  EXPECT_EQ(forget(5, ForgetWay::kReplay), 1);
  EXPECT_GT(forget(1490, ForgetWay::kReevaluation), 1400);
  EXPECT_LT(forget(1480, ForgetWay::kReevaluation), 200);
  EXPECT_EQ(DifferenceFromFresh(session.get()), "");
}

TEST(SessionForgetHistoryTest, ReplayIsChosenWhereItIsCheaper) {
  const auto session = NewSession(testing::SmallModel());
  AppendIds(testing::SampleIds(2000), session.get());
  ASSERT_OK_AND_ASSIGN(const ForgetPlan early,
                       session->PlanForget(ForgetSelector::Ids({5}), DerivedPolicy::kFail));
  EXPECT_EQ(early.way, ForgetWay::kReplay);
  EXPECT_EQ(early.tokens_to_evaluate, 1);
  ASSERT_OK_AND_ASSIGN(const ForgetPlan late,
                       session->PlanForget(ForgetSelector::Ids({1999}), DerivedPolicy::kFail));
  EXPECT_EQ(late.way, ForgetWay::kReevaluation);
  EXPECT_EQ(late.tokens_to_replay, 0);
}

// What a mutant must break: forgets, goes on, forgets again.
std::string RunWithForgets(const std::shared_ptr<const Model>& model) {
  const auto session = NewSession(model);
  AppendIds(testing::SampleIds(300), session.get());
  for (const uint64_t id : {uint64_t{90}, uint64_t{100}, uint64_t{298}}) {
    EXPECT_THAT(session->Forget(ForgetSelector::Ids({id}), DerivedPolicy::kFail), IsOk());
  }
  testing::SetFault(std::nullopt);  // the fresh session is not the mutant
  return DifferenceFromFresh(session.get());
}

struct Mutant {
  Fault fault;
  const char* name;
  bool in_replay;        // breaks a model with a bank
  bool in_reevaluation;  // breaks a contextual one
};

class SessionMutantTest : public ::testing::TestWithParam<Mutant> {};

TEST_P(SessionMutantTest, IsCaught) {
  for (const auto& [model, breaks] :
       {std::pair(testing::SmallModel(), GetParam().in_replay),
        std::pair(testing::ContextualModel(), GetParam().in_reevaluation)}) {
    EXPECT_EQ(RunWithForgets(model), "");
    testing::ScopedFault fault(GetParam().fault);
    EXPECT_EQ(RunWithForgets(model) != "", breaks);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Mutants, SessionMutantTest,
    ::testing::Values(Mutant{Fault::kGridNotRealigned, "GridNotRealigned", true, true},
                      Mutant{Fault::kOldConvolutionTailKept, "OldConvolutionTailKept", true, true},
                      Mutant{Fault::kStaleSnapshotKept, "StaleSnapshotKept", true, true},
                      Mutant{Fault::kPenaltyCountsKept, "PenaltyCountsKept", true, true},
                      Mutant{Fault::kChangedFeaturesKept, "ChangedFeaturesKept", true, false},
                      Mutant{Fault::kKeyAddedAtEnd, "KeyAddedAtEnd", true, false}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace lethe
