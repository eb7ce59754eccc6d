// Goal: VLA's one entry takes any sequences in the canonical form, and neither states nor the last reads
// of the tokens tell how they came.
// Method: on every device, with a chunk form and without: sessions of lengths around the chunk's, each
// in one call; the same ones in calls of random cuts, mates and slots, bit for bit, where a chunk that
// ends is brought whole; the chunk and step kernels by hand; the double reference.
#include "kernels/vla/vla_evaluate.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "kernels/vla/vla_chunk.h"
#include "kernels/vla/vla_fold.h"
#include "kernels/vla/vla_ref.h"
#include "tests/kernels/stream_inputs.h"
#include "tests/kernels/vla_chunk_inputs.h"
#include "tests/testing/device_test.h"

namespace lethe {
namespace {

using testing::Append;
using testing::RandomTokens;
using testing::RelativeError;
using testing::SameBits;
using testing::ToDouble;
using testing::Tokens;

constexpr int64_t kChunk = kVlaChunkTokens;

// One session's state and the last read of each of its tokens.
struct Result {
  std::vector<float> gram, boundary_a, boundary_s, a, s, key_sum, reads;
};

bool Same(const Result& x, const Result& y) {
  return SameBits(x.gram, y.gram) && SameBits(x.boundary_a, y.boundary_a) &&
         SameBits(x.boundary_s, y.boundary_s) && SameBits(x.a, y.a) && SameBits(x.s, y.s) &&
         SameBits(x.key_sum, y.key_sum) && SameBits(x.reads, y.reads);
}

struct Form {
  std::string name;
  VlaOptions options;
};

std::vector<Form> Forms() {
  VlaOptions nudged = testing::Options(VlaVariant::kVla, 64);
  nudged.nudge = true;
  VlaOptions paper = testing::Options(VlaVariant::kVla, 32);
  paper.read_norm = VlaReadNorm::kPaper;
  paper.value_dim = 48;
  return {{"vla", testing::Options(VlaVariant::kVla, 64)},
          {"rls", testing::Options(VlaVariant::kRls, 64, 1)},
          {"wide", testing::Options(VlaVariant::kVla, 128, 1)},
          {"nudge", nudged},
          {"paper", paper}};
}

class VlaEvaluateTest : public testing::DeviceTest {
 protected:
  // Sessions at rank 0, in slots of a pool that has more of them.
  void Start(const VlaOptions& options, size_t num_sessions, uint32_t seed) {
    options_ = options;
    num_slots_ = num_sessions + 2;
    slots_.resize(num_slots_);
    std::iota(slots_.begin(), slots_.end(), 0);
    std::shuffle(slots_.begin(), slots_.end(), std::mt19937(seed));
    a_size_ = static_cast<size_t>(options.num_heads * options.key_dim * options.key_dim);
    s_size_ = static_cast<size_t>(options.num_heads * options.key_dim * options.value_dim);
    z_size_ = options.read_norm == VlaReadNorm::kPaper
                  ? static_cast<size_t>(options.num_heads * options.key_dim)
                  : 0;
    const auto dim = static_cast<size_t>(options.key_dim);
    std::vector<float> gram(a_size_);
    for (size_t i = 0; i < a_size_; ++i) {
      if (i / dim % dim == i % dim) gram[i] = static_cast<float>(options.lambda0);
    }
    std::vector<float> a(a_size_), s(s_size_), key_sum(z_size_);
    VlaInitialState(options, {absl::MakeSpan(a), absl::MakeSpan(s), absl::MakeSpan(key_sum)});
    const bool has_chunks = VlaChunkCovers(options);
    const auto pool = [&](const std::vector<float>& one, bool is_there = true) {
      std::vector<float> all;
      for (size_t n = 0; is_there && n < num_slots_; ++n) {
        all.insert(all.end(), one.begin(), one.end());
      }
      return OnDevice(all);
    };
    gram_ = pool(gram, has_chunks);
    boundary_a_ = pool(a, has_chunks);
    boundary_s_ = pool(s, has_chunks);
    a_ = pool(a);
    s_ = pool(s);
    key_sum_ = pool(key_sum);
  }

