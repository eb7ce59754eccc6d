// EXPECT_OK, ASSERT_OK, StatusIs, ASSERT_OK_AND_ASSIGN: the matchers that Debian's Abseil lacks.
// Threads: none.
#ifndef LETHE_TESTS_TESTING_STATUS_MATCHERS_H_
#define LETHE_TESTS_TESTING_STATUS_MATCHERS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "kernels/base/status_macros.h"

namespace lethe::testing {

inline const absl::Status& ToStatus(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& ToStatus(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

MATCHER(IsOk, "is OK") {
  const absl::Status status = ToStatus(arg);
  *result_listener << std::string(status.ToString());
  return status.ok();
}

MATCHER_P(StatusIs, code, "has the given status code") {
  const absl::Status status = ToStatus(arg);
  *result_listener << std::string(status.ToString());
  return status.code() == code;
}

// The message names the field (or whatever text an error must carry).
MATCHER_P2(StatusIs, code, text, "has the given status code and a message with the given text") {
  const absl::Status status = ToStatus(arg);
  *result_listener << std::string(status.ToString());
  return status.code() == code && std::string(status.message()).find(text) != std::string::npos;
}

}  // namespace lethe::testing

#define EXPECT_OK(expr) EXPECT_THAT(expr, ::lethe::testing::IsOk())
#define ASSERT_OK(expr) ASSERT_THAT(expr, ::lethe::testing::IsOk())
#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  ASSERT_OK_AND_ASSIGN_IMPL(LETHE_CONCAT(test_or_, __LINE__), lhs, expr)
#define ASSERT_OK_AND_ASSIGN_IMPL(result, lhs, expr) \
  auto result = (expr);                              \
  ASSERT_OK(result);                                 \
  lhs = std::move(result).value()

#endif  // LETHE_TESTS_TESTING_STATUS_MATCHERS_H_
