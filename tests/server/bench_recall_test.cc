// Goal: lethe-tiny, served, recalls an unseen record that lies beyond every window, and after the
// Forget of its subject answers as a session never told; a file of cases that is none is refused.
// Method: the cases of tests/testdata/recall (train/recall_cases.py: unseen names and values, at least
// 1,000 bytes back), each told to a session, asked by the server's own Generate, greedy and
// free-running, then forgotten and compared, bit for bit, with a session given the rest.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/bench/recall.h"
#include "tests/testing/status_matchers.h"

namespace lethe::bench {
namespace {

using ::lethe::testing::StatusIs;

constexpr size_t kNumCases = 12;
constexpr size_t kRecalledAtLeast = 11;  // of 500 such cases the model misses one or two
constexpr int64_t kLeastBack = 1000;

std::string CasesPath() {
  return std::string(LETHE_SOURCE_DIR) + "/tests/testdata/recall/cases.jsonl";
}

TEST(ServedRecallTest, RecallsUnseenRecordsAndForgetsThemWithoutTrace) {
  ASSERT_OK_AND_ASSIGN(const auto model,
                       Model::Load(std::string(LETHE_SOURCE_DIR) + "/models/lethe-tiny"));
  ASSERT_OK_AND_ASSIGN(const std::vector<RecallCase> cases, ReadRecallCases(CasesPath()));
  ASSERT_EQ(cases.size(), kNumCases);
  size_t recalled = 0;
  size_t unknown = 0;
  for (const RecallCase& asked : cases) {
    SCOPED_TRACE(asked.query);
    EXPECT_GE(asked.back, kLeastBack);
    ASSERT_OK_AND_ASSIGN(const RecallOutcome outcome, RunRecallCase(model, asked));
    recalled += outcome.reply == asked.answer ? 1 : 0;
    EXPECT_TRUE(outcome.same_digest);
    EXPECT_TRUE(outcome.same_logits);
    EXPECT_EQ(outcome.reply_after, outcome.reply_fresh);
    EXPECT_NE(outcome.reply_after, asked.answer);
    unknown += outcome.reply_after == " unknown." ? 1 : 0;
  }
  EXPECT_GE(recalled, kRecalledAtLeast);
  // What the model says without the record is its own affair, but it was trained to say this.
  EXPECT_GE(unknown, kNumCases - 2);
}

class RecallCasesTest : public ::testing::Test {
 protected:
  absl::Status Read(const std::string& text) {
    const std::string path =
        (std::filesystem::temp_directory_path() / "lethe-recall-cases-test").string();
    std::ofstream(path, std::ios::binary) << text;
    const absl::Status status = ReadRecallCases(path).status();
    std::remove(path.c_str());
    return status;
  }
};

TEST_F(RecallCasesTest, RefusesAFileThatHoldsNoCasesAndSaysWhere) {
  using absl::StatusCode;
  const std::string good =
      R"({"parts":[["told\n","a"]],"subject":"a","query":"q","answer":" v.","back":1})";
  EXPECT_OK(Read(good + "\n"));
  EXPECT_THAT(ReadRecallCases("/nonexistent/cases").status(), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(Read(""), StatusIs(StatusCode::kInvalidArgument, "holds none"));
  EXPECT_THAT(Read(good + "\n{]\n"), StatusIs(StatusCode::kInvalidArgument, "line 2"));
  EXPECT_THAT(Read("{}\n"), StatusIs(StatusCode::kInvalidArgument, "parts"));
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return Read(text.replace(text.find(from), from.size(), to) + "\n");
  };
  EXPECT_THAT(changed(R"(["told\n","a"])", R"(["told\n"])"),
              StatusIs(StatusCode::kInvalidArgument, "parts"));
  EXPECT_THAT(changed(R"("subject":"a")", R"("subject":"b")"),
              StatusIs(StatusCode::kInvalidArgument, "subject"));
  EXPECT_THAT(changed(R"(" v.")", R"("")"), StatusIs(StatusCode::kInvalidArgument, "answer"));
  EXPECT_THAT(changed(R"("back":1)", R"("back":"1")"),
              StatusIs(StatusCode::kInvalidArgument, "back"));
}

}  // namespace
}  // namespace lethe::bench
