// Goal: a vector session is, after any mix of appends, Forgets and selections, byte for byte the one
// that was given the retained rows alone; reads are those of the formulas; errors change nothing.
// Method: random, duplicate and collinear keys; the oracle is a fresh session (digest, reads) and, for
// reads, sums in long double over the partition's weights.
#include "server/vector_session/vector_session.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

using ::lethe::testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

VectorOptions Options(int64_t key_dim, int64_t value_dim, double box_mass = 6.5) {
  VectorOptions options;
  options.params = svdd::MakeParams(1.5, box_mass, 0x1.0p-11, key_dim).value();
  options.value_dim = value_dim;
  options.selection = true;
  return options;
}

// One retained row, as the test keeps it beside the session.
struct Row {
  uint64_t token_id = 0;
  std::vector<double> key;
  std::vector<double> value;
};

class VectorSessionTest : public ::testing::Test {
 protected:
  static constexpr int64_t kKeyDim = 3;
  static constexpr int64_t kValueDim = 2;

  VectorSessionTest() : session_(Options(kKeyDim, kValueDim)) {}

  std::vector<double> Normals(int64_t count) {
    std::normal_distribution<double> normal;
    std::vector<double> numbers(static_cast<size_t>(count));
    for (double& number : numbers) number = normal(random_);
    return numbers;
  }

  // Every fourth key repeats an earlier one, every fifth lies on a line.
  std::vector<double> NextKey() {
    const size_t n = rows_.size();
    if (n > 0 && n % 4 == 3) return rows_[n / 2].key;
    if (n % 5 == 4) return std::vector<double>(kKeyDim, 0.1 * static_cast<double>(n));
    return Normals(kKeyDim);
  }

  void Append(int64_t count, const std::string& subject = "") {
    std::vector<double> keys;
    std::vector<double> values;
    const size_t first = rows_.size();
    for (int64_t i = 0; i < count; ++i) {
      rows_.push_back({0, NextKey(), Normals(kValueDim)});
      keys.insert(keys.end(), rows_.back().key.begin(), rows_.back().key.end());
      values.insert(values.end(), rows_.back().value.begin(), rows_.back().value.end());
    }
    ASSERT_OK_AND_ASSIGN(const TokenIdRange ids, session_.Append(keys, values, subject));
    ASSERT_EQ(ids.end - ids.first, static_cast<uint64_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      rows_[first + static_cast<size_t>(i)].token_id = ids.first + static_cast<uint64_t>(i);
    }
  }

  void DropRows(const std::vector<uint64_t>& ids) {
    std::vector<Row> rest;
    for (Row& row : rows_) {
      if (std::find(ids.begin(), ids.end(), row.token_id) == ids.end()) rest.push_back(row);
    }
    rows_ = rest;
  }

  std::vector<uint64_t> RandomIds(size_t count) {
    std::vector<uint64_t> ids;
    for (const Row& row : rows_) ids.push_back(row.token_id);
    std::shuffle(ids.begin(), ids.end(), random_);
    ids.resize(std::min(count, ids.size()));
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  void Forget(const std::vector<uint64_t>& ids, std::optional<ForgetWay> way = std::nullopt) {
    ASSERT_OK_AND_ASSIGN(std::unique_ptr<AnyStagedForget> staged,
                         session_.Stage(ForgetSelector::Ids(ids), DerivedPolicy::kFail, {}, way));
    const audit::Sha256Digest after = staged->result().digest_after;
    ASSERT_OK(session_.CommitStaged(std::move(staged)).status());
    EXPECT_EQ(session_.Digest(), after);
    DropRows(ids);
  }

  // A session that was given the retained rows in one call.
  std::unique_ptr<VectorSession> Fresh() const {
    auto fresh = std::make_unique<VectorSession>(session_.options());
    std::vector<double> keys;
    std::vector<double> values;
    for (const Row& row : rows_) {
      keys.insert(keys.end(), row.key.begin(), row.key.end());
      values.insert(values.end(), row.value.begin(), row.value.end());
    }
    if (!keys.empty()) {
      EXPECT_OK(fresh->Append(keys, values, "").status());
    }
    return fresh;
  }

  void ExpectFresh() {
    const std::unique_ptr<VectorSession> fresh = Fresh();
    ASSERT_EQ(audit::ExplainDifference(session_.StateParts().parts(), fresh->StateParts().parts()),
              "");
    if (rows_.empty()) return;
    const std::vector<double> queries = Normals(4 * kKeyDim);
    ASSERT_OK_AND_ASSIGN(const VectorReads here, session_.Read(queries));
    ASSERT_OK_AND_ASSIGN(const VectorReads there, fresh->Read(queries));
    EXPECT_EQ(here.decisions, there.decisions);
    EXPECT_EQ(here.readouts, there.readouts);
  }

  std::mt19937_64 random_{7};
  std::vector<Row> rows_;
  VectorSession session_;
};

TEST_F(VectorSessionTest, AnyMixOfAppendsAndForgetsEqualsAFreshSession) {
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    Append(1 + static_cast<int64_t>(random_() % 5));
    if (round % 3 == 1) Forget(RandomIds(1 + random_() % 4));
    if (round % 7 == 6) {
      Forget(RandomIds(2), ForgetWay::kReevaluation);
    }
    ExpectFresh();
  }
}

