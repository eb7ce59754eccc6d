// Goal: under many clients that append, generate, forget, certify, export, cancel, hurry and vanish, a server gives no error but documented
// refusals, never one session's text to another or to its log, keeps what it took and delivered, forgets what it was told to
// forget, leaks nothing and ends in the states of fresh sessions.
// Method: soak.h on the program. `tests/run --long`: 10 minutes with 200 sessions.
#include "tests/soak/soak.h"

#include <cstdlib>
#include <iostream>
#include <string>

#include "gtest/gtest.h"

#include "tests/testing/long_run.h"

namespace lethe::soak {
namespace {

SoakOptions OptionsOfRun() {
  SoakOptions options;
  const char* const seconds = std::getenv("LETHE_LONG_SECONDS");
  if (seconds == nullptr && !testing::IsLongTest()) return options;
  options.seconds = seconds == nullptr ? 600 : std::atof(seconds);
  options.num_sessions = 200;
  options.num_rounds = 15;
  options.resident_mib = 64;
  options.print_rounds = true;
  return options;
}

TEST(SoakRounds, ServerUnderLoad) {
  testing::LongRun run("soak");
  ASSERT_TRUE(run.Next());  // once: the rounds are its own
  SoakOptions options = OptionsOfRun();
  options.seed = run.seed();
  const SoakReport report = RunSoak(options);
  std::cout << "seed " << options.seed << "\n" << report.counts;
  for (const std::string& complaint : report.complaints) ADD_FAILURE() << complaint;
  EXPECT_EQ(report.num_complaints, 0);
  EXPECT_GE(report.num_steps, options.num_sessions * options.num_rounds);
  EXPECT_GT(report.num_states, 0);
  run.Count("steps", report.num_steps);
}

}  // namespace
}  // namespace lethe::soak
