// Goal: the model's state and logits are a function of the token sequence alone, bit for bit, and a
// snapshot, a clone and a restored state go on as if nothing had happened.
// Method: models with every layer and memory kind at several depths; the same tokens in different cuts.

#include "server/model/model_state.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "server/model/numerics_id.h"
#include "tests/testing/small_model.h"
#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

using ::lethe::testing::IsOk;
using ::lethe::testing::StatusIs;

constexpr int64_t kTokens = 205;  // three boundaries and a tail

std::unique_ptr<ModelState> NewState(const std::shared_ptr<const Model>& model,
                                     const MemoryOverrides& overrides = {}) {
  auto state = ModelState::Create(model, overrides);
  EXPECT_THAT(state, IsOk());
  return std::move(state).value();
}

std::vector<audit::StatePart> Parts(const ModelState& state) {
  audit::StateParts parts;
  state.AppendDigestParts(&parts);
  return parts.parts();
}

std::vector<float> Logits(const ModelState& state) {
  std::vector<float> logits(static_cast<size_t>(state.model().config().vocab_size));
  EXPECT_THAT(state.Logits(absl::MakeSpan(logits)), IsOk());
  return logits;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class ModelStateTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    model_ = name == "Small"        ? testing::SmallModel()
             : name == "Contextual" ? testing::ContextualModel()
                                    : testing::StreamingModel();
    ids_ = testing::SampleIds(kTokens);
    whole_ = NewState(model_);
    ASSERT_OK(whole_->Evaluate(ids_));
  }
  void ExpectSame(const ModelState& state) {
    EXPECT_EQ(audit::ExplainDifference(Parts(*whole_), Parts(state)), "");
    EXPECT_TRUE(SameBits(Logits(*whole_), Logits(state)));
  }

  std::shared_ptr<const Model> model_;
  std::vector<int32_t> ids_;
  std::unique_ptr<ModelState> whole_;
};

INSTANTIATE_TEST_SUITE_P(Models, ModelStateTest,
                         ::testing::Values("Small", "Contextual", "Streaming"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(ModelStateTest, AnyCutIntoCallsGivesTheSameBits) {
  for (const int64_t cut : {1, 7, 64, 65, 100}) {
    const auto state = NewState(model_);
    for (int64_t first = 0; first < kTokens; first += cut) {
      ASSERT_OK(state->Evaluate(
          absl::MakeConstSpan(ids_).subspan(static_cast<size_t>(first), static_cast<size_t>(cut))));
    }
    SCOPED_TRACE(cut);
    ExpectSame(*state);
  }
}

TEST_P(ModelStateTest, RandomCutsGiveTheSameBits) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 3; ++trial) {
    const auto state = NewState(model_);
    for (size_t first = 0; first < ids_.size();) {
      const size_t count = std::min<size_t>(1 + random() % 40, ids_.size() - first);
      ASSERT_OK(state->Evaluate(absl::MakeConstSpan(ids_).subspan(first, count)));
      first += count;
    }
    ExpectSame(*state);
  }
}

TEST_P(ModelStateTest, LogitsOfEveryTokenAreThoseOfTheTokenAlone) {
  const auto vocab = static_cast<size_t>(model_->config().vocab_size);
  std::vector<float> all(ids_.size() * vocab);
  const auto batched = NewState(model_);
  ASSERT_OK(batched->EvaluateWithLogits(ids_, absl::MakeSpan(all)));
  const auto state = NewState(model_);
  for (size_t t = 0; t < ids_.size(); ++t) {
    ASSERT_OK(state->Evaluate({ids_[t]}));
    const std::vector<float> row(all.begin() + static_cast<int64_t>(t * vocab),
                                 all.begin() + static_cast<int64_t>((t + 1) * vocab));
    ASSERT_TRUE(SameBits(row, Logits(*state))) << t;
  }
}

TEST_P(ModelStateTest, RestoreGoesBackToTheBit) {
  const auto state = NewState(model_);
  for (const size_t at : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{130}}) {
    SCOPED_TRACE(at);
    const auto fresh = NewState(model_);
    ASSERT_OK(fresh->Evaluate(absl::MakeConstSpan(ids_).first(at)));
    const auto snapshot = fresh->Snapshot();
    EXPECT_EQ(snapshot->num_tokens(), static_cast<int64_t>(at));
    const auto parts = Parts(*fresh);
    // Other tokens in between must leave nothing behind.
    ASSERT_OK(fresh->Evaluate(testing::SampleIds(150, 9)));
    ASSERT_OK(fresh->Restore(*snapshot));
    EXPECT_EQ(audit::ExplainDifference(parts, Parts(*fresh)), "");
    ASSERT_OK(fresh->Evaluate(absl::MakeConstSpan(ids_).subspan(at)));
    ExpectSame(*fresh);
  }
}

