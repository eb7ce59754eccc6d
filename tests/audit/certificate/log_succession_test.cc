// Goal: keys are replaced and logs followed by others without losing a record: old certificates verify by the old entries of the
// trust file, new ones by the new, none by the wrong one; a kill at any moment is made good by the next start.
// Method: a server's keys and log directory with certificates made before and after each change; a child process is ended at
// every crash point of a change.
#include "audit/certificate/log_succession.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include <sys/wait.h>
#include <unistd.h>

#include "audit/certificate/keys.h"
#include "audit/certificate/keyset.h"
#include "audit/certificate/keyset_record.h"
#include "audit/certificate/record_check.h"
#include "audit/certificate/recorder.h"
#include "audit/certificate/verify.h"
#include "audit/log/closed_log.h"
#include "tests/audit/temp_directory.h"
#include "tests/testing/fault_switch.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;
namespace fs = std::filesystem;

constexpr char kFirst[] = "test.example/2026";
constexpr char kSecond[] = "test.example/2027";

class LogSuccessionTest : public ::testing::Test {
 protected:
  LogHome Home(const std::string& name = "data") const {
    return {directory_.path() + "/" + name, directory_.path() + "/" + name + "-ledger",
            "2026-01-01T00:00:00Z"};
  }
  // As a server opens it.
  static absl::StatusOr<std::unique_ptr<AuditLog>> OpenLog(const LogHome& home,
                                                           const std::string& origin = "") {
    if (absl::Status status = FinishSuccession(home); !status.ok()) return status;
    auto keys = ServerKeys::LoadOrCreate(home.directory + "/keys");
    if (!keys.ok()) return keys.status();
    auto predecessors = OpenPredecessors(home);
    if (!predecessors.ok()) return predecessors.status();
    AuditLogOptions options;
    options.directory = home.directory + "/log";
    options.origin = origin;
    options.key = keys->log_key;
    options.anchor_directory = home.anchor_directory;
    options.predecessors = *predecessors;
    return AuditLog::Open(options);
  }
  void Certify(const LogHome& home, const std::string& origin = "") {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, OpenLog(home, origin));
    ASSERT_OK(log->frozen());
    ASSERT_OK_AND_ASSIGN(const ServerKeys keys, ServerKeys::LoadOrCreate(home.directory + "/keys"));
    Recorder recorder(keys, log.get());
    RecordDraft draft;
    draft.kind = RecordKind::kCertify;
    draft.session_id = "s-1";
    draft.nonce = std::string(16, 'n');
    draft.request_id = "r";
    draft.issued_at = "2026-01-01T00:00:00Z";
    draft.engine.build = "b";
    draft.engine.algorithm = "a";
    draft.engine.device_kind = "cpu";
    ASSERT_OK_AND_ASSIGN(const FinishedRecord record, recorder.Record(draft, &session_));
    certificates_.push_back({record.envelope, record.proof_file, {}, {}, {}});
    hashes_.push_back(record.leaf_hash);
  }
  static TrustStore Trust(const LogHome& home) { return *PublicKeys(home, kFirst); }
  static RecordSummary Fsck(const std::string& path, const TrustStore& trust, Findings* findings) {
    const std::unique_ptr<ClosedLog> log = *ClosedLog::Open(path);
    const LogImage image = log->Read(findings);
    const BodyReader bodies = [&log](uint64_t i, const Sha256Digest&) { return log->Body(i); };
    return CheckRecords(image, log->verifier_key().name, trust, bodies, findings);
  }
  static void ExpectWhole(const std::string& path, const TrustStore& trust) {
    Findings findings;
    Fsck(path, trust, &findings);
    for (const Finding& finding : findings.listed()) {
      ADD_FAILURE() << path << ": " << finding.place << ": " << finding.what;
    }
  }

  const TempDirectory directory_{TempDirectory::Where::kMemory};
  SessionRecords session_;
  std::vector<CertificateFiles> certificates_;
  std::vector<Sha256Digest> hashes_;
};

