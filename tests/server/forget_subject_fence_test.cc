// Goal: while a label is being forgotten everywhere, nobody brings an input in under it: not a new call, not one that was
// under way, not a stream on the session or beside it; and when the job is done nothing of the label is left.
// Method: jobs that are started from inside streams and calls; each protection is switched off as a control.
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/generation/durable_sink.h"
#include "tests/server/subject_world.h"
#include "tests/testing/fault_switch.h"

namespace lethe::testing {
namespace {

using ::testing::IsEmpty;

class ForgetSubjectFenceTest : public ::testing::Test {
 protected:
  ForgetSubjectFenceTest() {
    EXPECT_OK(world_.Open());
    entry_ = world_.world.NewModelSession();
    id_ = entry_->session_id;
    EXPECT_OK(world_.world.Append(id_, "the first visit", "", ""));
  }
  // The job at work and waiting for the session, whose lock is held meanwhile.
  void WhileTheJobRuns(const std::function<void()>& work) {
    entry_->mutex.Lock();
    ASSERT_OK(world_.Start());
    work();
    entry_->mutex.Unlock();
  }
  void RunJob(const std::string& request_id = "s1") {
    const SubjectProgress job = world_.Start(DerivedPolicy::kKeepAndReport, request_id).value();
    EXPECT_EQ(world_.WaitFor(job.job_id).stage, JobStage::kDone);
  }
  GenerateCommand Labelled(int64_t max_tokens, bool remember) {
    GenerateCommand command = Prompt("takes zelvim", max_tokens);
    command.subject = kLabel;
    command.remember = remember;
    command.ignore_end_of_text = true;
    command.request = Key("g1");
    return command;
  }
  // A stream during which the job runs from beginning to end, after the third token.
  RecordingSink Stream(bool remember) {
    RecordingSink recording;
    int num_tokens = 0;
    recording.on_token = [&] {
      if (++num_tokens == 3) RunJob();
    };
    DurableSink sink(remember ? entry_->journal.get() : nullptr, &recording);
    const FakeCall call;
    const GenerateCommand command = Labelled(20, remember);
    EXPECT_OK(lethe::Generate(command, call, world_.world.scheduler(), entry_, &sink));
    return recording;
  }

