// Goal: what a ForgetSubject says of each session is what happened there; what is in its way for a while makes it wait;
// its jobs are found, listed, deleted and come back after a restart.
// Method: jobs over small worlds, the auditor's verifier as oracle.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/server/subject_world.h"

namespace lethe::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

class ForgetSubjectTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(world_.Open()); }
  std::string NewModelSession(const std::string& label, bool generates = false) {
    const std::string id = world_.world.NewModelSession()->session_id;
    EXPECT_OK(world_.world.Append(id, "the first visit", "", ""));
    EXPECT_OK(world_.world.Append(id, "takes zelvim", label, ""));
    if (generates) {
      EXPECT_OK(world_.world.Generate(id, "and", "g1", 3));
    }
    return id;
  }
  SubjectOutcome OutcomeOf(const std::string& job_id, const std::string& session_id) {
    const std::vector<SubjectOutcome> outcomes = world_.jobs->Outcomes(job_id, 0, 100).value();
    for (const SubjectOutcome& outcome : outcomes) {
      if (outcome.session_id == session_id) return outcome;
    }
    ADD_FAILURE() << "no outcome";
    return {};
  }
  SubjectProgress RunJob(DerivedPolicy policy) {
    const SubjectProgress job = world_.Start(policy).value();
    world_.jobs->Resume();
    return world_.WaitFor(job.job_id);
  }

  SubjectWorld world_;
};

TEST_F(ForgetSubjectTest, AServerWithoutTheLabelGetsASummaryThatSaysSo) {
  NewModelSession("somebody else");
  const SubjectProgress job = RunJob(DerivedPolicy::kFail);
  EXPECT_EQ(job.stage, JobStage::kDone);
  EXPECT_EQ(job.num_examined, 1);
  EXPECT_EQ(job.num_sessions, 0);
  const audit::SubjectReport report =
      audit::VerifySubject(world_.Summary(job.job_id), {}, world_.Trust());
  EXPECT_TRUE(report.record.ok());
  EXPECT_EQ(report.summary->forgotten.count, 0u);
  EXPECT_EQ(report.record.Find("certificate inputs")->result, audit::CheckResult::kOk);
}

TEST_F(ForgetSubjectTest, ASessionThatRefusesIsReportedAndUnchanged) {
  const std::string refuses = NewModelSession(kLabel, true);
  const std::string obeys = NewModelSession(kLabel);
  const SessionView before = world_.world.View(refuses);
  const SubjectProgress job = RunJob(DerivedPolicy::kFail);
  EXPECT_EQ(job.num_forgotten, 1);
  EXPECT_EQ(job.num_failed, 1);
  EXPECT_EQ(OutcomeOf(job.job_id, refuses).reason, "DERIVED_TOKENS");
  EXPECT_EQ(OutcomeOf(job.job_id, obeys).num_inputs, 12);
  EXPECT_TRUE(world_.world.View(refuses) == before);
  EXPECT_FALSE(world_.Holds(obeys));
  const audit::SubjectReport report = audit::VerifySubject(
      world_.Summary(job.job_id), world_.Certificates(job.job_id), world_.Trust());
  ASSERT_TRUE(report.record.ok()) << report.record.first_failure()->name;
  ASSERT_EQ(report.summary->reasons.size(), 1u);
  EXPECT_EQ(report.summary->reasons[0].reason, "DERIVED_TOKENS");
  // By the salt alone its owner finds the session among those that failed.
  const audit::SubjectOpening opening =
      audit::ParseSubjectOpening(*world_.Summary(job.job_id).summary.opening).value();
  ASSERT_EQ(opening.failed.size(), 1u);
  EXPECT_EQ(opening.failed[0].pseudonym, audit::SubjectPseudonym(opening.salt, refuses));
  EXPECT_NE(opening.failed[0].pseudonym, world_.world.data->recorder()->SessionPseudonym(refuses));
}

