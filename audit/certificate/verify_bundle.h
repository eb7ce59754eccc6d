// VerifyBundle: the checks "bundle" to "optimality" of a verification.
//
// Equation:  statement -> HMAC -> state digest -> parts -> support part of each head -> its keys,
//            values, classes, a; then memory/svdd/proof.h on these.
// Shapes:    none.
// Units:     none.
// Requires:  a statement whose signature and inclusion held; the report's entries unset.
// Rejects:   none: failures go into the report.
// Effects:   sets those checks.
// Numerics:  as ProveHead. Cost O(n |S u E| d) per head.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_VERIFY_BUNDLE_H_
#define LETHE_AUDIT_CERTIFICATE_VERIFY_BUNDLE_H_

#include "absl/strings/string_view.h"

#include "audit/certificate/opening.h"
#include "audit/certificate/report_builder.h"
#include "audit/certificate/statement.h"

namespace lethe::audit {

struct BundleContext {
  const Statement* statement = nullptr;
  const Opening* opening = nullptr;
  Sha256Digest leaf_hash{};
};
void VerifyBundle(absl::string_view bundle_bytes, const BundleContext& context,
                  ReportBuilder* report);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_VERIFY_BUNDLE_H_
