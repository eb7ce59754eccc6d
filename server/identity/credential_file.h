// CredentialFile: a file of credentials that is read again, without a restart, whenever it has changed.
//
// Equation:  none.
// Shapes:    as credentials.h.
// Units:     none.
// Requires:  whoever changes the file puts another in its place (rename), so that no half of it is ever read.
// Rejects:   Open: INVALID_ARGUMENT naming the file and, as ParseCredentials, the line; NOT_FOUND when it cannot be read.
// Effects:   Current looks at the file's size, times and number on every call, so a revocation holds from the next call on.
//            A file that has become unreadable or bad is reported once in the log, and the list read before stays in force.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_IDENTITY_CREDENTIAL_FILE_H_
#define LETHE_SERVER_IDENTITY_CREDENTIAL_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "kernels/base/mutex.h"
#include "server/identity/credentials.h"

namespace lethe {

class CredentialFile {
 public:
  using List = std::shared_ptr<const std::vector<Credential>>;

  // `flag`: what named the file, for messages.
  static absl::StatusOr<std::unique_ptr<CredentialFile>> Open(absl::string_view flag,
                                                              const std::string& path);

  List Current();

 private:
  // What tells one version of the file from another.
  struct Stamp {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t size = 0;
    int64_t changed_ns = 0;
    int64_t modified_ns = 0;
    bool operator==(const Stamp& other) const;
  };
  CredentialFile(absl::string_view flag, std::string path) : flag_(flag), path_(std::move(path)) {}
  absl::StatusOr<Stamp> Look() const;
  absl::Status Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string flag_;
  const std::string path_;
  Mutex mutex_;
  Stamp stamp_ ABSL_GUARDED_BY(mutex_);
  // The file was so new when it was read that a later change may have the same times.
  bool is_fresh_ ABSL_GUARDED_BY(mutex_) = false;
  std::string reported_ ABSL_GUARDED_BY(mutex_);        // what the log says of the present version
  audit::Sha256Digest text_ ABSL_GUARDED_BY(mutex_){};  // of what was parsed last, with this result
  absl::Status parsed_ ABSL_GUARDED_BY(mutex_);
  List list_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lethe

#endif  // LETHE_SERVER_IDENTITY_CREDENTIAL_FILE_H_
