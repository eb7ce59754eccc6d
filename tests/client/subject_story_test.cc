// Goal: forgetting a person everywhere, and a session in a file, as the user of `lethe` meets them: the summary and its
// certificates verify offline, the label stays off command line, output and files; refusals name what is wrong.
// Method: lethe-server's parts in this process.
#include <filesystem>
#include <string>
#include <vector>

#include "client/commands/check_report.h"
#include "client/commands/files.h"
#include "gmock/gmock.h"

#include "tests/client/story_server.h"
#include "tests/testing/status_matchers.h"

namespace lethe::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kLabel[] = "patient-17";

class SubjectStoryTest : public StoryTest {
 protected:
  std::string Create() {
    const ProgramRun run = Run({"session", "create", "--id-only"});
    EXPECT_EQ(run.exit_code, kExitDone) << run.err;
    return run.out.substr(0, run.out.size() - 1);
  }
  ProgramRun Append(const std::string& session, const std::string& text,
                    const std::string& subject) {
    std::vector<std::string> line = {"append", session, "--text", text};
    if (!subject.empty()) line.insert(line.end(), {"--subject", subject});
    return Run(line);
  }
  ProgramRun Verify(std::vector<std::string> more = {}) {
    std::vector<std::string> line = {"verify", Path("out"), "--trust", server_->trust_path()};
    line.insert(line.end(), more.begin(), more.end());
    return Run(line, kLabel);
  }
};

TEST_F(SubjectStoryTest, APersonIsForgottenEverywhereAndTheSummaryVerifies) {
  const std::string first = Create();
  const std::string second = Create();
  const std::string third = Create();
  for (const std::string& session : {first, second}) {
    EXPECT_EQ(Append(session, "a visit", "").exit_code, kExitDone);
    EXPECT_EQ(Append(session, "takes zelvim", kLabel).exit_code, kExitDone);
  }
  EXPECT_EQ(Append(third, "a visit", "patient-52").exit_code, kExitDone);
  const ProgramRun dry =
      Run({"forget-subject", "--label-file", "-", "--derived", "fail", "--dry-run"}, kLabel);
  EXPECT_THAT(dry.out, HasSubstr("Would forget 24 inputs in 2 sessions of 3."));

  const ProgramRun run = Run({"forget-subject", "--label-file", "-", "--derived", "fail", "--out",
                              Path("out"), "--request-id", "r1", "--nonce", std::string(32, 'a')},
                             std::string(kLabel) + "\n");
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  EXPECT_THAT(run.out, HasSubstr("inputs forgotten"));
  EXPECT_THAT(run.out, HasSubstr(" 24\n"));
  EXPECT_THAT(run.out + run.err, Not(HasSubstr(kLabel)));
  const ProgramRun verified = Verify({"--label-file", "-", "--nonce", std::string(32, 'a')});
  EXPECT_EQ(verified.exit_code, kExitDone) << verified.out;
  EXPECT_THAT(verified.out, HasSubstr("VERIFIED: no check failed.\n"));
  EXPECT_THAT(verified.out, HasSubstr("24 inputs in 2 sessions"));
  EXPECT_EQ(Verify({"--label", "patient-18"}).exit_code, kExitVerificationFailed);
  EXPECT_EQ(Verify({"--nonce", std::string(32, 'b')}).exit_code, kExitVerificationFailed);
  // Each session's certificate stands by itself too.
  EXPECT_EQ(
      Run({"verify", Path("out/sessions/") + first, "--trust", server_->trust_path()}).exit_code,
      kExitDone);
  EXPECT_EQ(Run({"verify", Path("out/sessions/") + first, "--trust", server_->trust_path(),
                 "--label", "x"})
                .exit_code,
            kExitUsage);
  for (const auto& file : std::filesystem::recursive_directory_iterator(Path("out"))) {
    if (!file.is_regular_file()) continue;
    ASSERT_OK_AND_ASSIGN(const std::string bytes, ReadFile(file.path().string()));
    EXPECT_EQ(bytes.find(kLabel), std::string::npos) << file.path();
  }

  // The repeat finds the same job; one certificate fewer leaves checks open, one too many fails.
  const Json again = RunJson({"forget-subject", kLabel, "--derived", "fail", "--request-id", "r1",
                              "--nonce", std::string(32, 'a')});
  const Json jobs = RunJson({"jobs", "list"});
  ASSERT_EQ(jobs["jobs"].size(), 1u);
  EXPECT_EQ(jobs["jobs"][0]["job_id"], again["job_id"]);
  EXPECT_EQ(jobs["jobs"][0]["state"], "done");
  const std::string job = again["job_id"];
  const ProgramRun sessions = Run({"jobs", "sessions", job});
  EXPECT_THAT(sessions.out, HasSubstr("forgotten"));
  std::filesystem::rename(Path("out/sessions/") + second, Path("kept"));
  const ProgramRun partial = Verify();
  EXPECT_EQ(partial.exit_code, kExitDone);
  EXPECT_THAT(partial.out, HasSubstr("1 of 2 certificates given"));
  std::filesystem::rename(Path("kept"), Path("out/sessions/") + second);
  std::filesystem::copy(Path("out/sessions/") + first, Path("out/sessions/twice"));
  EXPECT_EQ(Verify().exit_code, kExitVerificationFailed);

  // The log that holds the summary is whole.
  const std::vector<std::string> mirror = {"audit", "export", Path("mirror"), "--bodies"};
  ASSERT_EQ(Run(mirror).exit_code, kExitDone);
  const ProgramRun fsck = Run({"audit", "fsck", Path("mirror"), "--trust", server_->trust_path()});
  EXPECT_EQ(fsck.exit_code, kExitDone) << fsck.out;
  EXPECT_THAT(fsck.out, HasSubstr("forget-subject  1\n"));

  EXPECT_EQ(Run({"jobs", "delete", job}).exit_code, kExitDone);
  EXPECT_EQ(Run({"jobs", "get", job}).exit_code, kExitRefused);
  EXPECT_THAT(Run({"jobs", "list"}).out, HasSubstr("No jobs."));
}

