// StateParts, StateDigest: the SHA-256 digest of a session's state as a list of named parts.
//
// Equation:  digest = SHA-256("lethe-state-v1\0" || u64 number of parts || per part: u64 name
//            length || name || SHA-256(part bytes)).
// Shapes:    digests 32 bytes; u64 little-endian. A part is a name and the hash of its bytes: the
//            bytes are not kept.
// Units:     none.
// Requires:  names unique and added in the order of docs/state-digest.md (the
//            digest depends on it).
// Rejects:   none.
// Effects:   Add hashes and forgets the bytes.
// Numerics:  exact.
// Threads:   compatible; the free
//            functions are safe.
#ifndef LETHE_AUDIT_STATE_STATE_DIGEST_H_
#define LETHE_AUDIT_STATE_STATE_DIGEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "audit/crypto/sha256.h"

namespace lethe::audit {

struct StatePart {
  std::string name;
  Sha256Digest hash{};
  bool operator==(const StatePart& other) const { return name == other.name && hash == other.hash; }
};

class StateParts {
 public:
  void Add(absl::string_view name, absl::string_view bytes);
  void AddHash(absl::string_view name, const Sha256Digest& hash_of_bytes);
  const std::vector<StatePart>& parts() const { return parts_; }
  Sha256Digest Digest() const;

 private:
  std::vector<StatePart> parts_;
};

// The digest of a list of parts, as a verifier computes it.
Sha256Digest StateDigest(const std::vector<StatePart>& parts);

// Empty when a and b are equal; otherwise one line that names the first part that differs.
std::string ExplainDifference(const std::vector<StatePart>& a, const std::vector<StatePart>& b);

// One row of a support-vector head's list: the members of the margin and error sets, by rank.
enum class SupportClass : uint8_t { kMargin = 1, kError = 2 };  // as memory/svdd numbers them
struct SupportRow {
  uint64_t rank = 0;
  SupportClass support_class = SupportClass::kMargin;
  double a = 0.0;  // alpha * m, in [0, 1]
};

// A support-vector head as the part "layer.I.group.G.head.H.support" holds it.
struct SupportState {
  double sigma = 0.0;
  double box_mass = 0.0;
  double ridge = 0.0;
  uint64_t num_gated = 0;        // the gate was solved on the first num_gated keys
  double rho = 0.0;              // 0 when num_gated is 0
  std::vector<SupportRow> rows;  // in rank order
  Sha256Digest inputs_root{};    // InputTree over the first num_gated (key, value) pairs
};

// The bytes of that part: f64 sigma, box_mass, ridge; u64 num_gated; f64 rho; u64 rows; per row u64
// rank, u64 class, f64 a; 32-byte root.
std::string SupportStateBytes(const SupportState& support);
std::string SupportPartName(uint64_t layer, uint64_t group, uint64_t head);
// The part with the canonical state of a group's memory.
std::string MemoryPartName(uint64_t layer, uint64_t group);

// What "model" is in the digest of a vector session, which has none: the hash of the session's
// parameters, "lethe-vector-session-v1\0" || u64 key_dim, value_dim || f64 sigma, box_mass, ridge.
struct VectorParams {
  uint64_t key_dim = 0;
  uint64_t value_dim = 0;
  double sigma = 0.0;
  double box_mass = 0.0;
  double ridge = 0.0;
};
Sha256Digest VectorModelDigest(const VectorParams& params);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_STATE_STATE_DIGEST_H_
