// Goal: every single-field mutation of a statement is refused, and the check that its field belongs
// to is the one that fails.
// Method: one named test per field and kind of mutation (json_mutations.h). Four forgeries of each:
// the payload swapped under the old signature; signed again by the trusted key but not in the log;
// signed and logged by an untrusted key; signed and logged by the trusted key itself, a lying
// server: there the fields that opening, bundle, request or sequence bind must be caught, and those
// that are the server's word alone (kClaim) are listed, so that a new field has to be classified.
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "audit/certificate/dsse.h"
#include "audit/certificate/verify.h"
#include "audit/crypto/encoding.h"
#include "tests/audit/certificate/certificate_world.h"
#include "tests/audit/certificate/json_mutations.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

constexpr char kClaim[] = "";

struct Rule {
  const char* pattern;  // of "path kind"
  // The check that fails when the trusted key signs and logs the mutant.
  const char* check;
};

// The first matching rule counts.
constexpr Rule kRules[] = {
    {"predicateType {change,remove}", "predicate type"},
    // Structure: unknown, missing and wrongly written fields.
    {"*zzz add", "predicate"},
    {"subject[0].digest.sha256 change", "subject digest"},
    {"{_type,subject*} *", "predicate"},
    {"predicate.layers[?] duplicate", "predicate"},  // not ascending
    {"predicate.{layers,stores}[?] {remove,duplicate}", kClaim},
    {"predicate.memories[?] remove", "bundle"},
    {"predicate.residual[?] *", "scope"},
    {"* remove", "predicate"},
    {"predicate.memories[?] duplicate", "predicate"},
    {"predicate.proofs*", "predicate"},
    {"predicate.{issuedAt,derived.policy,layers[?].method} change", "predicate"},
    {"predicate.memories[?].deviation.{domain,method,norm} change", "predicate"},
    // What the opening binds.
    {"predicate.retained.*", "retained set"},
    {"predicate.forgot.*", "forgotten set"},
    {"predicate.derived.kept.*", "derived set"},
    // What the bundle binds.
    {"predicate.memories[0].{group,head,layer} change", "predicate"},  // not ascending
    {"predicate.memories[1].{group,head,layer} change", "bundle"},
    {"predicate.memories[?].partition.{error,margin,reserve} change", "partition counts"},
    {"predicate.memories[?].partition.root change", "partition rows"},
    {"predicate.memories[?].deviation.evidence change", "evidence"},
    {"predicate.memories[?].deviation.bound.* down", "optimality"},
    {"predicate.memories[?].deviation.bound.* up", kClaim},  // a weaker, true bound
    {"predicate.memories[0].smallestMargin up", "optimality"},
    {"predicate.memories[1].smallestMargin up", "predicate"},  // above +infinity: NaN
    {"predicate.memories[?].smallestMargin down", kClaim},
    // Other fields than the method and the bounds of a proof.
    {"predicate.memories[?].partitionProved change", "predicate"},
    {"predicate.engine.{model,numerics,device} change", "engine identity"},
    // What request, log and sequence bind.
    {"predicate.nonce change", "nonce"},
    {"predicate.log change", "log origin"},
    {"predicate.session change", "sequence session"},
    {"predicate.seq change", "sequence numbers"},
    {"predicate.prev change", "sequence links"},
    // The server's word.
    {"predicate.{before,requestId} change", kClaim},
    {"predicate.engine.{algorithm,binary,build,config} change", kClaim},
    {"predicate.layers[0].layer change", "predicate"},  // no longer ascending
    {"predicate.layers[1].layer change", kClaim},
    {"predicate.layers[?].kind change", kClaim},
    {"predicate.stores[?].{store,result} change", kClaim},
};

// Rules of fields that a Forget record, which comes without a bundle here, leaves to the server's
// word or refuses.
constexpr Rule kForgetRules[] = {
    {"predicate.memories[?] remove", kClaim},
    {"predicate.memories[0].{group,head,layer} change", "predicate"},
    {"predicate.memories[1].{group,head,layer} change", kClaim},
    {"predicate.memories[?].partition.*change", kClaim},
    {"predicate.memories[?].smallestMargin {up,down}", kClaim},
    {"predicate.memories[?].partitionProved change", "predicate"},
    {"predicate.engine.{model,numerics,device} change", kClaim},
};

struct Mutant {
  size_t record;
  JsonMutation mutation;
};

std::string PayloadOf(size_t record) {
  return ParseEnvelope(SharedWorld().record(record).envelope).value().payload;
}

// The text of a salted value changes from run to run, its path does not: names are stable.
std::vector<Mutant> AllMutants() {
  std::vector<Mutant> mutants;
  for (const size_t record : {CertificateWorld::kForgetRecord, CertificateWorld::kCertifyRecord}) {
    for (JsonMutation& mutation : MutateJson(PayloadOf(record))) {
      mutants.push_back({record, std::move(mutation)});
    }
  }
  return mutants;
}

void PrintTo(const Mutant& mutant, std::ostream* out) {
  *out << mutant.mutation.path << " " << mutant.mutation.kind;
}

class StatementMutationTest : public ::testing::TestWithParam<Mutant> {
 protected:
  CertificateWorld& world_ = SharedWorld();
  const CertificateFiles files_ =
      world_.Files(GetParam().record, GetParam().record == CertificateWorld::kCertifyRecord);
  const std::string payload_ = GetParam().mutation.bytes;

  std::string FirstFailure(const CertificateFiles& files) const {
    const VerifyReport report = VerifyCertificate(files, world_.trust(), {kTestNonce});
    if (report.ok()) return "";
    return report.first_failure() == nullptr ? "(none)" : report.first_failure()->name;
  }
};

