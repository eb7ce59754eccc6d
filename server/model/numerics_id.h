// NumericsId, Numerics: name the arithmetic of this build on this machine, and of a device in it.
//
// Equation:  SHA-256 over the outputs of a fixed self-test: the elementary functions on a sweep of
//            arguments, the sampler, and logits and state parts of a synthetic model with every
//            layer and memory kind over 200 tokens, also after a replayed Forget
//            (docs/state-digest.md).
// Shapes:    32 bytes.
// Units:     none.
// Requires:  none.
// Rejects:   none.
// Effects:   computed at the first call (under a second) and kept.
// Numerics:  equal ids on two machines mean that the self-test's outputs agree bit for bit.
// Threads:   safe.
#ifndef LETHE_SERVER_MODEL_NUMERICS_ID_H_
#define LETHE_SERVER_MODEL_NUMERICS_ID_H_

#include <cstdint>
#include <string>
#include <vector>

#include "audit/crypto/sha256.h"
#include "server/model/config.h"

namespace lethe {

// The CPU's.
const audit::Sha256Digest& NumericsId();

// The model and the tokens of the self-test.
ModelConfig SelfTestConfig();
std::vector<int32_t> SelfTestTokens();

// Two that are equal give the same bits: what a session's state digest begins with.
struct Numerics {
  audit::Sha256Digest id{};
  std::string device_kind;
  bool operator==(const Numerics&) const = default;
};

inline constexpr char kCpuDeviceKind[] = "cpu";
inline Numerics CpuNumerics() { return {NumericsId(), kCpuDeviceKind}; }

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_NUMERICS_ID_H_
