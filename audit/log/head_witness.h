// HeadWitness: somebody else who signs a log's heads, and only ever heads that extend one another.
//
// Equation:  none.
// Shapes:    cosignatures as note.h has signature lines.
// Units:     tree sizes in leaves.
// Requires:  head.note is a checkpoint that the log signed; `prove` outlives the call.
// Rejects:   Cosign: UNAVAILABLE: no answer in time, or one that is no cosignature: the same head may be given again.
//            DATA_LOSS: the witness signed a head that this log does not extend: the log must be frozen.
//            CheckIsThere: UNAVAILABLE: it takes no connection.
// Effects:   none on the log.
// Numerics:  none.
// Threads:   one call at a time.
#ifndef LETHE_AUDIT_LOG_HEAD_WITNESS_H_
#define LETHE_AUDIT_LOG_HEAD_WITNESS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "audit/crypto/sha256.h"
#include "audit/log/note.h"

namespace lethe::audit {

struct HeadToCosign {
  std::string note;
  uint64_t tree_size = 0;
  // The consistency proof from an older size, at least 1, to tree_size.
  std::function<absl::StatusOr<std::vector<Sha256Digest>>(uint64_t old_size)> prove;
};

class HeadWitness {
 public:
  virtual ~HeadWitness() = default;
  // Verified signature lines, one or more.
  virtual absl::StatusOr<std::vector<NoteSignature>> Cosign(const HeadToCosign& head) = 0;
  // A sign of life, asked for before anything is done that Cosign must complete. No promise that it will.
  virtual absl::Status CheckIsThere() = 0;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_HEAD_WITNESS_H_
