// Goal: a session's own rules: what it accepts, selectors, derived policies, atomicity, forks, scoring.
// Method: small models; states compared by digest.

#include "server/session/session.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/small_model.h"
#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

using ::lethe::testing::IsOk;
using ::lethe::testing::StatusIs;
using ::testing::ElementsAre;
using Ids = std::vector<uint64_t>;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kNotFound = absl::StatusCode::kNotFound;

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(session_, Session::Create(testing::SmallModel(), SessionOptions()));
  }
  void Append(int64_t count, const std::string& subject = "",
              InputKind kind = InputKind::kAppended) {
    ASSERT_OK(session_->Append(testing::SampleIds(count), subject, kind));
  }
  void Generate(int count) {
    for (int i = 0; i < count; ++i) ASSERT_OK(session_->AppendGenerated(i % 32));
  }
  // Runs `action` and checks that it failed and changed nothing.
  template <typename Matcher>
  void ExpectRefused(const ForgetSelector& selector, DerivedPolicy policy, const Matcher& matcher) {
    const audit::Sha256Digest digest = session_->Digest();
    const int64_t num_tokens = session_->num_tokens();
    EXPECT_THAT(session_->PlanForget(selector, policy), matcher);
    EXPECT_THAT(session_->Forget(selector, policy), matcher);
    EXPECT_EQ(session_->Digest(), digest);
    EXPECT_EQ(session_->num_tokens(), num_tokens);
  }
  std::unique_ptr<Session> session_;
};

TEST_F(SessionTest, AppendGivesAscendingIdsThatAreNeverReused) {
  ASSERT_OK_AND_ASSIGN(const Ids first,
                       session_->Append(std::vector<int32_t>{1, 2, 3}, "", InputKind::kPrompt));
  EXPECT_THAT(first, ElementsAre(1, 2, 3));
  ASSERT_OK(session_->Forget(ForgetSelector::Ids({3}), DerivedPolicy::kFail));
  ASSERT_OK_AND_ASSIGN(const uint64_t next, session_->AppendGenerated(5));
  EXPECT_EQ(next, 4u);
  EXPECT_EQ(session_->next_token_id(), 5u);
}

TEST_F(SessionTest, AppendRefusesBadInputByName) {
  const auto append = [&](const std::vector<int32_t>& ids, const std::string& subject = "") {
    return session_->Append(ids, subject, InputKind::kAppended);
  };
  EXPECT_THAT(append({}), StatusIs(kInvalid, "vocab_ids must not be empty"));
  EXPECT_THAT(append({1, 32}), StatusIs(kInvalid, "vocab_ids[1] must be in 0 ... 31"));
  EXPECT_THAT(append({-1}), StatusIs(kInvalid, "vocab_ids[0]"));
  EXPECT_THAT(append({1}, std::string(129, 'x')),
              StatusIs(kInvalid, "subject must be at most 128"));
  EXPECT_THAT(session_->Append(std::vector<int32_t>{1}, "", InputKind::kGenerated),
              StatusIs(kInvalid, "kind"));
  EXPECT_THAT(session_->AppendGenerated(32), StatusIs(kInvalid, "vocab_ids[0]"));
  EXPECT_EQ(session_->num_tokens(), 0);
}

TEST_F(SessionTest, TheTokenLimitNamesWhatIsLeft) {
  Append(100);
  EXPECT_THAT(session_->Append(std::vector<int32_t>(16384 - 99, 1), "", InputKind::kAppended),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "the session can take 16284 more (max_tokens 16384)"));
  EXPECT_EQ(session_->num_tokens(), 100);
}

TEST_F(SessionTest, AnEmptySessionHasNoLogits) {
  EXPECT_TRUE(session_->logits().empty());
  Append(1);
  EXPECT_EQ(session_->logits().size(), 32u);
  ASSERT_OK(session_->Forget(ForgetSelector::Everything(), DerivedPolicy::kFail));
  EXPECT_TRUE(session_->logits().empty());
}

TEST_F(SessionTest, SelectorsAreChecked) {
  Append(10, "a");
  const DerivedPolicy keep = DerivedPolicy::kKeepAndReport;
  ExpectRefused({}, keep, StatusIs(kInvalid, "exactly one"));
  ForgetSelector two = ForgetSelector::Ids({1});
  two.everything = true;
  ExpectRefused(two, keep, StatusIs(kInvalid, "exactly one"));
  ExpectRefused(ForgetSelector::Ids({1}), DerivedPolicy::kUnspecified,
                StatusIs(kInvalid, "derived_policy"));
  ExpectRefused(ForgetSelector::Ids({1, 11}), keep, StatusIs(kNotFound, "token_ids[1]"));
  ExpectRefused(ForgetSelector::Ids({0}), keep, StatusIs(kNotFound));
  ExpectRefused(ForgetSelector::Ids({UINT64_MAX}), keep, StatusIs(kNotFound));
  ExpectRefused(ForgetSelector::Ranges({{5, 5}}), keep, StatusIs(kInvalid, "ranges[0]"));
  ExpectRefused(ForgetSelector::Ranges({{1, 2}, {11, 20}}), keep, StatusIs(kNotFound, "ranges[1]"));
  ExpectRefused(ForgetSelector::Subject(""), keep, StatusIs(kInvalid, "subject"));
  ExpectRefused(ForgetSelector::Subject("b"), keep, StatusIs(kNotFound));
  ExpectRefused(ForgetSelector::Before(1), keep, StatusIs(kInvalid, "before_token_id"));
  ExpectRefused(ForgetSelector::Before(11), keep, StatusIs(kNotFound, "before_token_id"));
}

