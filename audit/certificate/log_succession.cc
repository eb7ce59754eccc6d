#include "audit/certificate/log_succession.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/certificate/keys.h"
#include "audit/certificate/keyset.h"
#include "audit/certificate/keyset_record.h"
#include "audit/certificate/succession_files.h"
#include "audit/crypto/key_file.h"
#include "audit/log/log_anchor.h"
#include "kernels/base/crash_point.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

AuditLogOptions OptionsOf(const LogHome& home, const std::string& origin,
                          std::shared_ptr<const Ed25519PrivateKey> key) {
  AuditLogOptions options;
  options.directory = LogPath(home);
  options.origin = origin;
  options.key = std::move(key);
  options.anchor_directory = home.anchor_directory;
  return options;
}

absl::StatusOr<std::unique_ptr<AuditLog>> OpenSound(const AuditLogOptions& options) {
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<AuditLog> log, AuditLog::Open(options));
  LETHE_RETURN_IF_ERROR(log->frozen());
  return log;
}

// The record keys of one log in order of their ranges.
std::vector<TrustedRecordKey> KeysOf(const TrustStore& keys, absl::string_view origin) {
  std::vector<TrustedRecordKey> of_log;
  for (const TrustedRecordKey& entry : keys.record_keys) {
    if (!entry.origin.empty() && entry.origin != origin) continue;
    of_log.push_back(entry);
    of_log.back().origin.clear();
  }
  std::sort(of_log.begin(), of_log.end(), [](const TrustedRecordKey& a, const TrustedRecordKey& b) {
    return a.first_leaf_index < b.first_leaf_index;
  });
  return of_log;
}

// Puts `of_log` in the place of all entries for this log.
void SetKeysOf(absl::string_view origin, const std::vector<TrustedRecordKey>& of_log,
               TrustStore* keys) {
  std::vector<TrustedRecordKey> entries;
  for (const TrustedRecordKey& entry : keys->record_keys) {
    if (!entry.origin.empty() && entry.origin != origin) entries.push_back(entry);
  }
  for (TrustedRecordKey entry : of_log) {
    entry.origin = std::string(origin);
    entries.push_back(std::move(entry));
  }
  keys->record_keys = std::move(entries);
}

absl::Status WritePublic(const LogHome& home, const TrustStore& keys) {
  return WriteKeysText(home, kPublicFile, WriteTrust(keys));
}

absl::Status FinishRecordKey(const LogHome& home) {
  LETHE_ASSIGN_OR_RETURN(const ServerKeys keys, ServerKeys::LoadOrCreate(home.directory + "/keys"));
  LETHE_ASSIGN_OR_RETURN(const Ed25519PrivateKey next,
                         Ed25519PrivateKey::LoadPem(KeysPath(home, "record.pem.new")));
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<AuditLog> log,
                         OpenSound(OptionsOf(home, "", keys.log_key)));
  const std::string origin = log->verifier_key().name;
  LETHE_ASSIGN_OR_RETURN(TrustStore known, PublicKeys(home, origin));
  absl::StatusOr<KeysetRecord> last = LastKeyset(*log);
  if (!last.ok() || !(last->statement.keys.back().key == next.public_key())) {
    KeysetStatement statement;
    statement.log_origin = origin;
    statement.issued_at = home.issued_at;
    // This leaf is the old key's last, the one behind it the new key's first.
    LETHE_ASSIGN_OR_RETURN(statement.keys, RotatedKeys(KeysOf(known, origin), next.public_key(),
                                                       log->num_leaves() + 1));
    LETHE_RETURN_IF_ERROR(AppendKeyset(statement, *keys.record_key, log.get()));
    CrashPoint("a key's end is recorded");
    LETHE_ASSIGN_OR_RETURN(last, LastKeyset(*log));
  }
  if (!(last->signer == next.public_key())) {
    LETHE_RETURN_IF_ERROR(AppendKeyset(last->statement, next, log.get()));
  }
  CrashPoint("a key's beginning is recorded");
  SetKeysOf(origin, last->statement.keys, &known);
  LETHE_RETURN_IF_ERROR(WritePublic(home, known));
  return ReplaceKey(home, "record.pem");
}

