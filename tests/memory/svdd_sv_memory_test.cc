// Goal: SvMemory reads as docs/model-format.md says, and outputs and state are functions of the
// token sequence alone.
// Method: the double reference on the reference solution; every cut into calls, snapshots, restores
// and clones against fresh memories, bit for bit.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "memory/svdd/sv_memory.h"
#include "memory/svdd/svdd_ref.h"
#include "tests/testing/fault_switch.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

using ::lethe::testing::StatusIs;

constexpr int64_t kHeads = 2;
constexpr int64_t kKeyDim = 16;
constexpr int64_t kValueDim = 8;

SvOptions Options() {
  SvOptions options;
  options.num_heads = kHeads;
  options.key_dim = kKeyDim;
  options.value_dim = kValueDim;
  options.sigma = 1.7;
  options.box_mass = 40.0;
  options.beta = {1.5f, 0.7f};
  return options;
}

struct Tokens {
  int64_t count = 0;
  std::vector<float> q, k, v;
};

Tokens MakeTokens(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Tokens tokens;
  tokens.count = count;
  const auto unit = [&](std::vector<float>* to) {
    std::vector<float> x(kKeyDim);
    float norm = 0.0f;
    for (float& c : x) {
      c = normal(random);
      norm += c * c;
    }
    for (const float c : x) to->push_back(c / std::sqrt(norm));
  };
  for (int64_t i = 0; i < count * kHeads; ++i) {
    unit(&tokens.q);
    unit(&tokens.k);
    for (int64_t c = 0; c < kValueDim; ++c) tokens.v.push_back(normal(random));
  }
  return tokens;
}

Tokens Slice(const Tokens& tokens, int64_t begin, int64_t count) {
  const auto part = [&](const std::vector<float>& all, int64_t dim) {
    const auto first = all.begin() + begin * kHeads * dim;
    return std::vector<float>(first, first + count * kHeads * dim);
  };
  return {count, part(tokens.q, kKeyDim), part(tokens.k, kKeyDim), part(tokens.v, kValueDim)};
}

std::vector<float> Step(Memory* memory, const Tokens& tokens) {
  std::vector<float> out(static_cast<size_t>(tokens.count * kHeads * kValueDim));
  MemoryInputs inputs;
  inputs.q = tokens.q;
  inputs.k = tokens.k;
  inputs.v = tokens.v;
  EXPECT_OK(memory->Step(inputs, tokens.count, absl::MakeSpan(out)));
  return out;
}

void Write(Memory* memory, const Tokens& tokens) {
  MemoryInputs inputs;
  inputs.k = tokens.k;
  inputs.v = tokens.v;
  EXPECT_OK(memory->Write(inputs, tokens.count));
}

std::string State(const Memory& memory) {
  ByteWriter writer;
  memory.AppendCanonicalState(&writer);
  return writer.Take();
}

// From `first` on every token is the one at rank (t - first) % period + first.
Tokens WithRepeats(const Tokens& tokens, int64_t first, int64_t period) {
  Tokens repeated = tokens;
  for (int64_t t = first; t < tokens.count; ++t) {
    const int64_t from = first + (t - first) % period;
    for (auto [vector, dim] : {std::pair(&repeated.q, kKeyDim), std::pair(&repeated.k, kKeyDim),
                               std::pair(&repeated.v, kValueDim)}) {
      std::copy_n(vector->begin() + from * kHeads * dim, kHeads * dim,
                  vector->begin() + t * kHeads * dim);
    }
  }
  return repeated;
}

std::unique_ptr<SvMemory> MakeMemory() { return SvMemory::Create(Options()).value(); }

TEST(SvMemoryTest, ReadsEqualTheReference) {
  const Tokens tokens = MakeTokens(140, 1);
  const std::unique_ptr<SvMemory> memory = MakeMemory();
  const std::vector<float> out = Step(memory.get(), tokens);
  const Params params = MakeParams(1.7, 40.0, 0x1.0p-11, kKeyDim).value();
  for (int64_t h = 0; h < kHeads; ++h) {
    std::vector<float> keys;
    std::vector<float> values;
    std::vector<double> gate;
    for (int64_t t = 0; t < tokens.count; ++t) {
      if (t % kChunkTokens == 0 && t > 0) {
        const RefSolution ref = SolveRef(params, std::vector<double>(keys.begin(), keys.end()));
        ASSERT_TRUE(ref.converged);
        gate.assign(ref.a.begin(), ref.a.end());
      }
      const auto at = [&](const std::vector<float>& from, int64_t dim) {
        return absl::MakeConstSpan(from).subspan(static_cast<size_t>((t * kHeads + h) * dim),
                                                 static_cast<size_t>(dim));
      };
      keys.insert(keys.end(), at(tokens.k, kKeyDim).begin(), at(tokens.k, kKeyDim).end());
      values.insert(values.end(), at(tokens.v, kValueDim).begin(), at(tokens.v, kValueDim).end());
      const std::vector<double> expected =
          ReadRef(static_cast<double>(Options().beta[static_cast<size_t>(h)]),
                  at(tokens.q, kKeyDim), keys, values, gate);
      for (size_t c = 0; c < expected.size(); ++c) {
        ASSERT_NEAR(expected[c], static_cast<double>(at(out, kValueDim)[c]), 3e-6) << "token " << t;
      }
    }
    const Solution& solution = *memory->head(h).solution;
    EXPECT_EQ(solution.num_keys, 128);
    EXPECT_GT(std::count(solution.classes.begin(), solution.classes.end(), Partition::kReserve),
              10);
    EXPECT_GT(solution.smallest_margin, 0.0);
  }
}

