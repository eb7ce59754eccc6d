#include "server/store/erasure_ledger.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/crypto/aead.h"
#include "kernels/base/byte_io.h"
#include "kernels/base/crash_point.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/sync_directory.h"
#include "kernels/base/write_all.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[] = "lethe erasures 1\n";
constexpr size_t kHeaderBytes = 64;
constexpr size_t kFrameBytes = 16;  // length and check
constexpr size_t kHeadBytes = 16;

absl::Status IoError(absl::string_view what) {
  const std::string message = absl::StrCat("erasure ledger: ", what, ": ", std::strerror(errno));
  if (errno == ENOSPC || errno == EDQUOT) return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

std::string HeaderOf(const audit::Secret32& key) {
  std::string header(kMagic, sizeof kMagic - 1);
  absl::StrAppend(&header,
                  audit::AsStringView(audit::HmacSha256(key.bytes(), "lethe-ledger-header-v1")));
  header.resize(kHeaderBytes);
  return header;
}

std::array<uint8_t, kHeadBytes> HeadIn(absl::string_view bytes) {
  std::array<uint8_t, kHeadBytes> head{};
  std::copy_n(bytes.begin(), head.size(), head.begin());
  return head;
}

LedgerPosition FirstPosition(const std::string& header) {
  return {kHeaderBytes, HeadIn(absl::string_view(header).substr(sizeof kMagic - 1))};
}

std::string AssociatedOf(const LedgerPosition& at) {
  ByteWriter writer;
  writer.String("lethe-ledger-v1");
  writer.U64(at.offset);
  writer.Raw(at.head.data(), at.head.size());
  return writer.Take();
}

// A length that a flipped bit changed must not pass for the torn end of the file.
std::string FrameOf(uint64_t offset, uint64_t num_bytes) {
  ByteWriter writer;
  writer.U64(num_bytes);
  ByteWriter checked;
  checked.U64(offset);
  checked.U64(num_bytes);
  writer.Raw(audit::Sha256Of(checked.bytes()).data(), kFrameBytes - sizeof num_bytes);
  return writer.Take();
}

// Whether a whole entry begins behind `offset`. It was written after what is there had been synced.
bool EntryFollows(absl::string_view file, uint64_t offset) {
  for (uint64_t at = offset + 1; at + kFrameBytes <= file.size(); ++at) {
    uint64_t num_bytes = 0;
    std::memcpy(&num_bytes, file.data() + at, sizeof num_bytes);
    if (num_bytes <= file.size() - at - kFrameBytes &&
        file.substr(at, kFrameBytes) == FrameOf(at, num_bytes)) {
      return true;
    }
  }
  return false;
}

std::string Encode(const Erasure& erasure) {
  ByteWriter writer;
  writer.U64(static_cast<uint64_t>(erasure.kind));
  writer.Raw(erasure.id.data(), erasure.id.size());
  writer.String(erasure.session_id);
  writer.String(erasure.request_id);
  writer.Raw(erasure.request_hash.data(), erasure.request_hash.size());
  writer.U64(erasure.token_ids.size());
  for (const LedgerRange& range : erasure.token_ids) {
    writer.U64(range.first);
    writer.U64(range.end);
  }
  return writer.Take();
}

absl::StatusOr<Erasure> Decode(absl::string_view bytes) {
  ByteReader reader(bytes);
  Erasure erasure;
  uint64_t kind = 0;
  uint64_t count = 0;
  LETHE_RETURN_IF_ERROR(reader.U64(&kind));
  LETHE_RETURN_IF_ERROR(reader.Raw(erasure.id.data(), erasure.id.size()));
  LETHE_RETURN_IF_ERROR(reader.String(&erasure.session_id));
  LETHE_RETURN_IF_ERROR(reader.String(&erasure.request_id));
  LETHE_RETURN_IF_ERROR(reader.Raw(erasure.request_hash.data(), erasure.request_hash.size()));
  LETHE_RETURN_IF_ERROR(reader.U64(&count));
  if (kind < 1 || kind > 3 || count != reader.remaining() / sizeof(LedgerRange)) {
    return absl::DataLossError("erasure ledger: an entry of an unknown kind");
  }
  erasure.kind = static_cast<ErasureKind>(kind);
  erasure.token_ids.resize(count);
  for (LedgerRange& range : erasure.token_ids) {
    LETHE_RETURN_IF_ERROR(reader.U64(&range.first));
    LETHE_RETURN_IF_ERROR(reader.U64(&range.end));
  }
  return erasure;
}

absl::Status WriteWhole(int descriptor, uint64_t offset, absl::string_view bytes) {
  return WriteAllAt(descriptor, offset, bytes) ? absl::OkStatus() : IoError("write failed");
}

absl::StatusOr<std::string> ReadWhole(int descriptor) {
  struct stat info {};
  if (fstat(descriptor, &info) != 0) return IoError("cannot be examined");
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        pread(descriptor, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return IoError("read failed");
    done += static_cast<size_t>(got);
  }
  return bytes;
}

// A new ledger, or one that was being made and says nothing yet.
absl::Status WriteHeader(int descriptor, const std::string& directory, const std::string& header) {
  LETHE_RETURN_IF_ERROR(WriteWhole(descriptor, 0, header));
  if (fdatasync(descriptor) != 0) return IoError("sync failed");
  return SyncDirectory(directory);
}

absl::Status CreateDirectory(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return absl::OkStatus();
  fs::create_directories(path, error);
  if (!error) fs::permissions(path, fs::perms::owner_all, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("erasure ledger: cannot create ", path, ": ", error.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ErasureLedger>> ErasureLedger::Open(const LedgerOptions& options,
                                                                   const audit::Secret32& key) {
  const std::string path = options.directory + "/erasures";
  if (options.must_exist && !fs::exists(path)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "erasure ledger: ", path,
        " is missing, and without it a copy of the data directory could "
        "bring back what was forgotten; it belongs to this data directory and is no part of its "
        "backups: is --erasure-ledger right?"));
  }
  LETHE_RETURN_IF_ERROR(CreateDirectory(options.directory));
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return IoError("cannot be opened");
  std::unique_ptr<ErasureLedger> ledger(new ErasureLedger(descriptor, options, key));
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError("erasure ledger: another process uses it");
  }
  LETHE_ASSIGN_OR_RETURN(const std::string file, ReadWhole(descriptor));
  const std::string header = HeaderOf(key);
  if (!options.must_exist && file.size() <= kHeaderBytes) {
    LETHE_RETURN_IF_ERROR(WriteHeader(descriptor, options.directory, header));
  } else if (file.substr(0, kHeaderBytes) != header) {
    return absl::FailedPreconditionError(
        absl::StrCat("erasure ledger: ", path,
                     " belongs to another data directory: is --erasure-ledger right?"));
  }
  MutexLock lock(&ledger->mutex_);
  LETHE_RETURN_IF_ERROR(ledger->Load(options.position));
  return ledger;
}

ErasureLedger::~ErasureLedger() { close(descriptor_); }

absl::Status ErasureLedger::Load(const LedgerPosition& position) {
  LETHE_ASSIGN_OR_RETURN(const std::string file, ReadWhole(descriptor_));
  end_ = FirstPosition(file);
  opened_at_ = end_;
  bool reached = position.offset == 0;
  while (true) {
    if (end_ == position) {
      reached = true;
      loaded_.clear();
      opened_at_ = position;
    }
    Erasure erasure;
    LETHE_ASSIGN_OR_RETURN(const bool whole, ReadNext(file, &erasure));
    if (!whole) break;
    loaded_.push_back(std::move(erasure));
  }
  if (!reached && end_.offset < position.offset && position.offset <= file.size()) {
    // Long enough, and the data directory knows that what does not open was whole: it is no torn end.
    return absl::DataLossError(
        "erasure ledger: damaged: an entry that the data directory knows of does not open");
  }
  if (!reached) {
    return absl::FailedPreconditionError(
        "erasure ledger: older than the data directory: it lacks erasures that were made since");
  }
  if (end_.offset < file.size() && ftruncate(descriptor_, static_cast<off_t>(end_.offset)) != 0) {
    return IoError("cannot be cut to its whole entries");
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ErasureLedger::ReadNext(const std::string& file, Erasure* erasure) {
  const absl::string_view rest = absl::string_view(file).substr(end_.offset);
  if (rest.size() < kFrameBytes) return false;
  uint64_t num_bytes = 0;
  std::memcpy(&num_bytes, rest.data(), sizeof num_bytes);
  if (rest.substr(0, kFrameBytes) != FrameOf(end_.offset, num_bytes)) {
    // A loss of power may leave anything of what was not synced: nothing was destroyed for it.
    if (!EntryFollows(file, end_.offset)) return false;
    return absl::DataLossError("erasure ledger: damaged");
  }
  if (rest.size() < kFrameBytes + num_bytes) return false;
  const absl::string_view sealed = rest.substr(kFrameBytes, num_bytes);
  const absl::StatusOr<std::string> plain = audit::OpenAes256Gcm(key_, AssociatedOf(end_), sealed);
  // The last one may be torn; what is behind others was written after their sync.
  if (!plain.ok() && rest.size() == kFrameBytes + num_bytes) return false;
  if (!plain.ok()) return absl::DataLossError("erasure ledger: an entry is damaged");
  LETHE_ASSIGN_OR_RETURN(*erasure, Decode(*plain));
  end_.offset += kFrameBytes + num_bytes;
  end_.head = HeadIn(sealed.substr(sealed.size() - kHeadBytes));
  return true;
}

std::vector<Erasure> ErasureLedger::Unsettled() const {
  MutexLock lock(&mutex_);
  if (loaded_is_settled_) return {};
  std::set<audit::Sha256Digest> voided;
  for (const Erasure& erasure : loaded_) {
    if (erasure.kind == ErasureKind::kVoid) voided.insert(erasure.id);
  }
  std::vector<Erasure> unsettled;
  for (const Erasure& erasure : loaded_) {
    if (voided.count(erasure.id) == 0) unsettled.push_back(erasure);
  }
  return unsettled;
}

void ErasureLedger::SettleAll() {
  MutexLock lock(&mutex_);
  loaded_is_settled_ = true;
  loaded_.clear();
}

absl::Status ErasureLedger::Fail(const absl::Status& cause) {
  broken_ = absl::UnavailableError(cause.message());
  if (on_failure_) on_failure_(broken_);
  return broken_;
}

absl::Status ErasureLedger::Append(const Erasure& erasure) {
  LETHE_RETURN_IF_ERROR(broken_);
  const std::string sealed = audit::SealAes256Gcm(key_, AssociatedOf(end_), Encode(erasure));
  const absl::Status written =
      WriteWhole(descriptor_, end_.offset, FrameOf(end_.offset, sealed.size()) + sealed);
  if (!written.ok()) {
    const bool undone = ftruncate(descriptor_, static_cast<off_t>(end_.offset)) == 0;
    return undone && absl::IsResourceExhausted(written) ? written : Fail(written);
  }
  CrashPoint("an erasure is written to the ledger");
  if (fdatasync(descriptor_) != 0) return Fail(IoError("sync failed"));
  CrashPoint("an erasure is in the ledger");
  end_.offset += kFrameBytes + sealed.size();
  end_.head = HeadIn(absl::string_view(sealed).substr(sealed.size() - kHeadBytes));
  return absl::OkStatus();
}

absl::Status ErasureLedger::Begin(const Erasure& erasure) {
  MutexLock lock(&mutex_);
  const LedgerPosition before = end_;
  LETHE_RETURN_IF_ERROR(Append(erasure));
  open_[erasure.id] = before;
  return absl::OkStatus();
}

void ErasureLedger::Settle(const audit::Sha256Digest& id) {
  MutexLock lock(&mutex_);
  open_.erase(id);
}

absl::Status ErasureLedger::Void(const audit::Sha256Digest& id) {
  MutexLock lock(&mutex_);
  const bool is_loaded = std::any_of(loaded_.begin(), loaded_.end(),
                                     [&](const Erasure& erasure) { return erasure.id == id; });
  if (!is_loaded && !loaded_is_settled_) return absl::OkStatus();
  Erasure entry;
  entry.kind = ErasureKind::kVoid;
  entry.id = id;
  LETHE_RETURN_IF_ERROR(Append(entry));
  if (is_loaded) loaded_.push_back(entry);
  open_.erase(id);
  return absl::OkStatus();
}

absl::Status ErasureLedger::failure() const {
  MutexLock lock(&mutex_);
  return broken_;
}

LedgerPosition ErasureLedger::settled() const {
  MutexLock lock(&mutex_);
  if (!loaded_is_settled_) return opened_at_;
  LedgerPosition settled = end_;
  for (const auto& [id, position] : open_) {
    if (position.offset < settled.offset) settled = position;
  }
  return settled;
}

}  // namespace lethe
