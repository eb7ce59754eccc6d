// Goal: a line of the log is one line for people, or one object of JSON whatever bytes its message has.
// Method: standard error captured; the objects read back.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <nlohmann/json.hpp>

#include "server/diagnostics/log.h"

namespace lethe {
namespace {

using ::testing::EndsWith;
using ::testing::MatchesRegex;

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override {
    SetLogFormat(LogFormat::kText);
    SetLogLevel(LogLevel::kInfo);
  }
  static std::string Written(const std::function<void()>& write) {
    ::testing::internal::CaptureStderr();
    write();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, TextIsTimeLevelMessage) {
  EXPECT_THAT(Written([] { LogInfo("here"); }),
              MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z I here\n"));
  EXPECT_THAT(Written([] { LogError("bad", {{"code", "INTERNAL"}}); }), EndsWith("Z E bad\n"));
  EXPECT_EQ(Written([] { LogDebug("hidden"); }), "");
}

TEST_F(LogTest, JsonIsOneObjectALineWithTheFields) {
  SetLogFormat(LogFormat::kJson);
  SetLogLevel(LogLevel::kDebug);
  const std::string line = Written([] {
    LogDebug("a \"quoted\"\nmessage\xff", {{"method", "Forget"}, {"duration_us", "12"}});
  });
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const nlohmann::json object = nlohmann::json::parse(line);
  EXPECT_EQ(object["level"], "debug");
  EXPECT_EQ(object["message"], "a \"quoted\"\nmessage\xEF\xBF\xBD");
  EXPECT_EQ(object["method"], "Forget");
  EXPECT_EQ(object["duration_us"], "12");
  EXPECT_THAT(object["time"].get<std::string>(), MatchesRegex("[0-9T:-]{19}Z"));
}

}  // namespace
}  // namespace lethe
