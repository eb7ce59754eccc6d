#include "audit/log/log_directory.h"

#include <utility>

#include "audit/log/note.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

constexpr char kLogLockFile[] = "log.lock";
constexpr char kHeadFile[] = "checkpoint";
constexpr char kTicketFile[] = "ticket";
constexpr size_t kTicketBytesMax = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<LogDirectory>> LogDirectory::Lock(const std::string& path) {
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<DurableDirectory> directory,
                         DurableDirectory::Lock(path, kLogLockFile, "audit log"));
  return std::unique_ptr<LogDirectory>(new LogDirectory(std::move(directory)));
}

absl::StatusOr<std::string> LogDirectory::ReadHead() const {
  return directory_->Read(kHeadFile, kNoteBytesMax);
}

absl::Status LogDirectory::PublishHead(absl::string_view checkpoint) const {
  return directory_->Replace(kHeadFile, checkpoint, 0644);
}

absl::StatusOr<std::string> LogDirectory::ReadTicket() const {
  return directory_->Read(kTicketFile, kTicketBytesMax);
}

absl::Status LogDirectory::WriteTicket(absl::string_view ticket) const {
  return directory_->Replace(kTicketFile, ticket, 0600);
}

}  // namespace lethe::audit
