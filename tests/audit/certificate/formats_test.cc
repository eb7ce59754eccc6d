// Goal: statements, envelopes, openings, bundles and trust files round-trip, and what breaks their
// rules is refused with the field's name.
// Method: the records of CertificateWorld; one rule broken at a time.
#include <functional>
#include <limits>
#include <string>

#include "gtest/gtest.h"

#include "audit/certificate/bundle.h"
#include "audit/certificate/commitment.h"
#include "audit/certificate/dsse.h"
#include "audit/certificate/opening.h"
#include "audit/certificate/scopes.h"
#include "audit/certificate/statement.h"
#include "audit/certificate/trust.h"
#include "audit/crypto/encoding.h"
#include "audit/log/merkle_tree.h"
#include "tests/audit/certificate/certificate_world.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(StatementTest, RoundTrips) {
  for (size_t i = 0; i < 3; ++i) {
    const Statement& statement = SharedWorld().record(i).statement;
    ASSERT_OK_AND_ASSIGN(const std::string bytes, WriteStatement(statement));
    ASSERT_OK_AND_ASSIGN(const Statement parsed, ParseStatement(bytes));
    ASSERT_OK_AND_ASSIGN(const std::string again, WriteStatement(parsed));
    EXPECT_EQ(again, bytes);
    EXPECT_EQ(parsed.seq, i + 1);
    EXPECT_EQ(parsed.memories.size(), 2u);
    EXPECT_EQ(parsed.kind, i == 1 ? RecordKind::kForget : RecordKind::kCertify);
  }
}

// The bytes of a small statement, written out: the format must not drift.
TEST(StatementTest, BytesAreTheDocumentedOnes) {
  Statement s;
  s.kind = RecordKind::kForget;
  s.log_origin = "o";
  s.nonce = std::string(16, 'n');
  s.request_id = "r\"\\";
  s.issued_at = "2026-01-02T03:04:05Z";
  s.engine.algorithm = "a";
  s.engine.build = "b";
  s.engine.device_kind = "cpu";
  s.retained.root = s.forgot.root = s.derived_kept.root = MerkleEmptyRoot();
  s.layers = {{7, "svdd", LayerMethod::kDecremental}};
  MemoryReport memory;
  memory.layer = 7;
  memory.rows_root = MerkleEmptyRoot();
  memory.smallest_margin = std::numeric_limits<double>::infinity();
  s.memories = {memory};
  s.stores = {{"session-memory", "replaced"}};
  s.residual_scopes = ResidualScopes({});
  const std::string zeros(64, '0');
  const std::string empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
  const std::string empty_set = R"({"count":"0","root":")" + empty + R"("})";
  const std::string want =
      R"({"_type":"https://in-toto.io/Statement/v1","predicate":{"before":")" + zeros +
      R"(","derived":{"kept":)" + empty_set + R"(,"policy":"FAIL"},"engine":{"algorithm":"a",)" +
      R"("binary":")" + zeros + R"(","build":"b","config":")" + zeros +
      R"(","device":"cpu","model":")" + zeros + R"(","numerics":")" + zeros + R"("},"forgot":)" +
      empty_set + R"(,"issuedAt":"2026-01-02T03:04:05Z","layers":[{"kind":"svdd","layer":"7",)" +
      R"("method":"decremental"}],"log":"o","memories":[{"group":"0","head":"0","layer":"7",)" +
      R"("partition":{"error":"0","margin":"0","reserve":"0","root":")" + empty +
      R"("},"partitionProved":false,"smallestMargin":"7ff0000000000000"}],)" +
      R"("nonce":"6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e","prev":")" + zeros +
      R"(","proofs":["P1"],"requestId":"r\"\\","residual":["backups-not-expired",)" +
      R"("client-copies","exported-states","model-weights","openings-and-bundles-handed-out",)" +
      R"("physical-erasure-of-memory-and-disk","proxy-logs","token-id-gaps"],"retained":)" +
      empty_set + R"(,"seq":"1","session":")" + zeros +
      R"(","stores":[{"result":"replaced","store":"session-memory"}]},)" +
      R"("predicateType":"https://lethe.dev/forget/v1","subject":[{"digest":{"sha256":")" + zeros +
      R"("},"name":"session-state"}]})";
  ASSERT_OK_AND_ASSIGN(const std::string bytes, WriteStatement(s));
  EXPECT_EQ(bytes, want);
}

