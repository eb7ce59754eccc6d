// RequestRate: a token bucket for each tenant.
//
// Equation:  a bucket holds at most kBurstSeconds · per_second tokens, gains per_second of them a second, and a request takes
//            one.
// Shapes:    none.
// Units:     microseconds of a steady clock.
// Requires:  per_second >= 0; 0: every request passes.
// Rejects:   Take: RESOURCE_EXHAUSTED, reason TOO_MANY_REQUESTS, with the metadata of LimitError and retry_after_ms.
// Effects:   a request that is refused takes nothing. A bucket lives as long as the object: tenants are those of the
//            operator's list.
// Numerics:  integers: a token is 1,000,000 parts, so any rate is exact.
// Threads:   safe.
#ifndef LETHE_SERVER_LIMITS_REQUEST_RATE_H_
#define LETHE_SERVER_LIMITS_REQUEST_RATE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"

#include "kernels/base/mutex.h"

namespace lethe {

class RequestRate {
 public:
  static constexpr int64_t kBurstSeconds = 2;

  explicit RequestRate(int64_t per_second) : per_second_(per_second) {}

  absl::Status Take(const std::string& tenant, int64_t now_us);

 private:
  struct Bucket {
    int64_t parts = 0;
    int64_t filled_us = 0;  // when parts was right
  };

  const int64_t per_second_;
  Mutex mutex_;
  std::map<std::string, Bucket> buckets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lethe

#endif  // LETHE_SERVER_LIMITS_REQUEST_RATE_H_
