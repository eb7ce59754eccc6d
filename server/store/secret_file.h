// LoadOrCreateSecret: 32 secret bytes in a file of their own, drawn at the first start.
//
// Equation:  none.
// Shapes:    the file holds the 32 bytes and the first 16 of SHA-256("lethe-secret-v1" || these).
// Units:     none.
// Requires:  the file's directory exists; nobody else creates the file meanwhile.
// Rejects:   DATA_LOSS: the file is damaged; what audit/crypto/key_file.h rejects.
// Effects:   a new file is written whole (under another name, then renamed), mode 0600, and synced.
// Numerics:  none.
// Threads:   none.
#ifndef LETHE_SERVER_STORE_SECRET_FILE_H_
#define LETHE_SERVER_STORE_SECRET_FILE_H_

#include <string>

#include "absl/status/statusor.h"

#include "audit/crypto/secret.h"

namespace lethe {

absl::StatusOr<audit::Secret32> LoadOrCreateSecret(const std::string& path);

}  // namespace lethe

#endif  // LETHE_SERVER_STORE_SECRET_FILE_H_
