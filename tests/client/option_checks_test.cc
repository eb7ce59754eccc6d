// Goal: numbers that CLI11 would bend, text that the API cannot carry and commands that do not exist
// are refused before any call, by the name that the user typed and with what is accepted.
// Method: command lines run in this process; port 1 of the loopback interface has no server.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/message_check.h"
#include "gmock/gmock.h"

#include "lethe/v1/forgetting.pb.h"
#include "lethe/v1/generation.pb.h"
#include "tests/client/program_run.h"
#include "tests/testing/status_matchers.h"

namespace lethe::client {
namespace {

using ::lethe::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

struct Line {
  std::vector<std::string> arguments;
  std::string text;
};

void ExpectUsageErrors(const std::vector<Line>& lines) {
  for (Line line : lines) {
    line.arguments.push_back("--server=127.0.0.1:1");
    const ProgramRun run = RunLethe(line.arguments);
    EXPECT_EQ(run.exit_code, kExitUsage) << line.text;
    EXPECT_THAT(run.err, HasSubstr(line.text));
    EXPECT_EQ(run.out, "");
  }
}

TEST(OptionChecksTest, WholeNumbersNeitherWrapNorBend) {
  const std::string any = "want a whole number from 0 to 18446744073709551615";
  const std::string int32 = "want a whole number from 0 to 2147483647";
  const std::string positive = "want a whole number from 1 to 18446744073709551615";
  std::vector<Line> lines;
  for (const char* number : {"-1", "+1", "010", "0x10", "1.5", "18446744073709551616", "a"}) {
    lines.push_back({{"forget", "s", "--derived", "keep", absl::StrCat("--before=", number)},
                     absl::StrCat("--before: ", any)});
    lines.push_back({{"certificate", "get", "s", absl::StrCat("--seq=", number)},
                     absl::StrCat("--seq: ", positive)});
    lines.push_back({{"generate", "s", "--prompt", "p", absl::StrCat("--seed=", number)},
                     absl::StrCat("--seed: ", any)});
    lines.push_back({{"generate", "s", "--prompt", "p", absl::StrCat("--max-tokens=", number)},
                     "--max-tokens: want a whole number from 0 to what the session leaves"});
    lines.push_back({{"generate", "s", "--prompt", "p", absl::StrCat("--top-k=", number)},
                     "--top-k: want a whole number from 0 to the size of the model's vocabulary"});
    lines.push_back({{"generate", "s", "--prompt", "p", absl::StrCat("--top-logprobs=", number)},
                     "--top-logprobs: want a whole number from 0 to 20"});
    lines.push_back({{"session", "create", absl::StrCat("--ovq-slots=", number)},
                     absl::StrCat("--ovq-slots: ", int32)});
    lines.push_back({{"partition", "s", absl::StrCat("--limit=", number)},
                     "--limit: want a whole number from 0 to 9223372036854775807"});
  }
  for (const char* number : {"010", "1.5", "18446744073709551616", "a"}) {
    lines.push_back({{"audit", "inclusion", number}, absl::StrCat("LEAF: ", any)});
  }
  // What is no number there is the name of a file.
  const std::string size = "want a size of 1 or more in plain digits, or a file";
  for (const char* number : {"0", "010", "18446744073709551616"}) {
    lines.push_back({{"audit", "consistency", number}, size});
    lines.push_back({{"audit", "consistency", "1", number}, size});
  }
  lines.push_back({{"certificate", "get", "s", "--seq=0"}, absl::StrCat("--seq: ", positive)});
  ExpectUsageErrors(lines);
}

TEST(OptionChecksTest, GoodNumbersReachTheCall) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"forget", "s", "--derived", "keep", "--before=18446744073709551615"},
           {"certificate", "get", "s", "--seq=1"},
           {"generate", "s", "--prompt", "p", "--max-tokens=2147483647", "--top-k=10"},
           {"audit", "inclusion", "0"}}) {
    std::vector<std::string> line = arguments;
    line.push_back("--server=127.0.0.1:1");
    EXPECT_EQ(RunLethe(line).exit_code, kExitRefused) << arguments[0];
  }
}

