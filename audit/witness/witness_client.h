// WitnessClient: asks the witnesses of a server's configuration for their cosignatures; all of them must give theirs.
//
// Equation:  add_checkpoint.h. A witness that answers 409 with a size within the log is asked again from there.
// Shapes:    none.
// Units:     seconds.
// Requires:  none.
// Rejects:   as HeadWitness. DATA_LOSS: a witness names a size beyond the log's, or the log's own size with another root, or says of
//            a proof from its own size that it is wrong (422). UNAVAILABLE: everything else that is not a right cosignature.
//            ParseWitnessTarget: INVALID_ARGUMENT.
// Effects:   none. What a witness answers is used for nothing but its size and its cosignature, which is verified.
// Numerics:  none.
// Threads:   one call at a time.
#ifndef LETHE_AUDIT_WITNESS_WITNESS_CLIENT_H_
#define LETHE_AUDIT_WITNESS_WITNESS_CLIENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/log/cosignature.h"
#include "audit/log/head_witness.h"
#include "audit/witness/http.h"

namespace lethe::audit {

struct WitnessTarget {
  WitnessKey key;
  HttpUrl url;
};

// "<vkey>=http://HOST:PORT"
absl::StatusOr<WitnessTarget> ParseWitnessTarget(absl::string_view text);

struct WitnessPatience {
  double timeout_s = 5;  // of one request
  int num_attempts = 3;  // per witness and head, with growing pauses
};

class WitnessClient : public HeadWitness {
 public:
  WitnessClient(std::vector<WitnessTarget> targets, const WitnessPatience& patience);

  absl::StatusOr<std::vector<NoteSignature>> Cosign(const HeadToCosign& head) override;
  absl::Status CheckIsThere() override;

 private:
  struct State {
    WitnessTarget target;
    uint64_t size = 0;  // that it cosigned last, as far as we know
  };
  absl::StatusOr<NoteSignature> CosignOne(const HeadToCosign& head, State* state) const;
  absl::StatusOr<HttpAnswer> Ask(const HeadToCosign& head, const State& state) const;

  std::vector<State> states_;
  const WitnessPatience patience_;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_WITNESS_WITNESS_CLIENT_H_
