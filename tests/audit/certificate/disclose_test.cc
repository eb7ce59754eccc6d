// Goal: a disclose record is a certify record that names an auditor: it verifies with its bundle, and one without a name, or a
// name on another kind, is neither signed nor read.
// Method: records of a session in a log of the test's own.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"

#include "audit/certificate/recorder.h"
#include "audit/certificate/verify.h"
#include "tests/audit/certificate/certificate_world.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;

RecordDraft DiscloseDraft(CertificateWorld* world) {
  RecordDraft draft = world->Draft(RecordKind::kCertify);
  draft.kind = RecordKind::kDisclose;
  draft.auditor = "audit-2026";
  return draft;
}

TEST(DiscloseRecordTest, VerifiesWithItsBundleAndNamesTheAuditor) {
  CertificateWorld world;
  Recorder recorder(world.keys(), world.log());
  const size_t num_openings = world.session()->num_openings();
  ASSERT_OK_AND_ASSIGN(const FinishedRecord record,
                       recorder.Record(DiscloseDraft(&world), world.session()));
  EXPECT_EQ(world.session()->num_openings(), num_openings + 1) << "nothing was forgotten";
  ProofBundle bundle = world.bundle();
  bundle.leaf_hash = record.leaf_hash;
  CertificateFiles files;
  files.envelope = record.envelope;
  files.proof_file = record.proof_file;
  files.opening = record.opening;
  files.bundle = WriteBundle(bundle).value();
  const VerifyReport report = VerifyCertificate(files, world.trust());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report.statement->kind, RecordKind::kDisclose);
  EXPECT_EQ(report.statement->auditor, "audit-2026");
  EXPECT_TRUE(report.statement->proves_optimality);
  EXPECT_EQ(RecordKindName(report.statement->kind), "disclose");
}

TEST(DiscloseRecordTest, RefusesWhatIsNoDisclosure) {
  CertificateWorld world;
  Recorder recorder(world.keys(), world.log());
  const std::vector<std::pair<const char*, std::function<void(RecordDraft*)>>> cases = {
      {"predicate.auditor", [](RecordDraft* d) { d->auditor = ""; }},
      {"predicate.auditor", [](RecordDraft* d) { d->auditor = "Anna B."; }},
      {"predicate.auditor", [](RecordDraft* d) { d->auditor = "-a"; }},
      {"predicate.auditor", [](RecordDraft* d) { d->auditor = std::string(64, 'a'); }},
      {"predicate.auditor", [](RecordDraft* d) { d->kind = RecordKind::kCertify; }},
      {"forgotten", [](RecordDraft* d) { d->forgotten = {1000}; }},
  };
  for (const auto& [field, apply] : cases) {
    RecordDraft draft = DiscloseDraft(&world);
    apply(&draft);
    EXPECT_THAT(recorder.Record(draft, world.session()),
                StatusIs(absl::StatusCode::kInvalidArgument, field));
  }
}

// As bytes: the name can be neither left out nor added, nor the kind exchanged.
TEST(DiscloseRecordTest, OtherBytesAreNoStatement) {
  CertificateWorld world;
  Recorder recorder(world.keys(), world.log());
  ASSERT_OK_AND_ASSIGN(const FinishedRecord record,
                       recorder.Record(DiscloseDraft(&world), world.session()));
  ASSERT_OK_AND_ASSIGN(const std::string bytes, WriteStatement(record.statement));
  ASSERT_OK(ParseStatement(bytes).status());
  for (const auto& [from, to] : std::vector<std::pair<const char*, const char*>>{
           {"\"auditor\":\"audit-2026\",", ""},
           {"\"auditor\":\"audit-2026\"", "\"auditor\":\"\""},
           {"disclose/v1", "certify/v1"},
           {"disclose/v1", "forget/v1"}}) {
    const std::string other = absl::StrReplaceAll(bytes, {{from, to}});
    ASSERT_NE(other, bytes);
    EXPECT_THAT(ParseStatement(other), StatusIs(absl::StatusCode::kInvalidArgument)) << to;
  }
}

}  // namespace
}  // namespace lethe::audit