TEST_F(SessionTest, ARangeSelectsWhatIsRetainedInIt) {
  Append(10);
  ASSERT_OK(session_->Forget(ForgetSelector::Ids({4}), DerivedPolicy::kFail));
  ASSERT_OK_AND_ASSIGN(
      const ForgetResult result,
      session_->Forget(ForgetSelector::Ranges({{3, 6}, {5, 7}}), DerivedPolicy::kFail));
  EXPECT_THAT(result.forgotten_ids, ElementsAre(3, 5, 6));
  EXPECT_EQ(result.gaps, (std::vector<TokenIdRange>{{3, 7}}));
  ExpectRefused(ForgetSelector::Ids({4}), DerivedPolicy::kFail, StatusIs(kNotFound));
}

TEST_F(SessionTest, SubjectAndBeforeAndEverything) {
  Append(5, "a");
  Append(5, "b");
  Append(5, "a");
  ASSERT_OK_AND_ASSIGN(const ForgetResult subject,
                       session_->Forget(ForgetSelector::Subject("a"), DerivedPolicy::kFail));
  EXPECT_THAT(subject.forgotten_ids, ElementsAre(1, 2, 3, 4, 5, 11, 12, 13, 14, 15));
  ASSERT_OK_AND_ASSIGN(const ForgetResult before,
                       session_->Forget(ForgetSelector::Before(8), DerivedPolicy::kFail));
  EXPECT_THAT(before.forgotten_ids, ElementsAre(6, 7));
  ASSERT_OK_AND_ASSIGN(const ForgetResult everything,
                       session_->Forget(ForgetSelector::Everything(), DerivedPolicy::kFail));
  EXPECT_THAT(everything.forgotten_ids, ElementsAre(8, 9, 10));
  EXPECT_EQ(session_->num_tokens(), 0);
  ExpectRefused(ForgetSelector::Everything(), DerivedPolicy::kFail, StatusIs(kNotFound, "empty"));
}

TEST_F(SessionTest, DerivedTokensAreKeptAndReported) {
  Append(10);   // 1 ... 10
  Generate(3);  // 11 ... 13
  Append(2);    // 14, 15
  Generate(1);  // 16
  ASSERT_OK_AND_ASSIGN(const ForgetPlan plan, session_->PlanForget(ForgetSelector::Ids({5, 12}),
                                                                   DerivedPolicy::kKeepAndReport));
  EXPECT_THAT(plan.derived_ids, ElementsAre(11, 13, 16));
  EXPECT_THAT(plan.removed_ranks, ElementsAre(4, 11));
  ASSERT_OK_AND_ASSIGN(const ForgetResult result, session_->Forget(ForgetSelector::Ids({5, 12}),
                                                                   DerivedPolicy::kKeepAndReport));
  EXPECT_THAT(result.derived_kept_ids, ElementsAre(11, 13, 16));
  EXPECT_TRUE(result.derived_removed_ids.empty());
  EXPECT_EQ(result.num_tokens_after, 14);
  EXPECT_TRUE(session_->inputs().at(session_->inputs().FindRank(16)).derived_from_forgotten);
  EXPECT_FALSE(session_->inputs().at(session_->inputs().FindRank(14)).derived_from_forgotten);
  // Drawn with a derived token in context: derived as well.
  ASSERT_OK_AND_ASSIGN(const uint64_t next, session_->AppendGenerated(1));
  EXPECT_TRUE(session_->inputs().at(session_->inputs().FindRank(next)).derived_from_forgotten);
}

TEST_F(SessionTest, DerivedTokensAreForgottenToo) {
  Append(10);
  Generate(3);
  Append(2);
  Generate(1);
  ASSERT_OK_AND_ASSIGN(const ForgetResult result,
                       session_->Forget(ForgetSelector::Ids({5}), DerivedPolicy::kForgetDerived));
  EXPECT_THAT(result.forgotten_ids, ElementsAre(5));
  EXPECT_THAT(result.derived_removed_ids, ElementsAre(11, 12, 13, 16));
  EXPECT_TRUE(result.derived_kept_ids.empty());
  EXPECT_EQ(session_->num_tokens(), 11);
}

TEST_F(SessionTest, DerivedTokensFailTheForgetOnRequest) {
  Append(10);
  Generate(2);
  ExpectRefused(ForgetSelector::Ids({5}), DerivedPolicy::kFail,
                StatusIs(absl::StatusCode::kFailedPrecondition, "2 retained tokens are derived"));
  // Behind the last generated token nothing is derived.
  Append(3);
  ASSERT_OK(session_->Forget(ForgetSelector::Ids({14}), DerivedPolicy::kFail));
}

