// SubjectWorld: a DurableWorld with the jobs that forget a subject.
//
// Threads: compatible.
#ifndef LETHE_TESTS_SERVER_SUBJECT_WORLD_H_
#define LETHE_TESTS_SERVER_SUBJECT_WORLD_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "audit/certificate/keys.h"
#include "audit/certificate/verify_subject.h"
#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/forget_subject/subject_forgetter.h"
#include "tests/server/durable_world.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {

inline constexpr char kLabel[] = "patient-17 of the ward";

struct SubjectWorld {
  absl::Status Open(int64_t num_unserved = 0) {
    Close();
    LETHE_RETURN_IF_ERROR(world.Open());
    jobs = std::make_unique<SubjectForgetter>(
        PassTools{&world.registry(), world.scheduler(), world.trail()});
    return jobs->Recover(world.data->store(), num_unserved);
  }
  void Close() {
    jobs.reset();
    world.Close();
  }

  absl::StatusOr<SubjectProgress> Start(DerivedPolicy policy = DerivedPolicy::kKeepAndReport,
                                        const std::string& request_id = "s1",
                                        const std::string& label = kLabel) const {
    SubjectCommand command;
    command.label = label;
    command.policy = policy;
    command.nonce = std::string(16, 'n');
    command.request = Key(request_id, "content of " + label);
    return jobs->Start(command);
  }
  // The job, done; or as it stands after a minute.
  SubjectProgress WaitFor(const std::string& job_id) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    SubjectProgress progress = jobs->Find(job_id).value();
    while (progress.stage != JobStage::kDone && std::chrono::steady_clock::now() < end) {
      progress = jobs->Wait(job_id, progress.version, end).value();
    }
    return progress;
  }

  // True when inputs, or an answer kept for a repeat, have the label.
  bool Holds(const std::string& session_id, const std::string& label = kLabel) {
    const std::shared_ptr<SessionEntry> entry = world.Find(session_id);
    FairMutexLock lock(&entry->mutex);
    return !entry->LiveSession().value()->inputs().RanksOfSubject(label).empty() ||
           entry->requests.DropSubject(label);
  }
  // Digest of a fresh session of what this one retains.
  audit::Sha256Digest Fresh(const std::string& session_id) {
    const std::shared_ptr<SessionEntry> entry = world.Find(session_id);
    FairMutexLock lock(&entry->mutex);
    const AnySession* session = entry->LiveSession().value();
    if (entry->model != nullptr) {
      std::vector<int32_t> vocab_ids;
      for (int64_t rank = 0; rank < session->num_tokens(); ++rank) {
        vocab_ids.push_back(session->inputs().at(rank).vocab_id);
      }
      return FreshDigest(vocab_ids);
    }
    const auto& vectors = static_cast<const VectorSession&>(*session);
    VectorSession fresh(vectors.options());
    if (vectors.num_tokens() > 0) {
      EXPECT_OK(fresh.Append(vectors.keys(), vectors.values(), "").status());
    }
    return fresh.Digest();
  }
  audit::Sha256Digest Digest(const std::string& session_id) {
    const std::shared_ptr<SessionEntry> entry = world.Find(session_id);
    FairMutexLock lock(&entry->mutex);
    return entry->LiveSession().value()->Digest();
  }

  audit::TrustStore Trust() const {
    return *audit::ServerKeys::LoadOrCreate(world.data_path() + "/keys")
                ->Trust("lethe.dev/audit/test");
  }
  std::vector<audit::CertificateFiles> Certificates(const std::string& job_id) {
    std::vector<audit::CertificateFiles> certificates;
    const FakeCall call;
    const std::vector<SubjectOutcome> outcomes = jobs->Outcomes(job_id, 0, 100'000).value();
    for (const SubjectOutcome& outcome : outcomes) {
      if (outcome.kind != OutcomeKind::kForgotten) continue;
      const FetchedCertificate fetched =
          GetCertificate(outcome.seq, false, call, world.scheduler(), *world.trail(),
                         world.Find(outcome.session_id))
              .value();
      audit::CertificateFiles files;
      files.envelope = fetched.certificate.envelope;
      files.proof_file = fetched.certificate.log_proof;
      files.opening = fetched.certificate.opening;
      certificates.push_back(std::move(files));
    }
    return certificates;
  }
  audit::SubjectFiles Summary(const std::string& job_id) const {
    const SubjectSummaryText text = jobs->Summary(job_id).value();
    audit::SubjectFiles files;
    files.summary.envelope = text.envelope;
    files.summary.proof_file = text.log_proof;
    files.summary.opening = text.opening;
    files.label = kLabel;
    return files;
  }

  DurableWorld world;
  std::unique_ptr<SubjectForgetter> jobs;
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_SERVER_SUBJECT_WORLD_H_
