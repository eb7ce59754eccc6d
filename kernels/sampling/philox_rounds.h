// PhiloxRounds: the rounds of Philox4x32-10 for host and device; philox.h says what for.
//
// Equation:  Salmon, Moraes, Dror, Shaw (SC 2011), table 2 and section 3.3.
// Shapes:    counter: 4 words, key: 2 words.
// Units:     none.
// Requires:  none.
// Rejects:   none.
// Effects:   counter becomes the result.
// Numerics:  exact.
// Threads:   safe.
#ifndef LETHE_KERNELS_SAMPLING_PHILOX_ROUNDS_H_
#define LETHE_KERNELS_SAMPLING_PHILOX_ROUNDS_H_

#include <cstdint>

#ifdef __CUDACC__
#define LETHE_HOST_DEVICE __host__ __device__
#else
#define LETHE_HOST_DEVICE
#endif

namespace lethe {

LETHE_HOST_DEVICE inline void PhiloxRounds(uint32_t (&counter)[4], uint32_t key0, uint32_t key1) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53u;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u;
  constexpr uint32_t kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter[0] = static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0;
    counter[1] = static_cast<uint32_t>(product1);
    counter[2] = static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1;
    counter[3] = static_cast<uint32_t>(product0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
}

// Uniform53 of philox.h.
LETHE_HOST_DEVICE inline double PhiloxUniform53(uint64_t seed, uint64_t rank) {
  uint32_t words[4] = {static_cast<uint32_t>(rank), static_cast<uint32_t>(rank >> 32), 0, 0};
  PhiloxRounds(words, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  const uint64_t bits = (static_cast<uint64_t>(words[1]) << 32) | words[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace lethe

#endif  // LETHE_KERNELS_SAMPLING_PHILOX_ROUNDS_H_
