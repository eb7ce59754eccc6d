// VerifyEnvelope, VerifyLeaf, VerifyInclusionInLog, VerifyNonce: the checks that records of every kind have in common,
// "trust" to "signature", "leaf binding", "proof file" to "key range", and "nonce" of kCheckNames (verify.h). They are
// in verify.cc.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  the report has these checks. VerifyLeaf and VerifyInclusionInLog: VerifyEnvelope, then VerifyLeaf, said yes.
// Rejects:   nothing: the report says what failed; true where the next check makes sense.
// Effects:   leaf_hash, leaf_index and core_ok of *result.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_VERIFY_RECORD_H_
#define LETHE_AUDIT_CERTIFICATE_VERIFY_RECORD_H_

#include <string>

#include "audit/certificate/dsse.h"
#include "audit/certificate/report_builder.h"
#include "audit/certificate/trust.h"
#include "audit/certificate/verify.h"

namespace lethe::audit {

// What later checks need from the envelope.
struct SignedRecord {
  DsseEnvelope envelope;
  const TrustedRecordKey* key = nullptr;
};

bool VerifyEnvelope(const CertificateFiles& files, const TrustStore& trust, SignedRecord* record,
                    ReportBuilder* report);
bool VerifyLeaf(const CertificateFiles& files, const SignedRecord& record, ReportBuilder* report,
                VerifyReport* result);
// `log_origin`: of the statement.
void VerifyInclusionInLog(const std::string& proof_file, const std::string& log_origin,
                          const TrustStore& trust, const SignedRecord& record,
                          ReportBuilder* report, VerifyReport* result);
// `nonce`: of the statement.
void VerifyNonce(const std::string& nonce, const VerifyOptions& options, ReportBuilder* report);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_VERIFY_RECORD_H_
