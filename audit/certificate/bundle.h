// ProofBundle: what a verifier needs to check a record's optimality proof (P2) and its path to the
// state digest.
//
// Equation:  canonical JSON (statement.h); f32 = 8 and f64 = 16 hex digits of the IEEE-754 bits,
//            most significant first; a row of a matrix is one string, and the width of its numbers
//            says their format. parts: the state digest's parts in order (audit/state/state_digest.h).
// Shapes:    per head: keys [n][key_dim], values [n][value_dim], classes, a, token_ids: [n], rank
//            order. Keys and values are f32 in a model's memory and f64 in a vector session, whose
//            value_dim may be 0. Witness a: one per distinct margin key, by first rank; tail keys
//            [t][key_dim], values [t][value_dim].
// Units:     a = alpha * m in [0, 1]; box_mass M = 1/C; sigma as in exp(-||x-y||^2 / sigma^2).
// Requires:  none.
// Rejects:   ParseBundle: INVALID_ARGUMENT for any other bytes than WriteBundle's, inconsistent
//            lengths, over kBundleBytesMax bytes.
// Effects:   none. A bundle is content (it holds keys and values): made on request from the present
//            state, never stored.
// Numerics:  floats travel as bits.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_BUNDLE_H_
#define LETHE_AUDIT_CERTIFICATE_BUNDLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/certificate/commitment.h"
#include "audit/crypto/sha256.h"
#include "audit/state/state_digest.h"
#include "memory/svdd/proof.h"

namespace lethe::audit {

inline constexpr char kBundleType[] = "https://lethe.dev/bundle/v1";
inline constexpr size_t kBundleBytesMax = size_t{1} << 30;

// As the state holds keys and values, and as its digest hashes them.
enum class NumberFormat : uint8_t { kF32, kF64 };

// The inputs that are not gated yet, which a model's (hybrid) readout weighs as well.
struct BundleTail {
  std::vector<double> keys;
  std::vector<double> values;
};

struct BundleHead {
  uint64_t layer = 0;
  uint64_t group = 0;
  uint64_t head = 0;
  double sigma = 0;
  double box_mass = 0;
  double ridge = 0;
  double rho = 0;
  uint64_t key_dim = 0;
  uint64_t value_dim = 0;
  std::vector<uint64_t> token_ids;
  std::vector<KeyClass> classes;
  std::vector<double> a;
  NumberFormat format = NumberFormat::kF32;  // without keys: as parsed, kF32
  std::vector<double> keys;                  // f32 ones widened, exactly
  std::vector<double> values;
  std::optional<svdd::Witness> witness;  // where the partition's proof needs one
  // Absent in a vector session, where every input is gated, and in bundles of earlier versions.
  std::optional<BundleTail> tail;
};

struct ProofBundle {
  Sha256Digest leaf_hash{};  // the record it belongs to
  std::vector<StatePart> parts;
  std::vector<BundleHead> heads;
};

absl::StatusOr<std::string> WriteBundle(const ProofBundle& bundle);
absl::StatusOr<ProofBundle> ParseBundle(absl::string_view bytes);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_BUNDLE_H_
