// Goal: what a Forget in a model with a bank rests on (design.md 2.1): the bank takes of a token what
// the last W tokens say and nothing else, bit for bit, wherever the token stands; the plan names
// exactly the tokens for which that changed; stored inputs are a bounded cache.
// Method: rows of the stored inputs compared across offsets, cuts into calls and histories.

#include "server/model/bank_edit.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "server/model/token_costs.h"
#include "tests/testing/small_model.h"
#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

using ::lethe::testing::IsOk;

std::unique_ptr<CpuModelState> NewState(size_t stored_bytes = kDefaultStoredInputBytes) {
  auto state = CpuModelState::Create(testing::SmallModel(), MemoryOverrides(), stored_bytes);
  EXPECT_THAT(state, IsOk());
  return std::move(state).value();
}

void Evaluate(const std::vector<int32_t>& ids, size_t tokens_a_call, CpuModelState* state) {
  const absl::Span<const int32_t> all = ids;
  for (size_t first = 0; first < ids.size(); first += tokens_a_call) {
    ASSERT_OK(state->Evaluate(all.subspan(first, tokens_a_call)));
  }
}

// Every token of the text with `offset` tokens before it.
std::unique_ptr<CpuModelState> StateOf(const std::vector<int32_t>& text, int64_t offset,
                                       size_t tokens_a_call) {
  std::vector<int32_t> ids = testing::SampleIds(offset, 9);
  ids.insert(ids.end(), text.begin(), text.end());
  std::unique_ptr<CpuModelState> state = NewState();
  Evaluate(ids, tokens_a_call, state.get());
  return state;
}

std::vector<float> RowOf(const CpuModelState& state, int64_t rank) {
  const StoredInputs& stored = state.bank()->stored();
  return {stored.row(rank), stored.row(rank) + stored.columns()};
}

class LocalFeaturesTest : public ::testing::TestWithParam<size_t> {};

