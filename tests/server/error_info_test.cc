// Goal: a reason attached deep inside reaches the edge unchanged, and never costs the status
// itself.
// Method: plain cases.
#include "server/error/error_info.h"

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

TEST(ErrorInfoTest, RoundTrips) {
  const absl::Status status = WithErrorInfo(absl::AbortedError("busy"),
                                            {"SESSION_BUSY", {{"field", "session_id"}, {"", ""}}});
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "busy"));
  const auto info = GetErrorInfo(status);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason, "SESSION_BUSY");
  ASSERT_EQ(info->metadata.size(), 2u);
  EXPECT_EQ(info->metadata[0].second, "session_id");
}

TEST(ErrorInfoTest, OkCarriesNothing) {
  EXPECT_OK(WithErrorInfo(absl::OkStatus(), {"X", {}}));
  EXPECT_OK(WithDefaultReason(absl::OkStatus(), "X"));
  EXPECT_FALSE(GetErrorInfo(absl::OkStatus()).has_value());
  EXPECT_FALSE(GetErrorInfo(absl::InternalError("x")).has_value());
}

TEST(ErrorInfoTest, InnermostReasonWins) {
  const absl::Status inner = WithErrorInfo(absl::InternalError("x"), {"INNER", {}});
  EXPECT_EQ(GetErrorInfo(WithDefaultReason(inner, "OUTER"))->reason, "INNER");
  EXPECT_EQ(GetErrorInfo(WithDefaultReason(absl::InternalError("x"), "OUTER"))->reason, "OUTER");
}

TEST(ErrorInfoTest, InvalidFieldNamesFieldAndRange) {
  const absl::Status status = InvalidFieldError("page_size", "0 to 10");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "page_size: want 0 to 10"));
  EXPECT_EQ(GetErrorInfo(status)->reason, "INVALID_FIELD");
}

TEST(ErrorInfoTest, AStatusWithoutInfoHasItsCodesName) {
  EXPECT_EQ(ErrorInfoOf(absl::UnavailableError("later")).reason, "UNAVAILABLE");
  const absl::Status named = WithDefaultReason(absl::UnavailableError("later"), "SHUTTING_DOWN");
  EXPECT_EQ(ErrorInfoOf(named).reason, "SHUTTING_DOWN");
}

}  // namespace
}  // namespace lethe::testing
