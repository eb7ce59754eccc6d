// Goal: a traceparent is taken only in the form of W3C Trace Context, so nothing else of a client's gets into the log.
// Method: valid values, and each with one thing wrong.
#include "server/rpc/trace_context.h"

#include <string>

#include "gtest/gtest.h"

namespace lethe {
namespace {

constexpr char kValid[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContextTest, TakesItsIds) {
  const auto trace = TraceContext::Parse(kValid);
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(trace->parent_id, "b7ad6b7169203331");
  // A later version may say more.
  std::string later = kValid;
  later[1] = '1';
  EXPECT_TRUE(TraceContext::Parse(later + "-more").has_value());
}

TEST(TraceContextTest, AnyOtherFormIsNone) {
  const std::string valid = kValid;
  for (size_t i = 0; i < valid.size(); ++i) {
    std::string changed = valid;
    changed[i] = 'G';
    EXPECT_FALSE(TraceContext::Parse(changed).has_value()) << i;
    EXPECT_FALSE(TraceContext::Parse(valid.substr(0, i)).has_value()) << i;
  }
  EXPECT_FALSE(TraceContext::Parse(valid + "-more").has_value());
  EXPECT_FALSE(TraceContext::Parse("ff" + valid.substr(2)).has_value());
  EXPECT_FALSE(TraceContext::Parse("01" + valid.substr(2) + "x").has_value());
  EXPECT_FALSE(
      TraceContext::Parse("00-00000000000000000000000000000000-b7ad6b7169203331-01").has_value());
  EXPECT_FALSE(
      TraceContext::Parse("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01").has_value());
}

}  // namespace
}  // namespace lethe
