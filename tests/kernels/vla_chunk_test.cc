// Goal: whole chunks of VLA follow the double reference of the steps, a sequence's bits are its own,
// and the state goes on into steps.
// Method: on every device, random sequences of several lengths in one call, in slots out of order,
// against VlaRef token by token; the same sequence in other cuts, mates, slots and workspaces; keys
// that are all the same, far scales, NaN.
#include "kernels/vla/vla_chunk.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/vla/vla_ref.h"
#include "tests/kernels/stream_inputs.h"
#include "tests/kernels/vla_chunk_inputs.h"
#include "tests/testing/device_test.h"

namespace lethe {
namespace {

using testing::Append;
using testing::Options;
using testing::Part;
using testing::RandomTokens;
using testing::RelativeError;
using testing::SameBits;
using testing::State;
using testing::ToDouble;
using testing::Tokens;

constexpr int64_t kChunk = kVlaChunkTokens;

class VlaChunkTest : public testing::DeviceTest {
 protected:
  // The CPU form is f64 inside, its states f32. On CUDA f16 operands have 11 bits: some 2e-3 with
  // these inputs (vla_chunk.h); `a` is of f32's class, times the condition of M.
  double Tolerance() const { return GetParam() == DeviceKind::kCuda ? 5e-3 : 2e-5; }
  double InverseTolerance() const { return GetParam() == DeviceKind::kCuda ? 1e-4 : 2e-5; }

  void Start(const VlaOptions& options, int64_t num_slots) {
    options_ = options;
    state_size_ = static_cast<size_t>(options.num_heads * options.key_dim * options.key_dim);
    const auto dim = static_cast<size_t>(options.key_dim);
    const size_t size = static_cast<size_t>(num_slots) * state_size_;
    std::vector<float> gram(size);
    for (size_t i = 0; i < size; ++i) {
      if (i / dim % dim == i % dim) gram[i] = static_cast<float>(options.lambda0);
    }
    gram_ = OnDevice(gram);
    s_ = ZerosOnDevice<float>(size);
    a_ = ZerosOnDevice<float>(size);
  }

  // One call; returns its reads. workspace_tokens 0: as many as the call has.
  std::vector<float> Call(const std::vector<Part>& parts, int64_t workspace_tokens = 0,
                          bool has_reads = true) {
    Tokens packed;
    std::vector<int32_t> offsets{0};
    std::vector<int32_t> slots;
    const int64_t row = options_.num_heads * options_.key_dim;
    for (const Part& part : parts) {
      Append(part.tokens->q, part.first * row, part.count * row, &packed.q);
      Append(part.tokens->k, part.first * row, part.count * row, &packed.k);
      Append(part.tokens->v, part.first * row, part.count * row, &packed.v);
      if (!part.tokens->u.empty()) {
        Append(part.tokens->u, part.first * row, part.count * row, &packed.u);
      }
      offsets.push_back(offsets.back() + static_cast<int32_t>(part.count));
      slots.push_back(part.slot);
    }
    const auto device_offsets = OnDevice(offsets);
    const auto device_slots = OnDevice(slots);
    const auto q = OnDevice(packed.q);
    const auto k = OnDevice(packed.k);
    const auto v = OnDevice(packed.v);
    const auto u = OnDevice(packed.u);
    auto out = OnDevice(std::vector<float>(packed.v.size(), -7.0f));
    const int64_t num_tokens = offsets.back();
    const int64_t bytes =
        VlaChunkWorkspaceBytes(options_, workspace_tokens == 0 ? num_tokens : workspace_tokens);
    auto workspace = ZerosOnDevice<char>(static_cast<size_t>(bytes));
    const VlaChunkBatch batch{static_cast<int64_t>(parts.size()),
                              num_tokens,
                              device_offsets.data(),
                              device_slots.data(),
                              q.data(),
                              k.data(),
                              v.data(),
                              u.data(),
                              gram_.data(),
                              s_.data(),
                              a_.data(),
                              has_reads ? out.data() : nullptr};
    const absl::Status status = VlaChunk(queue(), options_, batch, workspace.data(), bytes);
    EXPECT_TRUE(status.ok()) << status;
    const absl::Status finished = queue()->Finish();
    EXPECT_TRUE(finished.ok()) << finished;
    return OnHost(out);
  }

  State StateOf(int32_t slot) {
    const auto part = [&](const DeviceArray<float>& pool) {
      const std::vector<float> all = OnHost(pool);
      const auto begin =
          all.begin() + static_cast<int64_t>(static_cast<size_t>(slot) * state_size_);
      return std::vector<float>(begin, begin + static_cast<int64_t>(state_size_));
    };
    return {part(gram_), part(s_), part(a_)};
  }

