// Goal: signatures are RFC 8032's, bad keys and signatures are refused, key files are private.
// Method: RFC 8032 vectors; every bit of a signature flipped; the known small-order encodings;
// files written, read back and spoilt.
#include "audit/crypto/ed25519.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include <sys/stat.h>

#include "audit/crypto/encoding.h"
#include "audit/crypto/key_file.h"
#include "audit/crypto/secret.h"
#include "tests/audit/temp_directory.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;

std::string Hex(const char* hex) { return HexDecode(hex).value(); }

struct Vector {
  const char* seed;
  const char* public_key;
  const char* message;
  const char* signature;
};

// Origin: RFC 8032, section 7.1, tests 1 to 3.
constexpr Vector kVectors[] = {
    {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b"
     "4"
     "6bd25bf5f0595bbe24655141438e7a100b"},
    {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11"
     "d"
     "8c387b2eaeb4302aeeb00d291612bb0c00"},
    {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
     "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc"
     "6"
     "594a7c15e9716ed28dc027beceea1ec40a"},
};

TEST(Ed25519Test, Rfc8032Vectors) {
  for (const Vector& vector : kVectors) {
    ASSERT_OK_AND_ASSIGN(const Ed25519PrivateKey key,
                         Ed25519PrivateKey::FromSeed(AsByteSpan(Hex(vector.seed))));
    EXPECT_EQ(HexEncode(key.public_key().raw()), vector.public_key);
    const std::string message = Hex(vector.message);
    EXPECT_EQ(HexEncode(key.Sign(message)), vector.signature);
    EXPECT_TRUE(key.public_key().Verify(message, Hex(vector.signature)));
  }
}

TEST(Ed25519Test, EveryFlippedBitIsRefused) {
  const Ed25519PrivateKey key = Ed25519PrivateKey::Generate();
  const std::string message = "message";
  const std::string signature(AsStringView(key.Sign(message)));
  for (size_t bit = 0; bit < signature.size() * 8; ++bit) {
    std::string flipped = signature;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(key.public_key().Verify(message, flipped)) << bit;
  }
  EXPECT_FALSE(key.public_key().Verify("messagf", signature));
  EXPECT_FALSE(key.public_key().Verify(message, signature.substr(0, 63)));
  EXPECT_FALSE(key.public_key().Verify(message, signature + "x"));
  EXPECT_FALSE(key.public_key().Verify(message, ""));
}

// Origin: "Taming the many EdDSAs" (2020), table 6: the eight small-order points, their
// non-canonical encodings, and 2^255 - 19 + 2.
TEST(Ed25519Test, SmallOrderAndNonCanonicalKeysAreRefused) {
  for (const char* hex : {
           "0100000000000000000000000000000000000000000000000000000000000000",
           "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
           "0000000000000000000000000000000000000000000000000000000000000080",
           "0000000000000000000000000000000000000000000000000000000000000000",
           "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
           "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
           "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
           "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
           "0100000000000000000000000000000000000000000000000000000000000080",
           "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
           "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
           "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
           "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
           "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
           "efffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
       }) {
    EXPECT_THAT(Ed25519PublicKey::FromRaw(Hex(hex)),
                StatusIs(absl::StatusCode::kInvalidArgument, "public key"))
        << hex;
  }
}

// Why the import check exists: OpenSSL itself takes R = identity, S = 0 under the identity key.
TEST(Ed25519Test, SpkiImportChecksTheKeyToo) {
  const Ed25519PrivateKey key = Ed25519PrivateKey::Generate();
  const std::string spki = key.public_key().SpkiDer();
  ASSERT_EQ(spki.size(), kEd25519SpkiBytes);
  ASSERT_OK_AND_ASSIGN(const Ed25519PublicKey again, Ed25519PublicKey::FromSpkiDer(spki));
  EXPECT_EQ(again, key.public_key());
  const std::string identity = spki.substr(0, 12) + '\x01' + std::string(31, '\0');
  EXPECT_THAT(Ed25519PublicKey::FromSpkiDer(identity),
              StatusIs(absl::StatusCode::kInvalidArgument, "small order"));
  EXPECT_FALSE(Ed25519PublicKey::FromSpkiDer(spki.substr(1)).ok());
  std::string other_oid = spki;
  other_oid[8] = '\x71';  // Ed448
  EXPECT_FALSE(Ed25519PublicKey::FromSpkiDer(other_oid).ok());
  EXPECT_EQ(HexEncode(spki.substr(0, 12)), "302a300506032b6570032100");
}