TEST_P(StatementMutationTest, UnderTheOldSignature) {
  DsseEnvelope envelope = ParseEnvelope(files_.envelope).value();
  envelope.payload = payload_;
  CertificateFiles files = files_;
  files.envelope = WriteEnvelope(envelope);
  EXPECT_EQ(FirstFailure(files), "signature");
}

TEST_P(StatementMutationTest, SignedByTheTrustedKeyButNotLogged) {
  CertificateFiles files = files_;
  files.envelope = WriteEnvelope(SignEnvelope(kPayloadType, payload_, *world_.keys().record_key));
  const std::string failure = FirstFailure(files);
  EXPECT_TRUE(failure == "inclusion" || failure == "predicate" || failure == "predicate type" ||
              failure == "log origin")
      << failure;
  EXPECT_FALSE(VerifyCertificate(files, world_.trust()).core_ok);
}

TEST_P(StatementMutationTest, SignedAndLoggedByAnUntrustedKey) {
  EXPECT_EQ(FirstFailure(world_.Relog(payload_, Ed25519PrivateKey::Generate(), files_)),
            "record key");
}

TEST_P(StatementMutationTest, SignedAndLoggedByTheTrustedKey) {
  const std::string subject = GetParam().mutation.path + " " + GetParam().mutation.kind;
  const char* want = nullptr;
  if (GetParam().record == CertificateWorld::kForgetRecord) {
    for (const Rule& rule : kForgetRules) {
      if (want == nullptr && MatchesGlob(subject, rule.pattern)) want = rule.check;
    }
  }
  for (const Rule& rule : kRules) {
    if (want == nullptr && MatchesGlob(subject, rule.pattern)) want = rule.check;
  }
  ASSERT_NE(want, nullptr) << subject << " is not classified";
  const CertificateFiles files = world_.Relog(payload_, *world_.keys().record_key, files_);
  const std::string failure = FirstFailure(files);
  const std::string expected = want;
  if (expected.rfind("sequence ", 0) == 0) {
    EXPECT_EQ(failure, "") << subject;
    const SequenceReport report =
        VerifySequence({world_.Files(GetParam().record - 1, false), files}, world_.trust());
    std::string sequence_failure;
    for (const Check& check : report.checks) {
      if (sequence_failure.empty() && check.result == CheckResult::kFailed) {
        sequence_failure = check.name;
      }
    }
    EXPECT_EQ(sequence_failure, expected) << subject;
  } else {
    EXPECT_EQ(failure, expected) << subject;
  }
}

std::string MutantName(const ::testing::TestParamInfo<Mutant>& info) {
  const bool forget = info.param.record == CertificateWorld::kForgetRecord;
  return (forget ? "forget_" : "certify_") + info.param.mutation.Name();
}

INSTANTIATE_TEST_SUITE_P(All, StatementMutationTest, ::testing::ValuesIn(AllMutants()), MutantName);

// Texts of the right values that are not the canonical text: each must fail as such, even when the
// trusted key signed it.
TEST(StatementTextTest, NonCanonicalTextsAreRefused) {
  CertificateWorld& world = SharedWorld();
  const std::string payload = PayloadOf(CertificateWorld::kForgetRecord);
  const auto replaced = [&payload](const std::string& from, const std::string& to) {
    std::string text = payload;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::pair<std::string, const char*> cases[] = {
      {" " + payload, "statement"},
      {payload + "\n", "statement"},
      {"\xef\xbb\xbf" + payload, "statement"},
      {payload.substr(0, payload.size() - 1), "statement"},
      {"", "statement"},
      {replaced("\"seq\":\"2\"", "\"seq\": \"2\""), "statement"},
      {replaced("\"seq\":\"2\"", "\"seq\":2"), "statement"},
      {replaced("\"seq\":\"2\"", "\"seq\":null"), "statement"},
      {replaced("\"seq\":\"2\"", "\"seq\":\"2\",\"seq\":\"2\""), "statement"},
      {replaced("\"seq\":\"2\"", "\"seq\":\"\\u0032\""), "statement"},
      {replaced("\"seq\":\"2\"", "\"seq\":\"\xc3\xa9\""), "statement"},
      {replaced("\"requestId\":\"request-7\",", ""), "predicate"},
      {replaced("\"predicate\":{\"before\"", "\"predicate\":{\"Before\""), "predicate"},
      {replaced("\"log\"", "\"lag\""), "statement"},  // no longer sorted
      {replaced("\"seq\":\"2\"", "\"seq\":\"02\""), "predicate"},
      {replaced("\"seq\":\"2\"", "\"seq\":\"18446744073709551616\""), "predicate"},
      {replaced("\"smallestMargin\":\"3fd0", "\"smallestMargin\":\"3FD0"), "predicate"},
      {replaced("\"smallestMargin\":\"3fd0", "\"smallestMargin\":\"fff8"), "predicate"},  // NaN
      {replaced("\"smallestMargin\":\"3fd0000000000000", "\"smallestMargin\":\"8000000000000000"),
       "predicate"},  // -0 for +0
  };
  for (const auto& [text, check] : cases) {
    const VerifyReport report =
        VerifyCertificate(world.Relog(text, *world.keys().record_key, {}), world.trust());
    ASSERT_NE(report.first_failure(), nullptr) << text;
    EXPECT_EQ(report.first_failure()->name, check) << text << report.first_failure()->detail;
  }
}

}  // namespace
}  // namespace lethe::audit