TEST_F(SubjectStoryTest, RefusalsNameWhatIsWrong) {
  EXPECT_EQ(Run({"forget-subject", "--derived", "keep"}).exit_code, kExitUsage);
  EXPECT_EQ(Run({"forget-subject", "x", "--label-file", "-", "--derived", "keep"}).exit_code,
            kExitUsage);
  EXPECT_EQ(Run({"forget-subject", "x"}).exit_code, kExitUsage);
  EXPECT_EQ(Run({"forget-subject", std::string(129, 'x'), "--derived", "keep"}).exit_code,
            kExitUsage);
  EXPECT_EQ(Run({"forget-subject", "--label-file", "-", "--derived", "keep"}, "\n").exit_code,
            kExitUsage);
  EXPECT_THAT(Run({"jobs", "get", "UPPER"}).err, HasSubstr("job_id"));
  EXPECT_THAT(Run({"jobs", "get", "nosuchjob"}).err, HasSubstr("no such job"));
}

TEST_F(SubjectStoryTest, EveryCheckIsExplained) {
  for (const char* name : audit::kSubjectCheckNames) EXPECT_NE(CheckMeaning(name), "") << name;
}

TEST_F(SubjectStoryTest, ASessionLeavesAndComesBackInAFile) {
  const std::string session = Create();
  EXPECT_EQ(Append(session, std::string(3000, 'x') + "takes zelvim", kLabel).exit_code, kExitDone);
  const std::string file = Path("session.export");
  const std::string key = Path("export.key");
  const ProgramRun exported = Run({"session", "export", session, "--out", file, "--key", key});
  ASSERT_EQ(exported.exit_code, kExitDone) << exported.err;
  ASSERT_OK_AND_ASSIGN(std::string bytes, ReadFile(file));
  EXPECT_EQ(bytes.find("zelvim"), std::string::npos);
  EXPECT_EQ(std::filesystem::status(key).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_EQ(std::filesystem::file_size(key), 32u);
  const Json imported = RunJson({"session", "import", file, "--key", key, "--name", "copy"});
  EXPECT_EQ(imported["reevaluated"], false);
  EXPECT_EQ(imported["digest"]["sha256"], imported["exported_digest"]["sha256"]);
  EXPECT_EQ(imported["session"]["display_name"], "copy");
  EXPECT_EQ(RunJson({"session", "get", session})["num_exports"], 1);
  const std::string copy = imported["session"]["session_id"];
  const std::vector<std::string> ask = {"--prompt",     "and", "--seed",        "7",
                                        "--max-tokens", "20",  "--no-remember", "--quiet"};
  std::vector<std::string> lines[2] = {{"generate", session}, {"generate", copy}};
  for (auto& line : lines) line.insert(line.end(), ask.begin(), ask.end());
  EXPECT_EQ(Run(lines[0]).out, Run(lines[1]).out);

  // Over a session only where that is said; nothing is written over an existing file.
  const std::string other = Create();
  EXPECT_EQ(Run({"session", "import", file, "--key", key, "--replace", other}).exit_code,
            kExitDone);
  EXPECT_EQ(RunJson({"session", "digest", other})["digest"]["sha256"],
            imported["digest"]["sha256"]);
  EXPECT_EQ(Run({"session", "export", session, "--out", file, "--key", key}).exit_code, kExitUsage);
  EXPECT_EQ(Run({"session", "import", file, "--key", file}).exit_code, kExitUsage);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  ASSERT_OK(WriteFile(Path("broken"), bytes));
  const ProgramRun broken =
      Run({"session", "import", Path("broken"), "--key", key, "--replace", other});
  EXPECT_EQ(broken.exit_code, kExitRefused);
  EXPECT_THAT(broken.err, HasSubstr("EXPORT_NOT_AUTHENTIC"));
  EXPECT_EQ(RunJson({"session", "digest", other})["digest"]["sha256"],
            imported["digest"]["sha256"]);
  EXPECT_EQ(
      Run({"session", "export", "nosuchsession", "--out", Path("none"), "--key", key}).exit_code,
      kExitRefused);
  EXPECT_FALSE(std::filesystem::exists(Path("none")));
  EXPECT_FALSE(std::filesystem::exists(Path("none.part")));
  EXPECT_TRUE(std::filesystem::exists(key));
}

TEST_F(SubjectStoryTest, AnExportThatFailsLeavesNoKey) {
  const std::string session = Create();
  const auto refused = [&](const std::string& name, const std::string& out) {
    const ProgramRun run = Run({"session", "export", name, "--out", out, "--key", Path("new.key")});
    EXPECT_NE(run.exit_code, kExitDone) << out;
    EXPECT_FALSE(std::filesystem::exists(Path("new.key"))) << out;
    EXPECT_THAT(run.err, Not(HasSubstr(".part")));
  };
  refused("nosuchsession", Path("none"));
  refused(session, Path("no-such-directory/out"));
  ASSERT_OK(WriteFile(Path("there"), "held"));
  refused(session, Path("there"));
  EXPECT_EQ(*ReadFile(Path("there")), "held");
}

}  // namespace
}  // namespace lethe::client