  // Compares a sequence's reads and final state with the steps in double, head by head.
  void ExpectFollows(const Tokens& tokens, int64_t count, const float* out, const State& state) {
    const auto dim = static_cast<size_t>(options_.key_dim);
    for (size_t head = 0; head < static_cast<size_t>(options_.num_heads); ++head) {
      VlaRef ref(options_);
      std::vector<double> reads;
      std::vector<double> should;
      for (size_t t = 0; t < static_cast<size_t>(count); ++t) {
        const size_t first = (t * static_cast<size_t>(options_.num_heads) + head) * dim;
        const auto row = [&](const std::vector<float>& x) {
          return x.empty() ? std::vector<double>()
                           : ToDouble(absl::MakeSpan(x).subspan(first, dim));
        };
        ref.Step(row(tokens.q), row(tokens.k), row(tokens.v), row(tokens.u));
        should.insert(should.end(), ref.read().begin(), ref.read().end());
        for (size_t j = 0; j < dim; ++j) reads.push_back(out[first + j]);
      }
      const auto of_head = [&](const std::vector<float>& x) {
        return absl::MakeSpan(x).subspan(head * dim * dim, dim * dim);
      };
      EXPECT_LT(RelativeError(reads, should), Tolerance());
      EXPECT_LT(RelativeError(of_head(state.s), ref.s()), Tolerance());
      EXPECT_LT(RelativeError(of_head(state.a), ref.a()), InverseTolerance());
      for (size_t i = 0; i < dim; ++i) {
        for (size_t j = 0; j < i; ++j) {
          ASSERT_EQ(of_head(state.a)[i * dim + j], of_head(state.a)[j * dim + i]);
          ASSERT_EQ(of_head(state.gram)[i * dim + j], of_head(state.gram)[j * dim + i]);
        }
      }
    }
  }

