#include "kernels/sampling/philox.h"

#include "kernels/sampling/philox_rounds.h"

namespace lethe {

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  uint32_t words[4] = {counter[0], counter[1], counter[2], counter[3]};
  PhiloxRounds(words, key[0], key[1]);
  return {words[0], words[1], words[2], words[3]};
}

double Uniform53(uint64_t seed, uint64_t rank) { return PhiloxUniform53(seed, rank); }

}  // namespace lethe
