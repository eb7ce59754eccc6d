#include "server/limits/request_rate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "server/error/error_info.h"
#include "server/limits/limits.h"

namespace lethe {
namespace {

constexpr int64_t kParts = 1'000'000;  // of a token; a microsecond brings per_second parts

}  // namespace

absl::Status RequestRate::Take(const std::string& tenant, int64_t now_us) {
  if (per_second_ == 0) return absl::OkStatus();
  const int64_t full = kBurstSeconds * per_second_ * kParts;
  MutexLock lock(&mutex_);
  const auto [found, is_new] = buckets_.try_emplace(tenant, Bucket{full, now_us});
  Bucket& bucket = found->second;
  // Longer than kBurstSeconds fills any bucket; the product below then cannot overflow.
  const int64_t passed = std::clamp<int64_t>(now_us - bucket.filled_us, 0, kBurstSeconds * kParts);
  bucket.parts = std::min(full, bucket.parts + passed * per_second_);
  bucket.filled_us = std::max(bucket.filled_us, now_us);
  if (bucket.parts >= kParts) {
    bucket.parts -= kParts;
    return absl::OkStatus();
  }
  const int64_t wait_us = (kParts - bucket.parts + per_second_ - 1) / per_second_;
  const absl::Status refused =
      LimitError({"TOO_MANY_REQUESTS", "--tenant-requests-per-second", per_second_},
                 "this tenant sends too many requests a second");
  ErrorInfo info = ErrorInfoOf(refused);
  info.metadata.emplace_back("retry_after_ms", absl::StrCat((wait_us + 999) / 1000));
  return WithErrorInfo(refused, info);
}

}  // namespace lethe