TEST_F(VectorSessionTest, ForgettingDownToNothingAndRefillingEqualsAFreshSession) {
  Append(30);
  while (rows_.size() > 1) {
    Forget(RandomIds(1 + rows_.size() / 4));
    ExpectFresh();
  }
  Forget({rows_[0].token_id});
  EXPECT_EQ(session_.num_tokens(), 0);
  ExpectFresh();
  Append(20);
  ExpectFresh();
}

TEST_F(VectorSessionTest, AStagedForgetThatIsDroppedLeavesEverythingAsItWas) {
  Append(25, "first");
  Append(15, "second");
  const audit::Sha256Digest before = session_.Digest();
  const uint64_t epoch = session_.epoch();
  {
    ASSERT_OK_AND_ASSIGN(
        const std::unique_ptr<AnyStagedForget> staged,
        session_.Stage(ForgetSelector::Subject("first"), DerivedPolicy::kFail, {}, std::nullopt));
    EXPECT_NE(staged->result().digest_after, before);
    EXPECT_EQ(staged->result().digest_before, before);
  }
  EXPECT_EQ(session_.Digest(), before);
  EXPECT_EQ(session_.epoch(), epoch);
  EXPECT_EQ(session_.inputs().RanksOfSubject("first").size(), 25u);
  ExpectFresh();
  Forget(RandomIds(3));
  ExpectFresh();
}

TEST_F(VectorSessionTest, ReadsAreTheFormulas) {
  Append(40);
  const std::vector<double> queries = Normals(5 * kKeyDim);
  ASSERT_OK_AND_ASSIGN(const VectorReads reads, session_.Read(queries));
  const SvHead head = session_.SvHeads()[0];
  const svdd::Solution& solution = *head.solution;
  for (size_t q = 0; q < 5; ++q) {
    long double sum = 0;
    std::vector<long double> weighted(kValueDim);
    for (size_t i = 0; i < rows_.size(); ++i) {
      long double squared = 0;
      for (size_t c = 0; c < kKeyDim; ++c) {
        const long double difference =
            static_cast<long double>(queries[q * kKeyDim + c]) - rows_[i].key[c];
        squared += difference * difference;
      }
      const long double weight =
          solution.a[i] * std::exp(-squared / (head.params->sigma * head.params->sigma));
      sum += weight;
      for (size_t c = 0; c < kValueDim; ++c) weighted[c] += weight * rows_[i].value[c];
    }
    EXPECT_NEAR(reads.decisions[q], static_cast<double>(solution.rho - 1 + 2 * sum / solution.mass),
                1e-14);
    for (size_t c = 0; c < kValueDim; ++c) {
      EXPECT_NEAR(reads.readouts[q * kValueDim + c], static_cast<double>(weighted[c] / sum), 1e-13);
    }
  }
}

TEST_F(VectorSessionTest, FarFromAllKeysTheNearestSupportKeyIsReadOut) {
  Append(40);
  ASSERT_OK_AND_ASSIGN(const VectorReads reads, session_.Read({1e9, 0.0, 0.0}));
  EXPECT_EQ(reads.decisions[0], session_.SvHeads()[0].solution->rho - 1.0);
  bool found = false;
  for (const Row& row : rows_) {
    found = found || (row.value[0] == reads.readouts[0] && row.value[1] == reads.readouts[1]);
  }
  EXPECT_TRUE(found);
}

