// Goal: a migrate record says where the session was evaluated before, verifies, and takes nothing out; one that says
// nothing, or something else, is neither signed nor read.
// Method: records of a session in a log of the test's own.
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "audit/certificate/recorder.h"
#include "audit/certificate/verify.h"
#include "tests/audit/certificate/certificate_world.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;

RecordDraft MigrateDraft(CertificateWorld* world) {
  RecordDraft draft = world->Draft(RecordKind::kForget);
  draft.kind = RecordKind::kMigrate;
  draft.forgotten.clear();
  draft.derived_kept.clear();
  draft.stores.clear();
  draft.migrated_from = Arithmetic{Sha256Of("another numerics id"), "cpu"};
  return draft;
}

TEST(MigrateRecordTest, VerifiesAndSaysWhereFrom) {
  CertificateWorld world;
  const RecordDraft draft = MigrateDraft(&world);
  Recorder recorder(world.keys(), world.log());
  const uint64_t seq = world.session()->next_seq();
  const Sha256Digest prev = world.session()->prev();
  const size_t num_openings = world.session()->num_openings();
  ASSERT_OK_AND_ASSIGN(const FinishedRecord record, recorder.Record(draft, world.session()));
  EXPECT_EQ(record.seq, seq);
  EXPECT_EQ(record.statement.prev, prev);
  // Nothing was forgotten: what opens earlier records stays.
  EXPECT_EQ(world.session()->num_openings(), num_openings + 1);
  CertificateFiles files;
  files.envelope = record.envelope;
  files.proof_file = record.proof_file;
  files.opening = record.opening;
  const VerifyReport report = VerifyCertificate(files, world.trust());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report.statement->kind, RecordKind::kMigrate);
  EXPECT_EQ(report.statement->migrated_from->numerics_id, draft.migrated_from->numerics_id);
  EXPECT_EQ(report.statement->migrated_from->device_kind, "cpu");
  EXPECT_EQ(RecordKindName(report.statement->kind), "migrate");
}

TEST(MigrateRecordTest, RefusesWhatIsNoMigration) {
  CertificateWorld world;
  Recorder recorder(world.keys(), world.log());
  const std::vector<std::pair<const char*, std::function<void(RecordDraft*)>>> cases = {
      {"predicate.from", [](RecordDraft* d) { d->migrated_from.reset(); }},
      {"predicate.from.device", [](RecordDraft* d) { d->migrated_from->device_kind = ""; }},
      {"predicate.from",
       [](RecordDraft* d) {
         d->migrated_from->numerics_id = d->engine.numerics_id;
         d->migrated_from->device_kind = d->engine.device_kind;
       }},
      {"predicate.from", [](RecordDraft* d) { d->kind = RecordKind::kCertify; }},
      {"predicate.memories.deviation", [](RecordDraft* d) { d->proves_optimality = true; }},
      {"forgotten", [](RecordDraft* d) { d->forgotten = {1000}; }},
      {"predicate",
       [](RecordDraft* d) {
         d->stores = {{"session-memory", "replaced"}};
       }},
  };
  for (const auto& [field, apply] : cases) {
    RecordDraft draft = MigrateDraft(&world);
    apply(&draft);
    EXPECT_THAT(recorder.Record(draft, world.session()),
                StatusIs(absl::StatusCode::kInvalidArgument, field));
  }
  // The same numerics on another kind of device is a move.
  RecordDraft draft = MigrateDraft(&world);
  draft.migrated_from = Arithmetic{draft.engine.numerics_id, "cuda-sm90"};
  ASSERT_OK(recorder.Record(draft, world.session()));
}

}  // namespace
}  // namespace lethe::audit