TEST_F(ForgetSubjectTest, DerivedTokensGoOrStayAsAskedInEverySession) {
  const std::string first = NewModelSession(kLabel, true);
  const SubjectProgress kept = RunJob(DerivedPolicy::kKeepAndReport);
  EXPECT_EQ(kept.num_inputs, 12);
  EXPECT_EQ(world_.world.Find(first)->Info().num_inputs, 15 + 3 + 3);
  const std::string second = NewModelSession(kLabel, true);
  const SubjectProgress gone =
      world_.WaitFor(world_.Start(DerivedPolicy::kForgetDerived, "s2")->job_id);
  EXPECT_EQ(gone.num_inputs, 12 + 3);
  EXPECT_EQ(world_.world.Find(second)->Info().num_inputs, 15 + 3);
  EXPECT_EQ(world_.Digest(second), world_.Fresh(second));
}

// A kill may have come between a session's record and its outcome, and the answers that are kept for repeats are not
// kept for ever.
TEST_F(ForgetSubjectTest, TheRecordOfAnEarlierPassIsFound) {
  const std::string id = NewModelSession(kLabel);
  SubjectJob job;
  job.job_id = RandomId();
  job.label = kLabel;
  job.policy = DerivedPolicy::kKeepAndReport;
  job.nonce = std::string(16, 'n');
  const FakeCall call;
  const PassTools tools = {&world_.world.registry(), world_.world.scheduler(),
                           world_.world.trail()};
  ASSERT_OK_AND_ASSIGN(const SubjectOutcome first, ForgetInSession(job, id, call, tools));
  ASSERT_EQ(first.kind, OutcomeKind::kForgotten);
  for (const bool has_answer : {true, false}) {
    if (!has_answer) {
      const std::shared_ptr<SessionEntry> entry = world_.world.Find(id);
      FairMutexLock lock(&entry->mutex);
      entry->requests = RequestTable();
    }
    ASSERT_OK_AND_ASSIGN(const SubjectOutcome again, ForgetInSession(job, id, call, tools));
    EXPECT_EQ(again.kind, OutcomeKind::kForgotten);
    EXPECT_EQ(again.leaf_hash, first.leaf_hash);
    EXPECT_EQ(again.seq, 1u);
    EXPECT_EQ(again.num_inputs, 12);
  }
  job.job_id = RandomId();
  ASSERT_OK_AND_ASSIGN(const SubjectOutcome other, ForgetInSession(job, id, call, tools));
  EXPECT_EQ(other.kind, OutcomeKind::kNothingLeft);
}

TEST_F(ForgetSubjectTest, WhatIsInTheWayMakesTheJobWait) {
  const std::string id = NewModelSession(kLabel);
  audit::WriteFile(world_.world.data_path() + "/log/checkpoint", "not a checkpoint\n");
  EXPECT_FALSE(world_.world.data->log()->Recheck().ok());
  ASSERT_OK_AND_ASSIGN(const SubjectProgress job, world_.Start());
  SubjectProgress progress = job;
  for (int i = 0; i < 100 && progress.waiting_reason.empty(); ++i) {
    progress = world_.jobs
                   ->Wait(job.job_id, progress.version,
                          std::chrono::steady_clock::now() + std::chrono::seconds(1))
                   .value();
  }
  EXPECT_EQ(progress.waiting_reason, "AUDIT_LOG");
  EXPECT_EQ(ReasonOf(world_.jobs->Summary(job.job_id).status()), "JOB_RUNNING");
  EXPECT_EQ(ReasonOf(world_.jobs->Delete(job.job_id)), "JOB_RUNNING");
  EXPECT_TRUE(world_.Holds(id));
  // The label stays out as long.
  EXPECT_EQ(ReasonOf(world_.world.Append(id, "x", kLabel, "").status()), "SUBJECT_BEING_FORGOTTEN");
  ASSERT_OK(world_.Open());
  EXPECT_EQ(ReasonOf(world_.world.Append(id, "x", kLabel, "").status()), "SUBJECT_BEING_FORGOTTEN");
}

