// Goal: results reach the place that was named or the exit code says so: links, devices and pipes stay
//   what they are, a full disk is no success, and nothing that is printed drives the terminal.
// Method: files in a temporary directory; a stream that takes nothing; texts with every control character.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <streambuf>
#include <string>
#include <thread>

#include "client/commands/color.h"
#include "client/commands/files.h"
#include "client/commands/report.h"
#include "gmock/gmock.h"
#include <sys/stat.h>

#include "tests/client/program_run.h"
#include "tests/testing/status_matchers.h"

namespace lethe::client {
namespace {

using ::lethe::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// As a full disk.
class FullBuffer : public std::streambuf {
 protected:
  int overflow(int) override { return traits_type::eof(); }
};

TEST(OutputTest, AStreamThatTakesNothingIsNoSuccess) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--help"}, {"--version"}, {"verify", "--help"}}) {
    FullBuffer buffer;
    std::istringstream in;
    std::ostream out(&buffer);
    std::ostringstream err;
    EXPECT_EQ(RunProgram(arguments, Io{.in = in, .out = out, .err = err}), kExitUsage);
    EXPECT_EQ(err.str(), "lethe: cannot write standard output\n");
  }
}

std::string DoctorOnATerminal(bool is_terminal, bool color) {
  std::istringstream in;
  std::ostringstream out;
  std::ostringstream err;
  RunProgram({"doctor", "--server=127.0.0.1:1"},
             Io{.in = in, .out = out, .err = err, .out_is_terminal = is_terminal, .color = color});
  return out.str();
}

TEST(OutputTest, ColorIsForATerminalThatWantsIt) {
  EXPECT_THAT(DoctorOnATerminal(true, true), HasSubstr("\033[32mok\033[0m       versions: lethe "));
  EXPECT_THAT(DoctorOnATerminal(true, false), Not(HasSubstr("\033")));
  EXPECT_THAT(DoctorOnATerminal(false, true), Not(HasSubstr("\033")));
  std::istringstream in;
  std::ostringstream out;
  std::ostringstream err;
  RunProgram({"append", "s"},
             Io{.in = in, .out = out, .err = err, .err_is_terminal = true, .color = true});
  EXPECT_THAT(err.str(), StartsWith("\033[31mlethe:\033[0m give the text"));
}

TEST(OutputTest, NoColorAndDumbTerminalsAreHonoured) {
  setenv("TERM", "xterm-256color", 1);
  unsetenv("NO_COLOR");
  EXPECT_TRUE(ColorWanted());
  setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(ColorWanted());
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(ColorWanted());
  unsetenv("NO_COLOR");
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(ColorWanted());
  unsetenv("TERM");
  EXPECT_FALSE(ColorWanted());
}

class WriteFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "lethe-output-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  size_t NumFiles() const {
    const auto begin = std::filesystem::directory_iterator(directory_);
    return static_cast<size_t>(std::distance(begin, std::filesystem::directory_iterator()));
  }

  std::string directory_;
};

TEST_F(WriteFileTest, ReplacesAFileAndLeavesNothingBeside) {
  ASSERT_OK(WriteFile(Path("file"), "longer than the next"));
  ASSERT_OK(WriteFile(Path("file"), "next"));
  EXPECT_EQ(*ReadFile(Path("file")), "next");
  EXPECT_EQ(NumFiles(), 1u);
}

TEST_F(WriteFileTest, ALinkStaysAndItsTargetIsWritten) {
  ASSERT_OK(WriteFile(Path("target"), "old"));
  std::filesystem::create_symlink("target", Path("link"));
  std::filesystem::create_symlink("made", Path("dangling"));
  ASSERT_OK(WriteFile(Path("link"), "new"));
  ASSERT_OK(WriteFile(Path("dangling"), "made"));
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
  EXPECT_TRUE(std::filesystem::is_symlink(Path("dangling")));
  EXPECT_EQ(*ReadFile(Path("target")), "new");
  EXPECT_EQ(*ReadFile(Path("made")), "made");
  EXPECT_EQ(NumFiles(), 4u);
}

TEST_F(WriteFileTest, APipeIsWrittenInto) {
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] {
    std::ifstream file(Path("pipe"));
    std::getline(file, read);
  });
  EXPECT_OK(WriteFile(Path("pipe"), "line\n"));
  reader.join();
  EXPECT_EQ(read, "line");
  EXPECT_TRUE(std::filesystem::is_fifo(Path("pipe")));
}

TEST_F(WriteFileTest, AFullDeviceIsAnErrorAndStays) {
  std::filesystem::create_symlink("/dev/full", Path("full"));
  EXPECT_THAT(WriteFile(Path("full"), "text"),
              StatusIs(absl::StatusCode::kInvalidArgument, "cannot write: output error"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  EXPECT_THAT(WriteFile(directory_, "text"), StatusIs(absl::StatusCode::kInvalidArgument, ""));
}

TEST(ReportTest, ControlCharactersAreEscapedInLines) {
  EXPECT_EQ(OneLine("plain caf\u00e9 \U0001f600 \\ \""), "plain caf\u00e9 \U0001f600 \\ \"");
  EXPECT_EQ(OneLine("a\nb\tc\rd\x1b[31m\x7f"), "a\\nb\\tc\\x0dd\\x1b[31m\\x7f");
  EXPECT_EQ(OneLine("\u0080\u0085\u009f\u00a0"), "\\u{80}\\u{85}\\u{9f}\u00a0");
  EXPECT_EQ(OneLine("\u200d\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"),
            "\u200d\\u{200e}\\u{200f}\\u{2028}\\u{2029}\\u{202a}\\u{202e}\\u{2066}\\u{2069}");
  // Bytes that are not UTF-8, cut short, and a newline in two bytes.
  EXPECT_EQ(OneLine("\x9b \xe2\x80 \xc0\x8a"), "\\x9b \\xe2\\x80 \\xc0\\x8a");
  EXPECT_EQ(Quoted("a \"b\" \\ \n"), "\"a \\\"b\\\" \\\\ \\n\"");
}

TEST(ReportTest, ATerminalGetsNewlinesAndTabsOnly) {
  EXPECT_EQ(SafeForTerminal("caf\u00e9\n\t\x1b\u009b\u202e\x9b\r."), "caf\u00e9\n\t?????.");
}

TEST(ReportTest, TablesKeepARowOnItsLine) {
  RowTable rows({"id", "name"});
  rows.Add({"1", "a\n2  b"});
  FieldTable fields;
  fields.Add("name", "a\nb");
  std::ostringstream out;
  rows.Print(out);
  fields.Print(out);
  EXPECT_EQ(out.str(), "  id  name\n   1  a\\n2  b\n  name  a\\nb\n");
}

}  // namespace
}  // namespace lethe::client
