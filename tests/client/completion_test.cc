// Goal: Tab knows every command and option that the program has, values where they are few, and nothing after the words of
//   another program; bash and zsh agree.
// Method: the scripts run in the shells themselves, with the words of a command line as readline and zsh give them; what they
//   offer is held against what --help prints. zsh's own functions that show a list are replaced by ones that print it.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/commands/files.h"
#include "gmock/gmock.h"

#include "tests/client/program_run.h"
#include "tests/testing/status_matchers.h"

namespace lethe::client {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

using Words = std::vector<std::string>;

class CompletionTest : public ::testing::Test {
 protected:
  CompletionTest() {
    std::string pattern = ::testing::TempDir() + "lethe-completion-XXXXXX";
    directory_ = mkdtemp(pattern.data());
    for (const std::string shell : {"bash", "zsh"}) {
      EXPECT_OK(WriteFile(Path(shell), RunLethe({"completion", shell}).out));
    }
  }
  ~CompletionTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  // What the shell prints of `script`, whose lines are cut at newlines.
  Words Run(const std::string& shell, const std::string& script) const {
    EXPECT_OK(WriteFile(Path("script"), script));
    FILE* pipe = popen(absl::StrCat(shell, " ", Path("script"), " 2>&1").c_str(), "r");
    std::string output;
    std::array<char, 4096> buffer;
    for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
      output.append(buffer.data(), n);
    }
    EXPECT_EQ(pclose(pipe), 0) << output;
    return absl::StrSplit(output, '\n', absl::SkipEmpty());
  }

  // The offers for the last of the words, "lethe" before them; one query a line of `queries`.
  std::vector<Words> Bash(const std::vector<Words>& queries) const {
    std::string script = absl::StrCat("set -u\nsource ", Path("bash"), "\n");
    for (const Words& words : queries) {
      absl::StrAppend(&script, "COMP_WORDS=(lethe '", absl::StrJoin(words, "' '"),
                      "') COMP_CWORD=", words.size(), " COMPREPLY=()\n_lethe\n",
                      "printf '%s ' \"offers\" ${COMPREPLY[@]+\"${COMPREPLY[@]}\"}; echo\n");
    }
    return Offers(Run("bash --norc --noprofile", script));
  }

  std::vector<Words> Zsh(const std::vector<Words>& queries) const {
    std::string script = absl::StrCat(
        "compdef() { : }\ncompset() { return 0 }\n"
        "compadd() { shift; print -rn -- \" $*\" }\n_files() { : }\n"
        "_describe() { local -a items=(\"${(@P)@[-1]}\"); print -rn -- \" ${(j: "
        ":)${(@)items%%:*}}\" }\nsource ",
        Path("zsh"), "\n");
    for (const Words& words : queries) {
      absl::StrAppend(&script, "words=(lethe '", absl::StrJoin(words, "' '"),
                      "') CURRENT=", words.size() + 1, "\nprint -n offers; _lethe; print\n");
    }
    return Offers(Run("zsh -f", script));
  }

  static std::vector<Words> Offers(const Words& lines) {
    std::vector<Words> offers;
    for (const std::string& line : lines) {
      Words words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      EXPECT_EQ(words.empty() ? "" : words[0], "offers") << line;
      if (!words.empty()) words.erase(words.begin());
      offers.push_back(words);
    }
    return offers;
  }

  static bool HasZsh() { return std::system("command -v zsh >/dev/null") == 0; }

  std::string directory_;
};

// The names in a column of --help: commands, or options.
std::set<std::string> HelpNames(const std::string& help, const std::regex& pattern) {
  std::set<std::string> names;
  for (const absl::string_view line : absl::StrSplit(help, '\n')) {
    std::cmatch match;
    if (std::regex_search(line.begin(), line.end(), match, pattern)) names.insert(match[1].str());
  }
  return names;
}

// Every command, by --help alone.
void CollectCommands(const Words& command, std::map<Words, std::string>* helps) {
  Words arguments = command;
  arguments.push_back("--help");
  const std::string help = RunLethe(arguments).out;
  (*helps)[command] = help;
  const size_t list = help.find("Subcommands:");
  if (list == std::string::npos) return;
  const std::regex name("^  ([a-z][a-z-]*)( |$)");
  const size_t end = help.find("\n\n", list);
  for (const std::string& inner : HelpNames(help.substr(list, end - list), name)) {
    if (inner == "bench" || inner == "paper") continue;
    Words path = command;
    path.push_back(inner);
    CollectCommands(path, helps);
  }
}

