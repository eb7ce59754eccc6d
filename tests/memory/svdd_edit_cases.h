// Token lists of an SvMemory, edits of them, and the memories that both make.
// Threads: none.
#ifndef LETHE_TESTS_MEMORY_SVDD_EDIT_CASES_H_
#define LETHE_TESTS_MEMORY_SVDD_EDIT_CASES_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "memory/svdd/sv_memory.h"
#include "tests/memory/svdd_testing.h"

namespace lethe::svdd {

struct Setting {
  KeyKind kind = KeyKind::kGaussian;
  int64_t num_heads = 1;
  int64_t key_dim = 4;
  double sigma = 1.1;
  double box_mass = 30.0;
  double ridge = 0x1.0p-11;
};

struct Token {
  std::vector<float> q, k, v;  // of all heads
};
using Tokens = std::vector<Token>;

std::unique_ptr<SvMemory> MakeMemory(const Setting& setting);
// Every head's keys are a list of the kind.
Tokens MakeTokens(const Setting& setting, int64_t count, std::mt19937_64* random);

absl::Status TryStep(SvMemory* memory, const Tokens& tokens, std::vector<float>* out);
// TryStep, expected to succeed; tokens may be empty.
std::vector<float> Step(SvMemory* memory, const Tokens& tokens);
std::unique_ptr<SvMemory> Stepped(const Setting& setting, const Tokens& tokens);

// The digest's bytes, and what it covers by a Merkle root.
std::string State(const SvMemory& memory);

struct Change {
  std::vector<int64_t> removed;
  std::vector<int64_t> replaced;
  Tokens tokens;  // of replaced

  absl::StatusOr<std::unique_ptr<SvMemory>> Of(const SvMemory& memory) const;
  Tokens Of(const Tokens& before) const;
};

std::vector<int64_t> Range(int64_t begin, int64_t end);

// About one rank in `one_in_removed` goes, one in `one_in_replaced` gets a key of the kind or a copy
// of a key present.
Change RandomChange(const Setting& setting, const Tokens& tokens, uint64_t one_in_removed,
                    uint64_t one_in_replaced, std::mt19937_64* random);

}  // namespace lethe::svdd

#endif  // LETHE_TESTS_MEMORY_SVDD_EDIT_CASES_H_