TEST(OptionChecksTest, NumbersNameTheirRangeAndNotTheValue) {
  for (const char* number : {"zelvim", "1zelvim", "1 zelvim", "nan", "inf", "1e999", "0x10", ""}) {
    const std::string temperature = absl::StrCat("--temperature=", number);
    ExpectUsageErrors(
        {{{"generate", "s", "--prompt", "p", temperature},
          "--temperature: want a number from 0 to 10"},
         {{"session", "create", "--sv-ridge", number}, "--sv-ridge: want a number from 1e-8 to 1"},
         {{"session", "list", "--timeout", number}, "--timeout: want a number from 0.001 to 1e9"}});
    const ProgramRun run = RunLethe({"generate", "s", "--prompt", "p", temperature});
    EXPECT_THAT(run.err, Not(HasSubstr("zelvim")));
  }
  // A blank that CLI11 itself stumbles over.
  const ProgramRun run = RunLethe({"generate", "s", "--prompt", "p", "--temperature", "7.5 "});
  EXPECT_EQ(run.exit_code, kExitUsage);
  EXPECT_THAT(run.err, HasSubstr("--temperature: cannot read its value"));
  EXPECT_THAT(run.err, Not(HasSubstr("7.5")));
}

TEST(OptionChecksTest, AnEqualsSignWithNothingIsTheEmptyText) {
  ExpectUsageErrors({{{"append", "s", "--text=", "--no-such"}, "unknown option --no-such"},
                     {{"generate", "s", "--prompt=", "--stop=", "--no-such"}, "option --no-such"},
                     {{"generate", "s", "--seed=", "--prompt", "p"}, "--seed: want a whole number"},
                     {{"append", "s", "--text=", "bench", "--request-id="}, "either as FILE"},
                     {{"bench", "model", "--model="}, "lethe-bench"}});
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"append", "s", "--text="}, {"generate", "s", "--prompt", "--json=", "--stop="}}) {
    std::vector<std::string> line = arguments;
    line.push_back("--server=127.0.0.1:1");
    EXPECT_EQ(RunLethe(line).exit_code, kExitRefused) << arguments[0];
  }
}

TEST(OptionChecksTest, AnEmptyValueSwitchesNoCheckOff) {
  const std::string nothing = ": want a value, not nothing";
  for (const std::string form : {"=", " "}) {
    const auto line = [&form](std::vector<std::string> words, const std::string& option) {
      words.push_back(form == "=" ? option + form : option);
      if (form != "=") words.emplace_back();
      return words;
    };
    ExpectUsageErrors(
        {{line({"forget", "s", "--derived", "keep", "--everything"}, "--nonce"),
          "--nonce" + nothing},
         {line({"verify", "c"}, "--nonce"), "--nonce" + nothing},
         {line({"verify", "c"}, "--trust"), "--trust" + nothing},
         {line({"replay", "s", "--certificate", "c"}, "--trust"), "--trust" + nothing},
         {line({"replay", "s", "--model", "m"}, "--certificate"), "--certificate" + nothing},
         {line({"session", "inputs", "s"}, "--export"), "--export" + nothing},
         {line({"session", "digest", "s", "--parts"}, "--out"), "--out" + nothing},
         {line({"certificate", "get", "s"}, "--out"), "--out" + nothing},
         {line({"audit", "inclusion", "0"}, "--out"), "--out" + nothing},
         {line({"audit", "records"}, "--session"), "--session" + nothing},
         // A text whose label is an unset variable would be reached by no request by subject.
         {line({"append", "s", "--text", "t"}, "--subject"), "--subject" + nothing},
         {line({"generate", "s", "--prompt", "p"}, "--subject"), "--subject" + nothing},
         {line({"vectors", "append", "v", "k"}, "--subject"), "--subject" + nothing},
         {line({"forget", "s", "--derived", "keep"}, "--subject"), "--subject" + nothing},
         {line({"session", "inputs", "s"}, "--subject"), "--subject" + nothing}});
  }
}

TEST(OptionChecksTest, AddressesHaveAHostAndAPortInRange) {
  const std::string want = ": want HOST:PORT with a port of 1 to 65535";
  for (const std::string address : {"localhost", "localhost:", ":7070", "127.0.0.1:0", "h:65536",
                                    "h:72606", "h:-1", "h:070", "::1", "[::1]", "h :1", "h:1/x"}) {
    const ProgramRun run = RunLethe({"session", "list", "--server", address});
    EXPECT_EQ(run.exit_code, kExitUsage) << address;
    EXPECT_THAT(run.err, HasSubstr("--server (or LETHE_SERVER)" + want));
    ExpectUsageErrors({{{"replay", "s", "--certificate", "c", "--fresh-server", address},
                        "--fresh-server" + want}});
  }
  EXPECT_EQ(RunLethe({"session", "list", "--server", "[::1]:1"}).exit_code, kExitRefused);
}

