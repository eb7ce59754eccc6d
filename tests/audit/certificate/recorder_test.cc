// Goal: records chain, a Forget destroys the openings before it, nothing changes on an error, and
// no unsalted digest or id enters a record or the log.
// Method: a recorder on a fresh log.
#include "audit/certificate/recorder.h"

#include <filesystem>
#include <functional>
#include <string>

#include "gtest/gtest.h"
#include <sys/stat.h>

#include "audit/certificate/dsse.h"
#include "audit/crypto/encoding.h"
#include "tests/audit/certificate/certificate_world.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;

TEST(RecorderTest, SequenceLinksAndBodies) {
  CertificateWorld world;
  EXPECT_EQ(world.session()->next_seq(), 4u);
  EXPECT_EQ(world.session()->prev(), world.record(2).leaf_hash);
  EXPECT_EQ(world.record(0).statement.prev, Sha256Digest{});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(world.record(i).seq, i + 1);
    EXPECT_EQ(world.record(i).leaf_index, i);
    ASSERT_OK_AND_ASSIGN(const std::string body, world.log()->Body(world.record(i).leaf_hash));
    EXPECT_EQ(body, world.record(i).envelope);
    if (i > 0) {
      EXPECT_EQ(world.record(i).statement.prev, world.record(i - 1).leaf_hash);
    }
  }
}

TEST(RecorderTest, AForgetDestroysEarlierOpenings) {
  CertificateWorld world;
  EXPECT_EQ(world.session()->FindOpening(world.record(0).leaf_hash), nullptr);
  ASSERT_NE(world.session()->FindOpening(world.record(1).leaf_hash), nullptr);
  ASSERT_NE(world.session()->FindOpening(world.record(2).leaf_hash), nullptr);
  EXPECT_EQ(WriteOpening(*world.session()->FindOpening(world.record(2).leaf_hash)),
            world.record(2).opening);
  Recorder recorder(world.keys(), world.log());
  ASSERT_OK_AND_ASSIGN(const FinishedRecord forget,
                       recorder.Record(world.Draft(RecordKind::kForget), world.session()));
  EXPECT_EQ(world.session()->num_openings(), 1u);
  EXPECT_NE(world.session()->FindOpening(forget.leaf_hash), nullptr);
}

// The holder of a Forget's opening must not be able to test guesses about the state before it.
TEST(RecorderTest, TheOpeningOfAForgetDoesNotOpenTheStateBefore) {
  CertificateWorld world;
  const RecordDraft draft = world.Draft(RecordKind::kForget);
  const Statement& forget = world.record(CertificateWorld::kForgetRecord).statement;
  ASSERT_OK_AND_ASSIGN(const Opening opening, ParseOpening(world.record(1).opening));
  EXPECT_NE(forget.before_digest, CommitState(opening.salt, draft.digest_before));
  // It is bound to the salt of the record before: that opening, destroyed here, is the one that
  // opens it.
  ASSERT_OK_AND_ASSIGN(const Opening before, ParseOpening(world.record(0).opening));
  EXPECT_EQ(forget.before_digest, CommitState(before.salt, draft.digest_before));
}

TEST(RecorderTest, RecordsHoldNoUnsaltedDigest) {
  CertificateWorld world;
  const RecordDraft draft = world.Draft(RecordKind::kForget);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(const DsseEnvelope envelope, ParseEnvelope(world.record(i).envelope));
    for (const Sha256Digest& digest :
         {draft.digest_after, draft.digest_before, draft.memories[0].part_hash}) {
      EXPECT_EQ(envelope.payload.find(HexEncode(digest)), std::string::npos);
    }
    EXPECT_EQ(envelope.payload.find("session-1"), std::string::npos);
  }
}

TEST(RecorderTest, EqualDraftsGiveDifferentCommitments) {
  CertificateWorld world;
  EXPECT_NE(world.record(0).statement.subject_digest, world.record(2).statement.subject_digest);
  EXPECT_NE(world.record(0).statement.retained.root, world.record(2).statement.retained.root);
  EXPECT_NE(world.record(0).statement.memories[0].rows_root,
            world.record(2).statement.memories[0].rows_root);
  EXPECT_EQ(world.record(0).statement.session_pseudonym,
            world.record(2).statement.session_pseudonym);
}

