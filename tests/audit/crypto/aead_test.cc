// Goal: what AES-256-GCM sealed is opened with the same key and associated data alone, and any change is noticed.
// Method: test case 16 of the GCM specification (McGrew and Viega, 2005) by hand; round trips; every bit flipped.
#include "audit/crypto/aead.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

#include "audit/crypto/encoding.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;

std::string FromHex(const char* hex) { return HexDecode(hex).value(); }

Secret32 KeyFromHex(const char* hex) {
  const std::string bytes = FromHex(hex);
  std::array<uint8_t, 32> key{};
  std::copy(bytes.begin(), bytes.end(), key.begin());
  return Secret32::FromBytes(key);
}

TEST(AeadTest, OpensTheSpecificationsTestCase) {
  const Secret32 key =
      KeyFromHex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
  const std::string associated = FromHex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
  const std::string sealed = FromHex(
      "cafebabefacedbaddecaf888"
      "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
      "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
      "76fc6ece0f4e1768cddf8853bb2d551b");
  const absl::StatusOr<std::string> plain = OpenAes256Gcm(key, associated, sealed);
  ASSERT_OK(plain);
  EXPECT_EQ(HexEncode(*plain),
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39");
}

TEST(AeadTest, OpensWhatItSealedAndNeverSealsTheSameTwice) {
  const Secret32 key = Secret32::Random();
  std::set<std::string> seen;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{4097}}) {
    const std::string plain(size, 'p');
    for (int repeat = 0; repeat < 2; ++repeat) {
      const std::string sealed = SealAes256Gcm(key, "row 7", plain);
      EXPECT_EQ(sealed.size(), size + kAeadOverheadBytes);
      EXPECT_TRUE(seen.insert(sealed).second);
      const absl::StatusOr<std::string> opened = OpenAes256Gcm(key, "row 7", sealed);
      ASSERT_OK(opened);
      EXPECT_EQ(*opened, plain);
    }
  }
}

TEST(AeadTest, EveryBitAndTheAssociatedDataAndTheKeyCount) {
  const Secret32 key = Secret32::Random();
  const std::string sealed = SealAes256Gcm(key, "session 1", "warfarin");
  for (size_t bit = 0; bit < sealed.size() * 8; ++bit) {
    std::string changed = sealed;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THAT(OpenAes256Gcm(key, "session 1", changed), StatusIs(absl::StatusCode::kDataLoss));
  }
  EXPECT_THAT(OpenAes256Gcm(key, "session 2", sealed), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(OpenAes256Gcm(Secret32::Random(), "session 1", sealed),
              StatusIs(absl::StatusCode::kDataLoss));
  for (size_t size = 0; size < sealed.size(); ++size) {
    EXPECT_THAT(OpenAes256Gcm(key, "session 1", sealed.substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss));
  }
}

}  // namespace
}  // namespace lethe::audit
