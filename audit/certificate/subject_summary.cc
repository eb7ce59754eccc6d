#include "audit/certificate/subject_summary.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/certificate/json.h"
#include "audit/certificate/json_fields.h"
#include "audit/certificate/statement_rules.h"
#include "audit/crypto/encoding.h"
#include "audit/log/merkle_tree.h"
#include "audit/log/note.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

constexpr char kSubjectLabel[] = "subject";  // with its NUL
constexpr char kSessionLabel[] = "session";  // with its NUL
constexpr DerivedPolicy kPolicies[] = {DerivedPolicy::kKeepAndReport, DerivedPolicy::kForgetDerived,
                                       DerivedPolicy::kFail};
// Room for kSubjectSessionsMax entries of an opening.
constexpr size_t kSubjectOpeningBytesMax = size_t{1} << 28;

absl::Status Refused(absl::string_view field, absl::string_view want) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": want ", want));
}

Sha256Digest CommitLabelled(const Secret32& salt, absl::string_view label, absl::string_view text) {
  return HmacSha256(salt.bytes(), absl::StrCat(label, text));
}

CommittedSet CommitEntries(const std::vector<std::string>& entries) {
  MerkleTree tree;
  for (const std::string& entry : entries) tree.Append(MerkleLeafHash(entry));
  return CommittedSet{entries.size(), tree.Root()};
}

auto Order(const FailedSession& session) { return std::tie(session.pseudonym, session.reason); }

absl::Status CheckReasons(const SubjectSummary& summary) {
  uint64_t sum = 0;
  for (size_t i = 0; i < summary.reasons.size(); ++i) {
    const ReasonCount& reason = summary.reasons[i];
    LETHE_RETURN_IF_ERROR(CheckText("predicate.failed.reasons.reason", reason.reason));
    if (i > 0 && summary.reasons[i - 1].reason >= reason.reason) {
      return Refused("predicate.failed.reasons", "reasons ascending without repetition");
    }
    // Bounded each, so that the sum cannot wrap.
    if (reason.count == 0 || reason.count > summary.failed.count) {
      return Refused("predicate.failed.reasons.count", "1 to failed.count");
    }
    sum += reason.count;
  }
  if (sum != summary.failed.count) {
    return Refused("predicate.failed.reasons", "counts that add up to failed.count");
  }
  return absl::OkStatus();
}

absl::Status CheckFields(const SubjectSummary& summary) {
  LETHE_RETURN_IF_ERROR(CheckText("predicate.log", summary.log_origin));
  if (!ValidateKeyName(summary.log_origin).ok()) {
    return Refused("predicate.log", "a log origin without spaces and '+'");
  }
  LETHE_RETURN_IF_ERROR(CheckText("predicate.job", summary.job));
  if (summary.nonce.size() < kNonceBytesMin || summary.nonce.size() > kNonceBytesMax) {
    return Refused("predicate.nonce",
                   absl::StrCat(kNonceBytesMin, " to ", kNonceBytesMax, " bytes"));
  }
  LETHE_RETURN_IF_ERROR(CheckText("predicate.requestId", summary.request_id));
  LETHE_RETURN_IF_ERROR(CheckTime("predicate.issuedAt", summary.issued_at));
  LETHE_RETURN_IF_ERROR(CheckText("predicate.engine.build", summary.build));
  LETHE_RETURN_IF_ERROR(CheckText("predicate.engine.algorithm", summary.algorithm));
  LETHE_RETURN_IF_ERROR(CheckSet("predicate.forgot", summary.forgotten));
  LETHE_RETURN_IF_ERROR(CheckSet("predicate.failed", summary.failed));
  for (const uint64_t count : {summary.forgotten.count, summary.failed.count, summary.num_deleted,
                               summary.num_unserved, summary.num_examined}) {
    if (count > kSubjectSessionsMax) {
      return Refused("predicate", absl::StrCat("at most ", kSubjectSessionsMax, " sessions"));
    }
  }
  if (summary.forgotten.count + summary.failed.count + summary.num_deleted > summary.num_examined) {
    return Refused("predicate.sessions", "at least as many as held the label");
  }
  // A forget record removes at least one input.
  if (summary.num_inputs < summary.forgotten.count ||
      (summary.forgotten.count == 0 && summary.num_inputs > 0)) {
    return Refused("predicate.forgot.inputs", "at least one for each session, none without one");
  }
  return CheckReasons(summary);
}

