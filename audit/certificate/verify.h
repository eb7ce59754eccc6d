// VerifyCertificate, VerifySequence: the offline checks of records, with no server, model or
// network.
//
// Equation:  audit.md 3 "Certificate"; docs/certificate-format.md lists the checks in order.
// Shapes:    a report is the list of all checks in order, each ok, failed or not checked with the
//            reason.
// Units:     none.
// Requires:  none.
// Rejects:   nothing is returned as an error: whatever bytes come in, the report says which check
//            failed.
// Effects:   none.
// Numerics:  P2 bounds by memory/svdd/proof.h in double-double, outward rounded.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_VERIFY_H_
#define LETHE_AUDIT_CERTIFICATE_VERIFY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "audit/certificate/statement.h"
#include "audit/certificate/trust.h"

namespace lethe::audit {

// The checks of VerifyCertificate, in order. "trust" to "key range" need envelope and proof file
// alone; "opening" to "derived set" the opening too; "bundle" to "optimality" opening and bundle.
inline constexpr const char* kCheckNames[] = {
    "trust",          "envelope",       "payload type",     "record key",     "signature",
    "statement",      "predicate type", "predicate",        "leaf binding",   "proof file",
    "checkpoint",     "log origin",     "inclusion",        "key range",      "nonce",
    "sequence",       "scope",          "opening",          "subject digest", "retained set",
    "forgotten set",  "derived set",    "bundle",           "bundle path",    "engine identity",
    "retained count", "evidence",       "partition counts", "partition rows", "optimality",
    "state replay"};

enum class CheckResult { kOk, kFailed, kNotChecked };

struct Check {
  std::string name;
  CheckResult result = CheckResult::kNotChecked;
  std::string detail;  // why it failed or was not checked; for ok ones what was found, or empty
};

struct VerifyReport {
  std::vector<Check> checks;
  // Set once the signature held: what the record says. Leaf values are valid once inclusion held.
  std::optional<Statement> statement;
  uint64_t leaf_index = 0;
  Sha256Digest leaf_hash{};
  bool core_ok = false;  // signature, inclusion and key range held

  // The record's own checks up to "key range" are ok, and no check failed; those that want a nonce,
  // an opening, a bundle or the model may be unchecked.
  bool ok() const;
  // The first failed check, or null.
  const Check* first_failure() const;
  const Check* Find(absl::string_view name) const;
};

struct CertificateFiles {
  std::string envelope;
  std::string proof_file;
  std::optional<std::string> leaf;  // the log's entry, where the caller has it
  std::optional<std::string> opening;
  std::optional<std::string> bundle;
};

struct VerifyOptions {
  std::optional<std::string> expected_nonce;  // bytes; not compared when absent
};

VerifyReport VerifyCertificate(const CertificateFiles& files, const TrustStore& trust,
                               const VerifyOptions& options = {});

// Several records of one session in sequence order: each verified, then that sequence numbers
// follow one another, prev links to the leaf before, and session and log are the same.
struct SequenceReport {
  std::vector<VerifyReport> records;
  std::vector<Check> checks;  // "sequence records", … "session", "numbers", "links", "order"
  bool ok() const;
};
SequenceReport VerifySequence(absl::Span<const CertificateFiles> records, const TrustStore& trust);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_VERIFY_H_
