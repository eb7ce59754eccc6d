// Goal: `lethe verify` needs no server, trusts only the keys of --trust, and ends with exit code 3 for
//   every damaged certificate.
// Method: records signed here with fresh keys and written as files; each file mutated, left out,
//   exchanged. The full table of single-field mutations is in tests/audit.
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/commands/certificate_files.h"
#include "client/commands/files.h"
#include "gmock/gmock.h"

#include "audit/certificate/recorder.h"
#include "tests/client/program_run.h"
#include "tests/testing/status_matchers.h"

namespace lethe::client {
namespace {

using ::testing::HasSubstr;

constexpr char kOrigin[] = "lethe.dev/audit/test";
constexpr char kNonceHex[] = "000102030405060708090a0b0c0d0e0f";

std::string NonceBytes() {
  std::string nonce;
  for (char byte = 0; byte < 16; ++byte) {
    nonce.push_back(byte);
  }
  return nonce;
}

class OfflineVerifyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "lethe-verify-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    ASSERT_OK_AND_ASSIGN(
        log_, audit::AuditLog::Open(
                  {.directory = directory_ + "/log", .origin = kOrigin, .key = keys_.log_key}));
    recorder_ = std::make_unique<audit::Recorder>(keys_, log_.get());
    WriteTrust(keys_, Path("trust.txt"));
    WriteRecord(audit::RecordKind::kForget, "first");
    WriteRecord(audit::RecordKind::kCertify, "second");
  }

  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  static void WriteTrust(const audit::ServerKeys& keys, const std::string& path) {
    ASSERT_OK_AND_ASSIGN(const audit::TrustStore trust, keys.Trust(kOrigin));
    ASSERT_OK(WriteFile(path, audit::WriteTrust(trust)));
  }

  void WriteRecord(audit::RecordKind kind, const std::string& name) {
    audit::RecordDraft draft;
    draft.kind = kind;
    draft.session_id = "s-test";
    draft.nonce = NonceBytes();
    draft.request_id = "request-1";
    draft.issued_at = "2026-01-01T00:00:00Z";
    draft.engine.build = "lethe test";
    draft.engine.algorithm = "lethe-reevaluation-v1";
    draft.engine.device_kind = "cpu";
    draft.digest_after.fill(7);
    draft.retained = {0, 1, 4, 5};
    if (kind == audit::RecordKind::kForget) {
      draft.forgotten = {2, 3};
      draft.stores = {{.store = "session-memory", .result = "replaced"}};
    }
    ASSERT_OK_AND_ASSIGN(const audit::FinishedRecord record, recorder_->Record(draft, &records_));
    CertificateContent content;
    content.certificate.set_envelope(record.envelope);
    content.certificate.set_log_proof(record.proof_file);
    content.certificate.set_opening(record.opening);
    ASSERT_OK(WriteCertificate(Path(name), content).status());
  }

  ProgramRun Verify(const std::vector<std::string>& more = {}, const std::string& name = "second") {
    std::vector<std::string> arguments = {"verify", Path(name), "--trust", Path("trust.txt")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunLethe(arguments);
  }

  // Verifies with `bytes` in place of a file of the second certificate, and puts it back.
  ProgramRun VerifyWith(const std::string& file, const std::string& bytes) {
    const std::string path = Path("second/" + file);
    const std::string original = *ReadFile(path);
    EXPECT_OK(WriteFile(path, bytes));
    ProgramRun run = Verify();
    EXPECT_OK(WriteFile(path, original));
    return run;
  }

  std::string directory_;
  const audit::ServerKeys keys_ = audit::ServerKeys::Generate();
  std::unique_ptr<audit::AuditLog> log_;
  std::unique_ptr<audit::Recorder> recorder_;
  audit::SessionRecords records_;
};

TEST_F(OfflineVerifyTest, AcceptsAnUntouchedCertificate) {
  for (const char* name : {"first", "second"}) {
    const ProgramRun run = Verify({}, name);
    EXPECT_EQ(run.exit_code, kExitDone) << run.out << run.err;
    EXPECT_THAT(run.out, HasSubstr("VERIFIED: no check failed. "));
    EXPECT_THAT(run.out, HasSubstr(" checks not made: what they read was not given."));
    EXPECT_THAT(run.out, HasSubstr("ok           signature"));
    EXPECT_THAT(run.out, HasSubstr("not checked  bundle"));
  }
}