// The last record of a log that another follows.
absl::Status CloseLog(const LogHome& home, const ServerKeys& keys, const VerifierKey& next) {
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<AuditLog> log,
                         OpenSound(OptionsOf(home, "", keys.log_key)));
  const absl::StatusOr<KeysetRecord> last = LastKeyset(*log);
  if (last.ok() && last->statement.next.has_value()) return absl::OkStatus();
  const std::string origin = log->verifier_key().name;
  LETHE_ASSIGN_OR_RETURN(const TrustStore known, PublicKeys(home, origin));
  KeysetStatement statement;
  statement.log_origin = origin;
  statement.issued_at = home.issued_at;
  statement.keys = KeysOf(known, origin);
  statement.next = next;
  return AppendKeyset(statement, *keys.record_key, log.get());
}

absl::StatusOr<VerifierKey> LogIdentity(const LogHome& home) {
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<ClosedLog> log, ClosedLog::Open(LogPath(home)));
  return log->verifier_key();
}

// The log under the old key closes and moves out of the way; nothing when it has.
absl::Status LeaveLog(const LogHome& home, const ServerKeys& keys, const NextLog& next,
                      const VerifierKey& next_vkey) {
  const absl::StatusOr<VerifierKey> here = LogIdentity(home);
  if (absl::IsNotFound(here.status())) return absl::OkStatus();
  if (!here.ok()) return here.status();
  if (here->name == next.origin) return absl::OkStatus();
  if (!next.is_restore) LETHE_RETURN_IF_ERROR(CloseLog(home, keys, next_vkey));
  CrashPoint("a log is closed");
  return RenameSynced(LogPath(home), LeftLogPath(home, NumLeftLogs(home) + 1));
}

absl::StatusOr<LogLink> LinkToLeftLog(const LogHome& home) {
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<ClosedLog> left,
                         ClosedLog::Open(LeftLogPath(home, NumLeftLogs(home))));
  LETHE_ASSIGN_OR_RETURN(const Checkpoint head, left->NewestHead());
  return LogLink{left->verifier_key(), head.tree_size, head.root_hash};
}

absl::Status MoveAnchor(const LogHome& home, const VerifierKey& vkey) {
  if (home.anchor_directory.empty()) return absl::OkStatus();
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<LogAnchor> anchor,
                         LogAnchor::Open(home.anchor_directory));
  const std::string text = WriteVerifierKey(vkey);
  const absl::StatusOr<AnchorState> state = anchor->Read();
  if (state.ok() && state->vkey == text) return absl::OkStatus();
  AnchorState fresh;
  fresh.vkey = text;
  fresh.root_hash = MerkleEmptyRoot();
  return anchor->Write(fresh);
}

