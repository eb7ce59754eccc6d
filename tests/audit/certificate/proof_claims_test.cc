// Goal: a server that signs and logs a claim about a partition or a readout that its own bundle does not
// prove is caught by name; honest weaker claims verify.
// Method: records made by the trusted key from CertificateWorld's heads, with witness, tail or claim
// changed and everything that binds them (evidence, leaf) made to fit.
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "audit/certificate/head_proof.h"
#include "audit/certificate/recorder.h"
#include "audit/certificate/verify.h"
#include "tests/audit/certificate/certificate_world.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Change = std::function<void(MemoryDraft* claim, BundleHead* head)>;

// The verification of a record whose first head is changed like that.
VerifyReport Verify(const Change& change) {
  CertificateWorld& world = SharedWorld();
  RecordDraft draft = world.Draft(RecordKind::kCertify);
  ProofBundle bundle = world.bundle();
  change(&draft.memories[0], &bundle.heads[0]);
  draft.memories[0].witness_hash = WitnessHash(bundle.heads[0].witness);
  SessionRecords session;
  const FinishedRecord record = Recorder(world.keys(), world.log()).Record(draft, &session).value();
  bundle.leaf_hash = record.leaf_hash;
  return VerifyCertificate({record.envelope, record.proof_file, std::nullopt, record.opening,
                            WriteBundle(bundle).value()},
                           world.trust(), {kTestNonce});
}

// "check: detail" of the first failure; "" when there is none.
std::string Failure(const Change& change) {
  const VerifyReport report = Verify(change);
  const Check* failure = report.first_failure();
  return failure == nullptr ? "" : failure->name + ": " + failure->detail;
}

// What ProveOptimality says without a witness.
void ClaimGapBounds(MemoryDraft* claim, BundleHead* head) {
  head->witness.reset();
  const svdd::OptimalityBounds bounds = ProveHead(*head).value();
  claim->deviation = ToDeviation(bounds);
  claim->partition_proved = bounds.partition_proved;
}

TEST(ProofClaimsTest, ProvedPartitionsAreCountedInTheReport) {
  const VerifyReport report = Verify([](MemoryDraft*, BundleHead*) {});
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.Find("optimality")->detail,
            "2 of 2 partitions proved to be the exact optimum's");
  ASSERT_TRUE(report.statement->memories[0].partition_proved);
  const DeviationBounds& bounds = *report.statement->memories[0].deviation;
  EXPECT_GT(bounds.readout, 0.0);
  EXPECT_LT(bounds.readout, 1e-10);
  EXPECT_LT(bounds.weight_ratio, 1e-10);
  // The warm-up head has the one feasible point.
  EXPECT_EQ(report.statement->memories[1].deviation->readout, 0.0);
}

TEST(ProofClaimsTest, WithoutAWitnessOnlyGapBoundsVerify) {
  EXPECT_THAT(Failure(ClaimGapBounds), IsEmpty());
  const VerifyReport report = Verify(ClaimGapBounds);
  EXPECT_EQ(report.Find("optimality")->detail,
            "1 of 2 partitions proved to be the exact optimum's");
  EXPECT_FALSE(report.statement->memories[0].partition_proved);
  EXPECT_EQ(report.statement->memories[0].deviation->readout, kInfinity);
  // Weaker claims than the bundle proves are true.
  EXPECT_THAT(Failure([](MemoryDraft* claim, BundleHead* head) {
                BundleHead without = *head;
                ClaimGapBounds(claim, &without);
                claim->deviation->gap *= 1.01;  // evaluated from another reference point
              }),
              IsEmpty());
  // The bounds of a proof, without it.
  EXPECT_THAT(Failure([](MemoryDraft* claim, BundleHead* head) {
                head->witness.reset();
                claim->partition_proved = false;
                claim->deviation->weight_ratio = claim->deviation->readout = kInfinity;
              }),
              HasSubstr("optimality: layer 3 group 0 head 0: the bound on"));
}

TEST(ProofClaimsTest, AProvedPartitionNeedsItsWitness) {
  const std::string refused =
      "optimality: layer 3 group 0 head 0: the partition is stated as proved and is not";
  EXPECT_EQ(Failure([](MemoryDraft*, BundleHead* head) { head->witness.reset(); }), refused);
  ASSERT_GE(SharedWorld().bundle().heads[0].witness->a.size(), 2u);
  EXPECT_EQ(Failure([](MemoryDraft*, BundleHead* head) {
              std::swap(head->witness->a[0], head->witness->a[1]);
            }),
            refused);
  EXPECT_EQ(Failure([](MemoryDraft*, BundleHead* head) { head->witness->a[1] = 0.5; }), refused);
  EXPECT_EQ(Failure([](MemoryDraft*, BundleHead* head) { head->witness->lambda = 0.0; }), refused);
  // Bounds as wide as can be do not help.
  EXPECT_EQ(Failure([](MemoryDraft* claim, BundleHead* head) {
              head->witness->a[0] = 0.5;
              DeviationBounds* bounds = &*claim->deviation;
              bounds->gap = bounds->delta = bounds->kernel_sum = bounds->alpha = kInfinity;
              bounds->rho = bounds->decision = bounds->weight_ratio = bounds->readout = kInfinity;
            }),
            refused);
}

