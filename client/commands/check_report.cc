#include "client/commands/check_report.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/report.h"

namespace lethe::client {
namespace {

struct Meaning {
  const char* name;
  const char* text;
};

// The checks of audit/certificate/verify.h in its order.
constexpr Meaning kMeanings[] = {
    {"trust", "the trust file names keys to check against"},
    {"envelope", "the envelope is well formed and has one signature"},
    {"payload type", "the envelope holds an in-toto statement"},
    {"record key", "a record key of the trust file is the one that the log entry names"},
    {"signature", "that key signed exactly these bytes"},
    {"statement", "the signed bytes are canonical JSON"},
    {"predicate type", "the statement is a record of a kind that is known here"},
    {"predicate", "every field of the statement is well formed"},
    {"proof file", "the inclusion proof is well formed"},
    {"checkpoint", "a log key of the trust file signed the head of the audit log"},
    {"log origin", "statement and checkpoint name the same log"},
    {"leaf binding", "the log entry is the one of this envelope"},
    {"inclusion", "the entry is in the log under the signed head"},
    {"key range", "the record key is valid at this place in the log"},
    {"nonce", "the record answers the request that carried this nonce"},
    {"sequence", "number and link to the previous record agree"},
    {"scope", "the statement names everything that it does not cover"},
    {"opening", "the opening is well formed and belongs to this record"},
    {"subject digest", "the opening's state digest is the one that was signed"},
    {"retained set", "the opening's retained ids are those that were signed"},
    {"forgotten set", "the opening's forgotten ids are those that were signed"},
    {"derived set", "the opening's derived ids are those that were signed"},
    {"bundle", "the proof bundle is well formed and belongs to this record"},
    {"bundle path", "the bundle's keys and values lead to the signed state digest"},
    {"engine identity", "the state was computed by the model and build that the statement names"},
    {"retained count", "the state holds as many inputs as the statement says"},
    {"evidence", "the bundle's heads are those that the bounds were signed for"},
    {"partition counts", "margin, error and reserve counts are those that were signed"},
    {"partition rows", "the rows of the partition are those that were signed"},
    {"optimality",
     "recomputed here, the distance from the exact optimum is within the bounds (P2)"},
    {"state replay", "a fresh session reaches the same state (P1)"},
    {"sequence records", "every record of the chain verifies"},
    {"sequence session", "all records are of one session and one log"},
    {"sequence numbers", "no record of the chain is missing"},
    {"sequence links", "each record names the one before it"},
    {"sequence order", "the records stand in the log in this order"},
    {"sequence selections",
     "what was evicted is, from the state of the record before, what that proves to be reserve"},
    {"subject label", "the record is about this label"},
    {"records set", "the opening's list of records is the one that was signed"},
    {"failed set", "the opening's list of failed sessions is the one that was signed"},
    {"certificates", "every session's certificate verifies"},
    {"certificate job", "they were made for this job, each in another session"},
    {"certificate order", "they stand before the summary in the log"},
    {"certificate set", "they are those that the summary counts"},
    {"certificate inputs", "they forgot as many inputs as the summary says"},
    {"sequence scopes", "that inputs were evicted is said by every record since"},
};

std::string Hex(const audit::Sha256Digest& digest) {
  return FormatHex(absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

const char* ResultWord(audit::CheckResult result) {
  switch (result) {
    case audit::CheckResult::kOk:
      return "ok";
    case audit::CheckResult::kFailed:
      return "FAILED";
    case audit::CheckResult::kNotChecked:
      return "not checked";
  }
  return "FAILED";
}

Color ResultColor(audit::CheckResult result) {
  switch (result) {
    case audit::CheckResult::kOk:
      return Color::kGreen;
    case audit::CheckResult::kFailed:
      return Color::kRed;
    case audit::CheckResult::kNotChecked:
      return Color::kYellow;
  }
  return Color::kRed;
}

const char* ResultKey(audit::CheckResult result) {
  switch (result) {
    case audit::CheckResult::kOk:
      return "ok";
    case audit::CheckResult::kFailed:
      return "failed";
    case audit::CheckResult::kNotChecked:
      return "not_checked";
  }
  return "failed";
}

// Checks that could not run because an earlier one failed say nothing on their own.
bool IsConsequence(const audit::Check& check) {
  return check.result == audit::CheckResult::kNotChecked &&
         check.detail == "an earlier check failed";
}

void PrintChecks(Context& context, const audit::VerifyReport& report) {
  int64_t num_consequences = 0;
  for (const audit::Check& check : report.checks) {
    if (IsConsequence(check)) {
      ++num_consequences;
      continue;
    }
    const std::string word = ResultWord(check.result);
    const std::string meaning = CheckMeaning(check.name);
    context.out() << "  " << context.Paint(ResultColor(check.result), word)
                  << std::string(13 - word.size(), ' ') << OneLine(check.name);
    if (!meaning.empty()) {
      context.out() << ": " << meaning;
    }
    if (!check.detail.empty()) {
      context.out() << " [" << OneLine(check.detail) << "]";
    }
    context.out() << "\n";
  }
  if (num_consequences > 0) {
    context.out() << "  not checked  " << FormatCount(num_consequences, "check")
                  << " that build on what failed\n";
  }
}

void PrintMemories(Context& context, const audit::Statement& statement) {
  if (statement.memories.empty()) {
    return;
  }
  const auto bound = [](const std::optional<audit::DeviationBounds>& bounds,
                        double audit::DeviationBounds::*member) {
    return bounds ? FormatDouble(*bounds.*member) : std::string("-");
  };
  RowTable table({"support-vector head", "margin", "error", "reserve", "kernel sum", "alpha", "rho",
                  "decision", "readout", "partition"});
  int64_t num_not_uniform = 0;
  for (const audit::MemoryReport& memory : statement.memories) {
    const std::optional<audit::DeviationBounds>& bounds = memory.deviation;
    num_not_uniform += bounds.has_value() && !memory.partition_proved ? 1 : 0;
    table.Add({absl::StrCat("layer.", memory.layer, ".group.", memory.group, ".head.", memory.head),
               absl::StrCat(memory.num_margin), absl::StrCat(memory.num_error),
               absl::StrCat(memory.num_reserve), bound(bounds, &audit::DeviationBounds::kernel_sum),
               bound(bounds, &audit::DeviationBounds::alpha),
               bound(bounds, &audit::DeviationBounds::rho),
               bound(bounds, &audit::DeviationBounds::decision),
               memory.partition_proved ? bound(bounds, &audit::DeviationBounds::readout)
                                       : std::string("-"),
               !bounds                   ? "-"
               : memory.partition_proved ? "proved"
                                         : "not proved"});
  }
  table.Print(context.out());
  if (num_not_uniform > 0) {
    context.out() << "  " << FormatCount(num_not_uniform, "head")
                  << " not proved: no bound on its readout is uniform in the query\n";
  }
}

void PrintStatement(Context& context, const audit::VerifyReport& report) {
  const audit::Statement& statement = *report.statement;
  context.out() << "What the signed statement says:\n";
  FieldTable table;
  table.Add("record", absl::StrCat(audit::RecordKindName(statement.kind), ", number ",
                                   statement.seq, " of its session, leaf ", report.leaf_index,
                                   " of the log ", statement.log_origin));
  if (statement.kind == audit::RecordKind::kForget) {
    table.Add("forgotten", FormatCount(static_cast<int64_t>(statement.forgot.count), "input"));
    table.Add("derived tokens", absl::StrCat(audit::DerivedPolicyName(statement.derived_policy),
                                             ", ", statement.derived_kept.count, " kept"));
  }
  if (statement.kind == audit::RecordKind::kSelect) {
    table.Add("evicted", FormatCount(static_cast<int64_t>(statement.forgot.count), "input"));
  }
  if (statement.migrated_from.has_value()) {
    table.Add("evaluated before", absl::StrCat(statement.migrated_from->device_kind, ", numerics ",
                                               Hex(statement.migrated_from->numerics_id)));
    table.Add("evaluated now", absl::StrCat(statement.engine.device_kind, ", numerics ",
                                            Hex(statement.engine.numerics_id)));
  }
  if (!statement.auditor.empty()) table.Add("disclosed to", statement.auditor);
  table.Add("retained", FormatCount(static_cast<int64_t>(statement.retained.count), "input"));
  table.Add("proofs",
            absl::StrCat(statement.proves_state ? "state (P1: lethe replay)" : "",
                         statement.proves_state && statement.proves_optimality ? ", " : "",
                         statement.proves_optimality ? "optimality bounds (P2)" : ""));
  table.Add("model", Hex(statement.engine.model_digest));
  table.Add("made by", absl::StrCat(statement.engine.build, ", ", statement.engine.algorithm));
  table.Add("time, as claimed", statement.issued_at);
  table.Add("not covered", absl::StrJoin(statement.residual_scopes, ", "));
  table.Print(context.out());
  PrintMemories(context, statement);
}

// Named as in HeadBounds; a bound that is not there, or infinite, is left out.
Json HeadToJson(const audit::MemoryReport& memory) {
  Json head{{"head",
             absl::StrCat("layer.", memory.layer, ".group.", memory.group, ".head.", memory.head)},
            {"num_margin", memory.num_margin},
            {"num_error", memory.num_error},
            {"num_reserve", memory.num_reserve},
            {"partition_proved", memory.partition_proved}};
  const auto set = [&head](const char* name, double value) {
    if (std::isfinite(value)) head[name] = value;
  };
  set("smallest_margin", memory.smallest_margin);
  if (!memory.deviation) return head;
  set("gap", memory.deviation->gap);
  set("kernel_sum_bound", memory.deviation->kernel_sum);
  set("alpha_bound", memory.deviation->alpha);
  set("rho_bound", memory.deviation->rho);
  set("decision_bound", memory.deviation->decision);
  set("weight_ratio_bound", memory.deviation->weight_ratio);
  set("readout_bound", memory.deviation->readout);
  return head;
}

Json ReportToJson(const audit::VerifyReport& report) {
  Json checks = Json::array();
  for (const audit::Check& check : report.checks) {
    checks.push_back(
        Json{{"name", check.name}, {"result", ResultKey(check.result)}, {"detail", check.detail}});
  }
  Json object{{"verified", report.ok()}, {"checks", checks}};
  if (report.statement) {
    const audit::Statement& statement = *report.statement;
    Json heads = Json::array();
    for (const audit::MemoryReport& memory : statement.memories)
      heads.push_back(HeadToJson(memory));
    object["record"] = Json{{"kind", audit::RecordKindName(statement.kind)},
                            {"log", statement.log_origin},
                            {"session_pseudonym", Hex(statement.session_pseudonym)},
                            {"seq", statement.seq},
                            {"leaf_index", report.leaf_index},
                            {"num_forgotten", statement.forgot.count},
                            {"num_retained", statement.retained.count},
                            {"num_derived_kept", statement.derived_kept.count},
                            {"model_digest", Hex(statement.engine.model_digest)},
                            {"numerics_id", Hex(statement.engine.numerics_id)},
                            {"proves_state", statement.proves_state},
                            {"proves_optimality", statement.proves_optimality},
                            {"heads", heads},
                            {"issued_at", statement.issued_at},
                            {"residual_scopes", statement.residual_scopes}};
  }
  return object;
}

void PrintVerdict(Context& context, const audit::VerifyReport& report) {
  PrintChecks(context, report);
  if (report.ok()) {
    const auto open = std::count_if(
        report.checks.begin(), report.checks.end(),
        [](const audit::Check& check) { return check.result == audit::CheckResult::kNotChecked; });
    context.out() << context.Paint(Color::kGreen, "VERIFIED") << ": no check failed.";
    if (open > 0) {
      context.out() << " " << FormatCount(open, "check")
                    << " not made: what they read was not given.";
    }
    context.out() << "\n";
  } else {
    context.out() << context.Paint(Color::kRed, "NOT VERIFIED") << ": "
                  << report.first_failure()->name << " failed.\n";
  }
}

std::string ReasonsText(const audit::SubjectSummary& summary) {
  std::vector<std::string> reasons;
  for (const audit::ReasonCount& reason : summary.reasons) {
    reasons.push_back(absl::StrCat(reason.count, " ", reason.reason));
  }
  return reasons.empty() ? "" : absl::StrCat(" (", absl::StrJoin(reasons, ", "), ")");
}

void PrintSummary(Context& context, const audit::SubjectReport& report) {
  const audit::SubjectSummary& summary = *report.summary;
  context.out() << "What the signed summary says:\n";
  FieldTable table;
  table.Add("record", absl::StrCat("forget-subject, job ", summary.job, ", leaf ",
                                   report.record.leaf_index, " of the log ", summary.log_origin));
  table.Add("sessions looked at", absl::StrCat(summary.num_examined));
  table.Add("forgotten", absl::StrCat(summary.num_inputs, " inputs in ", summary.forgotten.count,
                                      " sessions, each with a record"));
  table.Add("failed, unchanged", absl::StrCat(summary.failed.count, ReasonsText(summary)));
  table.Add("deleted by others", absl::StrCat(summary.num_deleted));
  table.Add("not reached", absl::StrCat(summary.num_unserved, " damaged, without their names"));
  table.Add("derived tokens", audit::DerivedPolicyName(summary.derived_policy));
  table.Add("made by", absl::StrCat(summary.build, ", ", summary.algorithm));
  table.Add("time, as claimed", summary.issued_at);
  table.Print(context.out());
}

Json SummaryToJson(const audit::SubjectReport& report) {
  const audit::SubjectSummary& summary = *report.summary;
  Json reasons = Json::object();
  for (const audit::ReasonCount& reason : summary.reasons) reasons[reason.reason] = reason.count;
  return Json{{"kind", "forget-subject"},
              {"log", summary.log_origin},
              {"job", summary.job},
              {"leaf_index", report.record.leaf_index},
              {"num_examined", summary.num_examined},
              {"num_sessions_forgotten", summary.forgotten.count},
              {"num_inputs_forgotten", summary.num_inputs},
              {"num_sessions_failed", summary.failed.count},
              {"reasons", reasons},
              {"num_sessions_deleted", summary.num_deleted},
              {"num_sessions_unserved", summary.num_unserved},
              {"derived_policy", audit::DerivedPolicyName(summary.derived_policy)},
              {"issued_at", summary.issued_at}};
}

}  // namespace

void PrintReport(Context& context, const audit::VerifyReport& report) {
  if (context.json()) {
    context.PrintJson(ReportToJson(report));
    return;
  }
  PrintVerdict(context, report);
  if (report.ok() && report.statement) {
    PrintStatement(context, report);
  }
  context.out() << std::flush;
}

void PrintSubjectReport(Context& context, const audit::SubjectReport& report) {
  if (context.json()) {
    Json object = ReportToJson(report.record);
    if (report.summary) object["record"] = SummaryToJson(report);
    context.PrintJson(object);
    return;
  }
  PrintVerdict(context, report.record);
  if (report.record.ok()) PrintSummary(context, report);
  context.out() << std::flush;
}

std::string CheckMeaning(absl::string_view name) {
  for (const Meaning& meaning : kMeanings) {
    if (name == meaning.name) {
      return meaning.text;
    }
  }
  return "";
}

}  // namespace lethe::client
