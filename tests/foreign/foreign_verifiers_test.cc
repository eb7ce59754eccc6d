// Goal: certificates verify with software that is not ours (audit.md A4): openssl with coreutils, the Go checksum database's code,
// @sigstore/verify, python3-cryptography, Node's crypto with @noble/curves; and each refuses what our verifier refuses.
// Method: 500 fresh certificates of all kinds of record, and changed ones of every kind of change, are given to each verifier, one
// process for all; its verdicts must be ours, case by case. Where a tool is missing its test skips; tests/run installs all of them.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

#include "audit/certificate/dsse.h"
#include "audit/certificate/recorder.h"
#include "audit/certificate/verify.h"
#include "audit/crypto/encoding.h"
#include "audit/log/closed_log.h"
#include "audit/log/log_export.h"
#include "tests/audit/temp_directory.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

namespace fs = std::filesystem;

constexpr char kOrigin[] = "lethe.dev/audit/foreign";
constexpr int kNumCertificates = 500;
constexpr int kChangedStride = 100;  // every so many certificates one of each kind of change

bool IsLong() {
  const char* value = std::getenv("LETHE_TEST_LONG");
  return value != nullptr && std::string(value) == "1";
}

bool HasTool(const std::string& tool) {
  return std::system(absl::StrCat("command -v ", tool, " >/dev/null 2>&1").c_str()) == 0;
}

std::string Lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
  return text;
}

// A proof file with line `line`, from 0, replaced; `line` may be counted from the empty line with `from_note`.
std::string WithProofLine(const std::string& proof, size_t line, const std::string& text,
                          bool from_note) {
  std::vector<std::string> lines = absl::StrSplit(proof, '\n');
  lines.pop_back();
  size_t at = line;
  if (from_note) {
    while (!lines[at - line].empty()) ++at;
    ++at;
  }
  lines[at] = text;
  return Lines(lines);
}

std::string NoteLine(const std::string& proof, size_t line) {
  const std::vector<std::string> lines = absl::StrSplit(proof.substr(proof.find("\n\n") + 2), '\n');
  return lines[line];
}

std::string FlipBase64(const std::string& base64, size_t byte) {
  std::string bytes = *Base64Decode(base64);
  bytes[byte] = static_cast<char>(bytes[byte] ^ 4);
  return Base64Encode(bytes);
}

// Every kind of change, made to one certificate; `other` is another one of the same log.
std::vector<CertificateFiles> Changed(const CertificateFiles& good, const CertificateFiles& other) {
  std::vector<CertificateFiles> changed;
  const auto add = [&](std::string envelope, std::string proof) {
    changed.push_back({std::move(envelope), std::move(proof), {}, {}, {}});
  };
  const DsseEnvelope envelope = *ParseEnvelope(good.envelope);
  DsseEnvelope other_payload = envelope;
  const size_t nonce = other_payload.payload.find("\"nonce\":\"") + 9;
  other_payload.payload[nonce] = other_payload.payload[nonce] == '0' ? '1' : '0';
  add(WriteEnvelope(other_payload), good.proof_file);
  DsseEnvelope other_signature = envelope;
  other_signature.signature[10] ^= 1;
  add(WriteEnvelope(other_signature), good.proof_file);
  DsseEnvelope other_key =
      SignEnvelope(envelope.payload_type, envelope.payload, Ed25519PrivateKey::Generate());
  add(WriteEnvelope(other_key), good.proof_file);  // a key that nobody trusts
  other_key.key_id = envelope.key_id;              // that claims to be the trusted one
  add(WriteEnvelope(other_key), good.proof_file);
  // The proof of another record; index, a hash, size, root and signature of the head.
  add(good.envelope, other.proof_file);
  add(other.envelope, good.proof_file);
  const std::vector<std::string> lines = absl::StrSplit(good.proof_file, '\n');
  const uint64_t index = std::stoull(lines[1].substr(6));
  add(good.envelope, WithProofLine(good.proof_file, 1, absl::StrCat("index ", index + 1), false));
  add(good.envelope, WithProofLine(good.proof_file, 1, absl::StrCat("index ", index ^ 2), false));
  add(good.envelope, WithProofLine(good.proof_file, 2, FlipBase64(lines[2], 3), false));
  std::vector<std::string> shorter = lines;
  shorter.pop_back();
  std::vector<std::string> longer = shorter;
  shorter.erase(shorter.begin() + 2);
  longer.insert(longer.begin() + 2, lines[2]);
  add(good.envelope, Lines(shorter));
  add(good.envelope, Lines(longer));
  const uint64_t size = std::stoull(NoteLine(good.proof_file, 1));
  for (const uint64_t other_size : {size + 1, size - 1}) {
    add(good.envelope, WithProofLine(good.proof_file, 1, absl::StrCat(other_size), true));
  }
  add(good.envelope,
      WithProofLine(good.proof_file, 2, FlipBase64(NoteLine(good.proof_file, 2), 0), true));
  const std::string signature = NoteLine(good.proof_file, 4);
  const size_t base64 = signature.rfind(' ') + 1;
  add(good.envelope,
      WithProofLine(good.proof_file, 4,
                    signature.substr(0, base64) + FlipBase64(signature.substr(base64), 20), true));
  return changed;
}

class ForeignVerifiersTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new TempDirectory(TempDirectory::Where::kMemory);
    const ServerKeys keys = ServerKeys::Generate();
    ASSERT_OK_AND_ASSIGN(trust_, keys.Trust(kOrigin));
    WriteFile(directory_->path() + "/trust.txt", WriteTrust(trust_));
    std::vector<CertificateFiles> certificates;
    {
      ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log,
                           AuditLog::Open({directory_->path() + "/log", kOrigin, keys.log_key}));
      Recorder recorder(keys, log.get());
      for (int i = 0; i < kNumCertificates; ++i) {
        ASSERT_OK_AND_ASSIGN(const CertificateFiles files, Certify(i, &recorder));
        certificates.push_back(files);
      }
      // Half as the server answered at once, half as it is asked for them at the end.
      for (uint64_t i = 0; i < kNumCertificates; i += 2) {
        ASSERT_OK_AND_ASSIGN(certificates[i].proof_file, log->ProofFile(i));
      }
    }
    for (const CertificateFiles& files : certificates) AddCase(files);
    ASSERT_EQ(num_accepted_, kNumCertificates);
    for (size_t i = kChangedStride; i < certificates.size(); i += kChangedStride) {
      for (const CertificateFiles& files : Changed(certificates[i], certificates[i - 7])) {
        AddCase(files);
      }
    }
    ASSERT_EQ(num_accepted_, kNumCertificates) << "a changed certificate verifies";
  }
  static void TearDownTestSuite() { delete directory_; }

  static absl::StatusOr<CertificateFiles> Certify(int i, Recorder* recorder) {
    RecordDraft draft;
    draft.kind = i % 3 == 0 ? RecordKind::kCertify : RecordKind::kForget;
    draft.session_id = absl::StrCat("s-", i);
    draft.nonce = std::string(16 + static_cast<size_t>(i) % 17, static_cast<char>('a' + i % 26));
    draft.request_id = absl::StrCat("request-", i, std::string(static_cast<size_t>(i) % 200, 'x'));
    draft.issued_at = "2026-01-01T00:00:00Z";
    draft.engine.build = "lethe test";
    draft.engine.algorithm = "lethe-canonical-v2";
    draft.engine.device_kind = "cpu";
    for (int id = 1; id <= i % 9; ++id) draft.retained.push_back(static_cast<uint64_t>(2 * id));
    if (draft.kind == RecordKind::kForget) {
      draft.forgotten = {1, 3};
      draft.stores = {{"session-memory", "replaced"}};
    }
    SessionRecords session;
    absl::StatusOr<FinishedRecord> record = recorder->Record(draft, &session);
    if (!record.ok()) return record.status();
    return CertificateFiles{record->envelope, record->proof_file, {}, {}, {}};
  }

  // Writes the case, with our verdict.
  static void AddCase(const CertificateFiles& files) {
    const std::string name = absl::StrFormat("%04d", verdicts_.size());
    const std::string path = directory_->path() + "/cases/" + name;
    fs::create_directories(path);
    WriteFile(path + "/envelope.json", files.envelope);
    WriteFile(path + "/proof.tlog", files.proof_file);
    const bool ok = VerifyCertificate(files, trust_).ok();
    num_accepted_ += ok ? 1 : 0;
    verdicts_[name] = ok ? "ok" : "bad";
  }

  static std::string Source(const std::string& file) {
    return absl::StrCat(LETHE_SOURCE_DIR, "/tests/foreign/", file);
  }
  static std::string Packages() { return absl::StrCat(LETHE_SOURCE_DIR, "/build/foreign"); }

  static std::string Output(const std::string& command) {
    std::string output;
    FILE* pipe = popen(command.c_str(), "r");
    std::array<char, 4096> buffer;
    while (const size_t num = fread(buffer.data(), 1, buffer.size(), pipe)) {
      output.append(buffer.data(), num);
    }
    EXPECT_EQ(pclose(pipe), 0) << command;
    return output;
  }

  // One line a case: "<case> <verdict>".
  static void ExpectSameVerdicts(const std::string& command) {
    std::map<std::string, std::string> theirs;
    for (const absl::string_view line : absl::StrSplit(Output(command), '\n', absl::SkipEmpty())) {
      const std::pair<std::string, std::string> words = absl::StrSplit(line, ' ');
      theirs.insert(words);
    }
    EXPECT_EQ(theirs.size(), verdicts_.size());
    for (const auto& [name, verdict] : verdicts_) EXPECT_EQ(theirs[name], verdict) << name;
  }

  // An mjs file finds its packages beside itself.
  static void RunWithPackages(const std::string& script) {
    if (!HasTool("node")) GTEST_SKIP() << "needs node";
    if (!fs::exists(Packages() + "/node_modules/@sigstore/verify")) {
      GTEST_SKIP() << "needs the npm packages of tests/foreign/install";
    }
    fs::copy_file(Source(script), Packages() + "/" + script, fs::copy_options::overwrite_existing);
    ExpectSameVerdicts(
        absl::StrCat("node --no-warnings ", Packages(), "/", script, " ", directory_->path()));
  }

  // Go's program, built once; empty without Go.
  static std::string GoProgram() {
    if (!HasTool("go") || !fs::exists("/usr/share/gocode/src/golang.org/x/mod/sumdb/tlog"))
      return "";
    const std::string program = directory_->path() + "/sumdb";
    if (!fs::exists(program)) {
      Output(absl::StrCat("cd ", directory_->path(),
                          " && GO111MODULE=off GOFLAGS= GOPATH=/usr/share/gocode ",
                          "GOCACHE=", directory_->path(), "/gocache go build -o ", program, " ",
                          Source("sumdb.go")));
    }
    return program;
  }

  static TempDirectory* directory_;
  static TrustStore trust_;
  static std::map<std::string, std::string> verdicts_;
  static int num_accepted_;
};

