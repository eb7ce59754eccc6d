// AddCheckpointRequest: what a log asks a witness, C2SP tlog-witness "add-checkpoint".
//
// Equation:  "old " size "\n" {base64 hash "\n"}* "\n" checkpoint.
// Shapes:    at most 63 hashes of 32 bytes.
// Units:     old_size in leaves: the size of the head that the witness cosigned last, 0 for none.
// Requires:  none.
// Rejects:   Parse: INVALID_ARGUMENT.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_WITNESS_ADD_CHECKPOINT_H_
#define LETHE_AUDIT_WITNESS_ADD_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/sha256.h"

namespace lethe::audit {

inline constexpr char kAddCheckpointPath[] = "/add-checkpoint";
inline constexpr char kTreeSizeType[] = "text/x.tlog.size";

struct AddCheckpointRequest {
  uint64_t old_size = 0;
  std::vector<Sha256Digest> proof;  // consistency of old_size with the checkpoint's size
  std::string checkpoint;
};

std::string WriteAddCheckpoint(const AddCheckpointRequest& request);
absl::StatusOr<AddCheckpointRequest> ParseAddCheckpoint(absl::string_view body);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_WITNESS_ADD_CHECKPOINT_H_
