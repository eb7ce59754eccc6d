#include "tests/memory/svdd_edit_cases.h"

#include <algorithm>
#include <cstddef>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

constexpr int64_t kValueDim = 3;

}  // namespace

std::unique_ptr<SvMemory> MakeMemory(const Setting& setting) {
  SvOptions options;
  options.num_heads = setting.num_heads;
  options.key_dim = setting.key_dim;
  options.value_dim = kValueDim;
  options.sigma = setting.sigma;
  options.box_mass = setting.box_mass;
  options.ridge = setting.ridge;
  options.beta.assign(static_cast<size_t>(setting.num_heads), 0.8f);
  return SvMemory::Create(options).value();
}

Tokens MakeTokens(const Setting& setting, int64_t count, std::mt19937_64* random) {
  std::normal_distribution<float> normal;
  Tokens tokens(static_cast<size_t>(count));
  for (int64_t h = 0; h < setting.num_heads; ++h) {
    const std::vector<double> keys = MakeKeys(setting.kind, count, setting.key_dim, random);
    for (size_t t = 0; t < tokens.size(); ++t) {
      for (size_t c = 0; c < static_cast<size_t>(setting.key_dim); ++c) {
        tokens[t].k.push_back(
            static_cast<float>(keys[t * static_cast<size_t>(setting.key_dim) + c]));
        tokens[t].q.push_back(normal(*random));
      }
      for (int64_t c = 0; c < kValueDim; ++c) tokens[t].v.push_back(normal(*random));
    }
  }
  return tokens;
}

absl::Status TryStep(SvMemory* memory, const Tokens& tokens, std::vector<float>* out) {
  std::vector<float> q, k, v;
  for (const Token& token : tokens) {
    q.insert(q.end(), token.q.begin(), token.q.end());
    k.insert(k.end(), token.k.begin(), token.k.end());
    v.insert(v.end(), token.v.begin(), token.v.end());
  }
  MemoryInputs inputs;
  inputs.q = q;
  inputs.k = k;
  inputs.v = v;
  out->assign(v.size(), 0.0f);
  return memory->Step(inputs, static_cast<int64_t>(tokens.size()), absl::MakeSpan(*out));
}

std::vector<float> Step(SvMemory* memory, const Tokens& tokens) {
  std::vector<float> out;
  if (tokens.empty()) return out;
  EXPECT_OK(TryStep(memory, tokens, &out));
  return out;
}

std::unique_ptr<SvMemory> Stepped(const Setting& setting, const Tokens& tokens) {
  std::unique_ptr<SvMemory> memory = MakeMemory(setting);
  Step(memory.get(), tokens);
  return memory;
}

std::string State(const SvMemory& memory) {
  ByteWriter writer;
  memory.AppendCanonicalState(&writer);
  for (int64_t h = 0; h < memory.num_heads(); ++h) {
    writer.Array(memory.head(h).gated_keys);
    writer.Array(memory.head(h).gated_values);
    writer.F64(memory.head(h).solution->smallest_margin);
  }
  return writer.Take();
}

absl::StatusOr<std::unique_ptr<SvMemory>> Change::Of(const SvMemory& memory) const {
  std::vector<float> keys;
  std::vector<float> values;
  for (const Token& token : tokens) {
    keys.insert(keys.end(), token.k.begin(), token.k.end());
    values.insert(values.end(), token.v.begin(), token.v.end());
  }
  return memory.Edited({removed, replaced, keys, values});
}

Tokens Change::Of(const Tokens& before) const {
  Tokens after;
  for (size_t t = 0; t < before.size(); ++t) {
    const auto rank = static_cast<int64_t>(t);
    if (std::binary_search(removed.begin(), removed.end(), rank)) continue;
    const auto at = std::lower_bound(replaced.begin(), replaced.end(), rank);
    const bool is_new = at != replaced.end() && *at == rank;
    after.push_back(is_new ? tokens[static_cast<size_t>(at - replaced.begin())] : before[t]);
  }
  return after;
}

std::vector<int64_t> Range(int64_t begin, int64_t end) {
  std::vector<int64_t> ranks;
  for (int64_t rank = begin; rank < end; ++rank) ranks.push_back(rank);
  return ranks;
}

Change RandomChange(const Setting& setting, const Tokens& tokens, uint64_t one_in_removed,
                    uint64_t one_in_replaced, std::mt19937_64* random) {
  Change change;
  for (int64_t rank = 0; rank < static_cast<int64_t>(tokens.size()); ++rank) {
    if ((*random)() % one_in_removed == 0) {
      change.removed.push_back(rank);
    } else if ((*random)() % one_in_replaced == 0) {
      change.replaced.push_back(rank);
    }
  }
  change.tokens = MakeTokens(setting, static_cast<int64_t>(change.replaced.size()), random);
  for (Token& token : change.tokens) {
    if ((*random)() % 3 == 0) token.k = tokens[(*random)() % tokens.size()].k;
  }
  return change;
}

}  // namespace lethe::svdd
