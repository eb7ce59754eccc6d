// Goal: the tests that documents name exist, and docs/known-failures-elsewhere.md has every row with a test.
// Method: reads names of the form `Suite.Name` from markdown files and TEST, TEST_F, TEST_P from the tests.

#include <regex>
#include <set>
#include <string>

#include "gtest/gtest.h"

#include "tests/tidy/source_tree.h"

namespace lethe::testing {
namespace {

constexpr int kNumRows = 58;

struct Documents {
  std::set<std::string> tests;  // "Suite.Name", as defined
  std::vector<SourceFile> pages;
};

const Documents& Tree() {
  static const auto* documents = [] {
    auto* found = new Documents;
    const std::regex definition("TEST(?:_F|_P)?\\(\\s*([A-Za-z0-9]+),\\s*([A-Za-z0-9]+)\\)");
    for (SourceFile& file : LoadSourceTree(LETHE_SOURCE_DIR)) {
      if (EndsWith(file.path, ".md")) found->pages.push_back(file);
      if (!StartsWith(file.path, "tests/") || !EndsWith(file.path, ".cc")) continue;
      // Only from "TEST" on: a search of the whole text takes seconds.
      for (size_t at = file.text.find("TEST"); at != std::string::npos;
           at = file.text.find("TEST", at + 1)) {
        std::smatch match;
        if (std::regex_search(file.text.cbegin() + static_cast<std::ptrdiff_t>(at),
                              file.text.cend(), match, definition,
                              std::regex_constants::match_continuous)) {
          found->tests.insert(match[1].str() + "." + match[2].str());
        }
      }
    }
    return found;
  }();
  return *documents;
}

std::set<std::string> NamedTests(const std::string& text) {
  const std::regex name("`([A-Z][A-Za-z0-9]*(?:Test|Rounds)\\.[A-Za-z0-9]+)`");
  std::set<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it) {
    names.insert((*it)[1].str());
  }
  return names;
}

void ExpectNamedTestsToExist() {
  ASSERT_GT(Tree().tests.size(), 500u);
  for (const SourceFile& page : Tree().pages) {
    for (const std::string& name : NamedTests(page.text)) {
      EXPECT_EQ(Tree().tests.count(name), 1u) << page.path << " names " << name;
    }
  }
}

void ExpectEveryRowToNameATest() {
  std::set<int> rows;
  for (const SourceFile& page : Tree().pages) {
    if (page.path != "docs/known-failures-elsewhere.md") continue;
    const std::regex row("^\\| ([0-9]+) \\| ");
    for (const std::string& line : page.lines) {
      std::smatch match;
      if (!std::regex_search(line, match, row)) continue;
      rows.insert(std::stoi(match[1].str()));
      EXPECT_FALSE(NamedTests(line).empty()) << "row " << match[1].str() << " names no test";
    }
  }
  EXPECT_EQ(rows.size(), static_cast<size_t>(kNumRows));
  EXPECT_EQ(rows.empty() ? 0 : *rows.rbegin(), kNumRows);
}

// One test, as the tree is read once a process.
TEST(DocumentedTestsTest, NamedTestsExistAndEveryKnownFailureHasOne) {
  ExpectNamedTestsToExist();
  ExpectEveryRowToNameATest();
}

}  // namespace
}  // namespace lethe::testing