std::string SummaryBytes(const SubjectSummary& summary) {
  Json::Array reasons;
  for (const ReasonCount& reason : summary.reasons) {
    reasons.push_back(Json::MakeObject(
        {{"count", JsonU64(reason.count)}, {"reason", Json::String(reason.reason)}}));
  }
  const Json predicate = Json::MakeObject(
      {{"derived",
        Json::MakeObject({{"policy", Json::String(DerivedPolicyName(summary.derived_policy))}})},
       {"engine", Json::MakeObject({{"algorithm", Json::String(summary.algorithm)},
                                    {"binary", JsonDigest(summary.binary)},
                                    {"build", Json::String(summary.build)}})},
       {"failed", Json::MakeObject({{"count", JsonU64(summary.failed.count)},
                                    {"reasons", Json::MakeArray(std::move(reasons))},
                                    {"root", JsonDigest(summary.failed.root)}})},
       {"forgot", Json::MakeObject({{"count", JsonU64(summary.forgotten.count)},
                                    {"inputs", JsonU64(summary.num_inputs)},
                                    {"root", JsonDigest(summary.forgotten.root)}})},
       {"issuedAt", Json::String(summary.issued_at)},
       {"job", Json::String(summary.job)},
       {"log", Json::String(summary.log_origin)},
       {"nonce", Json::String(HexEncode(summary.nonce))},
       {"notReached", Json::MakeObject({{"deleted", JsonU64(summary.num_deleted)},
                                        {"unserved", JsonU64(summary.num_unserved)}})},
       {"requestId", Json::String(summary.request_id)},
       {"sessions", JsonU64(summary.num_examined)}});
  const Json subject = Json::MakeObject(
      {{"digest", Json::MakeObject({{"sha256", JsonDigest(summary.subject_digest)}})},
       {"name", Json::String(kForgottenSubjectName)}});
  return WriteJson(Json::MakeObject({{"_type", Json::String(kStatementType)},
                                     {"predicate", predicate},
                                     {"predicateType", Json::String(kSubjectPredicateType)},
                                     {"subject", Json::MakeArray({subject})}}));
}

void ReadCounts(JsonReader* predicate, SubjectSummary* summary) {
  JsonReader failed = predicate->Object("failed");
  summary->failed.count = failed.U64("count");
  for (JsonReader& reason : failed.Objects("reasons")) {
    ReasonCount count;
    count.count = reason.U64("count");
    count.reason = reason.String("reason");
    reason.Finish();
    summary->reasons.push_back(std::move(count));
  }
  summary->failed.root = failed.Digest("root");
  failed.Finish();
  JsonReader forgot = predicate->Object("forgot");
  summary->forgotten.count = forgot.U64("count");
  summary->num_inputs = forgot.U64("inputs");
  summary->forgotten.root = forgot.Digest("root");
  forgot.Finish();
  JsonReader rest = predicate->Object("notReached");
  summary->num_deleted = rest.U64("deleted");
  summary->num_unserved = rest.U64("unserved");
  rest.Finish();
}

void ReadPolicy(JsonReader derived, SubjectSummary* summary) {
  const std::string name = derived.String("policy");
  const auto* const found =
      std::find_if(std::begin(kPolicies), std::end(kPolicies),
                   [&](DerivedPolicy policy) { return DerivedPolicyName(policy) == name; });
  if (found == std::end(kPolicies)) {
    derived.Fail("policy", "unknown name");
  } else {
    summary->derived_policy = *found;
  }
  derived.Finish();
}