TEST_F(CompletionTest, OffersEveryCommandAndOptionThatHelpNames) {
  std::map<Words, std::string> helps;
  CollectCommands({}, &helps);
  ASSERT_GT(helps.size(), 40u);
  std::vector<Words> queries;
  for (const auto& [command, help] : helps) {
    for (const std::string last : {"-", ""}) {
      queries.push_back(command);
      queries.back().push_back(last);
    }
  }
  const std::vector<Words> offers = Bash(queries);
  ASSERT_EQ(offers.size(), queries.size());
  size_t i = 0;
  for (const auto& [command, help] : helps) {
    const std::string name = absl::StrJoin(command, " ");
    const Words& options = offers[i++];
    for (const std::string& option : HelpNames(help, std::regex("^  (?:-., ?)?(--[a-z-]+)"))) {
      EXPECT_THAT(options, Contains(option)) << name;
    }
    EXPECT_THAT(options, Contains("--server")) << name;
    const Words& words = offers[i++];
    for (const auto& [inner, unused] : helps) {
      const bool is_inside = inner.size() == command.size() + 1 &&
                             std::equal(command.begin(), command.end(), inner.begin());
      if (is_inside) {
        EXPECT_THAT(words, Contains(inner.back())) << name;
      }
    }
  }
  if (!HasZsh()) GTEST_SKIP() << "no zsh (apt-get install zsh)";
  const std::vector<Words> in_zsh = Zsh(queries);
  ASSERT_EQ(in_zsh.size(), offers.size());
  for (size_t q = 0; q < queries.size(); ++q) {
    // bash leaves out what does not begin with "-"; zsh's own code does that to the list we give it.
    EXPECT_THAT(in_zsh[q], ::testing::UnorderedElementsAreArray(offers[q]))
        << absl::StrJoin(queries[q], " ");
  }
}

TEST_F(CompletionTest, CompletesWordsWhereTheyStand) {
  const std::vector<Words> offers = Bash({{"sess"},
                                          {"--json", "session", "ex"},
                                          {"--server", "session", "ver"},
                                          {"--server", "=", "session", "ver"},
                                          {"forget", "s", "--derived", ""},
                                          {"forget", "s", "--derived", "=", "k"},
                                          {"forget", "s", "--derived", "="},
                                          {"completion", ""},
                                          {"session", "get", "session", ""},
                                          {"bench", "--"},
                                          {"append", "s", "--subject", ""}});
  ASSERT_EQ(offers.size(), 11u);
  EXPECT_THAT(offers[0], ElementsAre("session"));
  EXPECT_THAT(offers[1], ElementsAre("export"));
  EXPECT_THAT(offers[2], ElementsAre("verify"));  // "session" is the address there
  EXPECT_THAT(offers[3], ElementsAre("verify"));
  EXPECT_THAT(offers[4], UnorderedElementsAre("keep", "forget", "fail"));
  EXPECT_THAT(offers[5], ElementsAre("keep"));
  EXPECT_THAT(offers[6], UnorderedElementsAre("keep", "forget", "fail"));
  EXPECT_THAT(offers[7], UnorderedElementsAre("bash", "zsh"));
  EXPECT_THAT(offers[8], IsEmpty());
  EXPECT_THAT(offers[9], Not(Contains("--server")));  // lethe-bench's words
  EXPECT_THAT(offers[10], IsEmpty());
}

TEST_F(CompletionTest, ZshCompletesTheSameWords) {
  if (!HasZsh()) GTEST_SKIP() << "no zsh (apt-get install zsh)";
  const std::vector<Words> offers = Zsh({{"--json", "session", ""},
                                         {"--server", "session", ""},
                                         {"forget", "s", "--derived", ""},
                                         {"forget", "s", "--derived=k"},
                                         {"append", "s", "--subject", ""}});
  ASSERT_EQ(offers.size(), 5u);
  EXPECT_THAT(offers[0], Contains("export"));
  EXPECT_THAT(offers[1], Contains("verify"));
  EXPECT_THAT(offers[2], UnorderedElementsAre("keep", "forget", "fail"));
  EXPECT_THAT(offers[3], UnorderedElementsAre("keep", "forget", "fail"));
  EXPECT_THAT(offers[4], IsEmpty());
}

}  // namespace
}  // namespace lethe::client
