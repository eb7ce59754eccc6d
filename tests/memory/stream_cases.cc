#include "tests/memory/stream_cases.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"

#include "tests/kernels/stream_inputs.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

constexpr int64_t kHeads = 2;
constexpr int64_t kKeyDim = 16;
constexpr int64_t kValueDim = 24;

StreamCase PalimpsaCase(const std::string& name, bool metaplasticity) {
  const auto create = [=]() -> std::unique_ptr<Memory> {
    return *PalimpsaMemory::Create({{kHeads, kKeyDim, kValueDim}, 0.25f, metaplasticity});
  };
  return {name, create, kHeads, kKeyDim, kValueDim, true, metaplasticity, false};
}

StreamCase VlaCase(const std::string& name, VlaVariant variant, bool nudge, VlaReadNorm read_norm) {
  const auto create = [=]() -> std::unique_ptr<Memory> {
    return *VlaMemory::Create({kHeads, kKeyDim, kValueDim, variant, nudge, 0.1, read_norm});
  };
  return {name, create, kHeads, kKeyDim, kValueDim, false, false, variant == VlaVariant::kVla};
}

StreamCase OvqCase(const std::string& name, int64_t max_slots) {
  const auto create = [=]() -> std::unique_ptr<Memory> {
    return *OvqMemory::Create({kHeads, kKeyDim, kValueDim, max_slots, {1.0f, 1.5f}});
  };
  return {name, create, kHeads, kKeyDim, kValueDim, false, false, false};
}

}  // namespace

std::vector<StreamCase> AllStreamCases() {
  return {PalimpsaCase("Palimpsa", true),
          PalimpsaCase("Mamba2", false),
          VlaCase("Vla", VlaVariant::kVla, false, VlaReadNorm::kRms),
          VlaCase("VlaNudgePaperRead", VlaVariant::kVla, true, VlaReadNorm::kPaper),
          VlaCase("RlsNudge", VlaVariant::kRls, true, VlaReadNorm::kRms),
          OvqCase("Ovq", 40),
          OvqCase("OvqTwoSlots", 2)};
}

StreamTokens::StreamTokens(const StreamCase& stream, int64_t count, uint64_t seed) : count_(count) {
  RandomSource random(seed);
  const int64_t heads = count * stream.num_heads;
  q = random.Rows(heads, stream.key_dim, 1.0);
  k = random.Rows(heads, stream.key_dim, 1.0);
  v = random.Normals(heads * stream.value_dim);
  if (stream.has_decay) log_decay = random.Uniforms(heads, -0.1f, 0.0f);
  if (stream.has_precision) precision = random.Uniforms(heads * stream.value_dim, 0.0f, 1.0f);
  if (stream.has_direction) write_direction = random.Rows(heads, stream.key_dim, 0.25);
}

MemoryInputs StreamTokens::Slice(int64_t first, int64_t count) const {
  const auto part = [&](const std::vector<float>& x) {
    const int64_t per_token = static_cast<int64_t>(x.size()) / count_;
    return absl::MakeConstSpan(x).subspan(static_cast<size_t>(first * per_token),
                                          static_cast<size_t>(count * per_token));
  };
  return {part(q), part(k), part(v), part(log_decay), part(precision), part(write_direction)};
}

StreamTokens StreamTokens::Without(int64_t first, int64_t count) const {
  StreamTokens rest = *this;
  for (std::vector<float>* x :
       {&rest.q, &rest.k, &rest.v, &rest.log_decay, &rest.precision, &rest.write_direction}) {
    const int64_t per_token = static_cast<int64_t>(x->size()) / count_;
    x->erase(x->begin() + first * per_token, x->begin() + (first + count) * per_token);
  }
  rest.count_ -= count;
  return rest;
}

std::vector<float> StepThrough(const StreamCase& stream, const StreamTokens& tokens, int64_t first,
                               int64_t last, const std::vector<int64_t>& cuts, Memory* memory) {
  std::vector<float> reads;
  for (size_t cut = 0; first < last; ++cut) {
    const int64_t size = std::min(cuts[cut % cuts.size()], last - first);
    std::vector<float> out(static_cast<size_t>(size * stream.num_heads * stream.value_dim));
    EXPECT_OK(memory->Step(tokens.Slice(first, size), size, absl::MakeSpan(out)));
    reads.insert(reads.end(), out.begin(), out.end());
    first += size;
  }
  return reads;
}

void WriteAndStepThrough(const StreamCase& stream, const StreamTokens& tokens, int64_t first,
                         int64_t last, const std::vector<int64_t>& cuts, Memory* memory) {
  for (size_t cut = 0; first < last; ++cut) {
    const int64_t size = std::min(cuts[cut % cuts.size()], last - first);
    if (cut % 2 == 0) {
      MemoryInputs inputs = tokens.Slice(first, size);
      inputs.q = {};
      EXPECT_OK(memory->Write(inputs, size));
    } else {
      StepThrough(stream, tokens, first, first + size, {size}, memory);
    }
    first += size;
  }
}

std::string CanonicalBytes(const Memory& memory) {
  ByteWriter writer;
  memory.AppendCanonicalState(&writer);
  return writer.Take();
}

}  // namespace lethe::testing
