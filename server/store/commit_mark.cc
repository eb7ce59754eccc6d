#include "server/store/commit_mark.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include <fcntl.h>
#include <unistd.h>

#include "audit/crypto/sha256.h"
#include "kernels/base/byte_io.h"
#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

constexpr char kMarkMagic[] = "lethe commits 1\n";
constexpr size_t kMarkBytes = sizeof kMarkMagic - 1 + sizeof(StoreId) + 8 + 32;

std::string MarkBytes(const StoreId& store, uint64_t count) {
  ByteWriter writer;
  writer.Raw(kMarkMagic, sizeof kMarkMagic - 1);
  writer.Raw(store.data(), store.size());
  writer.U64(count);
  const audit::Sha256Digest check = audit::Sha256Of(writer.bytes());
  writer.Raw(check.data(), check.size());
  return writer.Take();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CommitMark>> CommitMark::Open(const std::string& path,
                                                             const StoreId& store) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    return absl::UnavailableError(absl::StrCat("sessions/commits: ", std::strerror(errno)));
  }
  std::unique_ptr<CommitMark> mark(new CommitMark(descriptor, store));
  std::string bytes(kMarkBytes, '\0');
  const ssize_t size = pread(descriptor, bytes.data(), bytes.size(), 0);
  if (size < 0) {
    return absl::UnavailableError(absl::StrCat("sessions/commits: ", std::strerror(errno)));
  }
  ByteReader reader(absl::string_view(bytes).substr(kMarkBytes - 40));
  uint64_t count = 0;
  LETHE_RETURN_IF_ERROR(reader.U64(&count));
  if (bytes == MarkBytes(store, count)) mark->marked_ = count;
  return mark;
}

CommitMark::~CommitMark() { close(descriptor_); }

absl::Status CommitMark::Check(uint64_t count) const {
  if (marked_ <= count) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "sessions.db lacks ", marked_ - count,
      " changes that were made durable: its write-ahead log was cut or damaged, or the file was "
      "replaced by an older one; restore it, or remove sessions/commits to serve what is there"));
}

void CommitMark::Note(uint64_t count) {
  marked_ = count;
  const std::string bytes = MarkBytes(store_, count);
  // One that fails leaves an older mark, which says less.
  static_cast<void>(!pwrite(descriptor_, bytes.data(), bytes.size(), 0));
}

}  // namespace lethe
