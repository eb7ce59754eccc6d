// SourceFile, LoadSourceTree: the repository's text files, for the rules of tidy_test.cc.
// Threads: none.
#ifndef LETHE_TESTS_TIDY_SOURCE_TREE_H_
#define LETHE_TESTS_TIDY_SOURCE_TREE_H_

#include <string>
#include <vector>

namespace lethe::testing {

struct SourceFile {
  std::string path;  // relative to the repository root, '/'-separated
  std::string text;
  std::vector<std::string> lines;  // without newline
};

// Every file below the root except build/, .git/, models/ and test data; sorted by path.
std::vector<SourceFile> LoadSourceTree(const std::string& root);

bool StartsWith(const std::string& text, const std::string& prefix);
bool EndsWith(const std::string& text, const std::string& suffix);

// The quoted or bracketed names of a file's #include lines.
std::vector<std::string> Includes(const SourceFile& file);

}  // namespace lethe::testing

#endif  // LETHE_TESTS_TIDY_SOURCE_TREE_H_