void ReadSummary(JsonReader predicate, SubjectSummary* summary) {
  ReadPolicy(predicate.Object("derived"), summary);
  JsonReader engine = predicate.Object("engine");
  summary->algorithm = engine.String("algorithm");
  summary->binary = engine.Digest("binary");
  summary->build = engine.String("build");
  engine.Finish();
  ReadCounts(&predicate, summary);
  summary->issued_at = predicate.String("issuedAt");
  summary->job = predicate.String("job");
  summary->log_origin = predicate.String("log");
  summary->nonce = predicate.Bytes("nonce");
  summary->request_id = predicate.String("requestId");
  summary->num_examined = predicate.U64("sessions");
  predicate.Finish();
}

std::string OpeningBytes(const SubjectOpening& opening) {
  Json::Array records;
  for (const Sha256Digest& leaf_hash : opening.records) records.push_back(JsonDigest(leaf_hash));
  Json::Array failed;
  for (const FailedSession& session : opening.failed) {
    failed.push_back(Json::MakeObject(
        {{"reason", Json::String(session.reason)}, {"session", JsonDigest(session.pseudonym)}}));
  }
  return WriteJson(Json::MakeObject({{"_type", Json::String(kSubjectOpeningType)},
                                     {"failed", Json::MakeArray(std::move(failed))},
                                     {"leaf", JsonDigest(opening.leaf_hash)},
                                     {"records", Json::MakeArray(std::move(records))},
                                     {"salt", Json::String(HexEncode(opening.salt.bytes()))}}));
}

absl::Status CheckOpening(const SubjectOpening& opening) {
  if (opening.records.size() > kSubjectSessionsMax || opening.failed.size() > kSubjectSessionsMax) {
    return Refused("opening", absl::StrCat("at most ", kSubjectSessionsMax, " sessions"));
  }
  for (size_t i = 1; i < opening.records.size(); ++i) {
    if (opening.records[i - 1] >= opening.records[i]) {
      return Refused("records", "leaf hashes ascending without repetition");
    }
  }
  for (size_t i = 0; i < opening.failed.size(); ++i) {
    LETHE_RETURN_IF_ERROR(CheckText("failed.reason", opening.failed[i].reason));
    if (i > 0 && opening.failed[i - 1].pseudonym >= opening.failed[i].pseudonym) {
      return Refused("failed", "sessions ascending without repetition");
    }
  }
  return absl::OkStatus();
}

}  // namespace

Sha256Digest CommitSubject(const Secret32& salt, absl::string_view label) {
  return CommitLabelled(salt, absl::string_view(kSubjectLabel, sizeof kSubjectLabel), label);
}

Sha256Digest SubjectPseudonym(const Secret32& salt, absl::string_view session_id) {
  return CommitLabelled(salt, absl::string_view(kSessionLabel, sizeof kSessionLabel), session_id);
}

CommittedSet CommitRecords(std::vector<Sha256Digest> leaf_hashes) {
  std::sort(leaf_hashes.begin(), leaf_hashes.end());
  std::vector<std::string> entries;
  entries.reserve(leaf_hashes.size());
  for (const Sha256Digest& hash : leaf_hashes) entries.emplace_back(AsStringView(hash));
  return CommitEntries(entries);
}

CommittedSet CommitFailed(std::vector<FailedSession> failed) {
  std::sort(failed.begin(), failed.end(),
            [](const FailedSession& a, const FailedSession& b) { return Order(a) < Order(b); });
  std::vector<std::string> entries;
  entries.reserve(failed.size());
  for (const FailedSession& session : failed) {
    entries.push_back(absl::StrCat(AsStringView(session.pseudonym), session.reason));
  }
  return CommitEntries(entries);
}

std::vector<ReasonCount> CountReasons(absl::Span<const FailedSession> failed) {
  std::map<std::string, uint64_t> counts;
  for (const FailedSession& session : failed) ++counts[session.reason];
  std::vector<ReasonCount> reasons;
  for (const auto& [reason, count] : counts) reasons.push_back({reason, count});
  return reasons;
}

