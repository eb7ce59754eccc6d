// Goal: a witness cosigns only heads that extend one another, across restarts; a log with a required witness shows no head without
// its cosignature; a fork that no local file betrays freezes; whatever a witness answers, nothing else happens.
// Method: our witness behind its HTTP listener in a thread, and listeners that answer rubbish; logs with and without it.
#include "audit/witness/witness.h"

#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "audit/certificate/keys.h"
#include "audit/certificate/recorder.h"
#include "audit/certificate/verify.h"
#include "audit/crypto/encoding.h"
#include "audit/log/audit_log.h"
#include "audit/log/merkle_tree.h"
#include "audit/witness/add_checkpoint.h"
#include "audit/witness/witness_client.h"
#include "tests/audit/temp_directory.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;
namespace fs = std::filesystem;

constexpr char kOrigin[] = "test.example/log";
constexpr char kName[] = "witness.example/w1";
constexpr double kTimeoutS = 5;

// A listener in a thread of its own.
class Server {
 public:
  using Handler = std::function<HttpAnswer(const std::string& path, const std::string& body)>;
  explicit Server(Handler handler)
      : listener_(HttpListener::Listen("127.0.0.1", 0).value()),
        thread_([this, handler = std::move(handler)] { listener_.Serve(handler); }) {}
  ~Server() {
    listener_.Shutdown();
    thread_.join();
  }
  HttpUrl url() const { return {"127.0.0.1", listener_.port(), ""}; }

 private:
  HttpListener listener_;
  std::thread thread_;
};

class WitnessTest : public ::testing::Test {
 protected:
  void SetUp() override { OpenWitness(); }

  void OpenWitness() {
    witness_.reset();
    WitnessOptions options;
    options.directory = directory_.path() + "/witness";
    options.name = kName;
    options.key = witness_key_;
    options.logs = {*MakeVerifierKey(kOrigin, keys_.log_key->public_key())};
    options.now_s = [] { return uint64_t{1'767'225'600}; };
    ASSERT_OK_AND_ASSIGN(witness_, Witness::Open(options));
    server_.emplace([this](const std::string& path, const std::string& body) {
      return witness_->Handle(path, body);
    });
  }
  WitnessKey Key() const { return *MakeWitnessKey(kName, witness_key_->public_key()); }
  std::shared_ptr<HeadWitness> Client(const HttpUrl& url) const {
    return std::make_shared<WitnessClient>(std::vector<WitnessTarget>{{Key(), url}},
                                           WitnessPatience{kTimeoutS, 1});
  }
  AuditLogOptions Options(const std::string& name = "log", bool with_anchor = true) const {
    AuditLogOptions options;
    options.directory = directory_.path() + "/" + name;
    options.origin = kOrigin;
    options.key = keys_.log_key;
    if (with_anchor) options.anchor_directory = directory_.path() + "/ledger";
    options.witness = Client(server_->url());
    return options;
  }
  // A certificate, recorded in this log.
  absl::StatusOr<CertificateFiles> Certify(AuditLog* log) {
    Recorder recorder(keys_, log);
    RecordDraft draft;
    draft.kind = RecordKind::kCertify;
    draft.session_id = absl::StrCat("s-", num_sessions_++);
    draft.nonce = std::string(16, 'n');
    draft.request_id = "r";
    draft.issued_at = "2026-01-01T00:00:00Z";
    draft.engine.build = "b";
    draft.engine.algorithm = "a";
    draft.engine.device_kind = "cpu";
    SessionRecords session;
    const absl::StatusOr<FinishedRecord> record = recorder.Record(draft, &session);
    if (!record.ok()) return record.status();
    return CertificateFiles{record->envelope, record->proof_file, {}, {}, {}};
  }
  TrustStore Trust() const {
    TrustStore trust = *keys_.Trust(kOrigin);
    trust.witnesses.push_back(Key());
    return trust;
  }

  const TempDirectory directory_{TempDirectory::Where::kMemory};
  const ServerKeys keys_ = ServerKeys::Generate();
  const std::shared_ptr<const Ed25519PrivateKey> witness_key_ =
      std::make_shared<const Ed25519PrivateKey>(Ed25519PrivateKey::Generate());
  std::unique_ptr<Witness> witness_;
  std::optional<Server> server_;
  int num_sessions_ = 0;
};

TEST_F(WitnessTest, ACertificateCarriesTheCosignatureThatATrustFileAsksFor) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options()));
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK_AND_ASSIGN(CertificateFiles files, Certify(log.get()));
    EXPECT_TRUE(VerifyCertificate(files, Trust()).ok());
    EXPECT_TRUE(VerifyCertificate(files, *keys_.Trust(kOrigin)).ok());
    // Each changed byte of the cosignature's line is refused by who asks for it.
    const size_t line = files.proof_file.find(kName);
    for (size_t at = line; at + 1 < files.proof_file.size(); at += 7) {
      CertificateFiles changed = files;
      changed.proof_file[at] = changed.proof_file[at] == 'B' ? 'C' : 'B';
      EXPECT_FALSE(VerifyCertificate(changed, Trust()).ok()) << at - line;
    }
    CertificateFiles without = files;
    without.proof_file.resize(files.proof_file.rfind("\u2014"));
    EXPECT_FALSE(VerifyCertificate(without, Trust()).ok());
    EXPECT_TRUE(VerifyCertificate(without, *keys_.Trust(kOrigin)).ok());
  }
  ASSERT_OK_AND_ASSIGN(const TrustStore again, ParseTrust(WriteTrust(Trust())));
  EXPECT_EQ(WriteTrust(again), WriteTrust(Trust()));
}