absl::Status FinishLogKey(const LogHome& home) {
  LETHE_ASSIGN_OR_RETURN(const NextLog next, ReadNext(home));
  LETHE_ASSIGN_OR_RETURN(const ServerKeys keys, ServerKeys::LoadOrCreate(home.directory + "/keys"));
  LETHE_ASSIGN_OR_RETURN(Ed25519PrivateKey loaded,
                         Ed25519PrivateKey::LoadPem(KeysPath(home, "log.pem.new")));
  const auto key = std::make_shared<const Ed25519PrivateKey>(std::move(loaded));
  LETHE_ASSIGN_OR_RETURN(const VerifierKey vkey, MakeVerifierKey(next.origin, key->public_key()));
  LETHE_RETURN_IF_ERROR(LeaveLog(home, keys, next, vkey));
  CrashPoint("a log is left");
  LETHE_RETURN_IF_ERROR(MoveAnchor(home, vkey));
  LogLink previous = {vkey};
  if (next.previous.has_value()) {
    previous = *next.previous;
  } else {
    LETHE_ASSIGN_OR_RETURN(previous, LinkToLeftLog(home));
  }
  LETHE_ASSIGN_OR_RETURN(TrustStore known, PublicKeys(home, previous.vkey.name));
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<AuditLog> log,
                         OpenSound(OptionsOf(home, next.origin, key)));
  KeysetStatement statement;
  statement.is_restore = next.is_restore;
  statement.log_origin = next.origin;
  statement.issued_at = home.issued_at;
  statement.keys = {{keys.record_key->public_key()}};
  statement.previous = previous;
  if (log->num_leaves() == 0) {
    LETHE_RETURN_IF_ERROR(AppendKeyset(statement, *keys.record_key, log.get()));
  }
  CrashPoint("a log is begun");
  // A frozen log may have had records behind those that are left of it.
  std::vector<TrustedRecordKey> before = KeysOf(known, previous.vkey.name);
  if (!next.is_restore && !before.empty()) before.back().last_leaf_index = previous.tree_size - 1;
  SetKeysOf(previous.vkey.name, before, &known);
  SetKeysOf(next.origin, statement.keys, &known);
  if (std::none_of(known.log_keys.begin(), known.log_keys.end(),
                   [&](const VerifierKey& other) { return other.name == vkey.name; })) {
    known.log_keys.push_back(vkey);
  }
  LETHE_RETURN_IF_ERROR(WritePublic(home, known));
  LETHE_RETURN_IF_ERROR(ReplaceKey(home, "log.pem"));
  return RemoveKeysText(home, kNextFile);
}

absl::Status CheckNothingUnderWay(const LogHome& home) {
  for (const char* file : {"record.pem.new", "log.pem.new", kNextFile}) {
    if (Exists(KeysPath(home, file))) {
      return absl::FailedPreconditionError("another change of keys is under way");
    }
  }
  return absl::OkStatus();
}

// Before a change of keys begins that only a log which signs can go through with.
absl::Status CheckSound(const LogHome& home) {
  LETHE_ASSIGN_OR_RETURN(const ServerKeys keys, ServerKeys::LoadOrCreate(home.directory + "/keys"));
  return OpenSound(OptionsOf(home, "", keys.log_key)).status();
}

// A change that the log froze in the middle of will never be finished.
absl::Status DropUnfinished(const LogHome& home) {
  for (const char* file : {"record.pem.new", "log.pem.new"}) {
    const std::string path = KeysPath(home, file);
    if (Exists(path)) LETHE_RETURN_IF_ERROR(DestroyKeyFile(path));
  }
  return RemoveKeysText(home, kNextFile);
}

absl::Status BeginNext(const LogHome& home, const NextLog& next) {
  LETHE_RETURN_IF_ERROR(ValidateKeyName(next.origin));
  LETHE_ASSIGN_OR_RETURN(const VerifierKey here, LogIdentity(home));
  LETHE_ASSIGN_OR_RETURN(const TrustStore known, PublicKeys(home, here.name));
  for (const VerifierKey& used : known.log_keys) {
    if (used.name == next.origin) {
      return absl::FailedPreconditionError("origin: want one that no log of this server ever had");
    }
  }
  LETHE_RETURN_IF_ERROR(NewKey(home, "log.pem"));
  LETHE_RETURN_IF_ERROR(WriteNext(home, next));
  return FinishLogKey(home);
}

}  // namespace

absl::StatusOr<TrustStore> PublicKeys(const LogHome& home, absl::string_view origin) {
  const absl::StatusOr<std::string> text = ReadKeysText(home, kPublicFile);
  if (text.ok()) return ParseTrust(*text);
  if (!absl::IsNotFound(text.status())) return text.status();
  LETHE_ASSIGN_OR_RETURN(const ServerKeys keys, ServerKeys::LoadOrCreate(home.directory + "/keys"));
  return keys.Trust(origin);
}