TEST(ProofClaimsTest, AWitnessThatIsALittleOffMustStateLargerBounds) {
  // Near enough to prove the partition, but not the bounds that the right one proves.
  const auto off = [](MemoryDraft*, BundleHead* head) { head->witness->a[0] += 0x1.0p-50; };
  EXPECT_THAT(Failure(off), HasSubstr("the bound on"));
  EXPECT_THAT(Failure([&](MemoryDraft* claim, BundleHead* head) {
                off(claim, head);
                const svdd::OptimalityBounds bounds = ProveHead(*head).value();
                EXPECT_TRUE(bounds.partition_proved);
                claim->deviation = ToDeviation(bounds);
              }),
              IsEmpty());
}

TEST(ProofClaimsTest, MalformedWitnessesAreRefusedByField) {
  const auto refusal = [](const std::function<void(svdd::Witness*)>& change) {
    return Failure([&](MemoryDraft*, BundleHead* head) { change(&*head->witness); });
  };
  const std::string start = "optimality: layer 3 group 0 head 0: witness.";
  EXPECT_THAT(refusal([](svdd::Witness* w) { w->a.pop_back(); }), HasSubstr(start + "a: one per"));
  EXPECT_THAT(refusal([](svdd::Witness* w) { w->a.push_back(0.5); }),
              HasSubstr(start + "a: one per"));
  for (const double bad : {0.0, 1.0, -0.5, 1e300, kInfinity}) {
    EXPECT_THAT(refusal([&](svdd::Witness* w) { w->a[0] = bad; }), HasSubstr(start + "a is"));
    if (bad == 0.0 || bad == 1.0) continue;
    EXPECT_THAT(refusal([&](svdd::Witness* w) { w->lambda = bad; }),
                HasSubstr(start + "lambda is"));
  }
  EXPECT_THAT(refusal([](svdd::Witness* w) { w->a[0].lo = 0.25; }), HasSubstr(start + "a is"));
  // A bundle cannot even say NaN.
  const auto nan = [](svdd::Witness* w) { w->a[0].lo = std::numeric_limits<double>::quiet_NaN(); };
  EXPECT_EQ(refusal(nan), "bundle: heads[0].witness.a: want a number, got NaN");
}

TEST(ProofClaimsTest, WitnessesWhereNoneIsNeededAreRefused) {
  CertificateWorld& world = SharedWorld();
  BundleHead head = world.bundle().heads[1];
  EXPECT_FALSE(head.witness.has_value());
  head.witness = world.bundle().heads[0].witness;
  EXPECT_THAT(ProveHead(head).status(),
              lethe::testing::StatusIs(absl::StatusCode::kInvalidArgument, "witness: none"));
}

TEST(ProofClaimsTest, ReadoutsAreBoundedOverTheTailToo) {
  const BundleHead& head = SharedWorld().bundle().heads[0];
  const double with_tail = ProveHead(head).value().readout_bound;
  BundleHead without = head;
  without.tail.reset();
  EXPECT_EQ(ProveHead(without).value().readout_bound, kInfinity);
  // A tail value outside the range of the others' widens it.
  BundleHead wide = head;
  wide.tail->values[0] = 100.0f;
  EXPECT_GT(ProveHead(wide).value().readout_bound, 20.0 * with_tail);
  EXPECT_THAT(Failure([](MemoryDraft* claim, BundleHead*) { claim->deviation->readout *= 0.99; }),
              HasSubstr("optimality: layer 3 group 0 head 0: the bound on the readout"));
  EXPECT_THAT(
      Failure([](MemoryDraft* claim, BundleHead*) { claim->deviation->weight_ratio *= 0.99; }),
      HasSubstr("optimality: layer 3 group 0 head 0: the bound on weights"));
}

TEST(ProofClaimsTest, TailsAreThoseOfTheDigest) {
  EXPECT_THAT(Failure([](MemoryDraft*, BundleHead* head) { head->tail->values[0] += 1.0f; }),
              HasSubstr("bundle path: layer 3 group 0 head 0: the tails"));
  EXPECT_THAT(Failure([](MemoryDraft*, BundleHead* head) { *head->tail = {}; }),
              HasSubstr("bundle path: layer 3 group 0 head 0: the tails"));
  EXPECT_THAT(Failure([](MemoryDraft*, BundleHead* head) { head->tail.reset(); }),
              HasSubstr("bundle path: layer 3 group 0 head 1: the heads of a group"));
}

TEST(ProofClaimsTest, ABundleWithoutTailsProvesEverythingButReadouts) {
  CertificateWorld& world = SharedWorld();
  const auto verify = [&](double readout) {
    RecordDraft draft = world.Draft(RecordKind::kCertify);
    ProofBundle bundle = world.bundle();
    for (size_t i = 0; i < bundle.heads.size(); ++i) {
      bundle.heads[i].tail.reset();
      draft.memories[i].deviation->readout = readout;
    }
    SessionRecords session;
    const FinishedRecord record =
        Recorder(world.keys(), world.log()).Record(draft, &session).value();
    bundle.leaf_hash = record.leaf_hash;
    return VerifyCertificate({record.envelope, record.proof_file, std::nullopt, record.opening,
                              WriteBundle(bundle).value()},
                             world.trust());
  };
  EXPECT_TRUE(verify(kInfinity).ok());
  const VerifyReport report = verify(1e6);
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.first_failure()->detail, HasSubstr("the bound on the readout"));
}

}  // namespace
}  // namespace lethe::audit
