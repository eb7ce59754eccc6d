// Goal: proof files and leaves have one text each.
// Method: written, read, and every line spoilt.
#include "audit/log/tlog_proof.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "audit/crypto/encoding.h"
#include "audit/log/leaf.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(TlogProofTest, RoundTrips) {
  TlogProof proof;
  proof.leaf_index = 73894;
  proof.hashes = {Sha256Of("a"), Sha256Of("b")};
  proof.checkpoint = "origin\n1\nroot\n\n— signature\n";
  const std::string file = WriteTlogProof(proof);
  EXPECT_EQ(file, "c2sp.org/tlog-proof@v1\nindex 73894\n" + Base64Encode(proof.hashes[0]) + "\n" +
                      Base64Encode(proof.hashes[1]) + "\n\n" + proof.checkpoint);
  ASSERT_OK_AND_ASSIGN(const TlogProof parsed, ParseTlogProof(file));
  EXPECT_EQ(parsed.leaf_index, proof.leaf_index);
  EXPECT_EQ(parsed.hashes, proof.hashes);
  EXPECT_EQ(parsed.checkpoint, proof.checkpoint);
  EXPECT_FALSE(parsed.extra.has_value());
}

TEST(TlogProofTest, ExtraRoundTrips) {
  TlogProof proof;
  proof.extra = "data";
  ASSERT_OK_AND_ASSIGN(const TlogProof parsed, ParseTlogProof(WriteTlogProof(proof)));
  EXPECT_EQ(parsed.extra, "data");
  EXPECT_EQ(parsed.leaf_index, 0u);
}

TEST(TlogProofTest, MalformedFilesAreRefused) {
  const std::string hash = Base64Encode(Sha256Of("a"));
  const std::string magic = "c2sp.org/tlog-proof@v1\n";
  std::string many = magic + "index 0\n";
  for (int i = 0; i < 64; ++i) many += hash + "\n";
  for (const std::string& file : {
           std::string(""),
           std::string("c2sp.org/tlog-proof@v2\nindex 0\n\n"),
           magic,
           magic + "index\n\n",
           magic + "index \n\n",
           magic + "index 01\n\n",
           magic + "index -1\n\n",
           magic + "Index 1\n\n",
           magic + "index 1\n" + hash + "\n",  // no empty line
           magic + "index 1\n" + hash.substr(4) + "\n\n",
           magic + "index 1\n" + hash + " \n\n",
           magic + "index 1\nnot base64\n\n",
           magic + "extra *\nindex 1\n\n",
           magic + "extra QQ==\nextra QQ==\nindex 1\n\n",
           magic + "index 1\nextra QQ==\n\n",
           many + "\n",
           "\n" + magic + "index 1\n\n",
           std::string(300000, 'x'),
       }) {
    EXPECT_THAT(ParseTlogProof(file), StatusIs(kInvalid)) << file.substr(0, 80);
  }
}

class LeafTest : public ::testing::Test {
 protected:
  const Ed25519PrivateKey key_ =
      Ed25519PrivateKey::FromSeed(AsByteSpan(std::string(32, 'r'))).value();
  const LogLeaf leaf_{Sha256Of("pae"), key_.Sign("pae"), key_.public_key()};
};

TEST_F(LeafTest, IsTheSpecifiedLine) {
  const std::string bytes = WriteLogLeaf(leaf_);
  EXPECT_EQ(bytes.size(), 406u);
  EXPECT_EQ(bytes,
            R"({"apiVersion":"0.0.2","kind":"hashedrekord","spec":{"hashedRekordV002":{"data":)"
            R"({"algorithm":"SHA2_256","digest":")" +
                Base64Encode(leaf_.pae_digest) + R"("},"signature":{"content":")" +
                Base64Encode(leaf_.signature) +
                R"(","verifier":{"keyDetails":"PKIX_ED25519","publicKey":{"rawBytes":")" +
                Base64Encode(leaf_.key.SpkiDer()) + R"("}}}}}})");
  ASSERT_OK_AND_ASSIGN(const LogLeaf parsed, ParseLogLeaf(bytes));
  EXPECT_EQ(WriteLogLeaf(parsed), bytes);
}

TEST_F(LeafTest, NoOtherBytesParseToTheSameLeaf) {
  const std::string bytes = WriteLogLeaf(leaf_);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const absl::StatusOr<LogLeaf> parsed = ParseLogLeaf(flipped);
    if (!parsed.ok()) continue;
    EXPECT_EQ(WriteLogLeaf(*parsed), flipped) << bit;
    EXPECT_NE(WriteLogLeaf(*parsed), bytes) << bit;
  }
  EXPECT_THAT(ParseLogLeaf(bytes.substr(1)), StatusIs(kInvalid));
  EXPECT_THAT(ParseLogLeaf(bytes + " "), StatusIs(kInvalid));
  EXPECT_THAT(ParseLogLeaf(""), StatusIs(kInvalid));
}

}  // namespace
}  // namespace lethe::audit