absl::StatusOr<std::vector<std::shared_ptr<ClosedLog>>> OpenPredecessors(const LogHome& home) {
  std::vector<std::shared_ptr<ClosedLog>> logs;
  for (int number = NumLeftLogs(home); number > 0; --number) {
    LETHE_ASSIGN_OR_RETURN(std::shared_ptr<ClosedLog> log,
                           ClosedLog::Open(LeftLogPath(home, number)));
    logs.push_back(std::move(log));
  }
  return logs;
}

absl::Status RotateRecordKey(const LogHome& home) {
  LETHE_RETURN_IF_ERROR(CheckNothingUnderWay(home));
  LETHE_RETURN_IF_ERROR(CheckSound(home));
  LETHE_RETURN_IF_ERROR(NewKey(home, "record.pem"));
  return FinishRecordKey(home);
}

absl::Status RotateLogKey(const LogHome& home, const std::string& new_origin) {
  LETHE_RETURN_IF_ERROR(CheckNothingUnderWay(home));
  LETHE_RETURN_IF_ERROR(CheckSound(home));
  return BeginNext(home, {new_origin, false, std::nullopt});
}

absl::Status RestoreLog(const LogHome& home, const std::string& new_origin,
                        const std::vector<std::string>& held_heads) {
  LETHE_ASSIGN_OR_RETURN(const ServerKeys keys, ServerKeys::LoadOrCreate(home.directory + "/keys"));
  LETHE_ASSIGN_OR_RETURN(const VerifierKey vkey, LogIdentity(home));
  LogLink newest{vkey};
  {
    LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<ClosedLog> log, ClosedLog::Open(LogPath(home)));
    const absl::StatusOr<Checkpoint> head = log->NewestHead();
    if (head.ok()) newest = {vkey, head->tree_size, head->root_hash};
  }
  if (!home.anchor_directory.empty()) {
    LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<LogAnchor> anchor,
                           LogAnchor::Open(home.anchor_directory));
    const absl::StatusOr<AnchorState> state = anchor->Read();
    if (state.ok() && state->vkey == WriteVerifierKey(vkey) &&
        state->tree_size > newest.tree_size) {
      newest = {vkey, state->tree_size, state->root_hash};
    }
  }
  AuditLogOptions options = OptionsOf(home, "", keys.log_key);
  options.expected_heads = held_heads;
  {
    LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<AuditLog> log, AuditLog::Open(options));
    if (log->frozen().ok()) {
      return absl::FailedPreconditionError("the log is not frozen: there is nothing to restore");
    }
  }
  for (const std::string& note : held_heads) {
    LETHE_ASSIGN_OR_RETURN(const Checkpoint head, OpenCheckpoint(note, vkey));
    if (head.tree_size > newest.tree_size) newest = {vkey, head.tree_size, head.root_hash};
  }
  LETHE_RETURN_IF_ERROR(DropUnfinished(home));
  return BeginNext(home, {new_origin, true, newest});
}

absl::Status FinishSuccession(const LogHome& home) {
  if (Exists(KeysPath(home, "record.pem.new")) && Exists(KeysPath(home, "record.pem"))) {
    const absl::Status finished = FinishRecordKey(home);
    if (absl::IsDataLoss(finished)) return absl::OkStatus();  // frozen: the log itself says why
    LETHE_RETURN_IF_ERROR(finished);
  }
  LETHE_RETURN_IF_ERROR(ReplaceKey(home, "record.pem"));
  const bool has_next = Exists(KeysPath(home, kNextFile));
  if (has_next && Exists(KeysPath(home, "log.pem.new")) && Exists(KeysPath(home, "log.pem"))) {
    const absl::Status finished = FinishLogKey(home);
    return absl::IsDataLoss(finished) ? absl::OkStatus() : finished;
  }
  if (has_next) LETHE_RETURN_IF_ERROR(ReplaceKey(home, "log.pem"));
  // Made, but the change that wanted it did not begin.
  const std::string unused = KeysPath(home, "log.pem.new");
  if (Exists(unused)) LETHE_RETURN_IF_ERROR(DestroyKeyFile(unused));
  return has_next ? RemoveKeysText(home, kNextFile) : absl::OkStatus();
}

}  // namespace lethe::audit