absl::StatusOr<std::string> WriteSubjectSummary(const SubjectSummary& summary) {
  LETHE_RETURN_IF_ERROR(CheckFields(summary));
  return SummaryBytes(summary);
}

absl::StatusOr<SubjectSummary> ParseSubjectSummary(absl::string_view bytes) {
  if (bytes.size() > kStatementBytesMax) {
    return Refused("statement", absl::StrCat("at most ", kStatementBytesMax, " bytes"));
  }
  LETHE_ASSIGN_OR_RETURN(const Json json, ParseJson(bytes, JsonSyntax::kCanonical));
  absl::Status status;
  JsonReader reader(json, "", &status);
  SubjectSummary summary;
  reader.Constant("_type", kStatementType);
  reader.Constant("predicateType", kSubjectPredicateType);
  std::vector<JsonReader> subjects = reader.Objects("subject");
  if (subjects.size() != 1) reader.Fail("subject", "want exactly one");
  LETHE_RETURN_IF_ERROR(status);
  JsonReader digest = subjects[0].Object("digest");
  summary.subject_digest = digest.Digest("sha256");
  digest.Finish();
  subjects[0].Constant("name", kForgottenSubjectName);
  subjects[0].Finish();
  ReadSummary(reader.Object("predicate"), &summary);
  reader.Finish();
  LETHE_RETURN_IF_ERROR(status);
  LETHE_RETURN_IF_ERROR(CheckFields(summary));
  // A second text for one value would be a second statement with the same meaning.
  if (SummaryBytes(summary) != bytes) return Refused("statement", "values in canonical text");
  return summary;
}

absl::StatusOr<std::string> WriteSubjectOpening(const SubjectOpening& opening) {
  LETHE_RETURN_IF_ERROR(CheckOpening(opening));
  return OpeningBytes(opening);
}

absl::StatusOr<SubjectOpening> ParseSubjectOpening(absl::string_view bytes) {
  if (bytes.size() > kSubjectOpeningBytesMax) {
    return Refused("opening", absl::StrCat("at most ", kSubjectOpeningBytesMax, " bytes"));
  }
  LETHE_ASSIGN_OR_RETURN(const Json json, ParseJson(bytes, JsonSyntax::kCanonical));
  absl::Status status;
  JsonReader reader(json, "", &status);
  reader.Constant("_type", kSubjectOpeningType);
  SubjectOpening opening{Secret32::FromBytes(reader.Digest("salt")), {}, {}, {}};
  opening.leaf_hash = reader.Digest("leaf");
  for (const std::string& text : reader.Strings("records")) {
    const absl::StatusOr<Sha256Digest> hash = HexDecodeDigest(text);
    if (!hash.ok()) {
      reader.Fail("records", "want 64 hex digits each");
      break;
    }
    opening.records.push_back(*hash);
  }
  for (JsonReader& session : reader.Objects("failed")) {
    FailedSession failed;
    failed.reason = session.String("reason");
    failed.pseudonym = session.Digest("session");
    session.Finish();
    opening.failed.push_back(std::move(failed));
  }
  reader.Finish();
  LETHE_RETURN_IF_ERROR(status);
  LETHE_RETURN_IF_ERROR(CheckOpening(opening));
  if (OpeningBytes(opening) != bytes) return Refused("opening", "values in canonical text");
  return opening;
}

bool IsSubjectSummary(absl::string_view payload) {
  if (payload.size() > kStatementBytesMax) return false;
  const absl::StatusOr<Json> json = ParseJson(payload, JsonSyntax::kCanonical);
  if (!json.ok()) return false;
  absl::Status status;
  JsonReader reader(*json, "", &status);
  return reader.String("predicateType") == kSubjectPredicateType && status.ok();
}

}  // namespace lethe::audit
