// Goal: exit code 2 and a plain sentence for wrong usage, 1 without a server, help with an example for
//   every command; words of the command line that may be content are never repeated.
// Method: command lines run in this process; port 1 of the loopback interface has no server.
#include <string>
#include <vector>

#include "gmock/gmock.h"

#include "tests/client/program_run.h"

namespace lethe::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kNowhere[] = "--server=127.0.0.1:1";

TEST(ProgramUsageTest, HelpOfEveryCommandHasAnExample) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{},
                                             {"session"},
                                             {"session", "create"},
                                             {"session", "get"},
                                             {"session", "list"},
                                             {"session", "delete"},
                                             {"session", "inputs"},
                                             {"session", "digest"},
                                             {"generate"},
                                             {"append"},
                                             {"forget"},
                                             {"certify"},
                                             {"certificate"},
                                             {"certificate", "get"},
                                             {"verify"},
                                             {"replay"},
                                             {"partition"},
                                             {"audit"},
                                             {"audit", "log"},
                                             {"audit", "records"},
                                             {"audit", "inclusion"},
                                             {"audit", "consistency"},
                                             {"models"},
                                             {"models", "list"},
                                             {"models", "get"},
                                             {"models", "tokenize"},
                                             {"models", "detokenize"},
                                             {"vectors"},
                                             {"vectors", "create"},
                                             {"vectors", "append"},
                                             {"vectors", "read"},
                                             {"vectors", "list"},
                                             {"vectors", "evict"},
                                             {"sigma"},
                                             {"digest"},
                                             {"doctor"},
                                             {"completion"}}) {
    std::vector<std::string> arguments = command;
    arguments.push_back("--help");
    const ProgramRun run = RunLethe(arguments);
    EXPECT_EQ(run.exit_code, kExitDone) << run.err;
    EXPECT_THAT(run.out, HasSubstr("Example")) << run.out;
  }
}

TEST(ProgramUsageTest, WrongUsageIsTwoAndNamesTheHelp) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {},
           {"nonsense"},
           {"session"},
           {"session", "get"},
           {"session", "list", "--no-such-option"},
           {"generate", "s", "--prompt", "a", "--prompt-file", "b"},
           {"generate", "s", "--temperature", "warm"},
           {"forget", "s", "--subject", "x"},
           {"forget", "s", "--subject", "x", "--derived", "perhaps"},
           {"--timeout", "0", "session", "list"},
           {"digest", "--explain", "one"}}) {
    const ProgramRun run = RunLethe(arguments);
    EXPECT_EQ(run.exit_code, kExitUsage);
    EXPECT_THAT(run.err, HasSubstr("--help")) << run.err;
    EXPECT_EQ(run.out, "");
  }
}

TEST(ProgramUsageTest, LocalErrorsAreTwoBeforeAnyCall) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"forget", "s", "--derived", "keep"},
           {"forget", "s", "--derived", "keep", "--ids", "1", "--everything"},
           {"forget", "s", "--derived", "keep", "--ids", "5-"},
           {"forget", "s", "--derived", "keep", "--range", "5:5"},
           {"forget", "s", "--derived", "keep", "--everything", "--nonce", "abcd"},
           {"append", "s"},
           {"append", "s", "--text", "a", "file"},
           {"append", "s", "/no/such/file"},
           {"generate", "s", "--vocab-ids", "1,x"},
           {"certify", "s", "--out", "d", "--nonce", "zz"},
           {"replay", "--certificate", "d", "--model", "m"},
           {"replay", "s", "--certificate", "d"},
           {"session", "inputs", "s", "--export", "f", "--subject", "x"},
           {"vectors", "create", "--key-dim", "2", "--sigma", "1"},
           {"vectors", "create", "--key-dim", "2", "--sigma", "1", "--reference-size", "9"},
           {"vectors", "create", "--key-dim", "0", "--sigma", "1", "--c", "1"},
           {"vectors", "create", "--key-dim", "65537", "--sigma", "1", "--c", "1"},
           {"vectors", "append", "s", "/no/such/file"},
           {"vectors", "append", "s", "-", "--values", ""},
           {"vectors", "evict", "s", "--out", "d", "--nonce", "zz"},
           {"sigma", "-", "--rows", "1"},
           {"sigma", "/no/such/file"}}) {
    std::vector<std::string> line = arguments;
    line.push_back(kNowhere);
    const ProgramRun run = RunLethe(line);
    EXPECT_EQ(run.exit_code, kExitUsage) << run.err;
    EXPECT_THAT(run.err, Not(HasSubstr("no server answers")));
  }
}

TEST(ProgramUsageTest, NeverRepeatsWordsThatMayBeContent) {
  const ProgramRun run =
      RunLethe({"generate", "s", "--prompt", "Patient", "Kalo-17", "takes", "zelvim"});
  EXPECT_EQ(run.exit_code, kExitUsage);
  EXPECT_THAT(run.err, Not(HasSubstr("Kalo")));
  EXPECT_THAT(run.err, Not(HasSubstr("zelvim")));
  EXPECT_THAT(run.err, HasSubstr("quotes"));
}

TEST(ProgramUsageTest, NamesAnUnknownOptionWithoutItsValue) {
  const ProgramRun run = RunLethe({"session", "list", "--promtp=zelvim"});
  EXPECT_EQ(run.exit_code, kExitUsage);
  EXPECT_THAT(run.err, HasSubstr("--promtp"));
  EXPECT_THAT(run.err, Not(HasSubstr("zelvim")));
}

TEST(ProgramUsageTest, NoServerIsOne) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"session", "list"},
                                             {"session", "create"},
                                             {"generate", "s", "--prompt", "zelvim"},
                                             {"forget", "s", "--derived", "fail", "--everything"},
                                             {"models", "list"},
                                             {"audit", "log"}}) {
    std::vector<std::string> line = arguments;
    line.push_back(kNowhere);
    const ProgramRun run = RunLethe(line);
    EXPECT_EQ(run.exit_code, kExitRefused);
    EXPECT_THAT(run.err, HasSubstr("no server answers at 127.0.0.1:1"));
    EXPECT_THAT(run.err, Not(HasSubstr("zelvim")));
  }
}

TEST(ProgramUsageTest, ErrorsAreJsonWithJson) {
  const ProgramRun refused = RunLethe({"session", "list", "--json", kNowhere});
  const Json error = Json::parse(refused.err, nullptr, false);
  ASSERT_TRUE(error.is_object()) << refused.err;
  EXPECT_EQ(error["error"]["kind"], "refused");
  EXPECT_EQ(error["error"]["code"], "UNAVAILABLE");
  const ProgramRun usage = RunLethe({"append", "s", "--json", kNowhere});
  EXPECT_EQ(Json::parse(usage.err, nullptr, false)["error"]["kind"], "usage");
}

TEST(ProgramUsageTest, BenchAndPaperWithoutTheirProgramsSaySo) {
  for (const std::string name : {"bench", "paper"}) {
    const ProgramRun run = RunLethe({name, "model", "--help"});
    EXPECT_EQ(run.exit_code, kExitUsage);
    EXPECT_THAT(run.err, HasSubstr("lethe-" + name));
  }
}

}  // namespace
}  // namespace lethe::client
