// LogDirectory: the files of an audit log beside its database: the lock, the published head, the ticket.
//
// Equation:  none.
// Shapes:    log.lock (empty), checkpoint (the newest signed head, a C2SP note), ticket (log_anchor.h).
// Units:     none.
// Requires:  none.
// Rejects:   as DurableDirectory.
// Effects:   as DurableDirectory.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_AUDIT_LOG_LOG_DIRECTORY_H_
#define LETHE_AUDIT_LOG_LOG_DIRECTORY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/log/durable_directory.h"

namespace lethe::audit {

class LogDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<LogDirectory>> Lock(const std::string& path);

  std::string database_path() const { return directory_->path() + "/log.db"; }
  absl::StatusOr<std::string> ReadHead() const;
  absl::Status PublishHead(absl::string_view checkpoint) const;
  absl::StatusOr<std::string> ReadTicket() const;
  absl::Status WriteTicket(absl::string_view ticket) const;

 private:
  explicit LogDirectory(std::unique_ptr<DurableDirectory> directory)
      : directory_(std::move(directory)) {}
  const std::unique_ptr<DurableDirectory> directory_;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_LOG_DIRECTORY_H_