TEST_F(LogSuccessionTest, ARecordKeyIsValidForItsLeavesAlone) {
  Certify(Home(), kFirst);
  const TrustStore before = Trust(Home());
  ASSERT_OK(RotateRecordKey(Home()));
  Certify(Home());
  ASSERT_OK(RotateRecordKey(Home()));
  Certify(Home());
  const TrustStore after = Trust(Home());
  ASSERT_EQ(after.record_keys.size(), 3u);
  // Leaf 0, then the two keyset records, leaf 3, two more, leaf 6.
  EXPECT_EQ(after.record_keys[0].last_leaf_index, 1u);
  EXPECT_EQ(after.record_keys[1].first_leaf_index, 2u);
  EXPECT_EQ(after.record_keys[1].last_leaf_index, 4u);
  EXPECT_EQ(after.record_keys[2].first_leaf_index, 5u);
  for (const CertificateFiles& certificate : certificates_) {
    EXPECT_TRUE(VerifyCertificate(certificate, after).ok());
  }
  EXPECT_TRUE(VerifySequence(certificates_, after).ok());
  // Who has only the old key still verifies the old record, and no other.
  EXPECT_TRUE(VerifyCertificate(certificates_[0], before).ok());
  EXPECT_FALSE(VerifyCertificate(certificates_[1], before).ok());
  // A key outside its range signs nothing that counts.
  TrustStore swapped = after;
  std::swap(swapped.record_keys[0].key, swapped.record_keys[1].key);
  for (size_t i = 0; i < 2; ++i) {
    const VerifyReport report = VerifyCertificate(certificates_[i], swapped);
    EXPECT_EQ(report.first_failure()->name, "key range");
  }
  ExpectWhole(Home().directory + "/log", after);
  // From the first key alone the log's own records lead to all of them.
  Findings findings;
  const RecordSummary summary = Fsck(Home().directory + "/log", before, &findings);
  EXPECT_TRUE(findings.empty());
  EXPECT_EQ(summary.num_keyset_records, 4u);
  EXPECT_TRUE(VerifyCertificate(certificates_[2], summary.keys).ok());
}

TEST_F(LogSuccessionTest, AReplacedPrivateKeyIsGone) {
  Certify(Home(), kFirst);
  const std::string old_key = ReadFile(Home().directory + "/keys/record.pem");
  ASSERT_OK(RotateRecordKey(Home()));
  for (const auto& file : fs::recursive_directory_iterator(directory_.path())) {
    if (!file.is_regular_file()) continue;
    EXPECT_EQ(ReadFile(file.path().string()).find(old_key.substr(30, 40)), std::string::npos)
        << file.path();
  }
}