TEST_F(WitnessTest, ACopyOnAnotherMachineFreezesByTheWitnessAlone) {
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log,
                         AuditLog::Open(Options("log", false)));
    ASSERT_OK(Certify(log.get()));
    fs::copy(directory_.path() + "/log", directory_.path() + "/older", fs::copy_options::recursive);
    ASSERT_OK(Certify(log.get()));
  }
  OpenWitness();  // what it knows survives it
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> older,
                         AuditLog::Open(Options("older", false)));
    EXPECT_THAT(older->frozen(), StatusIs(absl::StatusCode::kDataLoss, "older copy"));
  }
  // Without asking the witness the copy signs a fork; with it, it is found.
  AuditLogOptions alone = Options("older", false);
  alone.witness = nullptr;
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> fork, AuditLog::Open(alone));
    ASSERT_OK(Certify(fork.get()));
  }
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> fork,
                       AuditLog::Open(Options("older", false)));
  EXPECT_THAT(fork->frozen(), StatusIs(absl::StatusCode::kDataLoss, "fork"));
}

TEST_F(WitnessTest, ALongerForkFreezesToo) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options("log", false)));
  ASSERT_OK(Certify(log.get()));
  AuditLogOptions alone = Options("fork", false);
  alone.witness = nullptr;
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> fork, AuditLog::Open(alone));
    for (int i = 0; i < 4; ++i) ASSERT_OK(Certify(fork.get()));
  }
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> fork,
                       AuditLog::Open(Options("fork", false)));
  EXPECT_THAT(fork->frozen(), StatusIs(absl::StatusCode::kDataLoss, "does not extend"));
}