TEST(OptionChecksTest, TextThatIsNotUtf8IsRefusedByItsOption) {
  const std::string bad = "zelvim\xff";
  ExpectUsageErrors({{{"session", "get", bad}, "SESSION: want valid UTF-8"},
                     {{"session", "create", "--name", bad}, "--name: want valid UTF-8"},
                     {{"session", "create", "--model", bad}, "--model: want valid UTF-8"},
                     {{"models", "get", bad}, "NAME: want valid UTF-8"},
                     {{"append", "s", "--text", "t", "--subject", bad}, "--subject: want valid"},
                     {{"append", "s", "--text", "t", "--request-id", bad}, "--request-id: want"},
                     {{"generate", "s", "--prompt", "p", "--subject", bad}, "--subject: want"},
                     {{"forget", "s", "--subject", bad, "--derived", "keep"}, "--subject: want"},
                     {{"partition", "s", "--head", bad}, "--head: want valid UTF-8"},
                     {{"audit", "records", "--session", bad}, "--session: want valid UTF-8"}});
  EXPECT_THAT(RunLethe({"session", "get", bad}).err, Not(HasSubstr("zelvim")));
  // Content may be any bytes.
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"append", "s", "--text", bad}, {"generate", "s", "--prompt", bad, "--stop", bad}}) {
    std::vector<std::string> line = arguments;
    line.push_back("--server=127.0.0.1:1");
    EXPECT_EQ(RunLethe(line).exit_code, kExitRefused);
  }
}

TEST(MessageCheckTest, NamesTheFieldByItsPath) {
  v1::ForgetRequest forget;
  EXPECT_OK(CheckText(forget));
  forget.mutable_selection()->set_subject("caf\xc3\xa9");
  EXPECT_OK(CheckText(forget));
  forget.mutable_selection()->set_subject("caf\xc3");
  EXPECT_THAT(CheckText(forget),
              StatusIs(absl::StatusCode::kInvalidArgument, "selection.subject: want valid UTF-8"));
  const std::string bad = "zelvim\xff";
  v1::GenerateRequest generate;
  generate.mutable_prompt()->set_text(bad);
  generate.mutable_output()->add_stop(bad);
  EXPECT_OK(CheckText(generate));
  generate.set_request_id(bad);
  EXPECT_THAT(CheckText(generate),
              StatusIs(absl::StatusCode::kInvalidArgument, "request_id: want"));
}

TEST(OptionChecksTest, UnknownCommandsAreNamedWithTheirLikes) {
  ExpectUsageErrors(
      {{{"forgett", "s", "--subject", "x"},
        "unknown command 'forgett'; did you mean "
        "forget? (try lethe --help)"},
       {{"certfy"}, "unknown command 'certfy'; did you mean certify?"},
       {{"cert", "s"}, "did you mean certify or certificate?"},
       {{"nonsense"}, "unknown command 'nonsense'; there are: session, generate,"},
       {{"session", "crate"},
        "unknown command 'crate'; did you mean create? (try "
        "lethe session --help)"},
       {{"audit", "frobnicate"}, "'frobnicate'; there are: log, records, inclusion"}});
  // A sentence in a command's place may be content.
  const ProgramRun run = RunLethe({"Kalo-17 takes zelvim"});
  EXPECT_EQ(run.exit_code, kExitUsage);
  EXPECT_THAT(run.err, HasSubstr("unknown command; there are: "));
  EXPECT_THAT(run.err, Not(HasSubstr("zelvim")));
}

TEST(OptionChecksTest, ARequestIdLeavesRoomForThePartsOfALongText) {
  const std::string path =
      (std::filesystem::path(::testing::TempDir()) / "lethe-long-text").string();
  std::ofstream(path) << std::string(11 * (32 << 10), 'x');  // parts ID.0 to ID.10
  const auto run = [&](size_t length, const std::string& file) {
    return RunLethe(
        {"append", "s", file, "--request-id", std::string(length, 'i'), "--server=127.0.0.1:1"});
  };
  EXPECT_EQ(run(61, path).exit_code, kExitRefused);
  const ProgramRun refused = run(62, path);
  EXPECT_EQ(refused.exit_code, kExitUsage);
  EXPECT_THAT(refused.err, HasSubstr("--request-id: want at most 61 characters for this text, "
                                     "which is sent in 11 parts named ID.0 to ID.10"));
  std::filesystem::resize_file(path, 10 * (32 << 10));
  EXPECT_EQ(run(62, path).exit_code, kExitRefused);
  std::filesystem::resize_file(path, 100);
  EXPECT_EQ(run(64, path).exit_code, kExitRefused);
  EXPECT_THAT(run(65, path).err, HasSubstr("--request-id: want at most 64 characters\n"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace lethe::client
