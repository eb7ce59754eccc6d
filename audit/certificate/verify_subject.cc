#include "audit/certificate/verify_subject.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/certificate/json.h"
#include "audit/certificate/report_builder.h"
#include "audit/certificate/verify_record.h"
#include "audit/crypto/secret.h"

namespace lethe::audit {
namespace {

bool VerifySummaryStatement(const std::string& payload, ReportBuilder* report,
                            SubjectReport* result) {
  if (!report->Set("statement", ParseJson(payload, JsonSyntax::kCanonical).status())) return false;
  if (!IsSubjectSummary(payload)) {
    return report->Fail("predicate type", "not a forget-subject record");
  }
  report->Ok("predicate type");
  absl::StatusOr<SubjectSummary> summary = ParseSubjectSummary(payload);
  if (!report->Set("predicate", summary.status())) return false;
  result->summary = *std::move(summary);
  return true;
}

void VerifyLabel(const SubjectFiles& files, const SubjectSummary& summary, const Secret32& salt,
                 ReportBuilder* report) {
  if (!files.label.has_value()) {
    report->Skip("subject label", "no label given to compare with");
  } else if (ConstantTimeEqual(CommitSubject(salt, *files.label), summary.subject_digest)) {
    report->Ok("subject label");
  } else {
    report->Fail("subject label", "the record is about another label");
  }
}

void CheckOpenedRoot(const char* name, const CommittedSet& stated, const CommittedSet& opened,
                     bool fits, ReportBuilder* report) {
  if (stated.count != opened.count || stated.root != opened.root || !fits) {
    report->Fail(name, "the opening's list is not the one that was signed");
  } else {
    report->Ok(name, absl::StrCat(opened.count, " sessions"));
  }
}

std::optional<SubjectOpening> VerifySubjectOpening(const SubjectFiles& files,
                                                   const SubjectReport& result,
                                                   ReportBuilder* report) {
  if (!files.summary.opening.has_value()) {
    for (const char* name : {"opening", "records set", "failed set"}) {
      report->Skip(name, "no opening given");
    }
    report->Skip("subject label", "needs the opening");
    return std::nullopt;
  }
  absl::StatusOr<SubjectOpening> opening = ParseSubjectOpening(*files.summary.opening);
  if (opening.ok() && opening->leaf_hash != result.record.leaf_hash) {
    opening = absl::InvalidArgumentError("opening belongs to another record");
  }
  if (!report->Set("opening", opening.status())) return std::nullopt;
  const SubjectSummary& summary = *result.summary;
  VerifyLabel(files, summary, opening->salt, report);
  CheckOpenedRoot("records set", summary.forgotten, CommitRecords(opening->records), true, report);
  const std::vector<ReasonCount> reasons = CountReasons(opening->failed);
  const bool same_reasons =
      std::equal(reasons.begin(), reasons.end(), summary.reasons.begin(), summary.reasons.end(),
                 [](const ReasonCount& a, const ReasonCount& b) {
                   return a.reason == b.reason && a.count == b.count;
                 });
  CheckOpenedRoot("failed set", summary.failed, CommitFailed(opening->failed), same_reasons,
                  report);
  if (!report->IsOk("records set")) return std::nullopt;
  return *std::move(opening);
}

constexpr const char* kCertificateChecks[] = {"certificates", "certificate job",
                                              "certificate order", "certificate set",
                                              "certificate inputs"};

// What is wrong with a session's certificate as one of this job, or nothing.
std::string NotOfJob(const SubjectSummary& summary, const Statement& statement) {
  if (statement.kind != RecordKind::kForget) return "is not a forget record";
  if (statement.request_id != absl::StrCat(kSubjectRequestPrefix, summary.job)) {
    return "was not made for this job";
  }
  if (statement.derived_policy != summary.derived_policy) return "has another derived policy";
  return "";
}

void CheckJobs(const SubjectSummary& summary, const std::vector<VerifyReport>& reports,
               ReportBuilder* report) {
  std::set<Sha256Digest> sessions;
  for (size_t i = 0; i < reports.size(); ++i) {
    std::string what = NotOfJob(summary, *reports[i].statement);
    if (what.empty() && !sessions.insert(reports[i].statement->session_pseudonym).second) {
      what = "is of a session that another one is of";
    }
    if (what.empty()) continue;
    report->Fail("certificate job", absl::StrCat("certificate ", i + 1, " ", what));
    return;
  }
  report->Ok("certificate job");
}

// Certificates of another origin than the summary's stand in another log: their order is not seen.
void CheckOrder(const SubjectReport& result, const std::vector<VerifyReport>& reports,
                ReportBuilder* report) {
  for (size_t i = 0; i < reports.size(); ++i) {
    if (reports[i].statement->log_origin == result.summary->log_origin &&
        reports[i].leaf_index >= result.record.leaf_index) {
      report->Fail("certificate order",
                   absl::StrCat("certificate ", i + 1, " stands behind the summary in the log"));
      return;
    }
  }
  report->Ok("certificate order");
}

void CheckCounts(const SubjectSummary& summary, const std::optional<SubjectOpening>& opening,
                 const std::vector<VerifyReport>& reports, ReportBuilder* report) {
  std::vector<Sha256Digest> leaf_hashes;
  uint64_t num_inputs = 0;
  for (const VerifyReport& certificate : reports) {
    leaf_hashes.push_back(certificate.leaf_hash);
    num_inputs += certificate.statement->forgot.count;
  }
  const bool all = reports.size() == summary.forgotten.count;
  const std::string given =
      absl::StrCat(reports.size(), " of ", summary.forgotten.count, " certificates given");
  bool listed = reports.size() <= summary.forgotten.count;
  if (all) {
    listed = CommitRecords(leaf_hashes).root == summary.forgotten.root;
  } else if (opening.has_value()) {
    for (const Sha256Digest& hash : leaf_hashes) {
      listed = listed && std::binary_search(opening->records.begin(), opening->records.end(), hash);
    }
  }
  if (!listed) {
    report->Fail("certificate set", "a certificate is none of those that were signed for");
  } else if (!all && !opening.has_value()) {
    report->Skip("certificate set", absl::StrCat(given, ", and no opening"));
  } else {
    report->Ok("certificate set", given);
  }
  if (!all) {
    report->Skip("certificate inputs", given);
  } else if (num_inputs == summary.num_inputs) {
    report->Ok("certificate inputs", absl::StrCat(num_inputs, " inputs"));
  } else {
    report->Fail("certificate inputs", "the certificates forgot another number of inputs");
  }
}

void VerifyCertificates(absl::Span<const CertificateFiles> certificates, const TrustStore& trust,
                        const std::optional<SubjectOpening>& opening, const SubjectReport& result,
                        ReportBuilder* report) {
  if (certificates.empty() && result.summary->forgotten.count > 0) {
    for (const char* name : kCertificateChecks) report->Skip(name, "no certificates given");
    return;
  }
  std::vector<VerifyReport> reports;
  for (size_t i = 0; i < certificates.size(); ++i) {
    reports.push_back(VerifyCertificate(certificates[i], trust));
    if (!reports.back().ok() || !reports.back().statement.has_value()) {
      const Check* failure = reports.back().first_failure();
      report->Fail("certificates",
                   absl::StrCat("certificate ", i + 1, " does not verify",
                                failure == nullptr ? "" : absl::StrCat(": ", failure->name)));
      return;
    }
  }
  report->Ok("certificates", absl::StrCat(reports.size(), " verified"));
  CheckJobs(*result.summary, reports, report);
  CheckOrder(result, reports, report);
  CheckCounts(*result.summary, opening, reports, report);
}

}  // namespace

SubjectReport VerifySubject(const SubjectFiles& files,
                            absl::Span<const CertificateFiles> certificates,
                            const TrustStore& trust, const VerifyOptions& options) {
  SubjectReport result;
  ReportBuilder report(kSubjectCheckNames, &result.record.checks);
  SignedRecord record;
  if (VerifyEnvelope(files.summary, trust, &record, &report) &&
      VerifySummaryStatement(record.envelope.payload, &report, &result) &&
      VerifyLeaf(files.summary, record, &report, &result.record)) {
    VerifyInclusionInLog(files.summary.proof_file, result.summary->log_origin, trust, record,
                         &report, &result.record);
    VerifyNonce(result.summary->nonce, options, &report);
    if (result.record.core_ok) {
      const std::optional<SubjectOpening> opening = VerifySubjectOpening(files, result, &report);
      VerifyCertificates(certificates, trust, opening, result, &report);
    }
  }
  report.Finish();
  return result;
}

}  // namespace lethe::audit