TEST(SvMemoryTest, CutsIntoCallsDoNotMatter) {
  const Tokens tokens = MakeTokens(260, 2);
  const std::unique_ptr<SvMemory> whole = MakeMemory();
  const std::vector<float> expected = Step(whole.get(), tokens);
  for (const int64_t cut : {1, 7, 63, 64, 65, 129}) {
    const std::unique_ptr<SvMemory> memory = MakeMemory();
    std::vector<float> out;
    for (int64_t begin = 0; begin < tokens.count; begin += cut) {
      const std::vector<float> part =
          Step(memory.get(), Slice(tokens, begin, std::min(cut, tokens.count - begin)));
      out.insert(out.end(), part.begin(), part.end());
    }
    EXPECT_EQ(expected, out) << cut;
    EXPECT_EQ(State(*whole), State(*memory)) << cut;
  }
}

TEST(SvMemoryTest, WriteLeavesTheStateThatStepLeaves) {
  const Tokens tokens = MakeTokens(260, 7);
  const Tokens later = MakeTokens(70, 8);
  for (const int64_t cut : {1, 63, 64, 65, 260}) {
    const std::unique_ptr<SvMemory> written = MakeMemory();
    const std::unique_ptr<SvMemory> stepped = MakeMemory();
    Write(written.get(), Slice(tokens, 0, 40));
    const std::unique_ptr<MemorySnapshot> snapshot = written->Snapshot();
    Write(written.get(), Slice(tokens, 100, 60));
    ASSERT_OK(written->Restore(*snapshot));
    Step(stepped.get(), Slice(tokens, 0, 40));
    for (int64_t begin = 40; begin < tokens.count; begin += cut) {
      const Tokens part = Slice(tokens, begin, std::min(cut, tokens.count - begin));
      if ((begin - 40) / cut % 3 == 2) {
        Step(written.get(), part);
      } else {
        Write(written.get(), part);
      }
      Step(stepped.get(), part);
    }
    EXPECT_EQ(State(*written), State(*stepped)) << cut;
    EXPECT_EQ(written->num_tokens(), tokens.count);
    EXPECT_EQ(Step(written.get(), later), Step(stepped.get(), later)) << cut;
    EXPECT_EQ(State(*written), State(*stepped)) << cut;
  }
}

TEST(SvMemoryTest, RestoreLeavesNoTraceOfLaterTokens) {
  const Tokens tokens = MakeTokens(300, 3);
  const Tokens other = MakeTokens(150, 4);
  for (const int64_t rank : {0, 1, 63, 64, 100, 128, 192, 250}) {
    const std::unique_ptr<SvMemory> memory = MakeMemory();
    if (rank > 0) Step(memory.get(), Slice(tokens, 0, rank));
    const std::unique_ptr<MemorySnapshot> snapshot = memory->Snapshot();
    EXPECT_EQ(snapshot->num_tokens(), rank);
    const std::string at_rank = State(*memory);
    Step(memory.get(), Slice(tokens, rank, 300 - rank));
    ASSERT_OK(memory->Restore(*snapshot));
    EXPECT_EQ(at_rank, State(*memory));
    EXPECT_EQ(memory->num_tokens(), rank);
    const std::vector<float> replayed = Step(memory.get(), other);
    const std::unique_ptr<SvMemory> fresh = MakeMemory();
    if (rank > 0) Step(fresh.get(), Slice(tokens, 0, rank));
    EXPECT_EQ(Step(fresh.get(), other), replayed) << rank;
    EXPECT_EQ(State(*fresh), State(*memory)) << rank;
  }
}