TEST_F(LogSuccessionTest, ALogIsFollowedByAnotherUnderAnotherKey) {
  Certify(Home(), kFirst);
  const TrustStore before = Trust(Home());
  ASSERT_OK(RotateLogKey(Home(), kSecond));
  Certify(Home());
  const TrustStore after = Trust(Home());
  ASSERT_EQ(after.log_keys.size(), 2u);
  EXPECT_FALSE(after.log_keys[0].key == after.log_keys[1].key);
  EXPECT_TRUE(VerifyCertificate(certificates_[0], after).ok());
  EXPECT_TRUE(VerifyCertificate(certificates_[1], after).ok());
  EXPECT_TRUE(VerifySequence(certificates_, after).ok());
  EXPECT_TRUE(VerifyCertificate(certificates_[0], before).ok());
  EXPECT_EQ(VerifyCertificate(certificates_[1], before).first_failure()->name, "checkpoint");
  ExpectWhole(Home().directory + "/log-1", after);
  ExpectWhole(Home().directory + "/log", after);
  // The closing record leads to the next log's key.
  Findings findings;
  const RecordSummary summary = Fsck(Home().directory + "/log-1", before, &findings);
  EXPECT_TRUE(VerifyCertificate(certificates_[1], summary.keys).ok());
  // The server still proves what the old log holds.
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, OpenLog(Home()));
  ASSERT_OK_AND_ASSIGN(certificates_[0].proof_file, log->ProofFile(hashes_[0]));
  EXPECT_TRUE(VerifyCertificate(certificates_[0], before).ok());
  ASSERT_OK_AND_ASSIGN(const std::string body, log->Body(hashes_[0]));
  EXPECT_EQ(body, certificates_[0].envelope);
  EXPECT_THAT(RotateLogKey(Home(), kFirst), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(LogSuccessionTest, ARotatedOriginIsNeverUsedAgain) {
  Certify(Home(), kFirst);
  ASSERT_OK(RotateLogKey(Home(), kSecond));
  EXPECT_THAT(RotateLogKey(Home(), kFirst),
              StatusIs(absl::StatusCode::kFailedPrecondition, "origin"));
  EXPECT_THAT(RotateLogKey(Home(), "a b"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(RestoreLog(Home(), "third", {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "not frozen"));
}

TEST_F(LogSuccessionTest, AnOlderCopyGoesOnOnlyAsAnotherLogThatSaysSo) {
  Certify(Home(), kFirst);
  fs::copy(Home().directory, directory_.path() + "/backup", fs::copy_options::recursive);
  Certify(Home());
  Certify(Home());
  const TrustStore before = Trust(Home());
  fs::remove_all(Home().directory);
  fs::rename(directory_.path() + "/backup", Home().directory);
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, OpenLog(Home()));
    EXPECT_THAT(log->frozen(), StatusIs(absl::StatusCode::kDataLoss));
  }
  EXPECT_FALSE(RotateLogKey(Home(), kSecond).ok());
  EXPECT_FALSE(RotateRecordKey(Home()).ok());
  ASSERT_OK(FinishSuccession(Home()));
  ASSERT_OK(RestoreLog(Home(), kSecond, {}));
  session_ = SessionRecords();
  Certify(Home());
  EXPECT_TRUE(VerifyCertificate(certificates_[3], Trust(Home())).ok());
  // What was recorded behind the backup stays valid: it was signed.
  EXPECT_TRUE(VerifyCertificate(certificates_[2], Trust(Home())).ok());
  EXPECT_TRUE(VerifyCertificate(certificates_[2], before).ok());
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<ClosedLog> log,
                       ClosedLog::Open(Home().directory + "/log"));
  Findings findings;
  const LogImage image = log->Read(&findings);
  ASSERT_OK_AND_ASSIGN(const std::string body, log->Body(0));
  ASSERT_OK_AND_ASSIGN(const KeysetRecord first, OpenKeyset(image.entries[0], body));
  EXPECT_TRUE(first.statement.is_restore);
  // The anchor knew of the three records.
  EXPECT_EQ(first.statement.previous->tree_size, 3u);
  EXPECT_EQ(first.statement.previous->vkey.name, kFirst);
}

enum class Change { kRecordKey, kLogKey, kRestore };

absl::Status Apply(Change change, const LogHome& home) {
  if (change == Change::kRecordKey) return RotateRecordKey(home);
  if (change == Change::kLogKey) return RotateLogKey(home, kSecond);
  return RestoreLog(home, kSecond, {});
}

TEST_F(LogSuccessionTest, AKillAtAnyMomentIsMadeGoodAtTheNextStart) {
  Certify(Home(), kFirst);
  if (fs::exists(directory_.path() + "/start")) FAIL();
  for (const Change change : {Change::kRecordKey, Change::kLogKey, Change::kRestore}) {
    for (int point = 1;; ++point) {
      const LogHome home = Home("data");
      const LogHome copy = Home("copy");
      for (const char* suffix : {"", "-ledger"}) {
        fs::remove_all(copy.directory + suffix);
        fs::copy(home.directory + suffix, copy.directory + suffix, fs::copy_options::recursive);
      }
      // A head that somebody holds and the log does not: it freezes.
      if (change == Change::kRestore) fs::remove(copy.directory + "/log/checkpoint");
      const pid_t child = fork();
      if (child == 0) {
        lethe::testing::CrashAtPoint(point);
        _exit(Apply(change, copy).ok() ? 0 : 1);
      }
      int status = 0;
      waitpid(child, &status, 0);
      ASSERT_TRUE(WIFEXITED(status));
      ASSERT_NE(WEXITSTATUS(status), 1) << "change " << static_cast<int>(change) << " at " << point;
      const bool finished = WEXITSTATUS(status) == 0;
      // The change took place, or not yet; in both cases the log is whole and goes on.
      ASSERT_OK(FinishSuccession(copy)) << "change " << static_cast<int>(change) << " at " << point;
      {
        ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, OpenLog(copy));
        const bool changed = log->verifier_key().name == kSecond;
        EXPECT_EQ(log->frozen().ok(), change != Change::kRestore || changed) << point;
        EXPECT_TRUE(changed || !finished || change == Change::kRecordKey) << point;
      }
      ExpectWhole(copy.directory + "/log", Trust(copy));
      if (fs::exists(copy.directory + "/log-1") && change != Change::kRestore) {
        ExpectWhole(copy.directory + "/log-1", Trust(copy));
      }
      EXPECT_TRUE(VerifyCertificate(certificates_[0], Trust(copy)).ok());
      for (const auto& file : fs::directory_iterator(copy.directory + "/keys")) {
        const std::string name = file.path().filename().string();
        EXPECT_TRUE(name.find(".new") == std::string::npos &&
                    name.find(".old") == std::string::npos)
            << name << " at " << point;
      }
      if (finished) {
        EXPECT_GT(point, 5);
        break;
      }
    }
  }
}

