// Goal: SvRead follows the double reference; SvReadBatch gives every token the bits of SvRead, on every
// device, however the sessions are batched and cut into calls, and leaves the same tails.
// Method: sessions with random supports of 0 … thousands of rows, of which many share keys; each takes one
// chunk of up to 64 tokens in random packed calls.
#include "kernels/sv_read/sv_read.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "kernels/sv_read/sv_read_batch.h"
#include "tests/kernels/packed_calls.h"

namespace lethe {
namespace {

using testing::BitsOf;
using testing::CutIntoCalls;
using testing::DevicePacking;
using testing::PackedCall;
using testing::RandomValues;

using Histories = std::vector<std::vector<float>>;

constexpr float kUnused = 1e30f;  // where nobody may read

struct Session {
  int64_t num_tokens = 0;
  int64_t num_distinct = 0;
  int64_t num_support = 0;
};

// A head's support, on the host.
struct Support {
  std::vector<float> keys, gates, values;
  std::vector<int32_t> key_of;
};

Support RandomSupport(const Session& session, int64_t key_dim, int64_t value_dim, uint32_t seed) {
  std::mt19937 random(seed);
  Support support;
  support.keys = RandomValues(session.num_distinct * key_dim, seed + 1);
  support.values = RandomValues(session.num_support * value_dim, seed + 2, 2.0f);
  for (int64_t i = 0; i < session.num_support; ++i) {
    // Every key has a row.
    const auto key =
        i < session.num_distinct ? i : static_cast<int64_t>(random()) % session.num_distinct;
    support.key_of.push_back(static_cast<int32_t>(key));
    support.gates.push_back(static_cast<float>(random() % 4096 + 1) * 0x1p-12f);
  }
  return support;
}

class SvReadTest : public testing::DeviceTest {
 protected:
  // A head's arrays on the device.
  struct Arrays {
    DeviceArray<float> keys, gates, values, tail_keys, tail_values;
    DeviceArray<int32_t> key_of;
  };

  void Use(const SvReadShape& shape, const std::vector<Session>& sessions) {
    shape_ = shape;
    sessions_ = sessions;
    lengths_.clear();
    slots_.clear();
    scales_.clear();
    most_distinct_ = 0;
    for (int64_t head = 0; head < shape.num_heads; ++head) {
      scales_.push_back(0.7f + 0.5f * static_cast<float>(head));
    }
    q_.clear();
    k_.clear();
    v_.clear();
    supports_.clear();
    for (size_t s = 0; s < sessions.size(); ++s) {
      const Session& session = sessions[s];
      const auto seed = static_cast<uint32_t>(1000 * s);
      lengths_.push_back(session.num_tokens);
      slots_.push_back(static_cast<int32_t>((3 * s + 1) % (3 * sessions.size())));
      q_.push_back(RandomValues(session.num_tokens * key_row(), seed + 1, 0.5f));
      k_.push_back(RandomValues(session.num_tokens * key_row(), seed + 2, 0.5f));
      v_.push_back(RandomValues(session.num_tokens * value_row(), seed + 3, 2.0f));
      for (int64_t head = 0; head < shape.num_heads; ++head) {
        supports_.push_back(RandomSupport(session, shape.key_dim, shape.value_dim,
                                          seed + 10 * static_cast<uint32_t>(head + 1)));
      }
      most_distinct_ = std::max(most_distinct_, session.num_distinct);
    }
    MoveToDevice();
  }

  void MoveToDevice() {
    arrays_.clear();
    std::vector<SvReadHead> heads(3 * sessions_.size() * static_cast<size_t>(shape_.num_heads));
    for (size_t i = 0; i < supports_.size(); ++i) {
      const Support& support = supports_[i];
      // Readable to a multiple of 4 rows.
      std::vector<float> gates = support.gates;
      std::vector<int32_t> key_of = support.key_of;
      gates.resize((gates.size() + 3) / 4 * 4);
      key_of.resize(gates.size());
      const auto tail = [](int64_t dim) {
        return std::vector<float>(static_cast<size_t>(kSvTailTokens * dim), kUnused);
      };
      Arrays& arrays = arrays_.emplace_back();
      arrays = {OnDevice(support.keys),           OnDevice(gates),
                OnDevice(support.values),         OnDevice(tail(shape_.key_dim)),
                OnDevice(tail(shape_.value_dim)), OnDevice(key_of)};
      const size_t num_heads = static_cast<size_t>(shape_.num_heads);
      const size_t slot = static_cast<size_t>(slots_[i / num_heads]);
      const Session& session = sessions_[i / num_heads];
      heads[slot * num_heads + i % num_heads] = {arrays.keys.data(),
                                                 arrays.key_of.data(),
                                                 arrays.gates.data(),
                                                 arrays.values.data(),
                                                 arrays.tail_keys.data(),
                                                 arrays.tail_values.data(),
                                                 static_cast<int32_t>(session.num_distinct),
                                                 static_cast<int32_t>(session.num_support)};
    }
    heads_ = OnDevice(heads);
  }

