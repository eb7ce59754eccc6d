// Goal: work of more than two seconds shows on a terminal that it goes on, shorter work shows
// nothing, and nothing of it stays.
// Method: a terminal that is a string.
#include "client/commands/progress.h"

#include <chrono>
#include <sstream>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lethe::client {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string Shown(std::chrono::milliseconds duration, bool is_terminal) {
  std::istringstream in;
  std::ostringstream out;
  std::ostringstream err;
  {
    const Io io{.in = in, .out = out, .err = err, .err_is_terminal = is_terminal};
    Progress progress(io, "forgetting");
    progress.Update("3 of 7 parts");
    std::this_thread::sleep_for(duration);
  }
  EXPECT_EQ(out.str(), "");
  return err.str();
}

TEST(ProgressTest, ShowsAfterTwoSecondsAndIsWipedAtTheEnd) {
  const std::string shown = Shown(std::chrono::milliseconds(2200), true);
  EXPECT_THAT(shown, HasSubstr("forgetting: 3 of 7 parts ... 2 s"));
  EXPECT_THAT(shown, EndsWith("\r\033[K"));
}

TEST(ProgressTest, ShortWorkAndOtherStreamsShowNothing) {
  EXPECT_EQ(Shown(std::chrono::milliseconds(100), true), "");
  EXPECT_EQ(Shown(std::chrono::milliseconds(2200), false), "");
}

}  // namespace
}  // namespace lethe::client
