#include "server/store/data_directory.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/certificate/keys.h"
#include "audit/certificate/log_succession.h"
#include "audit/log/log_files.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/sync_directory.h"
#include "kernels/base/wall_clock.h"
#include "server/store/secret_file.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;

constexpr char kTrustFile[] = "trust.txt";

absl::Status CreatePrivate(const fs::path& directory) {
  std::error_code error;
  if (fs::is_directory(directory, error)) return absl::OkStatus();
  fs::create_directories(directory, error);
  if (!error) fs::permissions(directory, fs::perms::owner_all, error);
  if (!error) return SyncParentOf(directory.string());
  return absl::UnavailableError(
      absl::StrCat("cannot create the data directory ", directory.string(), ": ", error.message()));
}

absl::StatusOr<int> Lock(const fs::path& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot open ", path.string(), ": ", std::strerror(errno)));
  }
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  close(descriptor);
  return absl::FailedPreconditionError(
      absl::StrCat("another lethe-server uses the data directory ", path.parent_path().string()));
}

// A copy of the data directory must not bring its ledger along.
absl::StatusOr<std::string> LedgerPath(const fs::path& root, const std::string& wanted) {
  fs::path data = root.lexically_normal();
  if (!data.has_filename()) data = data.parent_path();
  if (wanted.empty()) return data.string() + "-ledger";
  const fs::path ledger = fs::absolute(wanted).lexically_normal();
  const fs::path relative = ledger.lexically_relative(data);
  if (*relative.begin() == "..") return ledger.string();
  return absl::InvalidArgumentError("--erasure-ledger: want a place outside the data directory");
}

// Written anew only where it differs.
absl::Status WriteTrustFile(const std::string& root, const std::string& text) {
  const audit::DirectoryFiles files(root);
  const absl::StatusOr<std::string> present = files.Read(kTrustFile);
  if (present.ok() && *present == text) return absl::OkStatus();
  return files.Replace(kTrustFile, text);
}

// `ledger_path`: LedgerPath's.
audit::LogHome HomeOf(const fs::path& root, const std::string& ledger_path) {
  return {root.string(), ledger_path, Rfc3339Now()};
}

}  // namespace

absl::Status DataDirectory::OpenStore(const std::string& root, const std::string& ledger_path,
                                      bool ledger_must_exist,
                                      const std::function<void(const absl::Status&)>& on_failure) {
  const std::string sessions = root + "/sessions";
  LETHE_RETURN_IF_ERROR(CreatePrivate(sessions));
  // Also what a start that died before this had made.
  LETHE_RETURN_IF_ERROR(SyncDirectory(root));
  LETHE_ASSIGN_OR_RETURN(store_, SessionStore::Open({sessions, on_failure}));
  LedgerOptions options;
  options.directory = ledger_path;
  options.on_failure = on_failure;
  LETHE_ASSIGN_OR_RETURN(options.position, store_->ReadLedgerPosition());
  // It was made before the store first heard of it.
  options.must_exist = ledger_must_exist || options.position.offset > 0;
  LETHE_ASSIGN_OR_RETURN(const audit::Secret32 key, LoadOrCreateSecret(sessions + "/ledger.key"));
  LETHE_ASSIGN_OR_RETURN(ledger_, ErasureLedger::Open(options, key));
  store_->UseLedger(ledger_.get());
  return absl::OkStatus();
}

absl::Status DataDirectory::OpenLog(const std::string& root, const std::string& origin,
                                    const std::string& ledger_path, const LogPolicy& policy) {
  const audit::LogHome home = HomeOf(root, ledger_path);
  LETHE_RETURN_IF_ERROR(audit::FinishSuccession(home));
  LETHE_ASSIGN_OR_RETURN(const audit::ServerKeys keys,
                         audit::ServerKeys::LoadOrCreate(root + "/keys"));
  audit::AuditLogOptions options;
  options.directory = root + "/log";
  options.origin = origin;
  options.key = keys.log_key;
  options.anchor_directory = home.anchor_directory;
  options.adopt = policy.adopt;
  options.expected_heads = policy.expected_heads;
  options.witness = policy.witness;
  options.witness_required = policy.witness_required;
  LETHE_ASSIGN_OR_RETURN(options.predecessors, audit::OpenPredecessors(home));
  absl::StatusOr<std::unique_ptr<audit::AuditLog>> log = audit::AuditLog::Open(options);
  if (origin.empty() && absl::IsNotFound(log.status())) {
    options.origin = kDefaultOrigin;  // it has none yet
    log = audit::AuditLog::Open(options);
  }
  if (!log.ok()) return log.status();
  log_ = *std::move(log);
  recorder_ = std::make_unique<audit::Recorder>(keys, log_.get());
  record_spki_ = keys.record_key->public_key().SpkiDer();
  trust_path_ = absl::StrCat(root, "/", kTrustFile);
  LETHE_ASSIGN_OR_RETURN(const audit::TrustStore trust,
                         audit::PublicKeys(home, log_->verifier_key().name));
  return WriteTrustFile(root, audit::WriteTrust(trust));
}