TEST_F(SessionTest, AStagedForgetChangesNothingUntilCommit) {
  Append(100);
  const audit::Sha256Digest digest = session_->Digest();
  ASSERT_OK_AND_ASSIGN(auto staged,
                       session_->StageForget(ForgetSelector::Ids({50}), DerivedPolicy::kFail));
  EXPECT_EQ(session_->Digest(), digest);
  EXPECT_EQ(staged->result().digest_before, digest);
  const audit::Sha256Digest after = staged->result().digest_after;
  ASSERT_OK(session_->Commit(std::move(staged)));
  EXPECT_EQ(session_->Digest(), after);
}

TEST_F(SessionTest, CommitRefusesAStaleStaging) {
  Append(100);
  ASSERT_OK_AND_ASSIGN(auto staged,
                       session_->StageForget(ForgetSelector::Ids({50}), DerivedPolicy::kFail));
  Generate(1);
  const audit::Sha256Digest digest = session_->Digest();
  EXPECT_THAT(session_->Commit(std::move(staged)),
              StatusIs(absl::StatusCode::kFailedPrecondition, "changed"));
  EXPECT_EQ(session_->Digest(), digest);
}

TEST_F(SessionTest, AForkIsIndependentAndTakesTheSameForget) {
  Append(130);
  const std::unique_ptr<Session> fork = session_->Fork();
  EXPECT_EQ(fork->Digest(), session_->Digest());
  ASSERT_OK_AND_ASSIGN(const Ids ids,
                       fork->Append(std::vector<int32_t>{1, 2}, "", InputKind::kPrompt));
  EXPECT_NE(ids[0] & kForkTokenIdBit, 0u);
  ASSERT_OK(fork->AppendGenerated(3));
  const audit::Sha256Digest digest = session_->Digest();
  ASSERT_OK_AND_ASSIGN(const ForgetResult result,
                       fork->Forget(ForgetSelector::Ids({65}), DerivedPolicy::kForgetDerived));
  EXPECT_EQ(result.gaps, (std::vector<TokenIdRange>{{65, 66}}));
  EXPECT_EQ(session_->Digest(), digest);
  EXPECT_EQ(session_->num_tokens(), 130);
  EXPECT_EQ(fork->num_tokens(), 131);
  ASSERT_OK(session_->Forget(ForgetSelector::Ids({65}), DerivedPolicy::kForgetDerived));
  ASSERT_OK(session_->Append(std::vector<int32_t>{1, 2}, "", InputKind::kPrompt));
  EXPECT_EQ(fork->Digest(), session_->Digest());
}

TEST_F(SessionTest, ScoreRetainsNothing) {
  Append(100);
  const audit::Sha256Digest digest = session_->Digest();
  const std::vector<int32_t> ids = testing::SampleIds(70, 2);
  ASSERT_OK_AND_ASSIGN(const std::vector<float> logits, session_->Score(ids));
  EXPECT_EQ(session_->Digest(), digest);
  ASSERT_OK(session_->Append(ids, "", InputKind::kAppended));
  const absl::Span<const float> last = session_->logits();
  EXPECT_TRUE(std::equal(last.begin(), last.end(), logits.end() - 32));
  EXPECT_THAT(session_->Score({}), StatusIs(kInvalid));
}

TEST_F(SessionTest, RepetitionCountsFollowTheHistory) {
  ASSERT_OK(session_->Append(std::vector<int32_t>{3, 3, 7}, "", InputKind::kAppended));
  EXPECT_EQ(session_->repetition_counts()[3], 2);
  ASSERT_OK(session_->Forget(ForgetSelector::Ids({1}), DerivedPolicy::kFail));
  EXPECT_EQ(session_->repetition_counts()[3], 1);
  EXPECT_EQ(session_->repetition_counts()[7], 1);
}

TEST_F(SessionTest, TheDigestNamesItsPartsInOrder) {
  Append(70);
  const std::vector<audit::StatePart> parts = session_->StateParts().parts();
  std::vector<std::string> names;
  for (const audit::StatePart& part : parts) names.push_back(part.name);
  ASSERT_GE(names.size(), 12u);
  EXPECT_THAT(
      std::vector<std::string>(names.begin(), names.begin() + 11),
      ElementsAre("model", "numerics", "device", "options", "tokens", "layer.0.conv",
                  "layer.0.window", "layer.1.group.0.conv", "layer.1.group.0.head.0.support",
                  "layer.1.group.0.head.1.support", "layer.1.group.0.memory"));
  EXPECT_EQ(names.back(), "sampler.repetition_counts");
}

TEST_F(SessionTest, BytesAreReported) {
  Append(200);
  const SessionBytes bytes = session_->bytes();
  EXPECT_GT(bytes.state, 0u);
  EXPECT_GT(bytes.snapshots, 0u);
  EXPECT_GE(bytes.inputs, 200u * sizeof(Input));
}

}  // namespace
}  // namespace lethe
