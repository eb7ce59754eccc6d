// Witness: cosigns the heads of the logs that it knows, each one only if it extends the one before.
//
// Equation:  C2SP tlog-witness: a head is cosigned when a trusted log key signed it and the consistency proof leads from
//            the head that was cosigned last to it. The new head is durable before its cosignature exists.
// Shapes:    directory holds a file <SHA-256 of the origin in hex> a log: the last checkpoint, and `lock`.
// Units:     sizes in leaves; time in seconds since 1970.
// Requires:  none.
// Rejects:   AddCheckpoint answers as HTTP does: 400 a malformed request; 404 another log; 403 no trusted signature; 409 another
//            size or root than the last head's, with the last size as body; 422 a wrong proof; 500 when the state cannot be read or
//            written. Open: FAILED_PRECONDITION while another witness has the directory; UNAVAILABLE.
// Effects:   as above.
// Numerics:  none.
// Threads:   safe: check and write are one step under a lock.
#ifndef LETHE_AUDIT_WITNESS_WITNESS_H_
#define LETHE_AUDIT_WITNESS_WITNESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/ed25519.h"
#include "audit/log/checkpoint.h"
#include "audit/log/durable_directory.h"
#include "audit/witness/http.h"
#include "kernels/base/mutex.h"

namespace lethe::audit {

struct WitnessOptions {
  std::string directory;
  std::string name;  // as a key name
  std::shared_ptr<const Ed25519PrivateKey> key;
  std::vector<VerifierKey> logs;
  std::function<uint64_t()> now_s;
};

class Witness {
 public:
  static absl::StatusOr<std::unique_ptr<Witness>> Open(const WitnessOptions& options);

  HttpAnswer AddCheckpoint(absl::string_view body);
  // Of a request to this path.
  HttpAnswer Handle(const std::string& path, const std::string& body);

 private:
  Witness(const WitnessOptions& options, std::unique_ptr<DurableDirectory> directory)
      : options_(options), directory_(std::move(directory)) {}
  absl::StatusOr<Checkpoint> LastHead(const VerifierKey& log) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const WitnessOptions options_;
  const std::unique_ptr<DurableDirectory> directory_;
  Mutex mutex_;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_WITNESS_WITNESS_H_