  Histories Run(const std::vector<PackedCall>& calls) {
    const DeviceArray<float> scales = OnDevice(scales_);
    Histories o(lengths_.size());
    for (const PackedCall& call : calls) {
      const DevicePacking packing(queue(), call, slots_);
      const DeviceArray<float> q = OnDevice(call.Pack(q_, key_row()));
      const DeviceArray<float> k = OnDevice(call.Pack(k_, key_row()));
      const DeviceArray<float> v = OnDevice(call.Pack(v_, value_row()));
      DeviceArray<float> out = OnDevice(
          std::vector<float>(static_cast<size_t>(call.num_tokens() * value_row()), kUnused));
      EXPECT_TRUE(SvReadBatch(queue(), shape_, scales.data(), q.data(), k.data(), v.data(),
                              packing.sequences(), heads_.data(), most_distinct_, out.data())
                      .ok());
      call.Unpack(OnHost(out), value_row(), &o);
    }
    return o;
  }

  // Rows of one head, of [count][H][dim].
  std::vector<float> OfHead(const std::vector<float>& rows, int64_t head, int64_t dim) const {
    std::vector<float> of_head;
    for (auto at = rows.begin() + head * dim; at < rows.end(); at += shape_.num_heads * dim) {
      of_head.insert(of_head.end(), at, at + dim);
    }
    return of_head;
  }

  template <typename Visit>
  void ForEachRead(size_t s, Visit visit) const {
    for (int64_t head = 0; head < shape_.num_heads; ++head) {
      const std::vector<float> keys = OfHead(k_[s], head, shape_.key_dim);
      const std::vector<float> values = OfHead(v_[s], head, shape_.value_dim);
      const std::vector<float> queries = OfHead(q_[s], head, shape_.key_dim);
      const auto key_dim = static_cast<size_t>(shape_.key_dim);
      const auto value_dim = static_cast<size_t>(shape_.value_dim);
      for (size_t t = 0; t < static_cast<size_t>(lengths_[s]); ++t) {
        const Support& support =
            supports_[s * static_cast<size_t>(shape_.num_heads) + static_cast<size_t>(head)];
        const SvReadRows rows = {{support.keys, support.key_of, support.gates, support.values},
                                 absl::MakeConstSpan(keys).first((t + 1) * key_dim),
                                 absl::MakeConstSpan(values).first((t + 1) * value_dim)};
        const size_t at =
            (t * static_cast<size_t>(shape_.num_heads) + static_cast<size_t>(head)) * value_dim;
        visit(scales_[static_cast<size_t>(head)],
              absl::MakeConstSpan(queries).subspan(t * key_dim, key_dim), rows, at);
      }
    }
  }

  std::vector<float> Alone(size_t s) const {
    std::vector<float> o(v_[s].size());
    SvReadWorkspace workspace;
    ForEachRead(s, [&](float scale, absl::Span<const float> q, const SvReadRows& rows, size_t at) {
      SvRead(scale, q, rows, &workspace,
             absl::MakeSpan(o).subspan(at, static_cast<size_t>(shape_.value_dim)));
    });
    return o;
  }

  // What Use prepared, in calls of up to `longest` tokens, against SvRead.
  void ExpectBitsOfSvRead(int64_t longest) {
    MoveToDevice();
    const Histories o = Run(CutIntoCalls(lengths_, longest, static_cast<uint32_t>(longest)));
    for (size_t s = 0; s < sessions_.size(); ++s) {
      ASSERT_EQ(BitsOf(o[s]), BitsOf(Alone(s))) << "session " << s << ", calls of " << longest;
      for (int64_t head = 0; head < shape_.num_heads; ++head) {
        const Arrays& arrays =
            arrays_[s * static_cast<size_t>(shape_.num_heads) + static_cast<size_t>(head)];
        ExpectTail(OfHead(k_[s], head, shape_.key_dim), OnHost(arrays.tail_keys));
        ExpectTail(OfHead(v_[s], head, shape_.value_dim), OnHost(arrays.tail_values));
      }
    }
  }

  static void ExpectTail(std::vector<float> want, const std::vector<float>& tail) {
    want.resize(tail.size(), kUnused);
    EXPECT_EQ(BitsOf(tail), BitsOf(want));
  }

  int64_t key_row() const { return shape_.num_heads * shape_.key_dim; }
  int64_t value_row() const { return shape_.num_heads * shape_.value_dim; }