TEST(SvMemoryTest, ClonesAreIndependent) {
  const Tokens tokens = MakeTokens(200, 5);
  const Tokens other = MakeTokens(100, 6);
  const std::unique_ptr<SvMemory> memory = MakeMemory();
  Step(memory.get(), Slice(tokens, 0, 140));
  const std::unique_ptr<MemorySnapshot> snapshot = memory->Snapshot();
  const std::unique_ptr<Memory> clone = memory->Clone();
  EXPECT_EQ(State(*memory), State(*clone));
  Step(clone.get(), other);
  const std::vector<float> rest = Step(memory.get(), Slice(tokens, 140, 60));
  const std::unique_ptr<SvMemory> fresh = MakeMemory();
  const std::vector<float> all = Step(fresh.get(), tokens);
  EXPECT_TRUE(std::equal(rest.rbegin(), rest.rend(), all.rbegin()));
  EXPECT_EQ(State(*fresh), State(*memory));
  ASSERT_OK(clone->Restore(*snapshot));
  EXPECT_EQ(Step(clone.get(), Slice(tokens, 140, 60)), rest);
}

TEST(SvMemoryTest, RepeatedTokensReadLikeTheReferenceAndLeaveNoTrace) {
  for (const int64_t period : {1, 3}) {
    const Tokens tokens = WithRepeats(MakeTokens(330, 11), 30, period);
    const Tokens other = MakeTokens(150, 12);
    const std::unique_ptr<SvMemory> whole = MakeMemory();
    const std::vector<float> out = Step(whole.get(), tokens);
    for (int64_t h = 0; h < kHeads; ++h) {
      const SvHeadView view = whole->head(h);
      std::vector<float> keys(view.gated_keys.begin(), view.gated_keys.end());
      const RefSolution ref =
          SolveRef(*view.params, std::vector<double>(keys.begin(), keys.begin() + 128 * kKeyDim));
      ASSERT_TRUE(ref.converged);
      keys.insert(keys.end(), view.tail_keys.begin(), view.tail_keys.end());
      std::vector<float> values(view.gated_values.begin(), view.gated_values.end());
      const int64_t t = 150;  // the gate of rank 128 is in force
      keys.resize((t + 1) * kKeyDim);
      values.resize((t + 1) * kValueDim);
      const auto at = static_cast<size_t>(t * kHeads + h);
      const std::vector<double> expected =
          ReadRef(static_cast<double>(Options().beta[static_cast<size_t>(h)]),
                  absl::MakeConstSpan(tokens.q).subspan(at * kKeyDim, kKeyDim), keys, values,
                  std::vector<double>(ref.a.begin(), ref.a.end()));
      for (size_t c = 0; c < expected.size(); ++c) {
        EXPECT_NEAR(expected[c], static_cast<double>(out[at * kValueDim + c]), 3e-6);
      }
    }
    for (const int64_t rank : {20, 64, 129, 192, 300}) {
      const std::unique_ptr<SvMemory> memory = MakeMemory();
      Step(memory.get(), Slice(tokens, 0, rank));
      const std::unique_ptr<MemorySnapshot> snapshot = memory->Snapshot();
      Step(memory.get(), Slice(tokens, rank, 330 - rank));
      EXPECT_EQ(State(*whole), State(*memory)) << rank;
      ASSERT_OK(memory->Restore(*snapshot));
      const std::unique_ptr<Memory> clone = memory->Clone();
      const std::unique_ptr<SvMemory> fresh = MakeMemory();
      Step(fresh.get(), Slice(tokens, 0, rank));
      const std::vector<float> expected = Step(fresh.get(), other);
      EXPECT_EQ(expected, Step(memory.get(), other)) << rank;
      EXPECT_EQ(expected, Step(clone.get(), other)) << rank;
      EXPECT_EQ(State(*fresh), State(*memory)) << rank;
    }
  }
}

TEST(SvMemoryTest, RepeatedTokensCostWhatTheirDistinctKeysCost) {
  const int64_t count = 4096;
  const Tokens tokens = WithRepeats(MakeTokens(count, 13), 100, 2);
  const std::unique_ptr<SvMemory> memory = MakeMemory();
  Step(memory.get(), tokens);
  const Solution& solution = *memory->head(0).solution;
  EXPECT_GT(std::count(solution.classes.begin(), solution.classes.end(), Partition::kMargin), 3900)
      << "the copies are not in the margin set";
  const Counters counters = memory->counters();
  // 102 distinct keys a head: their whole Gram matrix, and no more of it per boundary than a few
  // rows of that size. Unmerged it is 4,000 rows of 4,000.
  EXPECT_LE(counters.kernel_values, kHeads * (102 * 102 + 64 * 10 * 102));
  EXPECT_EQ(counters.uncertified_gaps, 0);
  // Tokens (f32, in vectors that may have grown to twice the size, values of the support twice) and
  // per-rank lists; unmerged, the factor and the rows alone were 250 MB.
  const size_t per_token = 2 * sizeof(float) * (kKeyDim + 2 * kValueDim) + 128;
  EXPECT_LE(memory->state_bytes(), kHeads * (count * per_token + 200 * 200 * 3 * sizeof(double)));
}

