// Goal: the house rules of CONTRIBUTING.md hold over the whole tree.
// Method: reads every source file and applies one rule per test; a breach names file and line.

#include <map>
#include <regex>
#include <set>
#include <string>

#include "gtest/gtest.h"

#include "tests/tidy/source_tree.h"

namespace lethe::testing {
namespace {

const std::vector<SourceFile>& Tree() {
  static const auto* tree = new std::vector<SourceFile>(LoadSourceTree(LETHE_SOURCE_DIR));
  return *tree;
}

bool IsCode(const SourceFile& file) {
  for (const char* suffix : {".cc", ".h", ".cu", ".py", ".proto", ".cmake"}) {
    if (EndsWith(file.path, suffix)) return true;
  }
  return EndsWith(file.path, "CMakeLists.txt");
}

bool IsOwnHeader(const SourceFile& file) { return EndsWith(file.path, ".h"); }

bool InFolder(const SourceFile& file, const std::string& folder) {
  return StartsWith(file.path, folder + "/");
}

// Fails once per line that matches; `tidy-ok: reason` on the line excuses it.
void BanPattern(const std::regex& pattern, const std::string& why,
                bool (*applies)(const SourceFile&)) {
  for (const SourceFile& file : Tree()) {
    if (!applies(file) || InFolder(file, "tests/tidy")) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      if (file.lines[i].find("tidy-ok: ") != std::string::npos) continue;
      if (std::regex_search(file.lines[i], pattern)) {
        ADD_FAILURE() << file.path << ":" << i + 1 << ": " << why;
      }
    }
  }
}

TEST(TidyTest, TreeIsFound) { ASSERT_GT(Tree().size(), 50u); }

TEST(TidyTest, FilesHaveAtMostFourHundredLines) {
  for (const SourceFile& file : Tree()) {
    if (IsCode(file)) {
      EXPECT_LE(file.lines.size(), 400u) << file.path;
    }
  }
}

TEST(TidyTest, NoTabsAndNoTrailingSpace) {
  BanPattern(std::regex("\t|[ ]$"), "tab or trailing space", IsCode);
}

TEST(TidyTest, NoUnfinishedMarks) {
  BanPattern(std::regex("FIXME|\\bXXX\\b|TODO(?!\\([0-9]+\\))"),
             "unfinished mark without issue number", IsCode);
}

TEST(TidyTest, HeadersDeclareNoUsingNamespaceAndNoPragmaOnce) {
  BanPattern(std::regex("^using namespace|#pragma once"), "not in a header", IsOwnHeader);
}

TEST(TidyTest, GuardsNameThePath) {
  for (const SourceFile& file : Tree()) {
    if (!IsOwnHeader(file)) continue;
    std::string guard = "LETHE_";
    for (const char c : file.path) {
      guard += (std::isalnum(static_cast<unsigned char>(c)) != 0)
                   ? static_cast<char>(std::toupper(static_cast<unsigned char>(c)))
                   : '_';
    }
    guard += "_";
    EXPECT_NE(file.text.find("#ifndef " + guard + "\n#define " + guard + "\n"), std::string::npos)
        << file.path << ": wants the guard " << guard;
  }
}

TEST(TidyTest, HeadersStateTheirContract) {
  for (const SourceFile& file : Tree()) {
    if (!IsOwnHeader(file)) continue;
    EXPECT_TRUE(StartsWith(file.text, "// ")) << file.path << ": starts with what it is";
    EXPECT_NE(file.text.find("Threads:"), std::string::npos)
        << file.path << ": says what threads may do";
  }
}

// Which folders a folder may include (ARCHITECTURE.md, "Who may include whom").
TEST(TidyTest, LayersHold) {
  const std::map<std::string, std::set<std::string>> allowed = {
      {"kernels", {"kernels"}},
      {"memory", {"kernels", "memory"}},
      {"audit", {"audit", "kernels/base", "memory/svdd"}},
      {"server", {"kernels", "memory", "audit", "server", "lethe/v1"}},
      {"client", {"kernels/base", "audit", "client", "lethe/v1"}},
      {"paper", {"kernels", "memory", "audit", "server/model", "paper"}},
      {"examples", {"kernels/base", "client"}},
  };
  const std::set<std::string> ours = {"kernels", "memory", "audit", "server",
                                      "client",  "lethe",  "paper", "tests"};
  for (const SourceFile& file : Tree()) {
    const auto rule = allowed.find(file.path.substr(0, file.path.find('/')));
    if (rule == allowed.end()) continue;
    for (const std::string& name : Includes(file)) {
      const size_t slash = name.find('/');
      if (slash == std::string::npos || ours.count(name.substr(0, slash)) == 0) continue;
      bool fine = false;
      for (const std::string& folder : rule->second) fine |= StartsWith(name, folder + "/");
      EXPECT_TRUE(fine) << file.path << " includes " << name;
    }
  }
}

TEST(TidyTest, OutsideLibrariesStayBehindTheirDoor) {
  for (const SourceFile& file : Tree()) {
    // cmake: what is precompiled, for the folders behind the doors.
    if (InFolder(file, "tests") || InFolder(file, "cmake")) continue;
    for (const std::string& name : Includes(file)) {
      if (StartsWith(name, "openssl/")) {
        EXPECT_TRUE(InFolder(file, "audit/crypto")) << file.path << " includes " << name;
      }
      if (StartsWith(name, "grpc") || StartsWith(name, "google/") ||
          StartsWith(name, "lethe/v1/")) {
        // These measure the server from outside.
        EXPECT_TRUE(InFolder(file, "server/rpc") || InFolder(file, "client") ||
                    file.path == "server/bench/server_bench.cc" ||
                    file.path == "server/bench/stream_bench.cc")
            << file.path << " includes " << name;
      }
      if (StartsWith(name, "sqlite3")) {
        EXPECT_TRUE(InFolder(file, "audit/log") || InFolder(file, "server/store"))
            << file.path << " includes " << name;
      }
      if (StartsWith(name, "cuda") && !EndsWith(file.path, ".cu") && !EndsWith(file.path, ".cuh")) {
        EXPECT_TRUE(InFolder(file, "kernels/base")) << file.path << " includes " << name;
      }
    }
  }
}

// State must not depend on the C library's version: no transcendental function of libm on the path
// to it.
TEST(TidyTest, NoLibmOnThePathToState) {
  BanPattern(
      std::regex("\\b(std::)?(exp|exp2|expm1|log|log2|log1p|log10|pow|tanh|sin|cos|erf)f?\\("),
      "libm call on the path to state", [](const SourceFile& file) {
        const bool state = InFolder(file, "kernels") || InFolder(file, "memory") ||
                           InFolder(file, "server/model") || InFolder(file, "server/session");
        return state && EndsWith(file.path, ".cc") && !EndsWith(file.path, "_ref.cc") &&
               file.path != "server/model/reference.cc";
      });
}

TEST(TidyTest, NoDeadSources) {
  std::string build_files;
  for (const SourceFile& file : Tree()) {
    if (EndsWith(file.path, "CMakeLists.txt")) build_files += file.text;
  }
  for (const SourceFile& file : Tree()) {
    if (!EndsWith(file.path, ".cc") && !EndsWith(file.path, ".cu")) continue;
    const std::string name = file.path.substr(file.path.rfind('/') + 1);
    const std::string stem = name.substr(0, name.rfind('.'));
    EXPECT_TRUE(build_files.find(name) != std::string::npos ||
                build_files.find(stem) != std::string::npos)
        << file.path << " is in no CMakeLists.txt";
  }
}

TEST(TidyTest, ProtoFieldsAreCommentedAndMethodsHaveTheirOwnMessages) {
  const std::regex field("^ +(optional |repeated )?[a-zA-Z0-9_.<>, ]+ [a-z0-9_]+ = [0-9]+;");
  const std::regex enumerator("^ +[A-Z0-9_]+ = [0-9]+;");
  const std::regex method("rpc ([A-Za-z]+)\\(([A-Za-z]+)\\) returns \\((stream )?([A-Za-z]+)\\)");
  for (const SourceFile& file : Tree()) {
    if (!EndsWith(file.path, ".proto")) continue;
    EXPECT_NE(file.text.find("package lethe.v1;"), std::string::npos) << file.path;
    for (size_t i = 1; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      std::smatch match;
      if (std::regex_search(line, match, method)) {
        EXPECT_EQ(match[2].str(), match[1].str() + "Request") << file.path << ":" << i + 1;
        EXPECT_EQ(match[4].str(), match[1].str() + "Response") << file.path << ":" << i + 1;
      }
      const bool zero = line.find("_UNSPECIFIED = 0;") != std::string::npos;
      if (zero || !(std::regex_search(line, field) || std::regex_search(line, enumerator)))
        continue;
      EXPECT_NE(file.lines[i - 1].find("//"), std::string::npos)
          << file.path << ":" << i + 1 << ": a field without a comment";
    }
  }
}

}  // namespace
}  // namespace lethe::testing
