#include "kernels/sampling/philox.h"

namespace lethe {
namespace {

// The multipliers and Weyl increments of the paper, table 2 and section 3.3.
constexpr uint64_t kMultiplier0 = 0xD2511F53u;
constexpr uint64_t kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u;
constexpr uint32_t kWeyl1 = 0xBB67AE85u;
constexpr int kRounds = 10;

uint32_t High(uint64_t product) { return static_cast<uint32_t>(product >> 32); }
uint32_t Low(uint64_t product) { return static_cast<uint32_t>(product); }

}  // namespace

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {High(product1) ^ counter[1] ^ key[0], Low(product1),
               High(product0) ^ counter[3] ^ key[1], Low(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double Uniform53(uint64_t seed, uint64_t rank) {
  const std::array<uint32_t, 4> words =
      Philox({Low(rank), High(rank), 0, 0}, {Low(seed), High(seed)});
  const uint64_t bits = (uint64_t{words[1]} << 32) | words[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace lethe
