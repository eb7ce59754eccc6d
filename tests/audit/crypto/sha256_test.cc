// Goal: digests and MACs are those of the standards, however the message is cut.
// Method: published vectors (FIPS 180-4 examples, RFC 4231), random-free cuts of one message.
#include "audit/crypto/sha256.h"

#include <string>

#include "gtest/gtest.h"

#include "audit/crypto/encoding.h"

namespace lethe::audit {
namespace {

// Origin: FIPS 180-4, NIST example values for SHA-256, and the empty message.
TEST(Sha256Test, FipsVectors) {
  EXPECT_EQ(HexEncode(Sha256Of("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HexEncode(Sha256Of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HexEncode(Sha256Of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256Test, CutsDoNotMatter) {
  const std::string message(300, 'x');
  for (size_t cut = 0; cut <= message.size(); ++cut) {
    Sha256 sha;
    sha.Update(absl::string_view(message).substr(0, cut));
    sha.Update(AsByteSpan(absl::string_view(message).substr(cut)));
    EXPECT_EQ(sha.Finish(), Sha256Of(message));
  }
}

TEST(Sha256Test, MovedObjectGoesOn) {
  Sha256 first;
  first.Update("ab");
  Sha256 second = std::move(first);
  EXPECT_EQ(second.Update("c").Finish(), Sha256Of("abc"));
}

// Origin: RFC 4231, test cases 1, 2 and 6.
TEST(HmacSha256Test, Rfc4231Vectors) {
  EXPECT_EQ(HexEncode(HmacSha256(AsByteSpan(std::string(20, '\x0b')), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(HexEncode(HmacSha256(AsByteSpan("Jefe"), "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(HexEncode(HmacSha256(AsByteSpan(std::string(131, '\xaa')),
                                 "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

// Origin: computed with Python's hmac module: hmac.new(b"", b"", "sha256").
TEST(HmacSha256Test, EmptyKeyAndMessage) {
  EXPECT_EQ(HexEncode(HmacSha256({}, "")),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

}  // namespace
}  // namespace lethe::audit