TEST_F(WitnessTest, WithoutItsWitnessALogShowsNoHeadOrGoesOnAsItIsToldTo) {
  AuditLogOptions options = Options();
  const Server ill([](const std::string&, const std::string&) {
    return HttpAnswer{500, "text/plain", "ill\n"};
  });
  options.witness = Client(ill.url());
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(options));
    // The first record is stored before the cosignature is missed; behind it nothing is.
    EXPECT_THAT(Certify(log.get()), StatusIs(absl::StatusCode::kUnavailable, "witness"));
    EXPECT_EQ(log->num_leaves(), 1u);
    EXPECT_THAT(Certify(log.get()), StatusIs(absl::StatusCode::kUnavailable, "witness"));
    EXPECT_EQ(log->num_leaves(), 1u);
    EXPECT_THAT(log->SignedCheckpoint(), StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_THAT(log->ProofFile(0), StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_OK(log->frozen());
  }
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options()));
    ASSERT_OK(Certify(log.get()));
    EXPECT_EQ(log->num_leaves(), 2u);
  }
  options.witness_required = false;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> open, AuditLog::Open(options));
  ASSERT_OK_AND_ASSIGN(const CertificateFiles files, Certify(open.get()));
  EXPECT_TRUE(VerifyCertificate(files, *keys_.Trust(kOrigin)).ok());
  EXPECT_FALSE(VerifyCertificate(files, Trust()).ok());
}

TEST_F(WitnessTest, AWitnessThatIsGoneIsMissedBeforeARecordIsStored) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options()));
  ASSERT_OK(Certify(log.get()));
  server_.reset();
  EXPECT_THAT(Certify(log.get()), StatusIs(absl::StatusCode::kUnavailable, "no connection"));
  // So the caller may take back what it prepared.
  EXPECT_EQ(log->num_leaves(), 1u);
  EXPECT_OK(log->SignedCheckpoint());
  EXPECT_OK(log->ProofFile(0));

  AuditLogOptions options = Options("other", false);
  options.witness = Client({"127.0.0.1", 1, ""});
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> other, AuditLog::Open(options));
  EXPECT_THAT(Certify(other.get()), StatusIs(absl::StatusCode::kUnavailable, "no connection"));
  EXPECT_EQ(other->num_leaves(), 0u);
}

TEST_F(WitnessTest, HostileAnswersAreNeverTaken) {
  const Ed25519PrivateKey other = Ed25519PrivateKey::Generate();
  const std::string text = absl::StrCat(kOrigin, "\n1\n", Base64Encode(Sha256Of("")), "\n");
  const auto line = [](const NoteSignature& signature) {
    return WriteNote({"", {signature}}).substr(1);
  };
  const std::vector<HttpAnswer> answers = {
      {200, "text/plain", ""},
      {200, "text/plain", "rubbish"},
      {200, "text/plain", "\n\n"},
      {200, "text/plain", std::string(kHttpBodyBytesMax + 10, 'x')},
      {200, "text/plain", std::string(100, '\0')},
      {200, "text/plain", line(SignCosignature(text, 1, kName, other))},
      {200, "text/plain", line(SignCosignature(text, 1, kName, *witness_key_))},  // of another head
      {200, "text/plain", line(SignNoteText(text, kName, *witness_key_))},
      {204, "text/plain", ""},
      {301, "text/plain", "http://127.0.0.1/"},
      {404, "text/plain", ""},
      {409, "text/plain", "0\n"},
      {409, kTreeSizeType, "-1\n"},
      {409, kTreeSizeType, "18446744073709551616\n"},
      {409, kTreeSizeType, ""},
      {422, "text/plain", ""},
      {500, "text/plain", ""},
  };
  for (const HttpAnswer& answer : answers) {
    const Server hostile([&answer](const std::string&, const std::string&) { return answer; });
    const HeadToCosign head{SignCheckpoint({kOrigin, 3, Sha256Of("root")}, *keys_.log_key), 3,
                            [](uint64_t) -> absl::StatusOr<std::vector<Sha256Digest>> {
                              return std::vector<Sha256Digest>();
                            }};
    EXPECT_THAT(Client(hostile.url())->Cosign(head), StatusIs(absl::StatusCode::kUnavailable))
        << answer.status << " " << answer.body.substr(0, 30);
  }
}

