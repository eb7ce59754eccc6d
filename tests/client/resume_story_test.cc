// Goal: `lethe generate` goes on with an answer behind a token that the caller names.
// Method: lethe-server's parts in this process on a free port, with a small synthetic model.
#include <string>
#include <vector>

#include "gmock/gmock.h"

#include "tests/client/story_server.h"

namespace lethe::client {
namespace {

using ::testing::HasSubstr;

class ResumeStoryTest : public StoryTest {};

TEST_F(ResumeStoryTest, GenerateGoesOnBehindATokenOfAnEarlierStream) {
  std::string session = Run({"session", "create", "--id-only"}).out;
  ASSERT_FALSE(session.empty());
  session.pop_back();
  std::vector<std::string> line = {
      "generate",      session, "--prompt",     "Who?", "--max-tokens",        "12",
      "--temperature", "1",     "--request-id", "g1",   "--ignore-end-of-text"};
  const ProgramRun first = Run(line);
  ASSERT_EQ(first.exit_code, kExitDone) << first.err;
  const ProgramRun repeat = Run(line);
  EXPECT_EQ(repeat.exit_code, kExitRefused);
  EXPECT_THAT(repeat.err, HasSubstr("REQUEST_DONE"));
  line.insert(line.end(), {"--last-token-id", "0"});
  const ProgramRun again = Run(line);
  EXPECT_EQ(again.exit_code, kExitDone) << again.err;
  EXPECT_EQ(again.out, first.out);
  line.back() = "12";  // four of the prompt, eight of the answer
  const ProgramRun rest = Run(line);
  EXPECT_EQ(rest.exit_code, kExitDone) << rest.err;
  EXPECT_EQ(rest.out, first.out.substr(first.out.size() - rest.out.size()));
  EXPECT_LE(rest.out.size(), 6u);
  EXPECT_THAT(rest.err, HasSubstr("answer 12 tokens (token_ids 5-16)"));
  line[line.size() - 2] = "--last-token";
  EXPECT_EQ(Run(line).exit_code, kExitUsage);
  EXPECT_EQ(Run({"generate", session, "--prompt", "x", "--last-token-id", "3"}).exit_code,
            kExitUsage);
}

}  // namespace
}  // namespace lethe::client