TEST_F(OfflineVerifyTest, EveryCheckHasASentence) {
  const ProgramRun run = Verify({"--previous", Path("first")});
  EXPECT_EQ(run.exit_code, kExitDone) << run.out << run.err;
  std::istringstream lines(run.out);
  int num_checks = 0;
  for (std::string line; std::getline(lines, line) && line.find("VERIFIED") != 0; ++num_checks) {
    EXPECT_THAT(line, HasSubstr(line.find("previous ") == std::string::npos ? ": " : ""));
  }
  EXPECT_GE(num_checks, 25);
}

TEST_F(OfflineVerifyTest, WithoutTrustIsThree) {
  const ProgramRun run = RunLethe({"verify", Path("second")});
  EXPECT_EQ(run.exit_code, kExitVerificationFailed);
  EXPECT_THAT(run.err, HasSubstr("no trusted key"));
}

TEST_F(OfflineVerifyTest, AnEmptyTrustFileIsThree) {
  ASSERT_OK(WriteFile(Path("empty.txt"), "# nobody\n"));
  const ProgramRun run = RunLethe({"verify", Path("second"), "--trust", Path("empty.txt")});
  EXPECT_EQ(run.exit_code, kExitVerificationFailed);
  EXPECT_THAT(run.err, HasSubstr("no trusted key"));
}

TEST_F(OfflineVerifyTest, AValidKeyThatIsNotInTheTrustFileIsThree) {
  WriteTrust(audit::ServerKeys::Generate(), Path("other.txt"));
  const ProgramRun run = RunLethe({"verify", Path("second"), "--trust", Path("other.txt")});
  EXPECT_EQ(run.exit_code, kExitVerificationFailed);
  EXPECT_THAT(run.out, HasSubstr("FAILED"));
  EXPECT_THAT(run.out, HasSubstr("no trusted key"));
}

TEST_F(OfflineVerifyTest, EveryChangedByteOfTheProofIsThree) {
  const std::string proof = *ReadFile(Path("second/proof.tlog"));
  for (size_t i = 0; i < proof.size(); ++i) {
    std::string changed = proof;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    const ProgramRun run = VerifyWith(kProofFile, changed);
    EXPECT_EQ(run.exit_code, kExitVerificationFailed) << "byte " << i;
    EXPECT_THAT(run.err, HasSubstr("verification failed: ")) << "byte " << i;
  }
}

TEST_F(OfflineVerifyTest, ChangedBytesOfEnvelopeAndOpeningAreThree) {
  for (const char* file : {kEnvelopeFile, kOpeningFile}) {
    const std::string bytes = *ReadFile(Path(std::string("second/") + file));
    for (size_t i = 0; i < bytes.size(); i += 7) {
      std::string changed = bytes;
      changed[i] = changed[i] == '1' ? '2' : '1';
      // The envelope's key id is a hint that no check relies on.
      const size_t hint = bytes.find("\"keyid\":\"");
      const bool is_hint = hint != std::string::npos && i > hint + 8 && i < hint + 9 + 64;
      if (!is_hint) {
        EXPECT_EQ(VerifyWith(file, changed).exit_code, kExitVerificationFailed)
            << file << " byte " << i;
      }
    }
  }
}

TEST_F(OfflineVerifyTest, FilesOfAnotherRecordAreThree) {
  for (const char* file : {kEnvelopeFile, kProofFile, kOpeningFile}) {
    const ProgramRun run = VerifyWith(file, *ReadFile(Path(std::string("first/") + file)));
    EXPECT_EQ(run.exit_code, kExitVerificationFailed) << file;
  }
}

TEST_F(OfflineVerifyTest, EmptyAndCutFilesAreThree) {
  for (const char* file : {kEnvelopeFile, kProofFile, kOpeningFile}) {
    const std::string bytes = *ReadFile(Path(std::string("second/") + file));
    EXPECT_EQ(VerifyWith(file, "").exit_code, kExitVerificationFailed) << file;
    EXPECT_EQ(VerifyWith(file, bytes.substr(0, bytes.size() / 2)).exit_code,
              kExitVerificationFailed)
        << file;
  }
}