absl::StatusOr<std::string> DataDirectory::ChangeKey(const std::string& path,
                                                     const std::string& ledger_path,
                                                     const KeyChange& change) {
  const fs::path root = fs::absolute(path);
  if (!fs::is_directory(root / "log")) {
    return absl::NotFoundError(absl::StrCat("no data directory with a log: ", root.string()));
  }
  DataDirectory data;
  LETHE_ASSIGN_OR_RETURN(data.lock_descriptor_, Lock(root / "lock"));
  LETHE_ASSIGN_OR_RETURN(const std::string ledger, LedgerPath(root, ledger_path));
  // As at a start. A log without its anchor would freeze, and the next one begin beside it in a wrong place.
  LETHE_RETURN_IF_ERROR(data.OpenStore(root.string(), ledger, true, {}));
  const audit::LogHome home = HomeOf(root, ledger);
  LETHE_RETURN_IF_ERROR(audit::FinishSuccession(home));
  switch (change.kind) {
    case KeyChange::Kind::kRotateRecordKey:
      LETHE_RETURN_IF_ERROR(audit::RotateRecordKey(home));
      break;
    case KeyChange::Kind::kRotateLogKey:
      LETHE_RETURN_IF_ERROR(audit::RotateLogKey(home, change.new_origin));
      break;
    case KeyChange::Kind::kRestoreLog:
      LETHE_RETURN_IF_ERROR(audit::RestoreLog(home, change.new_origin, change.held_heads));
      break;
  }
  LETHE_RETURN_IF_ERROR(data.OpenLog(root.string(), "", ledger, {}));
  return data.log_->verifier_key().name;
}

absl::StatusOr<std::unique_ptr<DataDirectory>> DataDirectory::Open(
    const std::string& path, const std::string& origin,
    const std::function<void(const absl::Status&)>& on_store_failure,
    const std::string& ledger_path, const LogPolicy& policy) {
  const fs::path root = fs::absolute(path);
  LETHE_RETURN_IF_ERROR(CreatePrivate(root));
  std::unique_ptr<DataDirectory> data(new DataDirectory());
  LETHE_ASSIGN_OR_RETURN(data->lock_descriptor_, Lock(root / "lock"));
  LETHE_ASSIGN_OR_RETURN(const std::string ledger, LedgerPath(root, ledger_path));
  // Before the log, whose opening exchanges its ticket: with a wrong ledger nothing is changed.
  LETHE_RETURN_IF_ERROR(data->OpenStore(root.string(), ledger, false, on_store_failure));
  LETHE_RETURN_IF_ERROR(data->OpenLog(root.string(), origin, ledger, policy));
  const auto is_recorded = [&](const audit::Sha256Digest& leaf_hash) -> absl::StatusOr<bool> {
    const absl::StatusOr<uint64_t> found = data->log_->FindLeaf(leaf_hash);
    if (absl::IsNotFound(found.status())) {
      // Before the change is taken back: else the ledger would have it done at the next start.
      LETHE_RETURN_IF_ERROR(data->ledger_->Void(leaf_hash));
      return false;
    }
    if (!found.ok()) return found.status();
    return true;
  };
  LETHE_ASSIGN_OR_RETURN(data->store_report_, data->store_->Recover(is_recorded));
  return data;
}

DataDirectory::~DataDirectory() {
  if (lock_descriptor_ >= 0) close(lock_descriptor_);
}

}  // namespace lethe
