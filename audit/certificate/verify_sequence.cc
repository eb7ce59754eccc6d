#include <algorithm>

#include "absl/strings/str_cat.h"

#include "audit/certificate/report_builder.h"
#include "audit/certificate/scopes.h"
#include "audit/certificate/verify.h"

namespace lethe::audit {
namespace {

constexpr const char* kSequenceChecks[] = {
    "sequence records", "sequence session",    "sequence numbers", "sequence links",
    "sequence order",   "sequence selections", "sequence scopes"};

// The index of the first record for which `holds(before, here)` is false; the size when none.
template <typename Predicate>
size_t FirstViolation(const std::vector<VerifyReport>& records, const Predicate& holds) {
  for (size_t i = 1; i < records.size(); ++i) {
    if (!holds(records[i - 1], records[i])) return i;
  }
  return records.size();
}

template <typename Predicate>
void CheckPairs(const char* name, absl::string_view what, const std::vector<VerifyReport>& records,
                const Predicate& holds, ReportBuilder* report) {
  const size_t violation = FirstViolation(records, holds);
  if (violation == records.size()) {
    report->Ok(name);
  } else {
    report->Fail(name, absl::StrCat("record ", violation + 1, ": ", what));
  }
}

// True unless `here` is a selection that `before` does not vouch for.
bool SelectsReserve(const VerifyReport& before, const VerifyReport& here) {
  const Statement& selection = *here.statement;
  if (selection.kind != RecordKind::kSelect) return true;
  const Statement& certified = *before.statement;
  if (certified.memories.size() != 1 || selection.memories.size() != 1) return false;
  const MemoryReport& memory = certified.memories.front();
  const MemoryReport& left = selection.memories.front();
  // Its salt is that of the record before: equal exactly when the state is.
  return selection.before_digest == certified.subject_digest && memory.partition_proved &&
         memory.num_reserve == selection.forgot.count && left.num_reserve == 0 &&
         left.num_margin + left.num_error == memory.num_margin + memory.num_error &&
         certified.retained.count == selection.retained.count + selection.forgot.count;
}

// A selection at the beginning has nobody to vouch for it.
void CheckSelections(const std::vector<VerifyReport>& records, ReportBuilder* report) {
  constexpr char kName[] = "sequence selections";
  if (records.front().statement->kind == RecordKind::kSelect) {
    report->Fail(kName, "record 1 is a selection: the record before it is needed");
    return;
  }
  const size_t violation = FirstViolation(records, SelectsReserve);
  if (violation < records.size()) {
    report->Fail(kName, absl::StrCat("record ", violation + 1,
                                     ": evicts other than the proved reserve of the state "
                                     "certified before it"));
    return;
  }
  bool on_its_word = false;
  for (size_t i = 1; i < records.size(); ++i) {
    const Check* proof = records[i - 1].Find("optimality");
    on_its_word = on_its_word || (records[i].statement->kind == RecordKind::kSelect &&
                                  proof->result != CheckResult::kOk);
  }
  report->Ok(kName, on_its_word
                        ? "by the signed word of the record before, whose bundle was not given"
                        : "");
}

bool NamesEvicted(const VerifyReport& record) {
  const std::vector<std::string>& scopes = record.statement->residual_scopes;
  return std::find(scopes.begin(), scopes.end(), kScopeEvicted) != scopes.end();
}

}  // namespace

bool SequenceReport::ok() const {
  return !checks.empty() && std::all_of(checks.begin(), checks.end(), [](const Check& check) {
    return check.result == CheckResult::kOk;
  });
}

SequenceReport VerifySequence(absl::Span<const CertificateFiles> records, const TrustStore& trust) {
  SequenceReport result;
  ReportBuilder report(kSequenceChecks, &result.checks);
  for (const CertificateFiles& files : records) {
    result.records.push_back(VerifyCertificate(files, trust));
  }
  const auto bad = std::find_if(result.records.begin(), result.records.end(),
                                [](const VerifyReport& record) { return !record.ok(); });
  if (records.empty()) {
    report.Fail("sequence records", "no records given");
  } else if (bad != result.records.end()) {
    report.Fail("sequence records",
                absl::StrCat("record ", bad - result.records.begin() + 1, " does not verify"));
  } else {
    report.Ok("sequence records");
    CheckPairs(
        "sequence session", "another session than the record before", result.records,
        [](const VerifyReport& before, const VerifyReport& here) {
          return before.statement->session_pseudonym == here.statement->session_pseudonym;
        },
        &report);
    CheckPairs(
        "sequence numbers", "seq does not follow the record before", result.records,
        [](const VerifyReport& before, const VerifyReport& here) {
          return here.statement->seq - 1 == before.statement->seq;
        },
        &report);
    CheckPairs(
        "sequence links", "prev is not the leaf hash of the record before", result.records,
        [](const VerifyReport& before, const VerifyReport& here) {
          return here.statement->prev == before.leaf_hash;
        },
        &report);
    CheckPairs(
        "sequence order", "stands before its predecessor in the log", result.records,
        [](const VerifyReport& before, const VerifyReport& here) {
          // Between two logs prev says the order: the record names the leaf before it.
          return here.leaf_index > before.leaf_index ||
                 here.statement->log_origin != before.statement->log_origin;
        },
        &report);
    CheckSelections(result.records, &report);
    CheckPairs(
        "sequence scopes", "no longer says that inputs were evicted", result.records,
        [](const VerifyReport& before, const VerifyReport& here) {
          return !NamesEvicted(before) || NamesEvicted(here);
        },
        &report);
  }
  report.Finish();
  return result;
}

}  // namespace lethe::audit