struct BrokenRule {
  const char* field;  // in the message
  std::function<void(Statement*)> apply;
  size_t record;
};

TEST(StatementTest, BrokenRulesAreRefusedByName) {
  const size_t forget = CertificateWorld::kForgetRecord;
  const size_t certify = CertificateWorld::kCertifyRecord;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const BrokenRule rules[] = {
      {"predicate.nonce", [](Statement* s) { s->nonce = std::string(15, 'n'); }, forget},
      {"predicate.nonce", [](Statement* s) { s->nonce = std::string(33, 'n'); }, forget},
      {"predicate.requestId", [](Statement* s) { s->request_id = ""; }, forget},
      {"predicate.requestId", [](Statement* s) { s->request_id = "caf\xc3\xa9"; }, forget},
      {"predicate.requestId", [](Statement* s) { s->request_id = std::string(257, 'r'); }, forget},
      {"predicate.issuedAt", [](Statement* s) { s->issued_at = "yesterday"; }, forget},
      {"predicate.log", [](Statement* s) { s->log_origin = "a b"; }, forget},
      {"predicate.engine.build", [](Statement* s) { s->engine.build = "a\n"; }, forget},
      {"predicate.engine.algorithm", [](Statement* s) { s->engine.algorithm = ""; }, forget},
      {"predicate.engine.device", [](Statement* s) { s->engine.device_kind = ""; }, forget},
      {"predicate.layers.kind", [](Statement* s) { s->layers[0].kind = ""; }, forget},
      {"predicate.layers", [](Statement* s) { s->layers[1].layer = 3; }, forget},
      {"predicate.memories", [](Statement* s) { s->memories[1].head = 0; }, forget},
      {"partition", [](Statement* s) { s->memories[0].num_margin = UINT64_MAX; }, forget},
      {"partition", [](Statement* s) { s->memories[0].num_margin = 17; }, forget},
      {"smallestMargin", [nan](Statement* s) { s->memories[0].smallest_margin = nan; }, certify},
      {"deviation", [](Statement* s) { s->memories[0].deviation.reset(); }, certify},
      {"deviation", [nan](Statement* s) { s->memories[0].deviation->rho = nan; }, certify},
      {"deviation", [](Statement* s) { s->memories[0].deviation->gap = -1; }, certify},
      {"deviation", [](Statement* s) { s->memories[0].deviation.emplace(); }, forget},
      {"partitionProved", [](Statement* s) { s->memories[0].partition_proved = true; }, forget},
      {"predicate.proofs", [](Statement* s) { s->proves_state = false; }, forget},
      {"deviation", [](Statement* s) { s->proves_optimality = true; }, forget},
      {"predicate.retained", [](Statement* s) { s->retained.root = MerkleEmptyRoot(); }, forget},
      {"predicate.forgot", [](Statement* s) { s->forgot.count = 0; }, forget},
      {"predicate.derived.kept", [](Statement* s) { s->derived_policy = DerivedPolicy::kFail; },
       forget},
      {"predicate.stores.result", [](Statement* s) { s->stores[0].result = ""; }, forget},
      {"no Forget fields", [](Statement* s) { s->forgot.count = 1; }, certify},
      {"no Forget fields", [](Statement* s) { s->before_digest[0] = 1; }, certify},
      {"no Forget fields", [](Statement* s) { s->stores.emplace_back(); }, certify},
      {"predicate.seq", [](Statement* s) { s->seq = 0; }, forget},
      {"predicate.prev", [](Statement* s) { s->prev = {}; }, forget},
      {"predicate.prev", [](Statement* s) { s->seq = 1; }, forget},
      {"residual", [](Statement* s) { s->residual_scopes.pop_back(); }, forget},
      {"residual", [](Statement* s) { s->residual_scopes.emplace_back("zzz"); }, forget},
      {"residual", [](Statement* s) { s->residual_scopes = ResidualScopes({}); }, forget},
      // Memory is named as wiped and as not covered, or as neither.
      {"residual",
       [](Statement* s) {
         s->stores.push_back({kStoreProcessMemory, "wiped"});
       },
       forget},
      {"residual",
       [](Statement* s) {
         s->residual_scopes = ResidualScopes({true, false, true});
       },
       forget},
  };
  for (const BrokenRule& rule : rules) {
    Statement statement = SharedWorld().record(rule.record).statement;
    ASSERT_OK(WriteStatement(statement));
    rule.apply(&statement);
    EXPECT_THAT(WriteStatement(statement), StatusIs(kInvalid, rule.field));
  }
}

