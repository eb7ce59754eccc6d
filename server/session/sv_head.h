// SvHead: a support-vector head of a session's state, as certificates see it.
//
// Equation:  memory/svdd/problem.h.
// Shapes:    keys [num_keys][key_dim], values [num_keys][value_dim], num_keys of the solution.
// Units:     a = alpha m in [0, 1].
// Requires:  none.
// Rejects:   none.
// Effects:   none. A view: valid until the state changes.
// Numerics:  f32 in a model's memories, f64 in a vector session; the digest hashes them as they are.
// Threads:   compatible.
#ifndef LETHE_SERVER_SESSION_SV_HEAD_H_
#define LETHE_SERVER_SESSION_SV_HEAD_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/types/span.h"

#include "memory/svdd/problem.h"

namespace lethe {

using SvNumbers = std::variant<absl::Span<const float>, absl::Span<const double>>;

struct SvHead {
  uint64_t layer = 0;
  uint64_t group = 0;
  uint64_t head = 0;
  std::string name;  // "layer.4.group.0.head.0"
  int64_t value_dim = 0;
  const svdd::Params* params = nullptr;
  const svdd::Solution* solution = nullptr;  // of the first num_keys inputs
  SvNumbers keys;
  SvNumbers values;
  // Of the inputs that are not gated yet; none in a vector session.
  SvNumbers tail_keys;
  SvNumbers tail_values;
};

// The numbers as f64, exactly.
inline std::vector<double> Widened(const SvNumbers& numbers) {
  return std::visit([](const auto span) { return std::vector<double>(span.begin(), span.end()); },
                    numbers);
}

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_SV_HEAD_H_
