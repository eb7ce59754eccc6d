// Goal: the commands by which docs/certificate-format.md and docs/audit-log.md check a certificate
// by hand work as printed, and refuse a changed one: a verifier made of openssl and coreutils, with
// none of our code.
// Method: the indented commands of the two sections run by bash on the files of a certificate.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

#include "audit/certificate/verify.h"
#include "audit/crypto/encoding.h"
#include "audit/log/note.h"
#include "tests/audit/certificate/certificate_world.h"

namespace lethe::audit {
namespace {

// The indented lines after `heading`, without their indent.
std::string Commands(const std::string& document, const std::string& heading) {
  const std::string text = ReadFile(absl::StrCat(LETHE_SOURCE_DIR, "/docs/", document));
  const size_t begin = text.find(heading);
  EXPECT_NE(begin, std::string::npos) << heading;
  std::string commands;
  for (const absl::string_view line : absl::StrSplit(text.substr(begin), '\n')) {
    if (absl::StartsWith(line, "    ")) absl::StrAppend(&commands, line.substr(4), "\n");
  }
  return commands;
}

class DocsByHandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // One by one: `command -v a b` succeeds when it finds any.
    for (const char* tool : {"openssl", "jq", "xxd", "awk", "bash"}) {
      if (std::system(absl::StrCat("command -v ", tool, " >/dev/null 2>&1").c_str()) != 0) {
        GTEST_SKIP() << "needs " << tool;
      }
    }
  }
  // What the printed commands say about these files.
  std::string Run(const CertificateFiles& files) const {
    const std::string directory = directory_.path();
    WriteFile(directory + "/envelope.json", files.envelope);
    WriteFile(directory + "/proof.tlog", files.proof_file);
    WriteFile(directory + "/opening.json", *files.opening);
    WriteFile(directory + "/trust.txt", WriteTrust(SharedWorld().trust()));
    WriteFile(directory + "/check.sh", Commands("certificate-format.md", "### By hand") +
                                           Commands("audit-log.md", "## 7. Checking by hand"));
    const std::string command = absl::StrCat("cd ", directory, " && bash check.sh 2>&1");
    std::string output;
    FILE* pipe = popen(command.c_str(), "r");
    std::array<char, 4096> buffer;
    while (const size_t num = fread(buffer.data(), 1, buffer.size(), pipe)) {
      output.append(buffer.data(), num);
    }
    pclose(pipe);
    return output;
  }
  static int Count(const std::string& text, const std::string& part) {
    int count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++count;
    return count;
  }
  const TempDirectory directory_;
};

TEST_F(DocsByHandTest, AcceptsACertificate) {
  const std::string output = Run(SharedWorld().Files(CertificateWorld::kForgetRecord, false));
  EXPECT_EQ(Count(output, "Signature Verified Successfully"), 2) << output;
  EXPECT_EQ(Count(output, "\nincluded\n"), 1) << output;
  const FinishedRecord& record = SharedWorld().record(CertificateWorld::kForgetRecord);
  EXPECT_EQ(Count(output, HexEncode(record.leaf_hash)), 1) << output;
  EXPECT_EQ(Count(output, HexEncode(record.statement.subject_digest)), 2) << output;
}

TEST_F(DocsByHandTest, RefusesChangedOnes) {
  const CertificateFiles files = SharedWorld().Files(CertificateWorld::kForgetRecord, false);
  CertificateFiles other = files;
  other.proof_file = SharedWorld().record(0).proof_file;
  EXPECT_EQ(Count(Run(other), "\nincluded\n"), 0);
  other = files;
  const size_t at = other.envelope.find("payload\":\"") + 100;
  other.envelope[at] = other.envelope[at] == 'A' ? 'B' : 'A';
  const std::string output = Run(other);
  EXPECT_EQ(Count(output, "Signature Verified Successfully"), 1) << output;
  EXPECT_EQ(Count(output, "\nincluded\n"), 0) << output;
}

}  // namespace
}  // namespace lethe::audit