  VlaOptions options_;
  size_t state_size_ = 0;
  DeviceArray<float> gram_, s_, a_;
};

LETHE_ON_EVERY_DEVICE(VlaChunkTest);

TEST_P(VlaChunkTest, FollowsTheReference) {
  for (const VlaVariant variant : {VlaVariant::kVla, VlaVariant::kRls}) {
    for (const int64_t dim : {64, 128}) {
      for (const double lambda0 : {0.1, 1.0}) {
        SCOPED_TRACE(::testing::Message()
                     << "rls " << (variant == VlaVariant::kRls) << " D " << dim << " " << lambda0);
        VlaOptions options = Options(variant, dim);
        options.lambda0 = lambda0;
        Start(options, 4);
        const Tokens first = RandomTokens(options, 3 * kChunk, 1);
        const Tokens second = RandomTokens(options, kChunk, 2);
        const std::vector<float> out =
            Call({{&first, 0, 3 * kChunk, 2}, {&first, 0, 0, 1}, {&second, 0, kChunk, 0}});
        ExpectFollows(first, 3 * kChunk, out.data(), StateOf(2));
        ExpectFollows(second, kChunk, out.data() + first.v.size(), StateOf(0));
        // An empty sequence and a slot that no sequence has keep theirs.
        for (const int32_t slot : {1, 3}) {
          const State untouched = StateOf(slot);
          EXPECT_EQ(std::count(untouched.a.begin(), untouched.a.end(), 0.0f), untouched.a.size());
          EXPECT_EQ(untouched.gram[0], static_cast<float>(lambda0));
        }
      }
    }
  }
}

TEST_P(VlaChunkTest, FollowsTheReferenceOverManyChunks) {
  for (const VlaVariant variant : {VlaVariant::kVla, VlaVariant::kRls}) {
    const VlaOptions options = Options(variant, 64, 1);
    Start(options, 1);
    const Tokens tokens = RandomTokens(options, 40 * kChunk, 3);
    const std::vector<float> out = Call({{&tokens, 0, 40 * kChunk, 0}});
    ExpectFollows(tokens, 40 * kChunk, out.data(), StateOf(0));
  }
}

TEST_P(VlaChunkTest, BitsAreNotOfTheCutIntoCalls) {
  for (const int64_t dim : {64, 128}) {
    for (const VlaVariant variant : {VlaVariant::kVla, VlaVariant::kRls}) {
      const VlaOptions options = Options(variant, dim);
      constexpr int64_t kCount = 5 * kChunk;
      const Tokens tokens = RandomTokens(options, kCount, 4);
      Start(options, 1);
      const std::vector<float> out = Call({{&tokens, 0, kCount, 0}});
      const State state = StateOf(0);
      for (const std::vector<int64_t>& cut :
           {std::vector<int64_t>{1, 4}, {4, 1}, {2, 1, 2}, {1, 1, 1, 1, 1}}) {
        Start(options, 1);
        std::vector<float> parts;
        int64_t first = 0;
        for (const int64_t chunks : cut) {
          const std::vector<float> part = Call({{&tokens, first, chunks * kChunk, 0}});
          parts.insert(parts.end(), part.begin(), part.end());
          first += chunks * kChunk;
        }
        EXPECT_TRUE(SameBits(parts, out));
        EXPECT_TRUE(StateOf(0) == state);
      }
      for (const int64_t workspace_chunks : {1, 2, 4, 9}) {
        Start(options, 1);
        EXPECT_TRUE(SameBits(Call({{&tokens, 0, kCount, 0}}, workspace_chunks * kChunk), out));
        EXPECT_TRUE(StateOf(0) == state);
      }
      Start(options, 1);
      Call({{&tokens, 0, kCount, 0}}, 0, /*has_reads=*/false);
      EXPECT_TRUE(StateOf(0) == state);
    }
  }
}

TEST_P(VlaChunkTest, BitsAreNotOfTheBatch) {
  const VlaOptions options = Options(VlaVariant::kVla, 64);
  const Tokens tokens = RandomTokens(options, 2 * kChunk, 5);
  Start(options, 1);
  const std::vector<float> alone = Call({{&tokens, 0, 2 * kChunk, 0}});
  const State state = StateOf(0);
  const std::vector<int64_t> batches = GetParam() == DeviceKind::kCuda
                                           ? std::vector<int64_t>{2, 7, 64, 256}
                                           : std::vector<int64_t>{2, 7};
  const Tokens mate = RandomTokens(options, 3 * kChunk, 6);
  for (const int64_t batch : batches) {
    Start(options, batch + 3);
    std::vector<Part> parts;
    const int64_t own = batch * 2 / 3;
    int64_t own_token = 0;
    for (int64_t i = 0; i < batch; ++i) {
      const auto slot = static_cast<int32_t>(batch + 2 - i);
      if (i == own) {
        parts.push_back({&tokens, 0, 2 * kChunk, slot});
      } else {
        parts.push_back({&mate, 0, i % 4 * kChunk, slot});
        if (i < own) own_token += parts.back().count;
      }
    }
    // A workspace of 5 chunks cuts inside sequences.
    for (const int64_t workspace_tokens : {int64_t{0}, 5 * kChunk}) {
      Start(options, batch + 3);
      const std::vector<float> out = Call(parts, workspace_tokens);
      const auto begin = out.begin() + own_token * options.num_heads * options.value_dim;
      EXPECT_TRUE(
          SameBits({begin, begin + 2 * kChunk * options.num_heads * options.value_dim}, alone));
      EXPECT_TRUE(StateOf(static_cast<int32_t>(batch + 2 - own)) == state);
    }
  }
}

// On CUDA more blocks than the chip holds at once.
TEST_P(VlaChunkTest, BitsOfLargeCallsAreThoseOfSmallOnes) {
  const VlaOptions options = Options(VlaVariant::kVla, 64);
  const int64_t count = (GetParam() == DeviceKind::kCuda ? 2050 : 6) * kChunk;
  Tokens tokens = RandomTokens(options, 6 * kChunk, 10);
  for (std::vector<float>* x : {&tokens.q, &tokens.k, &tokens.v, &tokens.u}) {
    const size_t period = x->size();
    x->resize(static_cast<size_t>(count) * 128);
    for (size_t i = period; i < x->size(); ++i) (*x)[i] = (*x)[i - period];
  }
  const int64_t first = count / 3 / kChunk * kChunk;
  const std::vector<Part> parts{{&tokens, 0, first, 1}, {&tokens, first, count - first, 0}};
  Start(options, 2);
  const std::vector<float> large = Call(parts);
  const State states[] = {StateOf(0), StateOf(1)};
  Start(options, 2);
  EXPECT_TRUE(SameBits(Call(parts, count / 2 + kChunk), large));
  EXPECT_TRUE(StateOf(0) == states[0]);
  EXPECT_TRUE(StateOf(1) == states[1]);
}

TEST_P(VlaChunkTest, StepsGoOnFromItsState) {
  for (const VlaVariant variant : {VlaVariant::kVla, VlaVariant::kRls}) {
    const VlaOptions options = Options(variant, 64, 1);
    constexpr int64_t kCount = 2 * kChunk + 20;
    const Tokens tokens = RandomTokens(options, kCount, 7);
    Start(options, 1);
    std::vector<float> out = Call({{&tokens, 0, 2 * kChunk, 0}});
    State state = StateOf(0);
    const auto tail = [&](const std::vector<float>& x) {
      return absl::MakeSpan(x).subspan(std::min<size_t>(x.size(), 2 * kChunk * 64));
    };
    std::vector<float> tail_out(20 * 64);
    VlaRecurrent(options, {tail(tokens.q), tail(tokens.k), tail(tokens.v), tail(tokens.u)}, 20,
                 2 * kChunk, {absl::MakeSpan(state.a), absl::MakeSpan(state.s), {}},
                 absl::MakeSpan(tail_out));
    out.insert(out.end(), tail_out.begin(), tail_out.end());
    ExpectFollows(tokens, kCount, out.data(), state);
  }
}

// The least favourable M: one direction grows with every token, the others stay at lambda0.
TEST_P(VlaChunkTest, EqualKeysKeepTheReadsFiniteAndRight) {
  const VlaOptions options = Options(VlaVariant::kRls, 64, 1);
  constexpr int64_t kCount = 20 * kChunk;
  Tokens tokens = RandomTokens(options, kCount, 8);
  for (size_t i = 64; i < tokens.k.size(); ++i) tokens.k[i] = tokens.k[i - 64];
  Start(options, 1);
  const std::vector<float> out = Call({{&tokens, 0, kCount, 0}});
  const State state = StateOf(0);
  VlaRef ref(options);
  for (size_t t = 0; t < kCount; ++t) {
    const auto row = [&](const std::vector<float>& x) {
      return ToDouble(absl::MakeSpan(x).subspan(t * 64, 64));
    };
    ref.Step(row(tokens.q), row(tokens.k), row(tokens.v), {});
  }
  // M, rounded to f32, has a condition of 1e4.
  EXPECT_LT(RelativeError(state.s, ref.s()), std::max(1e-3, 4 * Tolerance()));
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float x) { return std::isfinite(x); }));
}