TEST(SvMemoryTest, ReserveTokensDoNotReachTheRead) {
  Tokens tokens = MakeTokens(130, 7);
  const std::unique_ptr<SvMemory> memory = MakeMemory();
  Step(memory.get(), Slice(tokens, 0, 128));
  const std::vector<Partition> classes = memory->head(0).solution->classes;
  const auto reserve = std::find(classes.begin(), classes.end(), Partition::kReserve);
  ASSERT_NE(reserve, classes.end());
  const std::vector<float> expected = Step(memory.get(), Slice(tokens, 128, 2));
  const auto rank = static_cast<size_t>(reserve - classes.begin());
  for (size_t c = 0; c < kValueDim; ++c) tokens.v[rank * kHeads * kValueDim + c] = 1e6f;
  const std::unique_ptr<SvMemory> changed = MakeMemory();
  Step(changed.get(), Slice(tokens, 0, 128));
  EXPECT_EQ(expected, Step(changed.get(), Slice(tokens, 128, 2)));
}

TEST(SvMemoryTest, SkippedPolishLeavesATraceOfTheForgotten) {
  const Tokens tokens = MakeTokens(320, 8);
  const auto after_forgetting = [&] {
    const std::unique_ptr<SvMemory> memory = MakeMemory();
    Step(memory.get(), Slice(tokens, 0, 192));
    const std::unique_ptr<MemorySnapshot> snapshot = memory->Snapshot();
    Step(memory.get(), Slice(tokens, 192, 64));
    EXPECT_OK(memory->Restore(*snapshot));
    Step(memory.get(), Slice(tokens, 256, 64));
    return State(*memory);
  };
  const auto fresh = [&] {
    const std::unique_ptr<SvMemory> memory = MakeMemory();
    Step(memory.get(), Slice(tokens, 0, 192));
    Step(memory.get(), Slice(tokens, 256, 64));
    return State(*memory);
  };
  EXPECT_EQ(after_forgetting(), fresh());
  const lethe::testing::ScopedFault fault(Fault::kPolishSkipped);
  EXPECT_NE(after_forgetting(), fresh());
}

TEST(SvMemoryTest, BadOptionsInputsAndSnapshotsAreRefused) {
  const auto with = [](auto change) {
    SvOptions options = Options();
    change(&options);
    return SvMemory::Create(options).status();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(with([](SvOptions* o) { o->num_heads = 0; }), StatusIs(invalid, "num_heads"));
  EXPECT_THAT(with([](SvOptions* o) { o->sigma = 0; }), StatusIs(invalid, "sigma"));
  EXPECT_THAT(with([](SvOptions* o) { o->ridge = 0; }), StatusIs(invalid, "ridge"));
  EXPECT_THAT(with([](SvOptions* o) { o->box_mass = 0; }), StatusIs(invalid, "box_mass"));
  EXPECT_THAT(with([](SvOptions* o) { o->beta.pop_back(); }), StatusIs(invalid, "beta"));
  EXPECT_THAT(with([](SvOptions* o) { o->beta[0] = std::nanf(""); }), StatusIs(invalid, "beta"));
  const std::unique_ptr<SvMemory> memory = MakeMemory();
  Tokens tokens = MakeTokens(1, 9);
  tokens.k[3] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> out(static_cast<size_t>(kHeads * kValueDim));
  MemoryInputs inputs;
  inputs.q = tokens.q;
  inputs.k = tokens.k;
  inputs.v = tokens.v;
  const std::unique_ptr<MemorySnapshot> empty = memory->Snapshot();
  EXPECT_THAT(memory->Step(inputs, 1, absl::MakeSpan(out)),
              StatusIs(absl::StatusCode::kOutOfRange, "key"));
  ASSERT_OK(memory->Restore(*empty));
  EXPECT_EQ(memory->num_tokens(), 0);
  const std::unique_ptr<SvMemory> longer = MakeMemory();
  Step(longer.get(), MakeTokens(70, 10));
  EXPECT_THAT(memory->Restore(*longer->Snapshot()), StatusIs(invalid, "snapshot"));
}

}  // namespace
}  // namespace lethe::svdd
