// Goal: SampleBatch gives every row exactly Sample's result, on every device and in every batch.
// Method: Sample (held to a reference by sampling_test), compared bit for bit over random parameters,
// repeated logits, penalties, wide and narrow distributions and all ways to an order of candidates.
#include "kernels/sampling/sampling_batch.h"

#include <cmath>
#include <limits>
#include <string>

#include "tests/kernels/packed_calls.h"

namespace lethe {
namespace {

struct Batch {
  int64_t vocab = 0;
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<int32_t>> counts;  // by slot
  std::vector<SamplingRow> rows;
};

struct Result {
  std::vector<SampledRow> sampled;
  std::vector<TokenLogprob> top;  // [num_rows][kTopLogprobsMax]
};

class SamplingBatchTest : public testing::DeviceTest {
 protected:
  Result Run(const Batch& batch) {
    std::vector<float> logits;
    for (const std::vector<float>& row : batch.logits) {
      logits.insert(logits.end(), row.begin(), row.end());
    }
    std::vector<int32_t> counts;
    for (const std::vector<int32_t>& row : batch.counts) {
      counts.insert(counts.end(), row.begin(), row.end());
    }
    const auto num_rows = static_cast<int64_t>(batch.rows.size());
    const DeviceArray<float> device_logits = OnDevice(logits);
    const DeviceArray<int32_t> device_counts = OnDevice(counts);
    const DeviceArray<SamplingRow> rows = OnDevice(batch.rows);
    DeviceArray<std::byte> workspace =
        ZerosOnDevice<std::byte>(SamplingWorkspaceBytes(num_rows, batch.vocab));
    DeviceArray<SampledRow> sampled = ZerosOnDevice<SampledRow>(batch.rows.size());
    DeviceArray<TokenLogprob> top =
        ZerosOnDevice<TokenLogprob>(batch.rows.size() * kTopLogprobsMax);
    EXPECT_TRUE(SampleBatch(queue(), device_logits.data(), num_rows, batch.vocab, rows.data(),
                            device_counts.data(), workspace.data(), sampled.data(), top.data())
                    .ok());
    return {OnHost(sampled), OnHost(top)};
  }