// By Step (1 token a call), in calls that cross chunks, and in whole chunks.
TEST_P(LocalFeaturesTest, HaveTheSameBitsAtEveryOffset) {
  const std::vector<int32_t> text = testing::SampleIds(100);
  const std::unique_ptr<CpuModelState> plain = StateOf(text, 0, 64);
  const int64_t field = plain->model().config().local_receptive_field;
  const auto size = static_cast<int64_t>(text.size());
  for (int64_t offset = 0; offset < 64; ++offset) {
    const std::unique_ptr<CpuModelState> shifted = StateOf(text, offset, GetParam());
    for (int64_t i = offset == 0 ? 0 : field - 1; i < size; ++i) {
      ASSERT_EQ(RowOf(*plain, i), RowOf(*shifted, offset + i))
          << "offset " << offset << ", token " << i;
    }
    for (const CpuModelState::SvGroup& group : shifted->SvGroups()) {
      const svdd::SvHeadView view = group.memory->head(0);
      EXPECT_EQ(view.solution->num_keys, (offset + size) / 64 * 64);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuts, LocalFeaturesTest, ::testing::Values(1, 7, 64),
                         [](const auto& tested) { return std::to_string(tested.param); });

// The receptive field is no larger than need be: the token W before is seen.
TEST(LocalFeaturesReachTest, TheFieldIsExact) {
  std::vector<int32_t> text = testing::SampleIds(60);
  const std::unique_ptr<CpuModelState> plain = StateOf(text, 0, 64);
  const int64_t field = plain->model().config().local_receptive_field;
  text[10] = (text[10] + 1) % 32;
  const std::unique_ptr<CpuModelState> other = StateOf(text, 0, 64);
  const auto same = [&](int64_t rank) { return RowOf(*plain, rank) == RowOf(*other, rank); };
  EXPECT_TRUE(same(9));
  EXPECT_FALSE(same(10));
  EXPECT_FALSE(same(10 + field - 1));
  EXPECT_TRUE(same(10 + field));
}

TEST(BankEditPlanTest, NamesTheTokensBehindEachGap) {
  const std::unique_ptr<CpuModelState> state = NewState();
  Evaluate(testing::SampleIds(300), 64, state.get());
  const int64_t reach = state->model().config().local_receptive_field - 1;
  const BankEditPlan plan = PlanBankEdit(*state, {20, 21, 25, 200}, 0);
  // Ranks close up: 200 is 197 afterwards; the first three gaps overlap.
  const std::vector<RankRun> changed = {{20, 23 + reach}, {197, 197 + reach}};
  EXPECT_EQ(plan.changed, changed);
  EXPECT_EQ(plan.evaluated, changed);
  EXPECT_EQ(plan.num_dropped, 0);
  EXPECT_GT(plan.num_local, 2 * reach);
}

TEST(BankEditPlanTest, EvaluatesTheLastTokenWhenItIsAnother) {
  const std::unique_ptr<CpuModelState> state = NewState();
  Evaluate(testing::SampleIds(300), 64, state.get());
  const BankEditPlan plan = PlanBankEdit(*state, {299}, 256);
  EXPECT_TRUE(plan.changed.empty());
  EXPECT_EQ(plan.evaluated, std::vector<RankRun>({{298, 299}}));
}

TEST(BankEditPlanTest, EvaluatesWhatIsNoLongerStored) {
  const std::unique_ptr<CpuModelState> full = NewState();
  Evaluate(testing::SampleIds(300), 64, full.get());
  const size_t per_token = full->stored_input_bytes() / 300;
  const std::unique_ptr<CpuModelState> state = NewState(100 * per_token);
  Evaluate(testing::SampleIds(300), 64, state.get());
  EXPECT_LE(state->stored_input_bytes(), 100 * (per_token + 1) + 512 * sizeof(StoredInputs::Row));
  EXPECT_EQ(state->bank()->stored().row(150), nullptr);
  EXPECT_NE(state->bank()->stored().row(290), nullptr);
  const BankEditPlan plan = PlanBankEdit(*state, {70}, 64);
  EXPECT_GT(plan.num_dropped, 100);
  EXPECT_EQ(PlanBankEdit(*full, {70}, 64).num_dropped, 0);
}

TEST(StoredInputsTest, KeepsTheNewestWithinItsLimit) {
  RowMaker maker(4);
  const auto row = [&](float value) {
    std::shared_ptr<float> made = maker.Make();
    std::fill_n(made.get(), 4, value);
    return made;
  };
  StoredInputs stored(4, 300);  // three rows of 16 bytes and what holding them takes
  EXPECT_EQ(stored.max_rows(), 3);
  for (int i = 0; i < 5; ++i) stored.Append(row(static_cast<float>(i)));
  EXPECT_EQ(stored.row(1), nullptr);
  ASSERT_NE(stored.row(2), nullptr);
  EXPECT_EQ(stored.row(2)[0], 2.0f);
  const StoredInputs before = stored;
  stored.Remove({1, 3});
  EXPECT_EQ(stored.size(), 3);
  EXPECT_EQ(stored.row(1)[0], 2.0f);
  EXPECT_EQ(stored.row(2)[0], 4.0f);
  stored.Set(0, row(9.0f));
  stored.Append(row(5.0f));
  stored.DropBeyondLimit();
  EXPECT_EQ(stored.row(0), nullptr);
  EXPECT_NE(stored.row(1), nullptr);
  stored.Truncate(2);
  EXPECT_EQ(stored.size(), 2);
  EXPECT_EQ(before.size(), 5);
  EXPECT_EQ(before.row(3)[0], 3.0f);
}

// A forgotten token's row is overwritten although its neighbours in the slab live on.
TEST(StoredInputsTest, TheLastOwnerOverwritesARow) {
  RowMaker maker(4);
  StoredInputs stored(4, size_t{1} << 20);
  for (int i = 0; i < 3; ++i) {
    std::shared_ptr<float> row = maker.Make();
    std::fill_n(row.get(), 4, 7.0f);
    stored.Append(std::move(row));
  }
  auto fork = std::make_unique<StoredInputs>(stored);
  const float* forgotten = stored.row(1);
  stored.Remove({1});
  EXPECT_EQ(forgotten[0], 7.0f);  // the fork still holds it
  fork.reset();
  for (int c = 0; c < 4; ++c) EXPECT_EQ(forgotten[c], 0.0f);
  EXPECT_EQ(stored.row(0)[3], 7.0f);
  EXPECT_EQ(stored.row(1)[0], 7.0f);
}

TEST(StoredInputsTest, SlabsGrowAndRowsOutliveTheirMaker) {
  std::vector<std::shared_ptr<float>> rows;
  {
    RowMaker maker(300);
    for (int i = 0; i < 3000; ++i) {
      rows.push_back(maker.Make());
      std::fill_n(rows.back().get(), 300, static_cast<float>(i));
    }
  }
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(rows[static_cast<size_t>(i)].get()[0], static_cast<float>(i));
    ASSERT_EQ(rows[static_cast<size_t>(i)].get()[299], static_cast<float>(i));
  }
}

TEST(TokenCostsTest, ReplayIsAFractionOfTheModel) {
  const TokenCosts bounded = TokenCostsOf(testing::SmallModel()->config());
  EXPECT_GT(bounded.replay, 0);
  EXPECT_LT(bounded.replay, bounded.local);
  EXPECT_LT(bounded.local, bounded.model);
  const TokenCosts contextual = TokenCostsOf(testing::ContextualModel()->config());
  EXPECT_EQ(contextual.replay, 0);
  EXPECT_EQ(contextual.local, 0);
  EXPECT_GT(contextual.model, 0);
}

}  // namespace
}  // namespace lethe
