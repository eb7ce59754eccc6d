// Replay: runs a fuzz target on its seeds, in every build.
//
// Effects:   each file under tests/fuzz/corpus/<target> as it is, then cut, and with bytes changed by a fixed generator.
// Threads:   as the target.
#ifndef LETHE_TESTS_FUZZ_CORPUS_REPLAY_H_
#define LETHE_TESTS_FUZZ_CORPUS_REPLAY_H_

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace lethe::fuzz {

inline std::vector<std::string> Seeds(const std::string& target) {
  std::vector<std::string> seeds;
  const std::string directory = absl::StrCat(LETHE_SOURCE_DIR, "/tests/fuzz/corpus/", target);
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const std::filesystem::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

// A number below `bound` from a state that is not 0.
inline size_t NextBelow(uint64_t* state, size_t bound) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return static_cast<size_t>(*state % bound);
}

inline std::string Mutant(const std::string& seed, uint64_t* state) {
  std::string mutant = seed;
  const size_t at = NextBelow(state, mutant.size());
  switch (NextBelow(state, 4)) {
    case 0:
      mutant.resize(at);
      break;
    case 1:
      mutant[at] = static_cast<char>(NextBelow(state, 256));
      break;
    case 2:
      mutant.erase(at, 1 + NextBelow(state, 8));
      break;
    default:
      mutant.insert(at, mutant.substr(NextBelow(state, mutant.size()), 1 + NextBelow(state, 32)));
  }
  return mutant;
}

// `num_mutants` in all.
inline void Replay(const std::string& target, void (*run)(absl::string_view), int num_mutants) {
  const std::vector<std::string> seeds = Seeds(target);
  ASSERT_FALSE(seeds.empty());
  for (const std::string& seed : seeds) run(seed);
  uint64_t state = 0x9e3779b97f4a7c15u;
  for (int i = 0; i < num_mutants; ++i) {
    const std::string& seed = seeds[static_cast<size_t>(i) % seeds.size()];
    if (!seed.empty()) run(Mutant(seed, &state));
  }
}

}  // namespace lethe::fuzz

#endif  // LETHE_TESTS_FUZZ_CORPUS_REPLAY_H_