TEST(RecorderTest, BadDraftsChangeNothing) {
  CertificateWorld world;
  Recorder recorder(world.keys(), world.log());
  const std::pair<const char*, std::function<void(RecordDraft*)>> cases[] = {
      {"session_id", [](RecordDraft* d) { d->session_id = ""; }},
      {"retained", [](RecordDraft* d) { std::swap(d->retained[0], d->retained[1]); }},
      {"forgotten", [](RecordDraft* d) { d->forgotten.push_back(1); }},
      {"forgotten", [](RecordDraft* d) { d->forgotten.push_back(12); }},
      {"derived_kept",
       [](RecordDraft* d) {
         d->derived_kept = {2, 2};
       }},
      {"derived_kept", [](RecordDraft* d) { d->derived_kept = {6}; }},
      {"forgotten", [](RecordDraft* d) { d->kind = RecordKind::kCertify; }},
      {"memories", [](RecordDraft* d) { d->memories[0].a.pop_back(); }},
      {"memories", [](RecordDraft* d) { d->memories[0].token_ids[0] = 2; }},
      {"predicate.nonce", [](RecordDraft* d) { d->nonce = "short"; }},
      {"predicate.requestId", [](RecordDraft* d) { d->request_id = ""; }},
      {"predicate.issuedAt", [](RecordDraft* d) { d->issued_at = ""; }},
      {"predicate.derived.kept", [](RecordDraft* d) { d->derived_policy = DerivedPolicy::kFail; }},
  };
  for (const auto& [field, apply] : cases) {
    RecordDraft draft = world.Draft(RecordKind::kForget);
    apply(&draft);
    EXPECT_THAT(recorder.Record(draft, world.session()),
                StatusIs(absl::StatusCode::kInvalidArgument, field));
  }
  EXPECT_EQ(world.session()->next_seq(), 4u);
  EXPECT_EQ(world.session()->num_openings(), 2u);
  EXPECT_EQ(world.log()->num_leaves(), 3u);
}

class ServerKeysTest : public ::testing::Test {
 protected:
  const TempDirectory directory_;
  const std::string path_ = directory_.path() + "/keys";
};

TEST_F(ServerKeysTest, AreCreatedOnceAndLoaded) {
  ASSERT_OK_AND_ASSIGN(const ServerKeys made, ServerKeys::LoadOrCreate(path_));
  ASSERT_OK_AND_ASSIGN(const ServerKeys loaded, ServerKeys::LoadOrCreate(path_));
  EXPECT_EQ(made.record_key->public_key(), loaded.record_key->public_key());
  EXPECT_EQ(made.log_key->public_key(), loaded.log_key->public_key());
  EXPECT_TRUE(ConstantTimeEqual(made.pseudonym_key.bytes(), loaded.pseudonym_key.bytes()));
  for (const char* file : {"/record.pem", "/log.pem", "/pseudonym.key"}) {
    struct stat info;
    ASSERT_EQ(stat((path_ + file).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600) << file;
  }
}

TEST_F(ServerKeysTest, AMissingOrSharedKeyIsRefused) {
  ASSERT_OK(ServerKeys::LoadOrCreate(path_));
  const std::string log_key = ReadFile(path_ + "/log.pem");
  std::filesystem::remove(path_ + "/log.pem");
  EXPECT_THAT(ServerKeys::LoadOrCreate(path_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "not all"));
  std::filesystem::copy(path_ + "/record.pem", path_ + "/log.pem");
  EXPECT_THAT(ServerKeys::LoadOrCreate(path_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "same"));
  WriteFile(path_ + "/log.pem", log_key);
  WriteFile(path_ + "/pseudonym.key", "short");
  EXPECT_THAT(ServerKeys::LoadOrCreate(path_),
              StatusIs(absl::StatusCode::kInvalidArgument, "32 bytes"));
}

}  // namespace
}  // namespace lethe::audit