TEST_F(VectorSessionTest, ASelectionLeavesReadsTheSameBitForBit) {
  Append(60);
  const std::vector<double> queries = Normals(10 * kKeyDim);
  ASSERT_OK_AND_ASSIGN(const VectorReads before, session_.Read(queries));
  const int64_t num_support = session_.num_support_vectors();
  ASSERT_LT(num_support, 60);
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<AnyStagedForget> staged, session_.StageEviction());
  const std::vector<uint64_t> evicted = staged->result().forgotten_ids;
  ASSERT_OK(session_.CommitStaged(std::move(staged)).status());
  DropRows(evicted);
  EXPECT_EQ(session_.num_tokens(), num_support);
  EXPECT_TRUE(session_.selected());
  ASSERT_OK_AND_ASSIGN(const VectorReads after, session_.Read(queries));
  EXPECT_EQ(after.decisions, before.decisions);
  EXPECT_EQ(after.readouts, before.readouts);
  ExpectFresh();
  EXPECT_THAT(session_.StageEviction().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "reserve"));
}

TEST_F(VectorSessionTest, SelectionNeedsTheOption) {
  VectorOptions options = Options(kKeyDim, kValueDim);
  options.selection = false;
  VectorSession session(options);
  EXPECT_THAT(session.StageEviction().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "without selection"));
}

TEST_F(VectorSessionTest, KeysAloneNeedNoValues) {
  VectorSession session(Options(2, 0));
  ASSERT_OK(session.Append({0.0, 0.0, 1.0, 1.0}, {}, "").status());
  ASSERT_OK_AND_ASSIGN(const VectorReads reads, session.Read({0.5, 0.5}));
  EXPECT_TRUE(reads.readouts.empty());
  EXPECT_EQ(reads.decisions.size(), 1u);
  EXPECT_THAT(session.Append({0.0, 0.0}, {1.0}, "").status(), StatusIs(kInvalid, "values"));
}

TEST_F(VectorSessionTest, BadInputIsNamedAndChangesNothing) {
  Append(10);
  const audit::Sha256Digest before = session_.Digest();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const auto refuses = [&](const std::vector<double>& keys, const std::vector<double>& values,
                           const char* field) {
    EXPECT_THAT(session_.Append(keys, values, "").status(), StatusIs(kInvalid, field));
    EXPECT_EQ(session_.Digest(), before);
  };
  refuses({}, {}, "keys");
  refuses({1.0, 2.0}, {1.0, 2.0}, "keys");
  refuses({1.0, 2.0, nan}, {1.0, 2.0}, "keys");
  refuses({1.0, infinity, 3.0}, {1.0, 2.0}, "keys");
  refuses({1.0, 2.0, 0x1.1p400}, {1.0, 2.0}, "keys");
  refuses({1.0, 2.0, 3.0}, {1.0}, "values");
  refuses({1.0, 2.0, 3.0}, {1.0, nan}, "values");
  EXPECT_THAT(session_.Append({1.0, 2.0, 3.0}, {1.0, 2.0}, std::string(129, 's')).status(),
              StatusIs(kInvalid, "subject"));
  EXPECT_THAT(session_.Read({1.0, nan, 2.0}).status(), StatusIs(kInvalid, "queries"));
  EXPECT_THAT(session_.Read({}).status(), StatusIs(kInvalid, "queries"));
  EXPECT_EQ(session_.num_tokens(), 10);
  EXPECT_EQ(session_.Digest(), before);
}

TEST_F(VectorSessionTest, AnEmptySessionCannotBeReadAndALimitIsNamed) {
  EXPECT_THAT(session_.Read({1.0, 2.0, 3.0}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "no keys"));
  VectorOptions options = Options(1, 0);
  options.max_inputs = 2;
  VectorSession session(options);
  ASSERT_OK(session.Append({1.0}, {}, "").status());
  EXPECT_THAT(session.Append({1.0, 2.0}, {}, "").status(),
              StatusIs(absl::StatusCode::kResourceExhausted, "1 more"));
  EXPECT_EQ(session.num_tokens(), 1);
}

}  // namespace
}  // namespace lethe
