// Goal: a ForgetSubject over a thousand sessions, killed again and again, ends: no session holds the label, each digest is
// a fresh session's, each session that held it has one certificate, and the summary counts exactly these.
// Method: crash points in child processes on one data directory; the auditor's verifier and fresh sessions as oracles.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <sys/wait.h>
#include <unistd.h>

#include "tests/server/store_testing.h"
#include "tests/server/subject_world.h"
#include "tests/testing/fault_switch.h"

namespace lethe::testing {
namespace {

// Runs the job to its end in a child that is killed at its n-th crash point (0: not at all); true when it was.
bool RunKilled(int n, SubjectWorld* world, DerivedPolicy policy = DerivedPolicy::kKeepAndReport) {
  world->Close();
  const pid_t child = fork();
  if (child == 0) {
    if (!world->Open().ok()) _exit(1);
    CrashAtPoint(n);
    const absl::StatusOr<SubjectProgress> job = world->Start(policy);
    if (!job.ok()) _exit(2);
    world->jobs->Resume();
    if (world->WaitFor(job->job_id).stage != JobStage::kDone) _exit(3);
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_THAT(WEXITSTATUS(status), ::testing::AnyOf(0, kCrashExit));
  return WEXITSTATUS(status) == kCrashExit;
}

// What the sessions held before, without the label.
struct Expected {
  std::vector<std::string> ids;
  std::map<std::string, std::vector<std::string>> retained;  // SessionView::inputs
  std::set<std::string> held;
};

Expected Expect(SubjectWorld* world, const std::vector<std::string>& ids) {
  Expected expected;
  expected.ids = ids;
  for (const std::string& id : ids) {
    std::vector<std::string>& retained = expected.retained[id];
    for (const std::string& input : world->world.View(id).inputs) {
      if (input.find(kLabel) == std::string::npos) {
        // Without the mark, which a Forget sets.
        retained.push_back(input.substr(0, input.find(' ', input.find(' ') + 1)));
      } else {
        expected.held.insert(id);
      }
    }
  }
  return expected;
}

void CheckForgotten(const Expected& expected, SubjectWorld* world) {
  for (const std::string& id : expected.ids) {
    EXPECT_FALSE(world->Holds(id)) << id;
    std::vector<std::string> retained;
    for (const std::string& input : world->world.View(id).inputs) {
      retained.push_back(input.substr(0, input.find(' ', input.find(' ') + 1)));
    }
    EXPECT_EQ(retained, expected.retained.at(id)) << id;
    EXPECT_EQ(world->Digest(id), world->Fresh(id)) << id;
    EXPECT_EQ(world->world.Find(id)->Info().audit_seq, expected.held.count(id)) << id;
  }
}

void CheckSummary(const Expected& expected, SubjectWorld* world) {
  const SubjectProgress job = world->Start().value();  // the repeat finds it
  EXPECT_EQ(job.stage, JobStage::kDone);
  EXPECT_EQ(job.num_forgotten, static_cast<int64_t>(expected.held.size()));
  EXPECT_EQ(job.num_failed + job.num_deleted + job.num_nothing_left, 0);
  EXPECT_EQ(world->world.data->log()->num_leaves(), expected.held.size() + 1);
  const std::vector<audit::CertificateFiles> certificates = world->Certificates(job.job_id);
  EXPECT_EQ(certificates.size(), expected.held.size());
  const audit::SubjectReport report = audit::VerifySubject(world->Summary(job.job_id), certificates,
                                                           world->Trust(), {std::string(16, 'n')});
  ASSERT_TRUE(report.record.ok()) << report.record.first_failure()->name << ": "
                                  << report.record.first_failure()->detail;
  for (const audit::Check& check : report.record.checks) {
    EXPECT_EQ(check.result, audit::CheckResult::kOk) << check.name << ": " << check.detail;
  }
  EXPECT_EQ(report.summary->forgotten.count, expected.held.size());
  EXPECT_EQ(report.summary->num_examined, expected.ids.size());
}

// A model session or a vector session whose inputs, some under the label, depend on `i`.
std::string NewSession(int i, SubjectWorld* world) {
  const auto seed = static_cast<unsigned>(i);
  const std::string label = i % 10 < 7 ? kLabel : "somebody else";
  if (i % 2 == 0) {
    const std::string id = world->world.NewModelSession()->session_id;
    EXPECT_OK(world->world.Append(id, absl::StrCat("visit ", i), "", ""));
    EXPECT_OK(world->world.Append(id, absl::StrCat("takes ", i * 7919), label, ""));
    if (i % 20 == 0) {
      EXPECT_OK(world->world.Generate(id, "and", absl::StrCat("g", i), 4));
    }
    if (i % 6 == 0) {
      EXPECT_OK(world->world.Append(id, "again", label, ""));
    }
    return id;
  }
  const std::string id = world->world.NewVectorSession()->session_id;
  EXPECT_OK(world->world.AppendRows(id, 6, seed, "", ""));
  EXPECT_OK(world->world.AppendRows(id, 1 + i % 3, seed + 5000, label, ""));
  EXPECT_OK(world->world.AppendRows(id, 2, seed + 9000, "", ""));
  return id;
}

TEST(ForgetSubjectKillTest, AThousandSessions) {
  SubjectWorld world;
  ASSERT_OK(world.Open());
  std::vector<std::string> ids;
  for (int i = 0; i < 1000; ++i) ids.push_back(NewSession(i, &world));
  const Expected expected = Expect(&world, ids);
  ASSERT_EQ(expected.held.size(), 700u);
  int num_kills = 0;
  for (const int n : {2, 5, 11, 400, 1, 1507, 3, 2003, 7, 0}) {
    num_kills += RunKilled(n, &world) ? 1 : 0;
  }
  EXPECT_EQ(num_kills, 9);
  ASSERT_OK(world.Open());
  CheckForgotten(expected, &world);
  CheckSummary(expected, &world);
}

TEST(ForgetSubjectKillTest, AKillAtEveryPoint) {
  int num_points = 0;
  for (int n = 1;; ++n) {
    SubjectWorld world;
    ASSERT_OK(world.Open());
    std::vector<std::string> ids;
    for (const int i : {0, 1, 8}) ids.push_back(NewSession(i, &world));
    const Expected expected = Expect(&world, ids);
    ASSERT_EQ(expected.held.size(), 2u);
    const bool killed = RunKilled(n, &world);
    // It goes on by itself, if it had begun; the same request finds or begins it.
    ASSERT_OK(world.Open());
    world.jobs->Resume();
    ASSERT_OK_AND_ASSIGN(const SubjectProgress job, world.Start());
    EXPECT_EQ(world.WaitFor(job.job_id).stage, JobStage::kDone) << n;
    CheckForgotten(expected, &world);
    CheckSummary(expected, &world);
    EXPECT_EQ(world.jobs->List("", 10).size(), 1u) << n;
    // Now the label may come in again, and survives a start.
    ASSERT_OK(world.world.Append(ids[0], "new", kLabel, "")) << n;
    ASSERT_OK(world.Open());
    EXPECT_TRUE(world.Holds(ids[0]));
    if (!killed) break;
    ++num_points;
  }
  EXPECT_GE(num_points, 25);
}

// The third transaction of a job: it knows which sessions hold the label, and has begun with none.
constexpr int kPlanIsStored = 6;

TEST(ForgetSubjectKillTest, WhatBefellASessionBeforeItsTurnIsReported) {
  SubjectWorld world;
  ASSERT_OK(world.Open());
  const std::string deleted = NewSession(0, &world);
  const std::string forgotten = NewSession(1, &world);
  const std::string kept = NewSession(2, &world);
  ASSERT_TRUE(RunKilled(kPlanIsStored, &world));
  ASSERT_OK(world.Open());
  ASSERT_EQ(world.jobs->List("", 1)[0].num_sessions, 3);
  ASSERT_OK(world.world.registry().Delete(deleted, {}).status());
  ASSERT_OK(world.world.Forget(forgotten, kLabel, "f1").status());
  world.jobs->Resume();
  const SubjectProgress job = world.WaitFor(world.Start()->job_id);
  EXPECT_EQ(job.num_sessions, 3);
  EXPECT_EQ(job.num_deleted, 1);
  EXPECT_EQ(job.num_nothing_left, 1);
  EXPECT_EQ(job.num_forgotten, 1);
  EXPECT_FALSE(world.Holds(kept));
  const audit::SubjectReport report = audit::VerifySubject(
      world.Summary(job.job_id), world.Certificates(job.job_id), world.Trust());
  EXPECT_TRUE(report.record.ok());
  EXPECT_EQ(report.summary->num_deleted, 1u);
  EXPECT_EQ(report.summary->forgotten.count, 1u);
}

// Sealed bytes of a job's rows that are stored now, and their key.
std::vector<std::string> JobTraces(const SubjectWorld& world) {
  std::vector<std::string> traces;
  const std::string directory = world.world.data_path() + "/sessions";
  const std::string keys = audit::ReadFile(directory + "/data.keys");
  auto rows = world.world.data->store()->AllRows().value();
  for (const auto& [number, of_session] : rows) {
    if (of_session.front().kind != RowKind::kJob) continue;
    traces.push_back(keys.substr(4096 + 64 * of_session.front().key.slot + 8, 32));
  }
  return traces;
}

TEST(ForgetSubjectKillTest, TheLabelCannotBeReadAnyMoreOnceTheJobIsDone) {
  SubjectWorld world;
  ASSERT_OK(world.Open());
  const std::string id = NewSession(0, &world);
  ASSERT_TRUE(RunKilled(4, &world));
  ASSERT_OK(world.Open());
  const std::vector<std::string> traces = JobTraces(world);
  ASSERT_EQ(traces.size(), 1u);
  EXPECT_GT(CountFound(FileBytes(world.world.data_path()), traces), 0);
  world.jobs->Resume();
  EXPECT_EQ(world.WaitFor(world.Start()->job_id).stage, JobStage::kDone);
  world.Close();
  EXPECT_EQ(CountFound(FileBytes(world.world.data_path()), traces), 0);
  EXPECT_EQ(CountFound(FileBytes(world.world.data_path()), {kLabel}), 0);
}

}  // namespace
}  // namespace lethe::testing
