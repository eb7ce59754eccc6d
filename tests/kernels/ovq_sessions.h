// OvqBatchFixture: sessions in a pool on a device, and calls of OvqBatch with tokens of some of them.
// Threads: as GoogleTest.
#ifndef LETHE_TESTS_KERNELS_OVQ_SESSIONS_H_
#define LETHE_TESTS_KERNELS_OVQ_SESSIONS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

#include "kernels/math/math.h"
#include "kernels/ovq/ovq_batch.h"
#include "tests/kernels/stream_inputs.h"
#include "tests/testing/device_test.h"

namespace lethe::testing {

inline constexpr int64_t kHeads = 2;

// One session's inputs, all heads: [T][H][K] and [T][H][V].
struct Tokens {
  std::vector<float> q, k, v;

  Tokens Slice(int64_t first, int64_t count) const {
    const auto size = static_cast<int64_t>(tokens);
    const auto cut = [&](const std::vector<float>& x) {
      const auto row = static_cast<int64_t>(x.size()) / size;
      return std::vector<float>(x.begin() + first * row, x.begin() + (first + count) * row);
    };
    return {cut(q), cut(k), cut(v), static_cast<size_t>(count)};
  }

  size_t tokens = 0;
};

inline std::vector<float> Units(std::vector<float> x, int64_t length) {
  const auto row = static_cast<size_t>(length);
  for (size_t i = 0; i < x.size(); i += row) {
    L2Normalize(absl::MakeConstSpan(x).subspan(i, row), absl::MakeSpan(x).subspan(i, row));
  }
  return x;
}

inline Tokens RandomTokens(const OvqShape& shape, int64_t count, RandomSource* random) {
  return {Units(random->Normals(count * kHeads * shape.key_dim), shape.key_dim),
          Units(random->Normals(count * kHeads * shape.key_dim), shape.key_dim),
          random->Normals(count * kHeads * shape.value_dim), static_cast<size_t>(count)};
}

struct Calls {
  std::vector<float> out;
  std::vector<int32_t> assignments;  // [merges][H][L] of a single session
};

class OvqBatchFixture : public DeviceTest {
 protected:
  // Sessions in a pool on the device.
  struct Pool {
    OvqShape shape;
    float logit_scale = 1.0f;
    std::vector<int64_t> num_tokens;  // [states]
    DeviceArray<float> keys, values, pending_keys, pending_values;
    DeviceArray<int32_t> counts;
  };

  Pool MakePool(const OvqShape& shape, float logit_scale, size_t num_states) {
    const auto size = [&](int64_t rows, int64_t columns) {
      return num_states * static_cast<size_t>(kHeads * rows * columns);
    };
    Pool pool;
    pool.shape = shape;
    pool.logit_scale = logit_scale;
    pool.num_tokens.resize(num_states);
    pool.keys = ZerosOnDevice<float>(size(shape.max_slots, shape.key_dim));
    pool.values = ZerosOnDevice<float>(size(shape.max_slots, shape.value_dim));
    pool.counts = ZerosOnDevice<int32_t>(size(shape.max_slots, 1));
    pool.pending_keys = ZerosOnDevice<float>(size(shape.chunk_tokens, shape.key_dim));
    pool.pending_values = ZerosOnDevice<float>(size(shape.chunk_tokens, shape.value_dim));
    return pool;
  }

  // One call: tokens of several sessions, each with its state.
  Calls Run(const std::vector<Tokens>& sessions, const std::vector<int32_t>& states, Pool* pool,
            int64_t segment_chunks = 0) {
    OvqBatchSize size;
    size.num_heads = kHeads;
    size.num_sequences = static_cast<int64_t>(sessions.size());
    size.segment_chunks = segment_chunks;
    std::vector<int32_t> offsets = {0};
    std::vector<int64_t> before;
    Tokens all;
    for (size_t i = 0; i < sessions.size(); ++i) {
      const Tokens& session = sessions[i];
      all.q.insert(all.q.end(), session.q.begin(), session.q.end());
      all.k.insert(all.k.end(), session.k.begin(), session.k.end());
      all.v.insert(all.v.end(), session.v.begin(), session.v.end());
      offsets.push_back(offsets.back() + static_cast<int32_t>(session.tokens));
      int64_t& num_tokens = pool->num_tokens[static_cast<size_t>(states[i])];
      before.push_back(num_tokens);
      num_tokens += static_cast<int64_t>(session.tokens);
      size.max_length = std::max(size.max_length, static_cast<int64_t>(session.tokens));
      size.max_tokens_after = std::max(size.max_tokens_after, num_tokens);
    }
    size.num_tokens = offsets.back();
    const OvqShape& shape = pool->shape;
    const int64_t max_merges = (size.max_length + shape.chunk_tokens - 1) / shape.chunk_tokens;
    const auto device_offsets = OnDevice(offsets);
    const auto device_states = OnDevice(states);
    const auto device_before = OnDevice(before);
    const auto scales = OnDevice(std::vector<float>(kHeads, pool->logit_scale));
    const auto q = OnDevice(all.q);
    const auto k = OnDevice(all.k);
    const auto v = OnDevice(all.v);
    // Poisoned: what is not written shows.
    auto out = OnDevice(std::vector<float>(all.v.size(), NAN));
    auto assignments = OnDevice(std::vector<int32_t>(
        static_cast<size_t>(size.num_sequences * max_merges * kHeads * shape.chunk_tokens), -7));
    auto workspace = ZerosOnDevice<char>(OvqWorkspaceBytes(GetParam(), shape, size));
    const OvqInputs inputs = {device_offsets.data(),
                              device_states.data(),
                              device_before.data(),
                              scales.data(),
                              q.data(),
                              k.data(),
                              v.data()};
    const absl::Status status = OvqBatch(queue(), shape, size, inputs, States(pool), out.data(),
                                         assignments.data(), {workspace.data(), workspace.size()});
    EXPECT_TRUE(status.ok()) << status;
    return {OnHost(out), OnHost(assignments)};
  }

  static OvqStates States(Pool* pool) {
    return {static_cast<int64_t>(pool->num_tokens.size()),
            pool->keys.data(),
            pool->values.data(),
            pool->counts.data(),
            pool->pending_keys.data(),
            pool->pending_values.data()};
  }

  // All bytes of a state, in use or not.
  std::vector<float> StateBits(const Pool& pool, int32_t state) {
    std::vector<float> bits;
    const auto append = [&](const auto& array) {
      const auto values = OnHost(array);
      const size_t size = values.size() / pool.num_tokens.size();
      for (size_t i = 0; i < size; ++i) {
        bits.push_back(static_cast<float>(values[static_cast<size_t>(state) * size + i]));
      }
    };
    append(pool.keys);
    append(pool.values);
    append(pool.counts);
    append(pool.pending_keys);
    append(pool.pending_values);
    return bits;
  }
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_KERNELS_OVQ_SESSIONS_H_
