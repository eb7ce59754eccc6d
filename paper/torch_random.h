// TorchRandom: torch.randn(..., dtype=float64) on the CPU after torch.manual_seed(seed), so that a
// model starts from the weights that the papers' code starts from.
//
// Equation:  MT19937, 53-bit uniforms from two words. From 16 elements on: Box-Muller on blocks of
//            16, the last block drawn anew when the count is no multiple of 16. Fewer: Box-Muller
//            in pairs, the second normal kept for the next such draw.
// Shapes:    Normals(count): a tensor of that many elements, in C order.
// Units:     none.
// Requires:  count >= 0.
// Rejects:   none.
// Effects:   each draw advances the generator.
// Numerics:  equal to torch 1.13 on the stored vectors of tests/paper up to libm's last bits.
// Threads:   compatible.
#ifndef LETHE_PAPER_TORCH_RANDOM_H_
#define LETHE_PAPER_TORCH_RANDOM_H_

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace lethe::paper {

class TorchRandom {
 public:
  explicit TorchRandom(uint32_t seed) : engine_(seed) {}

  std::vector<double> Normals(int64_t count);

 private:
  double Uniform();
  double Single();
  // 16 uniforms to 16 normals, in place.
  static void TransformBlock(double* block);

  std::mt19937 engine_;
  std::optional<double> spare_;
};

}  // namespace lethe::paper

#endif  // LETHE_PAPER_TORCH_RANDOM_H_
