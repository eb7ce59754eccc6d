#include "server/forget_subject/subject_job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/byte_io.h"
#include "kernels/base/status_macros.h"
#include "server/certification/forgetter.h"
#include "server/session_registry/saved_fields.h"

namespace lethe {
namespace {

constexpr uint64_t kJobVersion = 2;
constexpr uint64_t kVersionWithoutTenant = 1;
enum class JobRow : uint64_t { kStart = 1, kPlan = 2, kOutcome = 3, kDone = 4 };

absl::Status MalformedJob() { return absl::DataLossError("stored job: malformed"); }

void WriteTag(JobRow tag, ByteWriter* writer) {
  writer->U64(static_cast<uint64_t>(tag));
  writer->U64(kJobVersion);
}

// What a job is from its beginning to its end.
void WriteConstants(const SubjectJob& job, ByteWriter* writer) {
  writer->String(job.tenant);
  writer->String(job.job_id);
  writer->U64(static_cast<uint64_t>(job.policy));
  writer->String(job.nonce);
  writer->String(job.request.request_id);
  WriteDigest(job.request.content, writer);
  writer->Raw(job.salt.bytes().data(), job.salt.bytes().size());
  writer->I64(job.start_us);
}

absl::Status ReadConstants(uint64_t version, ByteReader* reader, SubjectJob* job) {
  uint64_t policy = 0;
  audit::Sha256Digest salt{};
  job->tenant = kLocalTenant;
  if (version == kJobVersion) LETHE_RETURN_IF_ERROR(reader->String(&job->tenant));
  LETHE_RETURN_IF_ERROR(reader->String(&job->job_id));
  LETHE_RETURN_IF_ERROR(ReadUpTo(reader, static_cast<uint64_t>(DerivedPolicy::kFail), &policy));
  job->policy = static_cast<DerivedPolicy>(policy);
  LETHE_RETURN_IF_ERROR(reader->String(&job->nonce));
  LETHE_RETURN_IF_ERROR(reader->String(&job->request.request_id));
  LETHE_RETURN_IF_ERROR(ReadDigest(reader, &job->request.content));
  LETHE_RETURN_IF_ERROR(ReadDigest(reader, &salt));
  job->salt = audit::Secret32::FromBytes(salt);
  audit::SecureWipe(salt.data(), salt.size());
  return reader->I64(&job->start_us);
}

void WriteOutcome(const SubjectOutcome& outcome, ByteWriter* writer) {
  writer->String(outcome.session_id);
  writer->U64(static_cast<uint64_t>(outcome.kind));
  writer->String(outcome.reason);
  writer->U64(outcome.seq);
  WriteDigest(outcome.leaf_hash, writer);
  writer->I64(outcome.num_inputs);
}

absl::Status ReadOutcome(ByteReader* reader, SubjectOutcome* outcome) {
  uint64_t kind = 0;
  LETHE_RETURN_IF_ERROR(reader->String(&outcome->session_id));
  LETHE_RETURN_IF_ERROR(ReadUpTo(reader, static_cast<uint64_t>(OutcomeKind::kNothingLeft), &kind));
  if (kind == 0) return MalformedJob();
  outcome->kind = static_cast<OutcomeKind>(kind);
  LETHE_RETURN_IF_ERROR(reader->String(&outcome->reason));
  LETHE_RETURN_IF_ERROR(reader->U64(&outcome->seq));
  LETHE_RETURN_IF_ERROR(ReadDigest(reader, &outcome->leaf_hash));
  return reader->I64(&outcome->num_inputs);
}

absl::Status ReadPlan(ByteReader* reader, SubjectJob* job) {
  uint64_t count = 0;
  LETHE_RETURN_IF_ERROR(reader->I64(&job->num_examined));
  LETHE_RETURN_IF_ERROR(reader->I64(&job->num_unserved));
  LETHE_RETURN_IF_ERROR(ReadUpTo(reader, reader->remaining(), &count));
  job->plan.resize(count);
  for (std::string& id : job->plan) LETHE_RETURN_IF_ERROR(reader->String(&id));
  job->stage = JobStage::kForgetting;
  return absl::OkStatus();
}

absl::Status ReadDone(uint64_t version, ByteReader* reader, SubjectJob* job) {
  uint64_t count = 0;
  LETHE_RETURN_IF_ERROR(ReadConstants(version, reader, job));
  LETHE_RETURN_IF_ERROR(reader->I64(&job->end_us));
  LETHE_RETURN_IF_ERROR(reader->I64(&job->num_examined));
  LETHE_RETURN_IF_ERROR(reader->I64(&job->num_unserved));
  LETHE_RETURN_IF_ERROR(ReadDigest(reader, &job->summary_leaf));
  LETHE_RETURN_IF_ERROR(ReadUpTo(reader, reader->remaining(), &count));
  job->outcomes.resize(count);
  for (SubjectOutcome& outcome : job->outcomes)
    LETHE_RETURN_IF_ERROR(ReadOutcome(reader, &outcome));
  job->stage = JobStage::kDone;
  return absl::OkStatus();
}

absl::Status ReadRow(JobRow tag, uint64_t version, ByteReader* reader, SubjectJob* job) {
  const bool is_new = job->job_id.empty();
  switch (tag) {
    case JobRow::kStart:
      if (!is_new) return MalformedJob();
      LETHE_RETURN_IF_ERROR(ReadConstants(version, reader, job));
      LETHE_RETURN_IF_ERROR(reader->String(&job->label));
      return job->label.empty() ? MalformedJob() : absl::OkStatus();
    case JobRow::kPlan:
      if (is_new || job->stage != JobStage::kExamining) return MalformedJob();
      return ReadPlan(reader, job);
    case JobRow::kOutcome:
      if (job->stage != JobStage::kForgetting || job->outcomes.size() >= job->plan.size()) {
        return MalformedJob();
      }
      LETHE_RETURN_IF_ERROR(ReadOutcome(reader, &job->outcomes.emplace_back()));
      return job->outcomes.back().session_id == job->plan[job->outcomes.size() - 1]
                 ? absl::OkStatus()
                 : MalformedJob();
    case JobRow::kDone:
      return is_new ? ReadDone(version, reader, job) : MalformedJob();
  }
  return MalformedJob();
}

std::vector<audit::FailedSession> FailedOf(const SubjectJob& job) {
  std::vector<audit::FailedSession> failed;
  for (const SubjectOutcome& outcome : job.outcomes) {
    if (outcome.kind != OutcomeKind::kFailed) continue;
    failed.push_back({audit::SubjectPseudonym(job.salt, outcome.session_id), outcome.reason});
  }
  std::sort(failed.begin(), failed.end(),
            [](const auto& a, const auto& b) { return a.pseudonym < b.pseudonym; });
  return failed;
}

std::vector<audit::Sha256Digest> RecordsOf(const SubjectJob& job) {
  std::vector<audit::Sha256Digest> records;
  for (const SubjectOutcome& outcome : job.outcomes) {
    if (outcome.kind == OutcomeKind::kForgotten) records.push_back(outcome.leaf_hash);
  }
  std::sort(records.begin(), records.end());
  return records;
}

}  // namespace

void SubjectJob::DropLabel() { audit::SecureWipe(&label); }

std::string EncodeStart(const SubjectJob& job) {
  ByteWriter writer;
  WriteTag(JobRow::kStart, &writer);
  WriteConstants(job, &writer);
  writer.String(job.label);
  return writer.Take();
}

std::string EncodePlan(const SubjectJob& job) {
  ByteWriter writer;
  WriteTag(JobRow::kPlan, &writer);
  writer.I64(job.num_examined);
  writer.I64(job.num_unserved);
  writer.U64(job.plan.size());
  for (const std::string& id : job.plan) writer.String(id);
  return writer.Take();
}

std::string EncodeOutcome(const SubjectOutcome& outcome) {
  ByteWriter writer;
  WriteTag(JobRow::kOutcome, &writer);
  WriteOutcome(outcome, &writer);
  return writer.Take();
}

std::string EncodeDone(const SubjectJob& job) {
  ByteWriter writer;
  WriteTag(JobRow::kDone, &writer);
  WriteConstants(job, &writer);
  writer.I64(job.end_us);
  writer.I64(job.num_examined);
  writer.I64(job.num_unserved);
  WriteDigest(job.summary_leaf, &writer);
  writer.U64(job.outcomes.size());
  for (const SubjectOutcome& outcome : job.outcomes) WriteOutcome(outcome, &writer);
  return writer.Take();
}

absl::Status ApplyRow(absl::string_view bytes, SubjectJob* job) {
  ByteReader reader(bytes);
  uint64_t tag = 0;
  uint64_t version = 0;
  LETHE_RETURN_IF_ERROR(reader.U64(&tag));
  LETHE_RETURN_IF_ERROR(reader.U64(&version));
  if (version != kJobVersion && version != kVersionWithoutTenant) {
    return absl::DataLossError("stored job: of another version");
  }
  LETHE_RETURN_IF_ERROR(ReadRow(static_cast<JobRow>(tag), version, &reader, job));
  return ReadEnd(reader);
}

audit::SubjectSummary SummaryOf(const SubjectJob& job) {
  audit::SubjectSummary summary;
  summary.subject_digest = audit::CommitSubject(job.salt, job.label);
  summary.job = job.job_id;
  summary.nonce = job.nonce;
  summary.request_id =
      job.request.request_id.empty() ? absl::StrCat("server-", job.job_id) : job.request.request_id;
  summary.derived_policy = ToAuditPolicy(job.policy);
  summary.num_examined = static_cast<uint64_t>(job.num_examined);
  summary.num_unserved = static_cast<uint64_t>(job.num_unserved);
  summary.forgotten = audit::CommitRecords(RecordsOf(job));
  const std::vector<audit::FailedSession> failed = FailedOf(job);
  summary.failed = audit::CommitFailed(failed);
  summary.reasons = audit::CountReasons(failed);
  for (const SubjectOutcome& outcome : job.outcomes) {
    summary.num_inputs += static_cast<uint64_t>(outcome.num_inputs);
    if (outcome.kind == OutcomeKind::kDeleted) ++summary.num_deleted;
  }
  return summary;
}

audit::SubjectOpening OpeningOf(const SubjectJob& job) {
  return {job.salt, job.summary_leaf, RecordsOf(job), FailedOf(job)};
}

}  // namespace lethe
