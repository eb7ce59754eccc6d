// Goal: every byte string has one accepted text, and every other text is refused.
// Method: RFC 4648 vectors; round trips over all lengths; each way of writing a text wrongly.
#include "audit/crypto/encoding.h"

#include <string>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Origin: RFC 4648, section 10.
TEST(Base64Test, Rfc4648Vectors) {
  EXPECT_EQ(Base64Encode(""), "");
  EXPECT_EQ(Base64Encode("f"), "Zg==");
  EXPECT_EQ(Base64Encode("fo"), "Zm8=");
  EXPECT_EQ(Base64Encode("foo"), "Zm9v");
  EXPECT_EQ(Base64Encode("foob"), "Zm9vYg==");
  EXPECT_EQ(Base64Encode("fooba"), "Zm9vYmE=");
  EXPECT_EQ(Base64Encode("foobar"), "Zm9vYmFy");
}

TEST(Base64Test, RoundTripsEveryLengthAndByte) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    ASSERT_OK_AND_ASSIGN(const std::string decoded, Base64Decode(Base64Encode(bytes)));
    EXPECT_EQ(decoded, bytes);
    bytes.push_back(static_cast<char>(i * 7));
  }
}

TEST(Base64Test, RefusesOtherTexts) {
  for (const char* text : {"Zg", "Zg=", "Zg===", "Z===", "====", "=", "Zm8=\n",
                           " Zm8=", "Zm 8=", "Zh==", "Zm9=", "Zm8=Zm8=", "Zm8*", "Zm-_", "Z=g="}) {
    EXPECT_THAT(Base64Decode(text), StatusIs(kInvalid)) << text;
  }
}

TEST(Base64Test, UrlSafeIsAcceptedOnRequestAndNeverMixed) {
  ASSERT_OK_AND_ASSIGN(const std::string bytes, Base64Decode("+/+/"));
  ASSERT_OK_AND_ASSIGN(const std::string same,
                       Base64Decode("-_-_", Base64Alphabet::kAcceptUrlSafe));
  EXPECT_EQ(bytes, same);
  EXPECT_THAT(Base64Decode("-_-_"), StatusIs(kInvalid));
  EXPECT_THAT(Base64Decode("-_+/", Base64Alphabet::kAcceptUrlSafe), StatusIs(kInvalid));
}

TEST(HexTest, RoundTripsAndRefuses) {
  const std::string bytes("\x00\x7f\xff\x10", 4);
  EXPECT_EQ(HexEncode(bytes), "007fff10");
  ASSERT_OK_AND_ASSIGN(const std::string decoded, HexDecode("007fff10"));
  EXPECT_EQ(decoded, bytes);
  for (const char* text : {"0", "0G", "FF", "0x", " 0", "0 "}) {
    EXPECT_THAT(HexDecode(text), StatusIs(kInvalid)) << text;
  }
}

TEST(HexTest, DigestWantsExactlyThirtyTwoBytes) {
  EXPECT_OK(HexDecodeDigest(std::string(64, 'a')));
  EXPECT_THAT(HexDecodeDigest(std::string(62, 'a')), StatusIs(kInvalid));
  EXPECT_THAT(HexDecodeDigest(std::string(66, 'a')), StatusIs(kInvalid));
  EXPECT_THAT(HexDecodeDigest(""), StatusIs(kInvalid));
}

}  // namespace
}  // namespace lethe::audit
