// Goal: the fuzz targets hold on their seeds and on simple mutations of them, in every build.
// Method: each file under tests/fuzz/corpus/<target> as it is, cut at many places, and with bytes
// changed by a fixed generator.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/fuzz/fuzz_targets.h"

namespace lethe::fuzz {
namespace {

constexpr int kMutationsPerSeed = 400;

std::vector<std::string> Seeds(const std::string& target) {
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

void Replay(const std::string& target, void (*run)(absl::string_view),
            int mutations_per_seed = kMutationsPerSeed) {
  const std::vector<std::string> seeds = Seeds(target);
  ASSERT_FALSE(seeds.empty());
  uint64_t random = 0x9e3779b97f4a7c15u;
  const auto next = [&random](size_t bound) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return static_cast<size_t>(random % bound);
  };
  for (const std::string& seed : seeds) {
    run(seed);
    for (int i = 0; i < mutations_per_seed && !seed.empty(); ++i) {
      std::string mutant = seed;
      const size_t at = next(mutant.size());
      switch (next(4)) {
        case 0:
          mutant.resize(at);
          break;
        case 1:
          mutant[at] = static_cast<char>(next(256));
          break;
        case 2:
          mutant.erase(at, 1 + next(8));
          break;
        default:
          mutant.insert(at, mutant.substr(next(mutant.size()), 1 + next(32)));
      }
      run(mutant);
    }
  }
}

TEST(CorpusReplayTest, Note) { Replay("note", FuzzNote); }
TEST(CorpusReplayTest, TlogProof) { Replay("tlog_proof", FuzzTlogProof); }
TEST(CorpusReplayTest, Dsse) { Replay("dsse", FuzzDsse); }
TEST(CorpusReplayTest, Statement) { Replay("statement", FuzzStatement); }
TEST(CorpusReplayTest, Bundle) { Replay("bundle", FuzzBundle); }
TEST(CorpusReplayTest, Export) { Replay("export", FuzzExport); }
// An input is milliseconds of solving.
TEST(CorpusReplayTest, Svdd) {
  const char* everything = std::getenv("LETHE_TEST_LONG");
  const bool is_long = everything != nullptr && std::string(everything) == "1";
  Replay("svdd", FuzzSvdd, is_long ? 10 * kMutationsPerSeed : kMutationsPerSeed / 10);
}
TEST(CorpusReplayTest, VectorText) { Replay("vector_text", FuzzVectorText); }
TEST(CorpusReplayTest, Npy) { Replay("npy", FuzzNpy); }

}  // namespace
}  // namespace lethe::fuzz