class WitnessAnswersTest : public WitnessTest {
 protected:
  std::string Head(int num_leaves, const char* salt = "") const {
    return SignCheckpoint(
        {kOrigin, static_cast<uint64_t>(num_leaves), Tree(num_leaves, salt).Root()},
        *keys_.log_key);
  }
  static MerkleTree Tree(int num_leaves, const char* salt = "") {
    MerkleTree tree;
    for (int i = 0; i < num_leaves; ++i) tree.Append(MerkleLeafHash(absl::StrCat(salt, i)));
    return tree;
  }
  HttpAnswer Add(int old_size, int new_size, const char* salt = "") {
    AddCheckpointRequest request;
    request.old_size = static_cast<uint64_t>(old_size);
    request.checkpoint = Head(new_size, salt);
    if (old_size > 0 && old_size < new_size) {
      request.proof =
          *Tree(new_size, salt).ConsistencyProof(request.old_size, static_cast<uint64_t>(new_size));
    }
    return witness_->AddCheckpoint(WriteAddCheckpoint(request));
  }
};

TEST_F(WitnessAnswersTest, FollowTheSpecification) {
  EXPECT_EQ(Add(0, 3).status, 200);
  EXPECT_EQ(Add(3, 3).status, 200);  // again: a newer time
  EXPECT_EQ(Add(3, 7).status, 200);
  const HttpAnswer conflict = Add(3, 9);
  EXPECT_EQ(conflict.status, 409);
  EXPECT_EQ(conflict.content_type, kTreeSizeType);
  EXPECT_EQ(conflict.body, "7\n");
  EXPECT_EQ(Add(9, 7).status, 400);
  EXPECT_EQ(Add(7, 9, "fork").status, 422);
  EXPECT_EQ(Add(7, 7, "fork").status, 409);
  EXPECT_EQ(Add(0, 3).status, 409);
  EXPECT_EQ(witness_->AddCheckpoint("").status, 400);
  EXPECT_EQ(witness_->AddCheckpoint("old 7\n\nrubbish").status, 400);
  EXPECT_EQ(witness_->AddCheckpoint("old x\n\n" + Head(9)).status, 400);
  const Ed25519PrivateKey other = Ed25519PrivateKey::Generate();
  EXPECT_EQ(
      witness_->AddCheckpoint("old 7\n\n" + SignCheckpoint({kOrigin, 7, Tree(7).Root()}, other))
          .status,
      403);
  EXPECT_EQ(
      witness_->AddCheckpoint("old 0\n\n" + SignCheckpoint({"other", 7, Tree(7).Root()}, other))
          .status,
      404);
  EXPECT_EQ(witness_->Handle("/other", "").status, 404);
  OpenWitness();
  EXPECT_EQ(Add(3, 9).body, "7\n");
  EXPECT_EQ(Add(7, 9).status, 200);
}

TEST_F(WitnessAnswersTest, OfTwoForksAtOnceOneIsCosigned) {
  for (int round = 0; round < 20; ++round) {
    fs::remove_all(directory_.path() + "/witness");
    OpenWitness();
    int main_status = 0;
    int fork_status = 0;
    std::thread main_line([&] { main_status = Add(0, 4).status; });
    std::thread fork([&] { fork_status = Add(0, 5, "fork").status; });
    main_line.join();
    fork.join();
    EXPECT_EQ(main_status + fork_status, 200 + 409) << round;
  }
}

TEST(HttpTest, UrlsAreOfOneForm) {
  for (const char* good :
       {"http://127.0.0.1:80", "http://localhost:7071/", "http://10.0.0.1:1/a/b"}) {
    EXPECT_OK(ParseHttpUrl(good)) << good;
  }
  for (const char* bad : {"", "https://127.0.0.1:80", "http://127.0.0.1", "http://127.0.0.1:0",
                          "http://x:80", "http://127.0.0.1:65536", "http://127.0.0.1:80/a b",
                          "http://[::1]:80", "ftp://127.0.0.1:1"}) {
    EXPECT_THAT(ParseHttpUrl(bad), StatusIs(absl::StatusCode::kInvalidArgument)) << bad;
  }
}

}  // namespace
}  // namespace lethe::audit
