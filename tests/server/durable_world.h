// DurableWorld: data directory, registry and recovery of a server, without gRPC, that can be ended and started.
//
// Threads: compatible.
#ifndef LETHE_TESTS_SERVER_DURABLE_WORLD_H_
#define LETHE_TESTS_SERVER_DURABLE_WORLD_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "audit/certificate/verify.h"
#include "server/certification/certifier.h"
#include "server/certification/forgetter.h"
#include "server/certification/selection.h"
#include "server/error/error_info.h"
#include "server/generation/generation.h"
#include "server/generation/ingest.h"
#include "server/recovery/recovery.h"
#include "server/recovery/replay_erasures.h"
#include "server/vector_session/vector_commands.h"
#include "tests/audit/temp_directory.h"
#include "tests/server/serving_testing.h"

namespace lethe::testing {

// The machine-readable cause; empty when there is none.
inline std::string ReasonOf(const absl::Status& status) {
  return GetErrorInfo(status).value_or(ErrorInfo{}).reason;
}

// What a client can ask of a session; equal before and after a restart.
struct SessionView {
  audit::Sha256Digest digest{};
  std::vector<std::string> inputs;  // token_id, vocab_id, kind, mark and label of each
  uint64_t next_token_id = 0;
  SessionInfo info;
  std::vector<std::string> certificates;  // envelope and opening
  bool operator==(const SessionView& other) const;
};

// Of a session that selects among its keys; 3 numbers a key, 2 a value.
VectorOptions SmallVectors();

class DurableWorld {
 public:
  DurableWorld() : DurableWorld("") {}
  // In a directory of the caller's, which stays.
  explicit DurableWorld(std::string data_path) : data_path_(std::move(data_path)) {}

  // With no model, sessions of one wait.
  absl::Status Open(bool with_model = true);
  void Close();

  std::shared_ptr<SessionEntry> NewModelSession(const RequestKey& request = {});
  std::shared_ptr<SessionEntry> NewVectorSession();
  std::shared_ptr<SessionEntry> Find(const std::string& session_id);

  absl::StatusOr<AppendReceipt> Append(const std::string& session_id, const std::string& text,
                                       const std::string& subject, const std::string& request_id);
  absl::Status Generate(const std::string& session_id, const std::string& prompt,
                        const std::string& request_id, int64_t max_tokens);
  absl::StatusOr<AppendReceipt> AppendRows(const std::string& session_id, int64_t count,
                                           unsigned seed, const std::string& subject,
                                           const std::string& request_id);
  absl::StatusOr<ForgetReceipt> Forget(const std::string& session_id, const std::string& subject,
                                       const std::string& request_id);
  absl::StatusOr<CertifyReceipt> RunCertify(const std::string& session_id,
                                            const std::string& request_id);
  absl::StatusOr<EvictReceipt> Evict(const std::string& session_id, uint64_t seq,
                                     const std::string& request_id);
  SessionView View(const std::string& session_id);
  FetchedCertificate Certificate(const std::string& session_id, uint64_t seq);
  // The session's records as an auditor gets them, by seq.
  std::vector<audit::CertificateFiles> Records(const std::string& session_id);

  std::string data_path() const {
    return data_path_.empty() ? directory_.path() + "/data" : data_path_;
  }
  std::string ledger_path() const { return data_path() + "-ledger"; }
  SessionRegistry& registry() { return *registry_; }
  ComputeScheduler* scheduler() { return &scheduler_; }
  const AuditTrail* trail() const { return &trail_; }

  std::string origin = "lethe.dev/audit/test";  // empty: the log's, whatever it is
  std::unique_ptr<DataDirectory> data;
  RecoverySummary summary;
  ReplaySummary replayed;
  int num_failures = 0;  // of the store
  std::function<void()> on_failure;
  std::function<void()> on_token;  // of Generate: after a token went to the client

 private:
  const std::string data_path_;
  audit::TempDirectory directory_{audit::TempDirectory::Where::kMemory};
  FakeCall call_;
  ComputeScheduler scheduler_{1};
  ModelSet models_;
  AuditTrail trail_;
  std::unique_ptr<SessionRegistry> registry_;
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_SERVER_DURABLE_WORLD_H_