TEST_F(ForgetSubjectTest, ARepeatFindsTheJobAlsoAfterARestart) {
  const std::string id = NewModelSession(kLabel);
  const SubjectProgress job = RunJob(DerivedPolicy::kKeepAndReport);
  const audit::SubjectFiles summary = world_.Summary(job.job_id);
  ASSERT_OK(world_.world.Append(id, "takes zelvim again", kLabel, ""));
  for (int restart = 0; restart < 2; ++restart) {
    ASSERT_OK_AND_ASSIGN(const SubjectProgress again, world_.Start());
    EXPECT_EQ(again.job_id, job.job_id);
    EXPECT_EQ(again.num_inputs, 12);
    EXPECT_EQ(world_.Summary(job.job_id).summary.envelope, summary.summary.envelope);
    EXPECT_EQ(world_.Summary(job.job_id).summary.opening, summary.summary.opening);
    EXPECT_EQ(ReasonOf(world_.Start(DerivedPolicy::kFail, "s1", "another label").status()),
              "REQUEST_ID_REUSED");
    ASSERT_OK(world_.Open(5));
  }
  // What came in since goes with a request of its own.
  const SubjectProgress second =
      world_.WaitFor(world_.Start(DerivedPolicy::kKeepAndReport, "s2")->job_id);
  EXPECT_EQ(second.num_inputs, 18);
  EXPECT_EQ(second.num_unserved, 5);
  EXPECT_EQ(world_.world.Find(id)->Info().audit_seq, 2u);
  EXPECT_EQ(world_.jobs->List("", 10).size(), 2u);
  EXPECT_EQ(world_.jobs->List("", 10)[0].job_id, second.job_id);
  EXPECT_EQ(world_.jobs->List(second.job_id, 10)[0].job_id, job.job_id);
  ASSERT_OK(world_.jobs->Delete(job.job_id));
  EXPECT_EQ(ReasonOf(world_.jobs->Delete(job.job_id)), "JOB_NOT_FOUND");
  EXPECT_EQ(ReasonOf(world_.jobs->Find(job.job_id).status()), "JOB_NOT_FOUND");
  ASSERT_OK(world_.Open());
  EXPECT_EQ(world_.jobs->List("", 10).size(), 1u);
}

TEST_F(ForgetSubjectTest, OldJobsAreDropped) {
  std::string last;
  for (size_t i = 0; i < SubjectForgetter::kFinishedJobsMax + 3; ++i) {
    last = world_.Start(DerivedPolicy::kFail, absl::StrCat("s", i))->job_id;
    EXPECT_EQ(world_.WaitFor(last).stage, JobStage::kDone);
  }
  ASSERT_OK(world_.Open());
  EXPECT_LE(world_.jobs->List("", 1000).size(), SubjectForgetter::kFinishedJobsMax + 1);
  EXPECT_OK(world_.jobs->Find(last).status());
}

TEST_F(ForgetSubjectTest, APlanCountsAndChangesNothing) {
  const std::string refuses = NewModelSession(kLabel, true);
  NewModelSession(kLabel);
  NewModelSession("somebody else");
  const SessionView before = world_.world.View(refuses);
  const FakeCall call;
  ASSERT_OK_AND_ASSIGN(const SubjectPlan plan,
                       world_.jobs->Plan({kLabel, DerivedPolicy::kFail, "", {}}, call));
  EXPECT_EQ(plan.num_examined, 3);
  EXPECT_EQ(plan.num_sessions, 2);
  EXPECT_EQ(plan.num_inputs, 12);
  EXPECT_EQ(plan.num_failed, 1);
  EXPECT_TRUE(world_.world.View(refuses) == before);
  EXPECT_EQ(world_.world.data->log()->num_leaves(), 0u);
}

}  // namespace
}  // namespace lethe::testing