  SvReadShape shape_;
  std::vector<Session> sessions_;
  std::vector<int64_t> lengths_;
  std::vector<int32_t> slots_;
  std::vector<float> scales_;
  Histories q_, k_, v_;
  std::vector<Support> supports_;  // [sessions][H]
  std::vector<Arrays> arrays_;     // [sessions][H]
  DeviceArray<SvReadHead> heads_;
  int64_t most_distinct_ = 0;
};
LETHE_ON_EVERY_DEVICE(SvReadTest);

// No support, one row, around a slice of rows, keys shared by several rows.
const Session kSessions[] = {{64, 0, 0},   {33, 1, 1},  {7, 5, 31},     {0, 20, 20},
                             {64, 32, 32}, {20, 9, 33}, {64, 257, 300}, {1, 100, 127}};

TEST_P(SvReadTest, AnyBatchAndCutGivesTheBitsOfSvRead) {
  const SvReadShape shapes[] = {{2, 64, 64}, {1, 8, 8}, {3, 24, 72}, {1, 128, 136}, {1, 264, 8}};
  for (const SvReadShape& shape : shapes) {
    SCOPED_TRACE(std::to_string(shape.key_dim) + " x " + std::to_string(shape.value_dim));
    Use(shape, {std::begin(kSessions), std::end(kSessions)});
    for (const int64_t longest : {1, 2, 9, 64}) ExpectBitsOfSvRead(longest);
  }
}

// Few enough for tests/gpu_sanitizers.
TEST_P(SvReadTest, AFewCallsGiveTheBitsOfSvRead) {
  Use({2, 64, 64}, {{3, 0, 0}, {2, 40, 70}, {0, 1, 1}, {5, 150, 161}});
  for (const int64_t longest : {1, 64}) ExpectBitsOfSvRead(longest);
  Use({1, 16, 72}, {{9, 30, 45}, {1, 3, 3}});
  for (const int64_t longest : {1, 64}) ExpectBitsOfSvRead(longest);
}

TEST_P(SvReadTest, ASupportOfThousandsGivesTheBitsOfSvRead) {
  Use({1, 8, 8}, {{10, 3000, 4100}, {3, 20000, 20001}});
  for (const int64_t longest : {1, 10}) ExpectBitsOfSvRead(longest);
}

TEST_P(SvReadTest, TheNumberOfDistinctKeysThatIsToldChangesNoBit) {
  Use({2, 64, 64}, {std::begin(kSessions), std::end(kSessions)});
  for (const int64_t told : {0, 40, 100000}) {
    most_distinct_ = told;
    for (const int64_t longest : {1, 64}) ExpectBitsOfSvRead(longest);
  }
}

TEST_P(SvReadTest, FollowsTheReference) {
  Use({2, 64, 64}, {{64, 257, 300}});
  const Histories o = Run(CutIntoCalls(lengths_, 40, 1));
  ForEachRead(0, [&](float scale, absl::Span<const float> q, const SvReadRows& rows, size_t at) {
    std::vector<double> want(64);
    SvReadRef(scale, q, rows, absl::MakeSpan(want));
    for (size_t c = 0; c < want.size(); ++c) EXPECT_NEAR(o[0][at + c], want[c], 2e-5);
  });
}

TEST_P(SvReadTest, BatchOf256HasTheBitsOfOne) {
  std::vector<Session> sessions;
  for (int64_t s = 0; s < 256; ++s) sessions.push_back({2, s % 70, s % 70 == 0 ? 0 : s});
  for (Session& session : sessions) {
    session.num_support = std::max(session.num_support, session.num_distinct);
  }
  Use({2, 64, 64}, sessions);
  const Histories o = Run(CutIntoCalls(lengths_, 1, 2));
  for (size_t s = 0; s < 256; s += 15) EXPECT_EQ(BitsOf(o[s]), BitsOf(Alone(s)));
}

TEST_P(SvReadTest, NanStaysWithinItsSessionAndLaterTokens) {
  Use({1, 64, 64}, {{40, 10, 20}, {40, 10, 20}});
  v_[0][5 * 64 + 3] = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t longest : {1, 64}) {
    MoveToDevice();
    const Histories o = Run(CutIntoCalls(lengths_, longest, 3));
    for (size_t i = 0; i < o[0].size(); ++i) {
      EXPECT_EQ(std::isnan(o[0][i]), i % 64 == 3 && i / 64 >= 5) << i;
      EXPECT_FALSE(std::isnan(o[1][i]));
    }
  }
}

TEST_P(SvReadTest, NoTokensIsNoOp) {
  EXPECT_TRUE(
      SvReadBatch(queue(), {1, 8, 8}, nullptr, nullptr, nullptr, nullptr, {}, nullptr, 0, nullptr)
          .ok());
}

}  // namespace
}  // namespace lethe