TEST_P(ModelStateTest, ACloneIsIndependent) {
  const auto state = NewState(model_);
  ASSERT_OK(state->Evaluate(absl::MakeConstSpan(ids_).first(100)));
  const auto snapshot = state->Snapshot();
  const auto clone = state->Clone();
  ASSERT_OK(clone->Evaluate(absl::MakeConstSpan(ids_).subspan(100)));
  ExpectSame(*clone);
  ASSERT_OK(state->Evaluate(testing::SampleIds(50, 5)));
  ExpectSame(*clone);
  // A clone may go back to a snapshot of its origin.
  ASSERT_OK(clone->Restore(*snapshot));
  ASSERT_OK(clone->Evaluate(absl::MakeConstSpan(ids_).subspan(100)));
  ExpectSame(*clone);
}

TEST_P(ModelStateTest, DifferentHistoriesDifferInANamedPart) {
  std::vector<int32_t> other = ids_;
  other[10] ^= 1;
  const auto state = NewState(model_);
  ASSERT_OK(state->Evaluate(other));
  const std::string difference = audit::ExplainDifference(Parts(*whole_), Parts(*state));
  EXPECT_NE(difference.find("layer."), std::string::npos) << difference;
}

TEST(ModelStateOptionsTest, OverridesEnterTheDigestAndTheState) {
  const auto model = testing::SmallModel();
  const std::vector<int32_t> ids = testing::SampleIds(130);
  const auto plain = NewState(model);
  ASSERT_OK(plain->Evaluate(ids));
  MemoryOverrides slots;
  slots.ovq_slots = 30;
  MemoryOverrides sv;
  sv.sv_box_mass = 10.0;
  sv.sv_sigma = 0.5;
  sv.sv_ridge = 0.01;
  for (const MemoryOverrides& overrides : {slots, sv}) {
    const auto state = NewState(model, overrides);
    ASSERT_OK(state->Evaluate(ids));
    EXPECT_EQ(audit::ExplainDifference(Parts(*plain), Parts(*state)), "part 0 \"options\" differs");
    EXPECT_FALSE(SameBits(Logits(*plain), Logits(*state)));
  }
  // An override that repeats the model's own value changes nothing.
  MemoryOverrides same;
  same.ovq_slots = 12;
  const auto state = NewState(model, same);
  ASSERT_OK(state->Evaluate(ids));
  EXPECT_EQ(audit::ExplainDifference(Parts(*plain), Parts(*state)), "");
}

TEST(ModelStateOptionsTest, OverridesOutOfRangeAreNamed) {
  const auto model = testing::SmallModel();
  const auto expect = [&](const MemoryOverrides& overrides, const std::string& field) {
    EXPECT_THAT(ModelState::Create(model, overrides),
                StatusIs(absl::StatusCode::kInvalidArgument, field));
  };
  MemoryOverrides bad;
  bad.ovq_slots = 1;
  expect(bad, "ovq_slots must be an integer in 2 ... 65536");
  bad = {};
  bad.sv_box_mass = 0.5;
  expect(bad, "sv_box_mass");
  bad = {};
  bad.sv_sigma = -1.0;
  expect(bad, "sv_sigma");
  bad = {};
  bad.sv_ridge = std::numeric_limits<double>::quiet_NaN();
  expect(bad, "sv_ridge");
}

TEST(ModelStateOptionsTest, NoLogitsWithoutAToken) {
  const auto state = NewState(testing::SmallModel());
  std::vector<float> logits(32);
  EXPECT_THAT(state->Logits(absl::MakeSpan(logits)),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(ModelStateOptionsTest, OverflowIsAnErrorAndRestoreRecovers) {
  const ModelConfig config = *ParseModelConfig(testing::StreamingConfigJson());
  TensorMap tensors =
      *ReadSafetensors(testing::WriteModelDirectory(::testing::TempDir() + "/lethe-overflow",
                                                    testing::StreamingConfigJson()) +
                       "/model.safetensors");
  for (float& value : tensors["layers.0.wo.weight"].values) value = 3e38f;
  ASSERT_OK_AND_ASSIGN(const auto model, Model::Create(config, tensors));
  const auto state = NewState(model);
  const auto empty = state->Snapshot();
  const auto parts = Parts(*state);
  EXPECT_THAT(state->Evaluate(testing::SampleIds(5)),
              StatusIs(absl::StatusCode::kInternal, "not finite"));
  ASSERT_OK(state->Restore(*empty));
  EXPECT_EQ(audit::ExplainDifference(parts, Parts(*state)), "");
}

TEST(NumericsIdTest, IsStableWithinAProcessAndNotZero) {
  EXPECT_EQ(NumericsId(), NumericsId());
  EXPECT_NE(NumericsId(), audit::Sha256Digest{});
}

}  // namespace
}  // namespace lethe