  struct Share {
    size_t session;
    int64_t first;
    int64_t count;
  };

  // One call; puts the reads over the sessions' former ones.
  void Call(const std::vector<Tokens>& sessions, const std::vector<Share>& shares,
            std::vector<Result>* results) {
    const int64_t keys = options_.num_heads * options_.key_dim;
    const int64_t values = options_.num_heads * options_.value_dim;
    Tokens packed;
    std::vector<VlaSequence> sequences;
    for (const Share& share : shares) {
      const Tokens& tokens = sessions[share.session];
      Append(tokens.q, share.first * keys, share.count * keys, &packed.q);
      Append(tokens.k, share.first * keys, share.count * keys, &packed.k);
      Append(tokens.v, share.first * values, share.count * values, &packed.v);
      if (!tokens.u.empty()) {
        Append(tokens.u, share.first * keys, share.count * keys, &packed.u);
      }
      sequences.push_back({slots_[share.session], share.first, share.count});
    }
    const auto q = OnDevice(packed.q), k = OnDevice(packed.k), v = OnDevice(packed.v);
    const auto u = OnDevice(packed.u);
    auto out = OnDevice(std::vector<float>(packed.v.size(), -7.0f));
    const int64_t bytes = VlaEvaluateWorkspaceBytes(options_, sequences);
    auto workspace = ZerosOnDevice<char>(static_cast<size_t>(bytes));
    const VlaEvaluation evaluation{sequences, q.data(),     k.data(),           v.data(),
                                   u.data(),  gram_.data(), boundary_a_.data(), boundary_s_.data(),
                                   a_.data(), s_.data(),    key_sum_.data(),    out.data()};
    const absl::Status status = VlaEvaluate(queue(), options_, evaluation, workspace.data(), bytes);
    ASSERT_TRUE(status.ok()) << status;
    const std::vector<float> reads = OnHost(out);
    auto from = reads.begin();
    for (const Share& share : shares) {
      std::copy(from, from + share.count * values,
                (*results)[share.session].reads.begin() + share.first * values);
      from += share.count * values;
    }
  }

  void ReadStates(std::vector<Result>* results) {
    const auto read = [&](const DeviceArray<float>& pool, size_t size,
                          std::vector<float> Result::*part) {
      const std::vector<float> all = OnHost(pool);
      for (size_t n = 0; !all.empty() && n < results->size(); ++n) {
        const auto begin = all.begin() + slots_[n] * static_cast<int64_t>(size);
        (*results)[n].*part = {begin, begin + static_cast<int64_t>(size)};
      }
    };
    read(gram_, a_size_, &Result::gram);
    read(boundary_a_, a_size_, &Result::boundary_a);
    read(boundary_s_, s_size_, &Result::boundary_s);
    read(a_, a_size_, &Result::a);
    read(s_, s_size_, &Result::s);
    read(key_sum_, z_size_, &Result::key_sum);
  }

  std::vector<Result> NoReads(const std::vector<Tokens>& sessions) {
    std::vector<Result> results(sessions.size());
    for (size_t n = 0; n < sessions.size(); ++n) {
      results[n].reads.assign(sessions[n].v.size(), -7.0f);
    }
    return results;
  }

  int64_t LengthOf(const Tokens& tokens) const {
    return static_cast<int64_t>(tokens.v.size()) / (options_.num_heads * options_.value_dim);
  }

  // Every session in one call for itself.
  std::vector<Result> Alone(const VlaOptions& options, const std::vector<Tokens>& sessions) {
    Start(options, sessions.size(), 1);
    std::vector<Result> results = NoReads(sessions);
    for (size_t n = 0; n < sessions.size(); ++n) {
      Call(sessions, {{n, 0, LengthOf(sessions[n])}}, &results);
    }
    ReadStates(&results);
    return results;
  }