TEST(KeysetTest, StatementsRoundTripAndEachChangedValueIsRefused) {
  const Ed25519PublicKey a = Ed25519PrivateKey::Generate().public_key();
  const Ed25519PublicKey b = Ed25519PrivateKey::Generate().public_key();
  KeysetStatement statement;
  statement.log_origin = kFirst;
  statement.issued_at = "2026-01-01T00:00:00Z";
  statement.keys = {{a, 0, 7}, {b, 8}};
  statement.next = *MakeVerifierKey(kSecond, a);
  statement.previous = LogLink{*MakeVerifierKey("test.example/2025", b), 5};
  ASSERT_OK_AND_ASSIGN(const std::string bytes, WriteKeyset(statement));
  ASSERT_OK_AND_ASSIGN(const KeysetStatement again, ParseKeyset(bytes));
  EXPECT_EQ(WriteKeyset(again).value(), bytes);
  EXPECT_TRUE(ClaimsToBeKeyset(bytes));
  // No other text has its meaning: whatever else parses is another statement.
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = changed[at] == '1' ? '2' : '1';
    const absl::StatusOr<KeysetStatement> parsed = ParseKeyset(changed);
    EXPECT_EQ(parsed.ok() ? WriteKeyset(*parsed).value() : changed, changed);
    EXPECT_FALSE(ParseKeyset(bytes.substr(0, at)).ok());
  }
  const auto refused = [&](auto change) {
    KeysetStatement other = statement;
    change(&other);
    EXPECT_THAT(WriteKeyset(other), StatusIs(absl::StatusCode::kInvalidArgument));
  };
  refused([](KeysetStatement* s) { s->keys.clear(); });
  refused([](KeysetStatement* s) { s->keys[1].last_leaf_index = 9; });
  refused([](KeysetStatement* s) { s->keys[1].first_leaf_index = 9; });
  refused([](KeysetStatement* s) { s->keys[0].first_leaf_index = 1; });
  refused([](KeysetStatement* s) { s->keys[1].key = s->keys[0].key; });
  refused([](KeysetStatement* s) { s->log_origin = "a b"; });
  refused([](KeysetStatement* s) { s->issued_at = "now"; });
  refused([](KeysetStatement* s) { s->is_restore = true; });
}

}  // namespace
}  // namespace lethe::audit
