// CertificateWorld: a server's keys and log and one session with three records (certify, Forget,
// certify with P2), the same in every run but for salts.
//
// The session had ids 1..20; the Forget removes 5..8 and keeps 12 as derived. The gate
// holds the first 6 retained ids in two support-vector heads: head 0 with M = 2.5 (a true optimum),
// head 1 with M = 8 (every a = 1).
// Threads: compatible.
#ifndef LETHE_TESTS_AUDIT_CERTIFICATE_CERTIFICATE_WORLD_H_
#define LETHE_TESTS_AUDIT_CERTIFICATE_CERTIFICATE_WORLD_H_

#include <memory>
#include <string>
#include <vector>

#include "audit/certificate/bundle.h"
#include "audit/certificate/recorder.h"
#include "audit/certificate/verify.h"
#include "tests/audit/temp_directory.h"

namespace lethe::audit {

inline constexpr char kTestOrigin[] = "test.example/log";
inline constexpr char kTestNonce[] = "0123456789abcdef";

ServerKeys TestKeys();

class CertificateWorld {
 public:
  CertificateWorld();

  // Records by their place in the session, from 0: certify, Forget, certify with P2.
  static constexpr size_t kForgetRecord = 1;
  static constexpr size_t kCertifyRecord = 2;
  const FinishedRecord& record(size_t i) const { return records_[i]; }
  const ProofBundle& bundle() const { return bundle_; }  // of kCertifyRecord
  const TrustStore& trust() const { return trust_; }
  const ServerKeys& keys() const { return keys_; }
  AuditLog* log() { return log_.get(); }
  SessionRecords* session() { return &session_; }

  // Envelope, proof file and opening; with_bundle adds the bundle (kCertifyRecord only).
  CertificateFiles Files(size_t i, bool with_bundle) const;

  // A statement signed by `key` and entered in the log, with its proof file; opening and bundle are
  // `of`'s, re-bound to the new leaf.
  CertificateFiles Relog(const std::string& payload, const Ed25519PrivateKey& key,
                         const CertificateFiles& of);

  RecordDraft Draft(RecordKind kind) const;

 private:
  static std::vector<BundleHead> MakeHeads();
  static StateParts MakeParts(const std::vector<BundleHead>& heads);

  const TempDirectory directory_{TempDirectory::Where::kMemory};
  const ServerKeys keys_;
  std::unique_ptr<AuditLog> log_;
  TrustStore trust_;
  SessionRecords session_;
  std::vector<BundleHead> heads_;
  StateParts parts_;
  ProofBundle bundle_;
  std::vector<FinishedRecord> records_;
};

// One world per test program, for tests that only read it or only append.
CertificateWorld& SharedWorld();

}  // namespace lethe::audit

#endif  // LETHE_TESTS_AUDIT_CERTIFICATE_CERTIFICATE_WORLD_H_