TEST_F(OfflineVerifyTest, AMissingPartIsThreeAndNamedAMissingDirectoryIsTwo) {
  for (const char* file : {kEnvelopeFile, kProofFile}) {
    const std::string path = Path(std::string("second/") + file);
    const std::string bytes = *ReadFile(path);
    std::filesystem::remove(path);
    const ProgramRun run = Verify();
    EXPECT_EQ(run.exit_code, kExitVerificationFailed) << file;
    EXPECT_THAT(run.err, HasSubstr("incomplete certificate: " + path + " is missing"));
    EXPECT_EQ(Verify({"--previous", Path("second")}, "first").exit_code, kExitVerificationFailed);
    ASSERT_OK(WriteFile(path, bytes));
  }
  EXPECT_EQ(Verify({"--previous", Path("absent")}).exit_code, kExitUsage);
  const ProgramRun absent = Verify({}, "absent");
  EXPECT_EQ(absent.exit_code, kExitUsage);
  EXPECT_THAT(absent.err, HasSubstr("absent"));
}

TEST_F(OfflineVerifyTest, AMissingOpeningIsNotChecked) {
  std::filesystem::remove(Path("first/opening.json"));
  const ProgramRun run = Verify({}, "first");
  EXPECT_EQ(run.exit_code, kExitDone);
  EXPECT_THAT(run.out, HasSubstr("not checked  opening"));
}

TEST_F(OfflineVerifyTest, TheNonceMustBeTheOneSent) {
  EXPECT_EQ(Verify({"--nonce", kNonceHex}).exit_code, kExitDone);
  const ProgramRun run = Verify({"--nonce", "100102030405060708090a0b0c0d0e0f"});
  EXPECT_EQ(run.exit_code, kExitVerificationFailed);
  EXPECT_THAT(run.err, HasSubstr("nonce"));
}

TEST_F(OfflineVerifyTest, ChecksTheChainOfPreviousRecords) {
  EXPECT_EQ(Verify({"--previous", Path("first")}).exit_code, kExitDone);
  EXPECT_EQ(Verify({"--previous", Path("second")}).exit_code, kExitVerificationFailed);
  EXPECT_EQ(Verify({"--previous", Path("second")}, "first").exit_code, kExitVerificationFailed);
}

TEST_F(OfflineVerifyTest, TakesSingleFilesByName) {
  const ProgramRun run = RunLethe({"verify", Path("second/proof.tlog"),
                                   Path("second/envelope.json"), "--trust", Path("trust.txt")});
  EXPECT_EQ(run.exit_code, kExitDone) << run.err;
  EXPECT_EQ(RunLethe({"verify", Path("trust.txt"), "--trust", Path("trust.txt")}).exit_code,
            kExitUsage);
  EXPECT_EQ(Verify({}, "absent").exit_code, kExitUsage);
}

TEST_F(OfflineVerifyTest, ALonePartIsThreeAndTheOtherNamed) {
  for (const auto& [given, missing] :
       {std::pair{kEnvelopeFile, kProofFile}, std::pair{kProofFile, kEnvelopeFile},
        std::pair{kOpeningFile, kEnvelopeFile}}) {
    const ProgramRun run =
        RunLethe({"verify", Path(std::string("second/") + given), "--trust", Path("trust.txt")});
    EXPECT_EQ(run.exit_code, kExitVerificationFailed) << given;
    EXPECT_THAT(run.err, HasSubstr(std::string("incomplete certificate: ") + missing));
  }
}

TEST_F(OfflineVerifyTest, ReplayRefusesAnotherRecordsOpeningWithoutAnyKey) {
  ASSERT_OK(WriteFile(Path("second/opening.json"), *ReadFile(Path("first/opening.json"))));
  const ProgramRun run = RunLethe({"replay", "s", "--certificate", Path("second"), "--fresh-server",
                                   "127.0.0.1:1", "--server", "127.0.0.1:1"});
  EXPECT_EQ(run.exit_code, kExitVerificationFailed);
  EXPECT_THAT(run.err, HasSubstr("opening.json names other retained inputs than the statement"));
}

TEST_F(OfflineVerifyTest, ReportsAsJson) {
  const Json report = Json::parse(Verify({"--json"}).out, nullptr, false);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["verified"], true);
  EXPECT_EQ(report["record"]["seq"], 2);
  EXPECT_EQ(report["record"]["num_retained"], 4);
}

}  // namespace
}  // namespace lethe::client
