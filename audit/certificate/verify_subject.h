// VerifySubject: the offline checks of the summary of a ForgetSubject, alone and against the certificates of the
// sessions that it counts.
//
// Equation:  subject_summary.h.
// Shapes:    the record's own checks first, then "opening" to "failed set", which need the opening (and the label), then
//            those that need certificates.
// Units:     none.
// Requires:  none.
// Rejects:   nothing is returned as an error: the report says which check failed.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_VERIFY_SUBJECT_H_
#define LETHE_AUDIT_CERTIFICATE_VERIFY_SUBJECT_H_

#include <optional>
#include <string>

#include "absl/types/span.h"

#include "audit/certificate/subject_summary.h"
#include "audit/certificate/trust.h"
#include "audit/certificate/verify.h"

namespace lethe::audit {

inline constexpr const char* kSubjectCheckNames[] = {
    "trust",           "envelope",          "payload type",    "record key",        "signature",
    "statement",       "predicate type",    "predicate",       "leaf binding",      "proof file",
    "checkpoint",      "log origin",        "inclusion",       "key range",         "nonce",
    "opening",         "subject label",     "records set",     "failed set",        "certificates",
    "certificate job", "certificate order", "certificate set", "certificate inputs"};

struct SubjectFiles {
  CertificateFiles summary;          // its opening is a SubjectOpening; no bundle
  std::optional<std::string> label;  // to be compared with the one that was signed for
};

struct SubjectReport {
  VerifyReport record;  // without a statement
  std::optional<SubjectSummary> summary;
};

// `certificates`: forget records of sessions, in any order; with fewer than the summary counts the last checks say what
// they could not see.
SubjectReport VerifySubject(const SubjectFiles& files,
                            absl::Span<const CertificateFiles> certificates,
                            const TrustStore& trust, const VerifyOptions& options = {});

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_VERIFY_SUBJECT_H_
