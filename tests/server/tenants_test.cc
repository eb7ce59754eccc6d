// Goal: a session, a request_id, a label under erasure and a job are one tenant's: another one finds nothing of them, before a
// restart and after it, and what was stored before there were tenants is local's.
// Method: two tenants in one DurableWorld, which is closed and opened again; snapshots with the tenant cut out.
#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "server/session_registry/saved_session.h"
#include "server/session_registry/tenant_text.h"
#include "tests/server/subject_world.h"
#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

using ::lethe::testing::DurableWorld;
using ::lethe::testing::Key;
using ::lethe::testing::kLabel;
using ::lethe::testing::ReasonOf;
using ::lethe::testing::SmallVectors;
using ::lethe::testing::SubjectWorld;
using ::lethe::testing::TinyModel;

constexpr char kClinic[] = "clinic-a";
constexpr char kOther[] = "clinic-b";

std::string NewSessionOf(const std::string& tenant, SessionRegistry* registry,
                         const RequestKey& request = {}) {
  NewSession wanted;
  wanted.model = TinyModel();
  wanted.tenant = tenant;
  return registry->Create(wanted, request).value()->session_id;
}

std::vector<std::string> IdsOf(const std::string& tenant, const SessionRegistry& registry) {
  std::vector<std::string> ids;
  for (const auto& entry : registry.List(tenant, "", 100)) ids.push_back(entry->session_id);
  return ids;
}

TEST(TenantTextTest, IsTheTextAloneForLocal) {
  EXPECT_EQ(WithTenant(kLocalTenant, "create-1"), "create-1");
  EXPECT_EQ(WithTenant(kClinic, "create-1"), "clinic-a create-1");
  EXPECT_EQ(SplitTenant("create-1"), std::make_pair(std::string("local"), std::string("create-1")));
  EXPECT_EQ(SplitTenant("clinic-a create-1"),
            std::make_pair(std::string(kClinic), std::string("create-1")));
}

TEST(TenantsTest, FindNothingOfEachOther) {
  DurableWorld world;
  ASSERT_OK(world.Open());
  const std::string ours = NewSessionOf(kClinic, &world.registry());
  const std::string theirs = NewSessionOf(kOther, &world.registry());
  for (int pass = 0; pass < 2; ++pass) {
    SessionRegistry& registry = world.registry();
    EXPECT_OK(registry.Find(kClinic, ours).status());
    EXPECT_EQ(IdsOf(kClinic, registry), std::vector<std::string>{ours});
    EXPECT_EQ(IdsOf(kOther, registry), std::vector<std::string>{theirs});
    EXPECT_TRUE(IdsOf(kLocalTenant, registry).empty());
    const absl::Status missing = registry.Find(kClinic, std::string(26, 'a')).status();
    EXPECT_EQ(ReasonOf(missing), "SESSION_NOT_FOUND");
    EXPECT_EQ(registry.Find(kClinic, theirs).status(), missing);
    EXPECT_EQ(registry.Find("nobody", theirs).status(), missing);
    EXPECT_EQ(registry.Delete(kClinic, theirs, {}).status(), missing);
    EXPECT_EQ(registry.num_sessions(), 2);
    world.Close();
    ASSERT_OK(world.Open());
  }
  EXPECT_OK(world.registry().Delete(kClinic, ours, {}).status());
  EXPECT_TRUE(IdsOf(kClinic, world.registry()).empty());
}

TEST(TenantsTest, UseTheSameRequestIdsApart) {
  DurableWorld world;
  ASSERT_OK(world.Open());
  std::vector<std::string> ids;
  const std::vector<std::string> tenants = {kLocalTenant, kClinic, kOther};
  for (const std::string& tenant : tenants) {
    ids.push_back(NewSessionOf(tenant, &world.registry(), Key("create-1")));
  }
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
  // Enough that the registry's own rows are written anew.
  for (int i = 0; i < 40; ++i) {
    NewSessionOf(kOther, &world.registry(), Key("more-" + std::to_string(i)));
  }
  world.Close();
  ASSERT_OK(world.Open());
  for (size_t i = 0; i < tenants.size(); ++i) {
    EXPECT_EQ(NewSessionOf(tenants[i], &world.registry(), Key("create-1")), ids[i]);
  }
  EXPECT_EQ(*world.registry().Delete(kClinic, ids[1], Key("delete-1")), 0);
  EXPECT_EQ(*world.registry().Delete(kClinic, ids[1], Key("delete-1")), 0);
  EXPECT_EQ(ReasonOf(world.registry().Delete(kOther, ids[1], Key("delete-1")).status()),
            "SESSION_NOT_FOUND");
}

// A ledger that is newer than the data directory deletes again, whosever the session is.
TEST(TenantsTest, ASessionIsRestoredToItsTenant) {
  DurableWorld world;
  ASSERT_OK(world.Open());
  NewSession wanted;
  wanted.vectors = SmallVectors();
  wanted.tenant = kClinic;
  const std::string id = world.registry().Create(wanted, {}).value()->session_id;
  ASSERT_OK(world.AppendRows(id, 5, 1, "", "a1").status());
  world.Close();
  ASSERT_OK(world.Open());
  const std::shared_ptr<SessionEntry> entry = world.Find(id);
  EXPECT_EQ(entry->tenant, kClinic);
  FairMutexLock lock(&entry->mutex);
  ASSERT_OK(entry->LiveSession().status());
  EXPECT_EQ(SaveEntry(*entry).tenant, kClinic);
}