class KeyFileTest : public ::testing::Test {
 protected:
  std::string Path(const char* name) const { return directory_.path() + "/" + name; }
  const TempDirectory directory_;
};

TEST_F(KeyFileTest, SavedKeyIsPrivateAndLoadsAgain) {
  const Ed25519PrivateKey key = Ed25519PrivateKey::Generate();
  ASSERT_OK(key.SavePem(Path("key.pem")));
  struct stat info;
  ASSERT_EQ(stat(Path("key.pem").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600);
  ASSERT_OK_AND_ASSIGN(const Ed25519PrivateKey loaded, Ed25519PrivateKey::LoadPem(Path("key.pem")));
  EXPECT_EQ(loaded.public_key(), key.public_key());
  EXPECT_EQ(loaded.Sign("m"), key.Sign("m"));
}

TEST_F(KeyFileTest, NeverOverwrites) {
  ASSERT_OK(Ed25519PrivateKey::Generate().SavePem(Path("key.pem")));
  EXPECT_THAT(Ed25519PrivateKey::Generate().SavePem(Path("key.pem")),
              StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(KeyFileTest, RefusesWhatOthersMayRead) {
  ASSERT_OK(Ed25519PrivateKey::Generate().SavePem(Path("key.pem")));
  ASSERT_EQ(chmod(Path("key.pem").c_str(), 0640), 0);
  EXPECT_THAT(Ed25519PrivateKey::LoadPem(Path("key.pem")),
              StatusIs(absl::StatusCode::kFailedPrecondition, "0600"));
}

TEST_F(KeyFileTest, RefusesMissingDamagedAndOtherKeys) {
  EXPECT_THAT(Ed25519PrivateKey::LoadPem(Path("none.pem")), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Ed25519PrivateKey::LoadPem(directory_.path()),
              StatusIs(absl::StatusCode::kInvalidArgument, "regular file"));
  ASSERT_OK(WriteKeyFile(Path("text.pem"), "no key"));
  EXPECT_THAT(Ed25519PrivateKey::LoadPem(Path("text.pem")),
              StatusIs(absl::StatusCode::kInvalidArgument));
  ASSERT_OK(WriteKeyFile(Path("long.pem"), std::string(kKeyFileBytesMax + 1, 'x')));
  EXPECT_THAT(Ed25519PrivateKey::LoadPem(Path("long.pem")),
              StatusIs(absl::StatusCode::kInvalidArgument, "65536"));
  // Origin: openssl genpkey -algorithm X25519.
  ASSERT_OK(WriteKeyFile(Path("x25519.pem"),
                         "-----BEGIN PRIVATE KEY-----\n"
                         "MC4CAQAwBQYDK2VuBCIEIHAHbnl0x6Wqd5GJYKwrAWGnBxXkKJQ1sIvhoTkkZC1I\n"
                         "-----END PRIVATE KEY-----\n"));
  EXPECT_THAT(Ed25519PrivateKey::LoadPem(Path("x25519.pem")),
              StatusIs(absl::StatusCode::kInvalidArgument, "Ed25519"));
}

TEST(SecretTest, CompareAndWipe) {
  EXPECT_TRUE(ConstantTimeEqual(AsByteSpan("abc"), AsByteSpan("abc")));
  EXPECT_FALSE(ConstantTimeEqual(AsByteSpan("abc"), AsByteSpan("abd")));
  EXPECT_FALSE(ConstantTimeEqual(AsByteSpan("abc"), AsByteSpan("ab")));
  EXPECT_TRUE(ConstantTimeEqual({}, {}));
  char buffer[] = "secret";
  SecureWipe(buffer, sizeof buffer);
  EXPECT_EQ(std::string(buffer, sizeof buffer), std::string(sizeof buffer, '\0'));
  std::string text = "a secret that is too long for the inline buffer of a string";
  const char* data = text.data();
  SecureWipe(&text);
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(text.data(), data);  // the buffer itself was overwritten, not replaced
}

TEST(SecretTest, RandomSecretsDiffer) {
  EXPECT_FALSE(ConstantTimeEqual(Secret32::Random().bytes(), Secret32::Random().bytes()));
}

}  // namespace
}  // namespace lethe::audit