TempDirectory* ForeignVerifiersTest::directory_ = nullptr;
TrustStore ForeignVerifiersTest::trust_;
std::map<std::string, std::string> ForeignVerifiersTest::verdicts_;
int ForeignVerifiersTest::num_accepted_ = 0;

TEST_F(ForeignVerifiersTest, OpensslAndCoreutils) {
  for (const char* tool : {"openssl", "jq", "xxd", "sha256sum", "base64"}) {
    if (!HasTool(tool)) GTEST_SKIP() << "needs " << tool;
  }
  ExpectSameVerdicts(absl::StrCat("bash ", Source("openssl.sh"), " ", directory_->path()));
}

TEST_F(ForeignVerifiersTest, PythonCryptography) {
  if (std::system("/usr/bin/python3 -c 'import cryptography' >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "needs python3-cryptography";
  }
  ExpectSameVerdicts(
      absl::StrCat("/usr/bin/python3 ", Source("python_cryptography.py"), " ", directory_->path()));
}

TEST_F(ForeignVerifiersTest, SigstoreVerify) { RunWithPackages("sigstore_verify.mjs"); }

TEST_F(ForeignVerifiersTest, NodeCryptoAndNobleCurves) { RunWithPackages("node_noble.mjs"); }

TEST_F(ForeignVerifiersTest, GoChecksumDatabase) {
  const std::string program = GoProgram();
  if (program.empty()) GTEST_SKIP() << "needs golang-go and golang-golang-x-mod-dev";
  ExpectSameVerdicts(absl::StrCat(program, " certificates ", directory_->path()));
}

// The export of the same log, and every so many single-bit changes of its entries (all of them with LETHE_TEST_LONG).
TEST_F(ForeignVerifiersTest, GoChecksumDatabaseOnAnExport) {
  const std::string program = GoProgram();
  if (program.empty()) GTEST_SKIP() << "needs golang-go and golang-golang-x-mod-dev";
  const std::string path = directory_->path() + "/export";
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<ClosedLog> log,
                         ClosedLog::Open(directory_->path() + "/log"));
    Findings findings;
    const LogImage image = log->Read(&findings);
    ASSERT_TRUE(findings.empty());
    LogExporter exporter(path);
    for (const std::string& entry : image.entries) ASSERT_OK(exporter.Add(entry));
    ASSERT_OK(exporter.Finish(image.checkpoint, log->verifier_key()));
  }
  fs::copy_file(directory_->path() + "/trust.txt", path + "/trust.txt");
  const std::string output = Output(absl::StrCat(program, " log ", path, IsLong() ? " 1" : " 61"));
  const int64_t num_bits = int64_t{kNumCertificates} * 406 * 8;
  EXPECT_EQ(output,
            absl::StrCat("whole ", kNumCertificates, " leaves, ",
                         IsLong() ? num_bits : (num_bits + 60) / 61, " mutants, 0 missed\n"));
  // A tile with a wrong hash, an entry of another log: refused as a whole.
  for (const char* file : {"tile/0/000", "tile/0/001.p/244", "tile/entries/000", "checkpoint"}) {
    const std::string bytes = ReadFile(path + "/" + file);
    ASSERT_FALSE(bytes.empty()) << file;
    std::string changed = bytes;
    changed[40] = static_cast<char>(changed[40] ^ 1);
    WriteFile(path + "/" + file, changed);
    EXPECT_NE(std::system(absl::StrCat(program, " log ", path, " 1000000 >/dev/null 2>&1").c_str()),
              0)
        << file;
    WriteFile(path + "/" + file, bytes);
  }
}

}  // namespace
}  // namespace lethe::audit