  void ExpectSample(const Batch& batch, const Result& result) {
    for (size_t m = 0; m < batch.rows.size(); ++m) {
      SCOPED_TRACE("row " + std::to_string(m));
      const SamplingRow& row = batch.rows[m];
      SamplingParameters parameters;
      parameters.temperature = row.temperature;
      parameters.top_k = row.top_k;
      parameters.top_p = row.top_p;
      parameters.min_p = row.min_p;
      parameters.repetition_penalty = row.repetition_penalty;
      parameters.seed = row.seed;
      parameters.top_logprobs = row.top_logprobs;
      std::vector<int64_t> counts;
      if (row.count_slot >= 0) {
        const std::vector<int32_t>& of_slot = batch.counts[static_cast<size_t>(row.count_slot)];
        counts.assign(of_slot.begin(), of_slot.end());
      }
      const auto token = Sample(batch.logits[m], counts, parameters, row.rank);
      ASSERT_TRUE(token.ok()) << token.status();
      ASSERT_EQ(result.sampled[m].vocab_id, token->vocab_id);
      ASSERT_EQ(std::bit_cast<uint64_t>(result.sampled[m].logprob),
                std::bit_cast<uint64_t>(token->logprob));
      for (size_t i = 0; i < token->top.size(); ++i) {
        const TokenLogprob& got = result.top[m * kTopLogprobsMax + i];
        ASSERT_EQ(got.vocab_id, token->top[i].vocab_id) << i;
        ASSERT_EQ(std::bit_cast<uint64_t>(got.logprob),
                  std::bit_cast<uint64_t>(token->top[i].logprob))
            << i;
      }
    }
  }
};
LETHE_ON_EVERY_DEVICE(SamplingBatchTest);

Batch RandomBatch(int64_t vocab, int64_t num_rows, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Batch batch;
  batch.vocab = vocab;
  for (int slot = 0; slot < 3; ++slot) {
    std::vector<int32_t> counts(static_cast<size_t>(vocab));
    for (int32_t& count : counts) count = random() % 3 == 0 ? 1 : 0;
    batch.counts.push_back(counts);
  }
  for (int64_t m = 0; m < num_rows; ++m) {
    const float scale = std::ldexp(1.0f, static_cast<int>(random() % 9) - 4);
    const bool is_coarse = random() % 2 == 0;  // many ties
    std::vector<float> logits(static_cast<size_t>(vocab));
    for (float& logit : logits) {
      logit = normal(random) * scale;
      if (is_coarse) logit = std::round(logit * 2.0f) / 2.0f;
    }
    batch.logits.push_back(logits);
    SamplingRow row;
    row.temperature = random() % 6 == 0 ? 0.0 : 0.07 + 0.31 * static_cast<double>(random() % 9);
    row.top_k =
        random() % 2 == 0
            ? 0
            : static_cast<int32_t>(
                  random() % static_cast<uint32_t>(
                                 random() % 2 == 0 ? vocab + 1 : std::min<int64_t>(vocab + 1, 60)));
    row.top_p = random() % 2 == 0 ? 1.0 : 0.0137 + 0.0973 * static_cast<double>(random() % 10);
    row.min_p = random() % 2 == 0 ? 0.0 : 0.0131 + 0.0973 * static_cast<double>(random() % 10);
    row.count_slot = static_cast<int32_t>(random() % 4) - 1;
    row.repetition_penalty =
        row.count_slot < 0 ? 1.0 : 0.53 + 0.31 * static_cast<double>(random() % 5);
    row.seed = random();
    row.rank = random() % 1000;
    row.top_logprobs = static_cast<int32_t>(random() % 21);
    batch.rows.push_back(row);
  }
  return batch;
}

TEST_P(SamplingBatchTest, RowsAreSamplesToTheBit) {
  // Below and above what is sorted in shared memory; no multiple of anything.
  for (const int64_t vocab : {1, 2, 31, 256, 257, 4096, 4099}) {
    SCOPED_TRACE(std::to_string(vocab));
    const Batch batch = RandomBatch(vocab, vocab <= 257 ? 200 : 40, static_cast<uint32_t>(vocab));
    ExpectSample(batch, Run(batch));
  }
}

TEST_P(SamplingBatchTest, LargeVocabulariesToo) {
  const Batch batch = RandomBatch(50281, 12, 5);
  ExpectSample(batch, Run(batch));
}

TEST_P(SamplingBatchTest, EveryDrawOfOneDistributionIsSamples) {
  // Uniform numbers spread over the whole sum, zeros and one-chunk edges included.
  constexpr int64_t kVocab = 1000;
  Batch batch = RandomBatch(kVocab, 1, 6);
  const std::vector<float> logits = batch.logits[0];
  batch.logits.clear();
  batch.rows.clear();
  for (int64_t rank = 0; rank < 500; ++rank) {
    SamplingRow row;
    row.temperature = rank % 2 == 0 ? 0.01 : 1.7;
    row.rank = rank;
    row.seed = 9;
    batch.rows.push_back(row);
    batch.logits.push_back(logits);
  }
  ExpectSample(batch, Run(batch));
}

TEST_P(SamplingBatchTest, RowsHaveTheSameResultAloneAndAmong256) {
  const Batch batch = RandomBatch(300, 256, 7);
  const Result whole = Run(batch);
  for (size_t m = 0; m < 256; m += 37) {
    Batch alone = batch;
    alone.logits = {batch.logits[m]};
    alone.rows = {batch.rows[m]};
    const Result result = Run(alone);
    EXPECT_EQ(result.sampled[0].vocab_id, whole.sampled[m].vocab_id);
    EXPECT_EQ(std::bit_cast<uint64_t>(result.sampled[0].logprob),
              std::bit_cast<uint64_t>(whole.sampled[m].logprob));
  }
}

TEST_P(SamplingBatchTest, ARowThatIsNotFiniteIsReportedAndHurtsNoOther) {
  Batch batch = RandomBatch(100, 6, 8);
  batch.logits[1][99] = std::numeric_limits<float>::quiet_NaN();
  batch.logits[3][0] = std::numeric_limits<float>::infinity();
  batch.logits[4][50] = -std::numeric_limits<float>::infinity();
  const Result result = Run(batch);
  Batch finite = batch;
  for (const size_t m : {1, 3, 4}) {
    EXPECT_EQ(result.sampled[m].vocab_id, -1);
    finite.logits[m] = finite.logits[0];
    finite.rows[m] = finite.rows[0];
  }
  Result rest = result;
  for (const size_t m : {1, 3, 4}) {
    rest.sampled[m] = result.sampled[0];
    std::copy_n(result.top.begin(), kTopLogprobsMax,
                rest.top.begin() + static_cast<std::ptrdiff_t>(m * kTopLogprobsMax));
  }
  ExpectSample(finite, rest);
}

TEST_P(SamplingBatchTest, NoRowsIsNoOp) {
  EXPECT_TRUE(
      SampleBatch(queue(), nullptr, 0, 256, nullptr, nullptr, nullptr, nullptr, nullptr).ok());
}

}  // namespace
}  // namespace lethe
