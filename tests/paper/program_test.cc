// Goal: the program lethe-paper lists, runs and refuses as its usage says.
// Method: runs the built program and reads its output and exit code.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include <sys/wait.h>

#include "paper/experiments.h"

namespace lethe::paper {
namespace {

using ::testing::HasSubstr;

struct PaperRun {
  int exit_code = -1;
  std::string output;  // both streams
};

PaperRun RunPaper(const std::string& arguments) {
  const std::string command = LETHE_BINARY_DIR "/bin/lethe-paper " + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  PaperRun run;
  std::array<char, 4096> block{};
  for (size_t size = 0; (size = std::fread(block.data(), 1, block.size(), pipe)) > 0;) {
    run.output.append(block.data(), size);
  }
  run.exit_code = WEXITSTATUS(::pclose(pipe));
  return run;
}

TEST(PaperProgramTest, ListNamesEveryExperiment) {
  const PaperRun run = RunPaper("--list");
  EXPECT_EQ(run.exit_code, 0);
  const auto json = nlohmann::json::parse(RunPaper("--list --json").output);
  ASSERT_EQ(json["experiments"].size(), Experiments().size());
  for (const Experiment& experiment : Experiments()) {
    EXPECT_THAT(run.output, HasSubstr(experiment.name));
    EXPECT_NE(std::find(json["experiments"].begin(), json["experiments"].end(), experiment.name),
              json["experiments"].end());
  }
}

TEST(PaperProgramTest, WrongUsageIsTwo) {
  for (const auto& [arguments, what] : std::initializer_list<std::pair<std::string, std::string>>{
           {"sv-nothing", "no experiment 'sv-nothing'"},
           {"", "--list"},
           {"sv-rare-recall --trials 0", "--trials"},
           {"sv-rare-recall --seed -1", "--seed"},
           {"sv-rare-recall --no-such", "--no-such"},
           {"sv-reserve-counterexample --trials 3", "--trials"},
           {"sv-reserve-counterexample --svg /tmp/unused.svg", "draws nothing"},
           {"sv-icu-stream --data /no/such.tar", "--data"}}) {
    const PaperRun run = RunPaper(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments;
    EXPECT_THAT(run.output, HasSubstr(what));
  }
}

TEST(PaperProgramTest, JsonParses) {
  const PaperRun run = RunPaper("sv-rare-recall --trials 2 --json");
  EXPECT_EQ(run.exit_code, 0);
  const auto json = nlohmann::json::parse(run.output);
  EXPECT_EQ(json["paper"], "sv-rare-recall");
  EXPECT_EQ(json["tables"][0]["rows"].size(), 7u);
}

TEST(PaperProgramTest, SvgIsWritten) {
  const std::string path = ::testing::TempDir() + "/lethe-paper-copy.svg";
  EXPECT_EQ(RunPaper("sv-selective-copy --trials 1 --svg " + path).exit_code, 0);
  std::ifstream file(path);
  const std::string svg((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_THAT(svg, HasSubstr("</svg>"));
  std::filesystem::remove(path);
  EXPECT_EQ(RunPaper("sv-selective-copy --trials 1 --svg /no/such/folder/a.svg").exit_code, 2);
}

}  // namespace
}  // namespace lethe::paper
