// Philox: the counter-based generator Philox4x32-10, a fixed function of key and counter.
//
// Equation:  Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011),
//            4x32, 10 rounds.
// Shapes:    counter and result: 4 words of 32 bits; key: 2 words.
// Units:     none.
// Requires:  none.
// Rejects:   none.
// Effects:   none.
// Numerics:  exact. Uniform53 is in [0, 1), a multiple of 2^-53.
// Threads:   safe.
#ifndef LETHE_KERNELS_SAMPLING_PHILOX_H_
#define LETHE_KERNELS_SAMPLING_PHILOX_H_

#include <array>
#include <cstdint>

namespace lethe {

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The number for the token at `rank` of a request with `seed`: key = seed, counter = (rank, 0, 0),
// low word first, from the first two words of the result. Neither a session nor a token_id enters,
// so a fresh session that is told the retained history draws the same.
double Uniform53(uint64_t seed, uint64_t rank);

}  // namespace lethe

#endif  // LETHE_KERNELS_SAMPLING_PHILOX_H_