// Origin: DSSE 1.0.2, protocol.md, the worked example.
TEST(DsseTest, PreAuthEncodingIsTheSpecifications) {
  EXPECT_EQ(PreAuthEncoding("http://example.com/HelloWorld", "hello world"),
            "DSSEv1 29 http://example.com/HelloWorld 11 hello world");
  EXPECT_EQ(PreAuthEncoding("", ""), "DSSEv1 0  0 ");
}

TEST(DsseTest, RoundTripsAndReadsOtherWritersTexts) {
  const Ed25519PrivateKey key = Ed25519PrivateKey::Generate();
  const DsseEnvelope envelope = SignEnvelope(kPayloadType, "?>?>payload\xff", key);
  EXPECT_TRUE(key.public_key().Verify(PreAuthEncoding(kPayloadType, envelope.payload),
                                      AsStringView(envelope.signature)));
  const std::string json = WriteEnvelope(envelope);
  ASSERT_OK_AND_ASSIGN(const DsseEnvelope parsed, ParseEnvelope(json));
  EXPECT_EQ(WriteEnvelope(parsed), json);
  std::string url_safe = Base64Encode(envelope.payload);
  std::replace(url_safe.begin(), url_safe.end(), '/', '_');
  std::replace(url_safe.begin(), url_safe.end(), '+', '-');
  ASSERT_NE(url_safe, Base64Encode(envelope.payload));
  const std::string other = "{ \"signatures\": [ {\"sig\": \"" + Base64Encode(envelope.signature) +
                            "\", \"keyid\": \"" + envelope.key_id + "\"} ],\n \"payloadType\": \"" +
                            "application\\/vnd.in-toto+json\", \"payload\": \"" + url_safe +
                            "\" }\n";
  ASSERT_OK_AND_ASSIGN(const DsseEnvelope same, ParseEnvelope(other));
  EXPECT_EQ(WriteEnvelope(same), json);
}

TEST(DsseTest, OtherNumbersOfSignaturesAreRefused) {
  const std::string signature =
      R"({"keyid":"k","sig":")" + Base64Encode(std::string(64, 's')) + R"("})";
  const auto envelope = [](const std::string& signatures) {
    return R"({"payload":"","payloadType":"t","signatures":[)" + signatures + "]}";
  };
  EXPECT_OK(ParseEnvelope(envelope(signature)));
  EXPECT_THAT(ParseEnvelope(envelope("")), StatusIs(kInvalid, "exactly one"));
  EXPECT_THAT(ParseEnvelope(envelope(signature + "," + signature)),
              StatusIs(kInvalid, "exactly one"));
  EXPECT_THAT(ParseEnvelope(envelope(R"({"keyid":"k","sig":"AAAA"})")),
              StatusIs(kInvalid, "64 bytes"));
  EXPECT_THAT(ParseEnvelope(std::string(kEnvelopeBytesMax + 1, ' ')), StatusIs(kInvalid, "bytes"));
}

TEST(OpeningTest, RoundTripsRanges) {
  Opening opening{
      Secret32::Random(), Sha256Of("d"), Sha256Of("l"), {0, 1, 2, 5, 7, 8, UINT64_MAX}, {}, {3}};
  const std::string bytes = WriteOpening(opening);
  EXPECT_NE(bytes.find(R"("retained":[["0","2"],["5","5"],["7","8"],["18446744073709551615",)"),
            std::string::npos);
  ASSERT_OK_AND_ASSIGN(const Opening parsed, ParseOpening(bytes));
  EXPECT_EQ(parsed.retained, opening.retained);
  EXPECT_EQ(parsed.derived_kept, opening.derived_kept);
  EXPECT_TRUE(parsed.forgotten.empty());
  EXPECT_EQ(WriteOpening(parsed), bytes);
}