TEST(TenantsTest, ASnapshotFromBeforeIsLocals) {
  SavedSession saved;
  saved.session_id = "an-id";
  saved.tenant = kClinic;
  saved.display_name = "a name";
  std::string bytes = WriteSnapshot(saved);
  EXPECT_EQ(ReadMeta({bytes})->tenant, kClinic);
  // tag, version, session_id, then the tenant, which version 2 lacks; a string is its length in 8 bytes and itself.
  const size_t tenant_at = 8 + 8 + 8 + saved.session_id.size();
  bytes.erase(tenant_at, 8 + saved.tenant.size());
  EXPECT_FALSE(ReadMeta({bytes}).ok());
  bytes[8] = 2;
  ASSERT_OK_AND_ASSIGN(const SavedSession read, ReadMeta({bytes}));
  EXPECT_EQ(read.tenant, kLocalTenant);
  EXPECT_EQ(read.display_name, "a name");
}

TEST(TenantsTest, AJobFromBeforeIsLocals) {
  SubjectJob job;
  job.job_id = RandomId();
  job.tenant = kClinic;
  job.label = kLabel;
  std::string row = EncodeStart(job);
  SubjectJob read;
  ASSERT_OK(ApplyRow(row, &read));
  EXPECT_EQ(read.tenant, kClinic);
  row.erase(16, 8 + job.tenant.size());
  row[8] = 1;
  SubjectJob old;
  ASSERT_OK(ApplyRow(row, &old));
  EXPECT_EQ(old.tenant, kLocalTenant);
  EXPECT_EQ(old.job_id, job.job_id);
  EXPECT_EQ(old.label, kLabel);
}

TEST(TenantsTest, AJobForgetsInItsTenantsSessionsAlone) {
  SubjectWorld world;
  ASSERT_OK(world.Open());
  const std::string ours = NewSessionOf(kClinic, &world.world.registry());
  const std::string theirs = NewSessionOf(kOther, &world.world.registry());
  for (const std::string& id : {ours, theirs}) {
    ASSERT_OK(world.world.Append(id, "some words", kLabel, "a1").status());
  }
  SubjectCommand command;
  command.tenant = kClinic;
  command.label = kLabel;
  command.policy = DerivedPolicy::kFail;
  command.request = Key("s1");
  ASSERT_OK_AND_ASSIGN(const SubjectPlan plan,
                       world.jobs->Plan(command, ::lethe::testing::FakeCall()));
  EXPECT_EQ(plan.num_examined, 1);
  ASSERT_OK_AND_ASSIGN(SubjectProgress job, world.jobs->Start(command));
  // Whatever the job does meanwhile, it keeps nobody else's inputs out.
  ASSERT_OK(world.world.Append(theirs, "more words", kLabel, "a2").status());
  EXPECT_EQ(ReasonOf(world.jobs->Find(job.job_id, kOther).status()), "JOB_NOT_FOUND");
  EXPECT_EQ(ReasonOf(world.jobs->Find(job.job_id).status()), "JOB_NOT_FOUND");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (job.stage != JobStage::kDone && std::chrono::steady_clock::now() < end) {
    job = world.jobs->Wait(job.job_id, job.version, end, kClinic).value();
  }
  EXPECT_EQ(job.num_examined, 1);
  EXPECT_EQ(job.num_forgotten, 1);
  EXPECT_FALSE(world.Holds(ours));
  EXPECT_TRUE(world.Holds(theirs));
  // The same request_id is another tenant's own.
  command.tenant = kOther;
  ASSERT_OK_AND_ASSIGN(const SubjectProgress second, world.jobs->Start(command));
  EXPECT_NE(second.job_id, job.job_id);
  ASSERT_OK(world.Open());
  EXPECT_EQ(world.jobs->List("", 10, kClinic).size(), 1u);
  EXPECT_EQ(world.jobs->List("", 10).size(), 0u);
  EXPECT_EQ(world.jobs->SummaryLeaves(kClinic).size(), 1u);
  const std::string& id = job.job_id;
  for (const absl::Status& status :
       {world.jobs->Summary(id, kOther).status(), world.jobs->Outcomes(id, 0, 1, kOther).status(),
        world.jobs->Delete(id, kOther)}) {
    EXPECT_EQ(ReasonOf(status), "JOB_NOT_FOUND");
  }
  EXPECT_OK(world.jobs->Delete(id, kClinic));
}

TEST(TenantsTest, ADamagedSessionStaysItsTenants) {
  DurableWorld world;
  ASSERT_OK(world.Open());
  const std::string id = NewSessionOf(kClinic, &world.registry());
  const int64_t number = world.Find(id)->journal->number();
  world.Close();
  ASSERT_OK(world.Open());
  SessionEntry::Stored stored;
  stored.journal = std::make_unique<SessionJournal>(
      world.data->store(), number,
      JournalState::Damaged(world.data->store()->AllRows()->at(number)));
  ASSERT_OK_AND_ASSIGN(const std::string name, stored.journal->ReadName());
  EXPECT_EQ(SplitTenant(name), std::make_pair(std::string(kClinic), id));
}

}  // namespace
}  // namespace lethe
