// RandomState, DefaultRng: the draws of numpy.random.RandomState(seed) and
// numpy.random.default_rng(seed), so that an experiment can have the inputs of the papers' numpy
// code.
//
// Equation:  RandomState: MT19937 (Matsumoto and Nishimura 1998), normals by the polar method.
//            DefaultRng: PCG64 (O'Neill 2014, XSL-RR 128/64) seeded through numpy's SeedSequence,
//            normals by the ziggurat (Marsaglia and Tsang 2000) of 256 layers on 52 bits. Integers:
//            numpy's masked rejection and Lemire's method. Choice: k of n without repetition; a
//            shuffle's head in RandomState, Floyd's method shuffled in DefaultRng.
// Shapes:    Normals(count): as numpy fills an array of that many elements in C order.
// Units:     none.
// Requires:  end, n in 1 ... 2^32 - 1 (DefaultRng::Choice: n <= 10,000, above which numpy has
//            another way), 0 <= k <= n.
// Rejects:   none.
// Effects:   each draw advances the generator.
// Numerics:  as numpy 1.24: integers, uniforms and RandomState's normals equal (with the same
//            libm), DefaultRng's normals to 2e-14 of each, because numpy's tables of the ziggurat
//            carry roundings of their own. No part of any state: libm is called.
// Threads:   compatible.
#ifndef LETHE_PAPER_NUMPY_RANDOM_H_
#define LETHE_PAPER_NUMPY_RANDOM_H_

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace lethe::paper {

class RandomState {
 public:
  explicit RandomState(uint32_t seed) : engine_(seed) {}

  double Normal();                              // randn()
  std::vector<double> Normals(int64_t count);   // randn(...)
  int64_t Below(int64_t end);                   // randint(end)
  std::vector<int64_t> Permutation(int64_t n);  // permutation(n)
  std::vector<int64_t> Choice(int64_t n, int64_t k);

 private:
  double Uniform();

  std::mt19937 engine_;
  std::optional<double> spare_;  // the polar method makes two
};

class DefaultRng {
 public:
  explicit DefaultRng(uint64_t seed);

  double Uniform();                            // random()
  double Normal();                             // standard_normal()
  std::vector<double> Normals(int64_t count);  // standard_normal(...)
  int64_t Below(int64_t end);                  // integers(end)
  std::vector<int64_t> Choice(int64_t n, int64_t k);

 private:
  struct Wide {  // 128 bits
    uint64_t high = 0;
    uint64_t low = 0;
  };
  void Step();
  uint64_t Next64();
  uint32_t Next32();

  Wide state_;
  Wide increment_;
  std::optional<uint32_t> spare_;  // the high half of the last 64 bits that gave 32
};

}  // namespace lethe::paper

#endif  // LETHE_PAPER_NUMPY_RANDOM_H_