TEST(OpeningTest, OtherTextsOfASetAreRefused) {
  const Opening opening{Secret32::Random(), {}, {}, {1, 2, 5}, {}, {}};
  const std::string bytes = WriteOpening(opening);
  const std::string ranges = R"([["1","2"],["5","5"]])";
  ASSERT_NE(bytes.find(ranges), std::string::npos);
  for (const char* other :
       {R"([["1","1"],["2","2"],["5","5"]])", R"([["5","5"],["1","2"]])",
        R"([["2","1"],["5","5"]])", R"([["1","2"],["2","5"]])", R"([["1","2"],["5"]])",
        R"([["1","2"],["5","5","5"]])", R"([["1","2"],"5"])", R"([["01","2"],["5","5"]])",
        R"([["1","18446744073709551616"]])", R"([["1","18446744073709551615"]])",
        R"([["1","16777217"]])", R"("1-2")", R"([[]])"}) {
    std::string text = bytes;
    text.replace(text.find(ranges), ranges.size(), other);
    EXPECT_THAT(ParseOpening(text), StatusIs(kInvalid, "retained")) << other;
  }
}

TEST(BundleTest, RoundTripsBits) {
  ASSERT_OK_AND_ASSIGN(const std::string bytes, WriteBundle(SharedWorld().bundle()));
  ASSERT_OK_AND_ASSIGN(const ProofBundle parsed, ParseBundle(bytes));
  ASSERT_OK_AND_ASSIGN(const std::string again, WriteBundle(parsed));
  EXPECT_EQ(again, bytes);
  EXPECT_EQ(parsed.parts, SharedWorld().bundle().parts);
}

TEST(BundleTest, InconsistentOrNonFiniteHeadsAreRefused) {
  const auto broken = [](const std::function<void(BundleHead*)>& apply) {
    ProofBundle bundle = SharedWorld().bundle();
    apply(&bundle.heads[0]);
    return WriteBundle(bundle);
  };
  EXPECT_THAT(broken([](BundleHead* h) { h->keys.pop_back(); }), StatusIs(kInvalid, "lengths"));
  EXPECT_THAT(broken([](BundleHead* h) { h->values.pop_back(); }), StatusIs(kInvalid, "lengths"));
  EXPECT_THAT(broken([](BundleHead* h) { h->a.pop_back(); }), StatusIs(kInvalid, "lengths"));
  EXPECT_THAT(broken([](BundleHead* h) { h->key_dim = 0; }), StatusIs(kInvalid, "lengths"));
  EXPECT_THAT(broken([](BundleHead* h) { std::swap(h->token_ids[0], h->token_ids[1]); }),
              StatusIs(kInvalid, "ascending"));
  ASSERT_OK_AND_ASSIGN(const std::string infinite, broken([](BundleHead* h) {
                         h->keys[0] = std::numeric_limits<float>::infinity();
                       }));
  EXPECT_THAT(ParseBundle(infinite), StatusIs(kInvalid, "finite"));
  ASSERT_OK_AND_ASSIGN(const std::string nan, broken([](BundleHead* h) {
                         h->rho = std::numeric_limits<double>::quiet_NaN();
                       }));
  EXPECT_THAT(ParseBundle(nan), StatusIs(kInvalid, "rho"));
  // Zero has one text.
  ASSERT_OK_AND_ASSIGN(const std::string zero, broken([](BundleHead* h) { h->rho = -0.0; }));
  const std::string plus = R"("rho":"0000000000000000")";
  ASSERT_NE(zero.find(plus), std::string::npos);
  std::string minus = zero;
  minus.replace(minus.find(plus), plus.size(), R"("rho":"8000000000000000")");
  EXPECT_OK(ParseBundle(zero));
  EXPECT_THAT(ParseBundle(minus), StatusIs(kInvalid, "rho"));
  // A witness' numbers are two words each, a tail has a value per key.
  std::string one_word = zero;
  const size_t lambda = one_word.find(R"("lambda":")");
  ASSERT_NE(lambda, std::string::npos);
  one_word.erase(lambda + 10, 16);
  EXPECT_THAT(ParseBundle(one_word), StatusIs(kInvalid, "witness.lambda: want 32 hex digits"));
  EXPECT_THAT(broken([](BundleHead* h) { h->tail->values.pop_back(); }),
              StatusIs(kInvalid, "tail"));
  ASSERT_OK_AND_ASSIGN(const std::string no_tail, broken([](BundleHead* h) { h->tail.reset(); }));
  EXPECT_OK(ParseBundle(no_tail));
  ASSERT_OK_AND_ASSIGN(const std::string empty_tail,
                       broken([](BundleHead* h) { *h->tail = BundleTail(); }));
  ASSERT_OK_AND_ASSIGN(const ProofBundle parsed_tail, ParseBundle(empty_tail));
  EXPECT_TRUE(parsed_tail.heads[0].tail.has_value());
  // An empty memory is legal: before the first boundary the gate holds no key.
  ASSERT_OK_AND_ASSIGN(const std::string empty, broken([](BundleHead* h) {
                         h->token_ids.clear();
                         h->classes.clear();
                         h->a.clear();
                         h->keys.clear();
                         h->values.clear();
                       }));
  EXPECT_OK(ParseBundle(empty));
}

