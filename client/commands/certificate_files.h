// PrepareDirectory, WriteCertificate, ReadCertificate: a certificate as files in a directory.
//
//   envelope.json  the signed statement (DSSE)        proof.tlog   its inclusion proof (C2SP tlog-proof)
//   opening.json   opens the salted values; secret    bundle.json  proof bundle; content
//   digest.json    the certified digest's parts, to name a difference in a replay; not evidence
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT for a file or directory that cannot be read or written, and for a
//            directory that holds another certificate: its opening and bundle may be the only ones left.
//            ReadCertificate: DATA_LOSS, naming the file, where envelope.json or proof.tlog is missing.
// Effects:   PrepareDirectory makes the directory, to be called before a record is asked for.
//            WriteCertificate removes files of these names that the same certificate no longer has.
//            Opening, bundle and digest are readable by their owner only.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_COMMANDS_CERTIFICATE_FILES_H_
#define LETHE_CLIENT_COMMANDS_CERTIFICATE_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/certificate/verify.h"
#include "lethe/v1/certification.pb.h"

namespace lethe::client {

inline constexpr char kEnvelopeFile[] = "envelope.json";
inline constexpr char kProofFile[] = "proof.tlog";
inline constexpr char kOpeningFile[] = "opening.json";
inline constexpr char kBundleFile[] = "bundle.json";
inline constexpr char kDigestFile[] = "digest.json";

struct CertificateContent {
  v1::Certificate certificate;
  std::string bundle;  // "" = none
  std::string digest;  // "" = none
};

// For a certificate that does not exist yet.
absl::Status PrepareDirectory(const std::string& directory);

// The names of the files written.
absl::StatusOr<std::vector<std::string>> WriteCertificate(const std::string& directory,
                                                          const CertificateContent& content);

// DATA_LOSS: the certificate lacks the file that its user needs.
absl::Status IncompleteError(const std::string& directory, absl::string_view name);

// What a verifier reads: envelope and proof, opening and bundle where they are there.
absl::StatusOr<audit::CertificateFiles> ReadCertificate(const std::string& directory);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_CERTIFICATE_FILES_H_