  SubjectWorld world_;
  std::shared_ptr<SessionEntry> entry_;
  std::string id_;
};

TEST_F(ForgetSubjectFenceTest, NewInputsUnderTheLabelAreRefusedInEverySession) {
  const std::string other = world_.world.NewModelSession()->session_id;
  const std::string vectors = world_.world.NewVectorSession()->session_id;
  WhileTheJobRuns([&] {
    EXPECT_EQ(ReasonOf(world_.world.Append(other, "x", kLabel, "").status()),
              "SUBJECT_BEING_FORGOTTEN");
    EXPECT_EQ(ReasonOf(world_.world.AppendRows(vectors, 1, 1, kLabel, "").status()),
              "SUBJECT_BEING_FORGOTTEN");
    const std::shared_ptr<SessionEntry> created = world_.world.NewModelSession();
    const FakeCall call;
    for (const bool remember : {true, false}) {
      RecordingSink sink;
      EXPECT_EQ(ReasonOf(lethe::Generate(Labelled(3, remember), call, world_.world.scheduler(),
                                         created, &sink)),
                "SUBJECT_BEING_FORGOTTEN");
    }
    EXPECT_EQ(ReasonOf(world_.Start(DerivedPolicy::kFail, "s2").status()),
              "SUBJECT_BEING_FORGOTTEN");
    // Other labels, and none, are not in the way.
    EXPECT_OK(world_.world.Append(other, "x", "somebody else", ""));
    EXPECT_OK(world_.world.Append(other, "x", "", ""));
  });
  RunJob();
  EXPECT_OK(world_.world.Append(other, "x", kLabel, ""));
}

TEST_F(ForgetSubjectFenceTest, WithoutTheFenceASessionHoldsTheLabelInTheEnd) {
  const std::string other = world_.world.NewModelSession()->session_id;
  const ScopedFault off(Fault::kSubjectAdmitted);
  // The job has looked at the other session when it waits for the first to forget.
  EXPECT_OK(world_.world.Append(id_, "takes zelvim", kLabel, ""));
  ASSERT_OK_AND_ASSIGN(const SubjectProgress job, world_.Start());
  SubjectProgress progress = job;
  while (progress.stage == JobStage::kExamining) {
    progress = world_.jobs
                   ->Wait(job.job_id, progress.version,
                          std::chrono::steady_clock::now() + std::chrono::seconds(10))
                   .value();
  }
  EXPECT_OK(world_.world.Append(other, "x", kLabel, ""));
  EXPECT_EQ(world_.WaitFor(job.job_id).stage, JobStage::kDone);
  EXPECT_TRUE(world_.Holds(other));
}

TEST_F(ForgetSubjectFenceTest, AStreamUnderTheLabelIsToldAndEnds) {
  const RecordingSink sink = Stream(true);
  ASSERT_EQ(sink.finished.size(), 1u);
  EXPECT_EQ(sink.finished[0].reason, FinishReason::kForgotten);
  ASSERT_EQ(sink.notices.size(), 1u);
  EXPECT_EQ(sink.notices[0].num_forgotten, 12 + 3);
  EXPECT_EQ(sink.tokens.size(), 3u);
  EXPECT_FALSE(world_.Holds(id_));
  EXPECT_EQ(world_.world.Find(id_)->Info().num_inputs, 15);
  EXPECT_EQ(world_.Digest(id_), world_.Fresh(id_));
  ASSERT_OK(world_.Open());
  EXPECT_FALSE(world_.Holds(id_));
}

TEST_F(ForgetSubjectFenceTest, AStreamBesideTheSessionEndsToo) {
  const RecordingSink sink = Stream(false);
  ASSERT_EQ(sink.finished.size(), 1u);
  EXPECT_EQ(sink.finished[0].reason, FinishReason::kForgotten);
  EXPECT_EQ(sink.tokens.size(), 3u);
  // The session never held the label; its fork did.
  EXPECT_EQ(world_.jobs->List("", 1)[0].num_sessions, 0);
  EXPECT_FALSE(world_.Holds(id_));
}

TEST_F(ForgetSubjectFenceTest, WhoIsNotStoppedGoesOnUnderTheLabel) {
  const ScopedFault off(Fault::kWritersGoOn);
  const RecordingSink sink = Stream(true);
  EXPECT_EQ(sink.finished[0].reason, FinishReason::kMaxTokens);
  EXPECT_TRUE(world_.Holds(id_));
}

TEST_F(ForgetSubjectFenceTest, AStreamUnderAnotherLabelIsToldAndGoesOn) {
  ASSERT_OK(world_.world.Append(id_, "takes zelvim", kLabel, ""));
  RecordingSink sink;
  int num_tokens = 0;
  sink.on_token = [&] {
    if (++num_tokens == 3) RunJob();
  };
  GenerateCommand command = Labelled(10, true);
  command.subject = "somebody else";
  const FakeCall call;
  EXPECT_OK(lethe::Generate(command, call, world_.world.scheduler(), entry_, &sink));
  EXPECT_EQ(sink.notices.size(), 1u);
  EXPECT_EQ(sink.tokens.size(), 10u);
  EXPECT_EQ(sink.finished[0].reason, FinishReason::kMaxTokens);
  EXPECT_FALSE(world_.Holds(id_));
}

TEST_F(ForgetSubjectFenceTest, AnAppendThatIsComingInIsTakenBack) {
  // Long enough for several pieces; the job begins between two of them.
  std::vector<int32_t> vocab_ids = TinyModel()->Tokenize(std::string(500, 'x'));
  class StartingCall : public Call {
   public:
    explicit StartingCall(std::function<void()> start) : start_(std::move(start)) {}
    absl::Status Check() const override {
      if (++num_checks_ == 6) start_();
      return absl::OkStatus();
    }

   private:
    const std::function<void()> start_;
    mutable int num_checks_ = 0;
  };
  absl::StatusOr<SubjectProgress> job = absl::UnknownError("");
  const StartingCall call([&] { job = world_.Start(); });
  const absl::StatusOr<AppendReceipt> receipt =
      AppendInputs({vocab_ids, kLabel, Key("a1")}, call, world_.world.scheduler(), entry_);
  ASSERT_OK(job.status());
  EXPECT_EQ(world_.WaitFor(job->job_id).stage, JobStage::kDone);
  // Refused, or answered before the job had looked; either way nothing is left.
  if (!receipt.ok()) {
    EXPECT_EQ(ReasonOf(receipt.status()), "SUBJECT_BEING_FORGOTTEN");
  }
  EXPECT_FALSE(world_.Holds(id_));
  EXPECT_EQ(world_.world.Find(id_)->Info().num_inputs, 15);
  EXPECT_EQ(world_.Digest(id_), world_.Fresh(id_));
}

TEST_F(ForgetSubjectFenceTest, AnAnswerKeptForARepeatForgetsTheLabelToo) {
  // A request under the label that brought nothing in.
  RecordingSink sink;
  GenerateCommand command = Labelled(0, true);
  command.prompt.clear();
  const FakeCall call;
  DurableSink durable(entry_->journal.get(), &sink);
  EXPECT_OK(lethe::Generate(command, call, world_.world.scheduler(), entry_, &durable));
  {
    FairMutexLock lock(&entry_->mutex);
    EXPECT_EQ(entry_->requests.Save().size(), 1u);
    EXPECT_NE(entry_->requests.Save()[0].answer.find(kLabel), std::string::npos);
  }
  RunJob();
  EXPECT_FALSE(world_.Holds(id_));
  ASSERT_OK(world_.Open());
  EXPECT_FALSE(world_.Holds(id_));
  EXPECT_EQ(world_.jobs->List("", 1)[0].num_sessions, 0);
}

}  // namespace
}  // namespace lethe::testing