TEST(CommitmentTest, DependsOnSaltOrderAndEveryInput) {
  const Secret32 salt = Secret32::Random();
  const std::vector<uint64_t> ids = {1, 2, 3};
  const std::vector<uint64_t> others = {1, 2, 4};
  EXPECT_EQ(CommitSet(salt, ids).root, CommitSet(salt, ids).root);
  EXPECT_NE(CommitSet(salt, ids).root, CommitSet(Secret32::Random(), ids).root);
  EXPECT_NE(CommitSet(salt, ids).root, CommitSet(salt, others).root);
  EXPECT_EQ(CommitSet(salt, {}).root, MerkleEmptyRoot());
  const std::vector<KeyClass> classes = {KeyClass::kMargin, KeyClass::kError, KeyClass::kReserve};
  const std::vector<KeyClass> other_classes = {KeyClass::kMargin, KeyClass::kError,
                                               KeyClass::kMargin};
  const std::vector<double> a = {0.5, 1.0, 0.0};
  const std::vector<double> other_a = {0.5, 1.0, 5e-324};
  const std::vector<double> minus_zero = {0.5, 1.0, -0.0};
  const Sha256Digest root = CommitPartition(salt, {ids, classes, a});
  EXPECT_NE(root, CommitPartition(salt, {others, classes, a}));
  EXPECT_NE(root, CommitPartition(salt, {ids, other_classes, a}));
  EXPECT_NE(root, CommitPartition(salt, {ids, classes, other_a}));
  EXPECT_EQ(root, CommitPartition(salt, {ids, classes, minus_zero}));
}

TEST(TrustTest, RoundTripsAndReadsCommentsAndRanges) {
  const std::string spki = HexEncode(SharedWorld().trust().record_keys[0].key.SpkiDer());
  const std::string text = "# keys of 2026\n\nrecord " + spki + " 500-\nlog " +
                           WriteVerifierKey(SharedWorld().trust().log_keys[0]) + "\n";
  ASSERT_OK_AND_ASSIGN(const TrustStore trust, ParseTrust(text));
  ASSERT_EQ(trust.record_keys.size(), 1u);
  EXPECT_EQ(trust.record_keys[0].first_leaf_index, 500u);
  EXPECT_EQ(trust.record_keys[0].last_leaf_index, UINT64_MAX);
  ASSERT_OK_AND_ASSIGN(const TrustStore again, ParseTrust(WriteTrust(trust)));
  EXPECT_EQ(WriteTrust(again), WriteTrust(trust));
  ASSERT_OK_AND_ASSIGN(const TrustStore range, ParseTrust("record " + spki + " 3-7"));
  EXPECT_EQ(range.record_keys[0].last_leaf_index, 7u);
  EXPECT_OK(ParseTrust(""));
}

TEST(TrustTest, MalformedFilesAreRefusedByLine) {
  const std::string spki = HexEncode(SharedWorld().trust().record_keys[0].key.SpkiDer());
  const std::string record = "record " + spki;
  const std::string log = "log " + WriteVerifierKey(SharedWorld().trust().log_keys[0]);
  for (const std::string& line :
       {std::string("key x"), std::string("record"), std::string("record zz"),
        "record " + spki.substr(2), record + " 7", record + " 7-3", record + " -3",
        record + " 1-2-3", record + " 1-2 x+y", record + " 1-2 x y", std::string("log"),
        std::string("log x"), log + " x",
        "record " + spki.substr(0, 24) + "01" + std::string(62, '0'), "record\t" + spki,
        record + "\r"}) {
    EXPECT_THAT(ParseTrust("# first\n" + line), StatusIs(kInvalid, "line 2")) << line;
  }
  EXPECT_THAT(ParseTrust(record + "\n" + record), StatusIs(kInvalid, "line 2"));
  EXPECT_THAT(ParseTrust(log + "\n" + log), StatusIs(kInvalid, "line 2"));
  EXPECT_THAT(ParseTrust(std::string(kTrustBytesMax + 1, '\n')), StatusIs(kInvalid, "bytes"));
}

}  // namespace
}  // namespace lethe::audit