TEST_P(VlaChunkTest, NanShowsAndStaysInItsHead) {
  const VlaOptions options = Options(VlaVariant::kVla, 64);
  const Tokens tokens = RandomTokens(options, 3 * kChunk, 9);
  Start(options, 1);
  const std::vector<float> clean = Call({{&tokens, 0, 3 * kChunk, 0}});
  for (std::vector<float> Tokens::*input : {&Tokens::k, &Tokens::v, &Tokens::u, &Tokens::q}) {
    Tokens poisoned = tokens;
    const size_t token = kChunk + 5;
    (poisoned.*input)[(token * 2 + 1) * 64 + 3] = std::numeric_limits<float>::quiet_NaN();
    Start(options, 1);
    const std::vector<float> out = Call({{&poisoned, 0, 3 * kChunk, 0}});
    bool shows = false;
    for (size_t i = 0; i < out.size(); ++i) {
      if (i / 64 % 2 == 1 && i / 128 >= kChunk) {
        shows = shows || (std::isnan(out[i]) && i / 128 == token);
      } else {
        ASSERT_EQ(out[i], clean[i]) << "token " << i / 128;
      }
    }
    EXPECT_TRUE(shows);
  }
}

TEST_P(VlaChunkTest, AnEmptyBatchDoesNothing) {
  Start(Options(VlaVariant::kVla, 64), 1);
  const State before = StateOf(0);
  Call({});
  const Tokens none;
  Call({{&none, 0, 0, 0}}, kChunk);
  EXPECT_TRUE(StateOf(0) == before);
}

TEST_P(VlaChunkTest, RefusesWhatHasNoChunkForm) {
  const VlaChunkBatch batch{1,       kChunk,  nullptr, nullptr, nullptr, nullptr,
                            nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
  const auto code = [&](const VlaOptions& options, const VlaChunkBatch& b, int64_t bytes) {
    return VlaChunk(queue(), options, b, nullptr, bytes).code();
  };
  constexpr int64_t kEnough = int64_t{1} << 40;
  VlaOptions nudged = Options(VlaVariant::kVla, 64);
  nudged.nudge = true;
  EXPECT_EQ(code(nudged, batch, kEnough), absl::StatusCode::kInvalidArgument);
  VlaOptions paper = Options(VlaVariant::kVla, 64);
  paper.read_norm = VlaReadNorm::kPaper;
  EXPECT_EQ(code(paper, batch, kEnough), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Options(VlaVariant::kVla, 32), batch, kEnough),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(VlaChunkWorkspaceBytes(Options(VlaVariant::kVla, 32), kChunk), 0);
  const VlaOptions options = Options(VlaVariant::kVla, 64);
  VlaChunkBatch part = batch;
  part.num_tokens = kChunk + 1;
  EXPECT_EQ(code(options, part, kEnough), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(options, batch, VlaChunkWorkspaceBytes(options, kChunk) - 1),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lethe