  // All in calls of up to `longest` new tokens of each; who ends a chunk that an earlier call began
  // brings it from its boundary.
  std::vector<Result> InCuts(const VlaOptions& options, const std::vector<Tokens>& sessions,
                             int64_t longest, uint32_t seed) {
    Start(options, sessions.size(), seed);
    std::mt19937 random(seed);
    std::vector<Result> results = NoReads(sessions);
    std::vector<int64_t> done(sessions.size());
    std::vector<size_t> order(sessions.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (bool is_left = true; is_left;) {
      std::shuffle(order.begin(), order.end(), random);
      std::vector<Share> shares;
      is_left = false;
      for (const size_t n : order) {
        const int64_t left = LengthOf(sessions[n]) - done[n];
        const int64_t drawn = longest == 1 ? 1 : static_cast<int64_t>(random() % (longest + 1));
        const int64_t count = std::min(left, drawn);
        const int64_t begun = VlaChunkCovers(options) ? done[n] % kChunk : 0;
        const int64_t again = begun + count >= kChunk ? begun : 0;
        shares.push_back({n, done[n] - again, count + again});
        done[n] += count;
        is_left = is_left || done[n] < LengthOf(sessions[n]);
      }
      Call(sessions, shares, &results);
    }
    ReadStates(&results);
    return results;
  }

  VlaOptions options_;
  size_t num_slots_ = 0;
  size_t a_size_ = 0, s_size_ = 0, z_size_ = 0;
  std::vector<int32_t> slots_;
  DeviceArray<float> gram_, boundary_a_, boundary_s_, a_, s_, key_sum_;
};

LETHE_ON_EVERY_DEVICE(VlaEvaluateTest);

std::vector<Tokens> Sessions(const VlaOptions& options, const std::vector<int64_t>& lengths) {
  std::vector<Tokens> sessions;
  for (size_t n = 0; n < lengths.size(); ++n) {
    testing::RandomSource random(n + 10);
    sessions.push_back(RandomTokens(options, lengths[n], n + 1));
    sessions.back().v = random.Normals(lengths[n] * options.num_heads * options.value_dim);
  }
  return sessions;
}

TEST_P(VlaEvaluateTest, NoBitDependsOnTheCutOrTheBatch) {
  for (const Form& form : Forms()) {
    const std::vector<Tokens> sessions =
        Sessions(form.options, {1, kChunk - 1, kChunk, kChunk + 1, 2 * kChunk + 37, 0, 3 * kChunk});
    const std::vector<Result> alone = Alone(form.options, sessions);
    for (const int64_t longest : {int64_t{1}, int64_t{50}, kChunk, 3 * kChunk}) {
      const std::vector<Result> cut =
          InCuts(form.options, sessions, longest, static_cast<uint32_t>(longest) + 1);
      for (size_t n = 0; n < sessions.size(); ++n) {
        EXPECT_TRUE(Same(cut[n], alone[n]))
            << form.name << ", session " << n << ", up to " << longest << " tokens a call";
      }
    }
  }
}

TEST_P(VlaEvaluateTest, FollowsTheReference) {
  // 11 bits in the chunks' products on CUDA (vla_chunk.h).
  const double tolerance = GetParam() == DeviceKind::kCuda ? 5e-3 : 2e-5;
  for (const Form& form : Forms()) {
    const std::vector<Tokens> sessions = Sessions(form.options, {2 * kChunk + 37});
    const Result result = InCuts(form.options, sessions, 100, 3)[0];
    for (int64_t head = 0; head < form.options.num_heads; ++head) {
      VlaRef ref(form.options);
      std::vector<double> reads, should;
      for (int64_t t = 0; t < 2 * kChunk + 37; ++t) {
        const auto row = [&](const std::vector<float>& x, int64_t size) {
          const int64_t first = (t * form.options.num_heads + head) * size;
          return x.empty() ? std::vector<double>()
                           : ToDouble(absl::MakeSpan(x).subspan(static_cast<size_t>(first),
                                                                static_cast<size_t>(size)));
        };
        const int64_t keys = form.options.key_dim;
        const int64_t values = form.options.value_dim;
        ref.Step(row(sessions[0].q, keys), row(sessions[0].k, keys), row(sessions[0].v, values),
                 row(sessions[0].u, keys));
        should.insert(should.end(), ref.read().begin(), ref.read().end());
        for (const double x : row(result.reads, values)) reads.push_back(x);
      }
      EXPECT_LT(RelativeError(reads, should), tolerance) << form.name;
    }
  }
}

// What a session of 64 + 6 tokens gets is VlaChunk's and then VlaFold's from a copy of the boundary.
TEST_P(VlaEvaluateTest, WholeChunksAreChunksAndTheRestIsSteps) {
  const VlaOptions options = testing::Options(VlaVariant::kVla, 64, 1);
  const std::vector<Tokens> sessions = Sessions(options, {kChunk + 6});
  const Result result = Alone(options, sessions)[0];
  Start(options, 1, 1);
  const auto q = OnDevice(sessions[0].q), k = OnDevice(sessions[0].k), v = OnDevice(sessions[0].v);
  const auto u = OnDevice(sessions[0].u);
  auto out = OnDevice(std::vector<float>(sessions[0].v.size()));
  const auto slot = OnDevice(std::vector<int32_t>{slots_[0]});
  const auto chunk_offsets = OnDevice(std::vector<int32_t>{0, kChunk});
  const int64_t bytes = VlaChunkWorkspaceBytes(options, kChunk);
  auto workspace = ZerosOnDevice<char>(static_cast<size_t>(bytes));
  const VlaChunkBatch chunk{
      1,        kChunk,   chunk_offsets.data(), slot.data(), q.data(),  k.data(),
      v.data(), u.data(), gram_.data(),         s_.data(),   a_.data(), out.data()};
  ASSERT_TRUE(VlaChunk(queue(), options, chunk, workspace.data(), bytes).ok());
  const auto step_offsets = OnDevice(std::vector<int32_t>{0, 6});
  const auto rank = OnDevice(std::vector<int64_t>{kChunk});
  VlaBatch steps{1, 6, 6, step_offsets.data(), slot.data(), rank.data()};
  constexpr int64_t kFirst = kChunk * 64;
  steps.q = q.data() + kFirst;
  steps.k = k.data() + kFirst;
  steps.v = v.data() + kFirst;
  steps.write_direction = u.data() + kFirst;
  steps.a = a_.data();
  steps.s = s_.data();
  steps.out = out.data() + kFirst;
  ASSERT_TRUE(VlaFold(queue(), options, steps).ok());
  EXPECT_TRUE(SameBits(OnHost(out), result.reads));
  std::vector<Result> by_hand(1);
  ReadStates(&by_hand);
  EXPECT_TRUE(SameBits(by_hand[0].a, result.a));
  EXPECT_TRUE(SameBits(by_hand[0].s, result.s));
  EXPECT_TRUE(SameBits(by_hand[0].gram, result.gram));
}

TEST_P(VlaEvaluateTest, RejectsWhatItCannotDo) {
  const VlaOptions options = testing::Options(VlaVariant::kVla, 64);
  const auto code = [&](const std::vector<VlaSequence>& sequences) {
    VlaEvaluation evaluation;
    evaluation.sequences = sequences;
    return VlaEvaluate(queue(), options, evaluation, nullptr, 0).code();
  };
  EXPECT_EQ(code({}), absl::StatusCode::kOk);
  EXPECT_EQ(code({{0, 70, 0}}), absl::StatusCode::kOk);
  EXPECT_EQ(code({{0, -1, 1}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{0, 0, -1}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{0, 0, 0}, {0, 0, 0}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{0, 70, 58}}),
            absl::StatusCode::kInvalidArgument);  // ends a chunk it has not begun
  EXPECT_EQ(code({{0, 70, 57}}), absl::StatusCode::kInvalidArgument);  // no workspace
}

}  // namespace
}  // namespace lethe
