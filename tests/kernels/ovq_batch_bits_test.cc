// Goal: no bit of a read or a state depends on the batch, on where its state lies or on the cut into
// calls.
// Method: every session is run alone, in batches of up to 256 and cut in many ways; outputs and all
// bytes of the states are compared.
#include <numeric>

#include "tests/kernels/ovq_sessions.h"

namespace lethe {
namespace {

using testing::Calls;
using testing::RandomSource;
using testing::RandomTokens;
using testing::Tokens;

class OvqBatchBitsTest : public testing::OvqBatchFixture {};
LETHE_ON_EVERY_DEVICE(OvqBatchBitsTest);

TEST_P(OvqBatchBitsTest, NoBitDependsOnTheCut) {
  for (const OvqShape& shape :
       {OvqShape{64, 64, 300, 128}, OvqShape{24, 40, 64, 64}, OvqShape{128, 128, 200, 64}}) {
    RandomSource random(2);
    const int64_t num_tokens = 4 * shape.chunk_tokens + 9;
    const Tokens tokens = RandomTokens(shape, num_tokens, &random);
    Pool pool = MakePool(shape, 5.0f, 1);
    const std::vector<float> whole = Run({tokens}, {0}, &pool).out;
    const std::vector<float> whole_state = StateBits(pool, 0);
    for (int64_t cut : {1, 2, 7, 63, 64, 65, 130, 500}) {
      Pool cut_pool = MakePool(shape, 5.0f, 1);
      std::vector<float> out;
      for (int64_t first = 0; first < num_tokens; first += cut) {
        const int64_t count = std::min(cut, num_tokens - first);
        const Calls part = Run({tokens.Slice(first, count)}, {0}, &cut_pool, cut % 3);
        out.insert(out.end(), part.out.begin(), part.out.end());
      }
      EXPECT_EQ(out, whole) << cut;
      EXPECT_EQ(StateBits(cut_pool, 0), whole_state) << cut;
    }
  }
}

// Sessions of all lengths prefill together, in states of their own in any order, then decode
// together; each of those that are checked has the bits of a session alone.
TEST_P(OvqBatchBitsTest, NoBitDependsOnTheBatch) {
  const bool is_cuda = GetParam() == DeviceKind::kCuda;
  const OvqShape shape = is_cuda ? OvqShape{64, 64, 600, 128} : OvqShape{16, 8, 24, 64};
  for (size_t batch : {2, 3, 17, 64, 256}) {
    RandomSource random(batch);
    std::vector<Tokens> prompts;
    std::vector<Tokens> first_steps;
    std::vector<Tokens> second_steps;
    std::vector<int32_t> states;
    for (size_t i = 0; i < batch; ++i) {
      prompts.push_back(RandomTokens(shape, static_cast<int64_t>(i * 37 % 400), &random));
      first_steps.push_back(RandomTokens(shape, 1, &random));
      // Some sessions bring more tokens than one.
      second_steps.push_back(RandomTokens(shape, i % 5 == 4 ? 70 : 1, &random));
      states.push_back(static_cast<int32_t>(batch - 1 - i));
    }
    Pool pool = MakePool(shape, 6.0f, batch);
    const std::vector<float> prompt_out = Run(prompts, states, &pool).out;
    const std::vector<float> first_out = Run(first_steps, states, &pool).out;
    const std::vector<float> second_out = Run(second_steps, states, &pool).out;
    const auto part_of = [&](const std::vector<Tokens>& sessions, const std::vector<float>& out,
                             size_t index) {
      size_t first = 0;
      for (size_t i = 0; i < index; ++i) first += sessions[i].v.size();
      const auto begin = out.begin() + static_cast<ptrdiff_t>(first);
      return std::vector<float>(begin, begin + static_cast<ptrdiff_t>(sessions[index].v.size()));
    };
    for (size_t i = 0; i < batch; i += std::max<size_t>(1, batch / 9)) {
      Pool alone = MakePool(shape, 6.0f, 1);
      EXPECT_EQ(part_of(prompts, prompt_out, i), Run({prompts[i]}, {0}, &alone).out);
      EXPECT_EQ(part_of(first_steps, first_out, i), Run({first_steps[i]}, {0}, &alone).out);
      EXPECT_EQ(part_of(second_steps, second_out, i), Run({second_steps[i]}, {0}, &alone).out);
      EXPECT_EQ(StateBits(pool, states[i]), StateBits(alone, 0)) << i << " of " << batch;
    }
  }
}

// A decode of many sessions with all their slots in use takes one block a head, one of few several.
TEST_P(OvqBatchBitsTest, AStepHasTheSameBitsInAnyBatch) {
  const bool is_cuda = GetParam() == DeviceKind::kCuda;
  for (const OvqShape& shape : {OvqShape{64, 64, 700, 64}, OvqShape{128, 128, 700, 64}}) {
    if (!is_cuda && shape.key_dim > 64) continue;
    const size_t batch = is_cuda ? 256 : 3;
    RandomSource random(4);
    const Tokens prompt = RandomTokens(shape, 1000, &random);
    const Tokens step = RandomTokens(shape, 1, &random);
    Pool alone = MakePool(shape, 8.0f, 1);
    static_cast<void>(Run({prompt}, {0}, &alone));
    const std::vector<float> want = Run({step}, {0}, &alone).out;
    Pool pool = MakePool(shape, 8.0f, batch);
    std::vector<int32_t> states(batch);
    std::iota(states.begin(), states.end(), 0);
    static_cast<void>(Run(std::vector<Tokens>(batch, prompt), states, &pool));
    const std::vector<float> out = Run(std::vector<Tokens>(batch, step), states, &pool).out;
    for (size_t i = 0; i < batch; ++i) {
      const auto first = out.begin() + static_cast<ptrdiff_t>(i * want.size());
      ASSERT_EQ(std::vector<float>(first, first + static_cast<ptrdiff_t>(want.size())), want) << i;
    }
  }
}

}  // namespace
}  // namespace lethe
