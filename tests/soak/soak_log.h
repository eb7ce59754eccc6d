// SoakLog: what all clients of a soak count and complain about.
//
// Requires:  none.
// Effects:   Accept counts an answer under its operation; an error that is no documented refusal (kRefusals) or that holds content is
//            a complaint.
// Threads:   safe.
#ifndef LETHE_TESTS_SOAK_SOAK_LOG_H_
#define LETHE_TESTS_SOAK_SOAK_LOG_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include <grpcpp/support/status.h>

#include "kernels/base/mutex.h"

namespace lethe::soak {

// An answer other than OK that a client of this mix must expect.
struct Refusal {
  grpc::StatusCode code;
  absl::string_view reason;  // empty: the client library's own status, without a detail
  absl::string_view why;
};
extern const std::vector<Refusal> kRefusals;

class SoakLog {
 public:
  // Whether it is OK.
  bool Accept(const char* operation, const grpc::Status& status);
  void Count(const std::string& what, int64_t count = 1);
  void Complain(const std::string& text);

  // The first few.
  std::vector<std::string> complaints() const;
  int64_t num_complaints() const;
  int64_t CountOf(const std::string& what) const;
  std::string Text() const;

 private:
  static constexpr size_t kComplaintsMax = 20;

  mutable Mutex mutex_;
  std::map<std::string, int64_t> counts_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> complaints_ ABSL_GUARDED_BY(mutex_);
  int64_t num_complaints_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lethe::soak

#endif  // LETHE_TESTS_SOAK_SOAK_LOG_H_
