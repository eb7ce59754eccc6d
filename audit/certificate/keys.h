// ServerKeys: the three secrets of a server that signs records, and where they lie.
//
// Equation:  none.
// Shapes:    directory holds record.pem and log.pem (PKCS#8 Ed25519), pseudonym.key (32 bytes), all
//            mode 0600.
// Units:     none.
// Requires:  none.
// Rejects:   as Ed25519PrivateKey::LoadPem; FAILED_PRECONDITION when only some of the three files
//            exist (a key is never replaced silently), or when both keys are the same: roles are
//            never shared.
// Effects:   LoadOrCreate makes the directory (0700) and all three keys when none of the files
//            exists; whatever ends the process meanwhile, the next call finds all of them or none.
// Numerics:  none.
// Threads:   safe when const.
#ifndef LETHE_AUDIT_CERTIFICATE_KEYS_H_
#define LETHE_AUDIT_CERTIFICATE_KEYS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/certificate/trust.h"
#include "audit/crypto/ed25519.h"
#include "audit/crypto/secret.h"

namespace lethe::audit {

struct ServerKeys {
  std::shared_ptr<const Ed25519PrivateKey> record_key;  // R
  std::shared_ptr<const Ed25519PrivateKey> log_key;     // L
  Secret32 pseudonym_key;                               // K_pseudonym

  static ServerKeys Generate();
  static absl::StatusOr<ServerKeys> LoadOrCreate(const std::string& directory);

  // What an auditor needs, in the trust file's form.
  absl::StatusOr<TrustStore> Trust(absl::string_view log_origin) const;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_KEYS_H_
