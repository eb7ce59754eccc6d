// PackedCalls: histories of several sessions, handed to a batched kernel in packed calls of random cuts.
//
// Equation:  none.
// Shapes:    as kernels/base/packed_sequences.h. Session s has `lengths[s]` tokens and slot `slots[s]`.
// Units:     tokens.
// Requires:  none.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_TESTS_KERNELS_PACKED_CALLS_H_
#define LETHE_TESTS_KERNELS_PACKED_CALLS_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "kernels/base/packed_sequences.h"
#include "tests/testing/device_test.h"

namespace lethe::testing {

inline std::vector<float> RandomValues(int64_t count, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random) * scale;
  return values;
}

inline std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

// Rows [first, end) of [..][row].
inline std::vector<float> RowsOf(const std::vector<float>& values, int64_t first, int64_t end,
                                 int64_t row) {
  return {values.begin() + first * row, values.begin() + end * row};
}

// One call: which tokens of which sessions.
struct PackedCall {
  std::vector<int32_t> sessions;
  std::vector<int64_t> first_tokens;
  std::vector<int64_t> counts;

  int64_t num_tokens() const {
    int64_t sum = 0;
    for (const int64_t count : counts) sum += count;
    return sum;
  }
  int64_t longest() const {
    return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  }

  // The call's rows, from each session's.
  std::vector<float> Pack(const std::vector<std::vector<float>>& of_sessions, int64_t row) const {
    std::vector<float> packed;
    for (size_t i = 0; i < sessions.size(); ++i) {
      const std::vector<float> rows = RowsOf(of_sessions[static_cast<size_t>(sessions[i])],
                                             first_tokens[i], first_tokens[i] + counts[i], row);
      packed.insert(packed.end(), rows.begin(), rows.end());
    }
    return packed;
  }
  // Appends the call's rows to each session's.
  void Unpack(const std::vector<float>& packed, int64_t row,
              std::vector<std::vector<float>>* of_sessions) const {
    int64_t first = 0;
    for (size_t i = 0; i < sessions.size(); ++i) {
      const std::vector<float> rows = RowsOf(packed, first, first + counts[i], row);
      std::vector<float>& to = (*of_sessions)[static_cast<size_t>(sessions[i])];
      to.insert(to.end(), rows.begin(), rows.end());
      first += counts[i];
    }
  }
};

// Calls until every session has handed in its tokens, in an order of sessions that changes from call to
// call; a call takes 0 … longest tokens of a session, or exactly 1 with longest 1.
inline std::vector<PackedCall> CutIntoCalls(const std::vector<int64_t>& lengths, int64_t longest,
                                            uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> done(lengths.size());
  std::vector<PackedCall> calls;
  while (done != lengths) {
    std::vector<int32_t> order;
    for (size_t s = 0; s < lengths.size(); ++s) order.push_back(static_cast<int32_t>(s));
    std::shuffle(order.begin(), order.end(), random);
    PackedCall call;
    for (const int32_t session : order) {
      int64_t& begin = done[static_cast<size_t>(session)];
      const int64_t left = lengths[static_cast<size_t>(session)] - begin;
      if (left == 0 && random() % 2 == 0) continue;
      const int64_t drawn =
          longest == 1 ? 1 : static_cast<int64_t>(random() % static_cast<uint32_t>(longest + 1));
      const int64_t count = std::min(left, drawn);
      call.sessions.push_back(session);
      call.first_tokens.push_back(begin);
      call.counts.push_back(count);
      begin += count;
    }
    if (!call.sessions.empty()) calls.push_back(call);
  }
  return calls;
}

// A call's PackedSequences with its arrays on a device.
class DevicePacking {
 public:
  DevicePacking(Queue* queue, const PackedCall& call, const std::vector<int32_t>& slots) {
    std::vector<int64_t> offsets = {0};
    std::vector<int32_t> of_call;
    for (size_t i = 0; i < call.sessions.size(); ++i) {
      offsets.push_back(offsets.back() + call.counts[i]);
      of_call.push_back(slots[static_cast<size_t>(call.sessions[i])]);
    }
    offsets_ = *DeviceArray<int64_t>::From(queue, offsets);
    slots_ = *DeviceArray<int32_t>::From(queue, of_call);
    ranks_ = *DeviceArray<int64_t>::From(queue, call.first_tokens);
    sequences_ = {static_cast<int64_t>(call.sessions.size()),
                  call.num_tokens(),
                  call.longest(),
                  offsets_.data(),
                  slots_.data(),
                  ranks_.data()};
  }
  const PackedSequences& sequences() const { return sequences_; }

 private:
  DeviceArray<int64_t> offsets_;
  DeviceArray<int32_t> slots_;
  DeviceArray<int64_t> ranks_;
  PackedSequences sequences_;
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_KERNELS_PACKED_CALLS_H_
