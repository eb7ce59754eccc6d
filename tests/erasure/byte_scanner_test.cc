// Goal: the scanner finds every pattern wherever it stands, masked ones too, in bytes, files and a process's memory, and
// nothing else.
// Method: random bytes with patterns put at every kind of place; another process that holds one.
#include "tests/testing/byte_scanner.h"

#include <csignal>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include <sys/wait.h>
#include <unistd.h>

#include "tests/audit/temp_directory.h"

namespace lethe::testing {
namespace {

std::string RandomBytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes;
  while (bytes.size() < count) bytes.push_back(static_cast<char>(random()));
  return bytes;
}

std::vector<std::string> NamesIn(const ByteScanner& scanner, const std::string& bytes) {
  std::vector<Hit> hits;
  scanner.ScanBytes(bytes, "bytes", &hits);
  std::vector<std::string> names;
  for (const Hit& hit : hits) names.push_back(hit.name);
  return names;
}

TEST(ByteScannerTest, FindsAPatternAtEveryOffset) {
  ByteScanner scanner;
  const std::string pattern = RandomBytes(11, 1);
  scanner.Add("p", pattern);
  for (int k = 0; k < 5000; ++k)
    scanner.Add("other", RandomBytes(8, 100 + static_cast<uint64_t>(k)));
  const std::string around = RandomBytes(9000, 2);
  EXPECT_TRUE(NamesIn(scanner, around).empty());
  // Also behind and before pages of zeros, which are skipped.
  const std::string zeros(9000, '\0');
  for (size_t at = 0; at + pattern.size() <= around.size(); at += 37) {
    for (std::string bytes : {around, zeros}) {
      bytes.replace(at, pattern.size(), pattern);
      ASSERT_EQ(NamesIn(scanner, bytes), std::vector<std::string>{"p"}) << at;
    }
  }
  std::string cut = around.substr(0, 100) + pattern;
  cut.pop_back();
  EXPECT_TRUE(NamesIn(scanner, cut).empty());
}

TEST(ByteScannerTest, AMaskLetsBytesBeAnything) {
  ByteScanner scanner;
  scanner.Add("m", "abcdefgh____ij", std::string(8, '\1') + std::string(4, '\0') + "\1\1");
  EXPECT_EQ(NamesIn(scanner, "xxabcdefgh1234ijxx").size(), 1u);
  EXPECT_TRUE(NamesIn(scanner, "xxabcdefgh1234iixx").empty());
}

TEST(ByteScannerTest, PatternsThatBeginAlikeAreToldApart) {
  ByteScanner scanner;
  scanner.Add("one", "same-start-1");
  scanner.Add("two", "same-start-2");
  EXPECT_EQ(NamesIn(scanner, "..same-start-2.."), std::vector<std::string>{"two"});
}

TEST(ByteScannerTest, FindsInFilesAndInAnotherProcess) {
  const std::string pattern = RandomBytes(16, 3);
  ByteScanner scanner;
  scanner.Add("p", pattern);
  audit::TempDirectory directory;
  std::filesystem::create_directories(directory.path() + "/deep/er");
  audit::WriteFile(directory.path() + "/deep/er/file", RandomBytes(5000, 4) + pattern);
  audit::WriteFile(directory.path() + "/file", RandomBytes(5000, 5));
  std::vector<Hit> hits;
  scanner.ScanDirectory(directory.path(), &hits);
  ASSERT_EQ(hits.size(), 1u);
  EXPECT_NE(hits[0].where.find("deep/er/file +5000"), std::string::npos);
  // A child holds a copy of this process, the scanner with it; one byte changed in the pattern's every copy is not
  // possible here, so the child makes another pattern's only copy from two halves.
  const std::string half = RandomBytes(16, 6);
  std::string inverted = half;
  for (char& byte : inverted) byte = static_cast<char>(~byte);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    static char held[16];
    for (size_t i = 0; i < sizeof held; ++i) held[i] = static_cast<char>(~half[i]);
    if (write(ends[1], "x", 1) != 1) _exit(1);
    pause();
    _exit(held[0]);
  }
  char ready = 0;
  ASSERT_EQ(read(ends[0], &ready, 1), 1);
  ByteScanner others;
  others.Add("q", RandomBytes(16, 7));
  ByteScanner childs;
  childs.Add("q", inverted);
  hits.clear();
  others.ScanProcess(child, &hits);
  EXPECT_TRUE(hits.empty());
  childs.ScanProcess(child, &hits);
  EXPECT_FALSE(hits.empty());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace lethe::testing
