// Goal: notes, vkeys and checkpoints are C2SP's, and malformed or unsigned ones are refused.
// Method: the specification's example; each rule broken once.
#include "audit/log/note.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "audit/crypto/encoding.h"
#include "audit/log/checkpoint.h"
#include "audit/log/merkle_tree.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Origin: C2SP signed-note, the example note and its verifier key.
constexpr char kExampleKey[] =
    "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";
constexpr char kExampleNote[] =
    "This is an example message.\n\n— example.com/foo "
    "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM="
    "\n";

Ed25519PrivateKey KeyOf(char seed) {
  return Ed25519PrivateKey::FromSeed(AsByteSpan(std::string(32, seed))).value();
}

TEST(NoteTest, SpecificationExampleVerifies) {
  ASSERT_OK_AND_ASSIGN(const VerifierKey vkey, ParseVerifierKey(kExampleKey));
  EXPECT_EQ(WriteVerifierKey(vkey), kExampleKey);
  EXPECT_EQ(vkey.key_id, 0x530d903a);
  EXPECT_EQ(NoteKeyId(vkey.name, vkey.key), vkey.key_id);
  ASSERT_OK_AND_ASSIGN(const SignedNote note, ParseNote(kExampleNote));
  EXPECT_EQ(note.text, "This is an example message.\n");
  EXPECT_OK(VerifyNote(note, vkey));
  EXPECT_EQ(WriteNote(note), kExampleNote);
}

TEST(NoteTest, EveryFlippedBitOfTheExampleIsRefused) {
  ASSERT_OK_AND_ASSIGN(const VerifierKey vkey, ParseVerifierKey(kExampleKey));
  const std::string note(kExampleNote);
  for (size_t bit = 0; bit < note.size() * 8; ++bit) {
    std::string flipped = note;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const absl::StatusOr<SignedNote> parsed = ParseNote(flipped);
    EXPECT_FALSE(parsed.ok() && VerifyNote(*parsed, vkey).ok()) << "bit " << bit;
  }
}

TEST(NoteTest, UnknownKeysAreIgnoredAndAKnownOnesBadSignatureIsNot) {
  const std::string text = "text\n";
  const Ed25519PrivateKey known = KeyOf('k');
  const Ed25519PrivateKey other = KeyOf('o');
  ASSERT_OK_AND_ASSIGN(const VerifierKey vkey, MakeVerifierKey("known", known.public_key()));
  SignedNote note{text, {SignNoteText(text, "other", other), SignNoteText(text, "known", known)}};
  EXPECT_OK(VerifyNote(note, vkey));
  note.signatures[0].signature[0] ^= 1;  // an unknown key's line may hold anything
  EXPECT_OK(VerifyNote(note, vkey));
  note.signatures[1].signature[0] ^= 1;
  EXPECT_THAT(VerifyNote(note, vkey), StatusIs(kInvalid));
  note.signatures.pop_back();
  EXPECT_THAT(VerifyNote(note, vkey), StatusIs(absl::StatusCode::kNotFound));
  // The known name with another key's id is another key.
  note.signatures = {SignNoteText(text, "known", other)};
  EXPECT_THAT(VerifyNote(note, vkey), StatusIs(absl::StatusCode::kNotFound));
}

TEST(NoteTest, MalformedNotesAreRefused) {
  const std::string line = std::string(kExampleNote).substr(29);
  const std::string text = "This is an example message.\n";
  ASSERT_OK(ParseNote(text + "\n" + line));
  const std::string cases[] = {
      "",
      text,
      text + "\n",
      text + line,                                     // no empty line
      text + "\n" + line.substr(0, line.size() - 1),   // last line without newline
      text + "\n" + line + "\n",                       // an empty line last
      text + "\n" + line + line,                       // one signer twice
      text + "\n- example.com/foo AAAAAAA=\n",         // a hyphen
      text + "\n— example.com/foo\n",                  // no signature
      text + "\n— example.com/foo AAAAAA==\n",         // a key id alone
      text + "\n— example.com/foo AAAAAAA\n",          // bad base64
      text + "\n— example.com/foo AAAAAAA= x\n",       // three fields
      text + "\n—  AAAAAAA=\n",                        // empty name
      text + "\n— a+b AAAAAAA=\n",                     // plus
      text + "\n— a\u00a0b AAAAAAA=\n",                // Unicode space
      "a\tb\n\n" + line,                               // control character
      "a\r\n\n" + line,                                // carriage return
      "\xff\n\n" + line,                               // no UTF-8
      "\xc0\x80\n\n" + line,                           // overlong
      "\xed\xa0\x80\n\n" + line,                       // surrogate
      "\xf4\x90\x80\x80\n\n" + line,                   // beyond U+10FFFF
      "\xe2\x80\n\n" + line,                           // cut short
      std::string(kNoteBytesMax, 'a') + "\n\n" + line  // too long
  };
  for (const std::string& note : cases) {
    EXPECT_THAT(ParseNote(note), StatusIs(kInvalid)) << note.substr(0, 100);
  }
}

TEST(NoteTest, SixteenSignaturesAreAcceptedAndSixtyFiveAreNot) {
  const std::string text = "text\n";
  SignedNote note{text, {}};
  for (int i = 0; i < 65; ++i) {
    note.signatures.push_back(NoteSignature{"name" + std::to_string(i), 1, std::string(64, 'x')});
    if (i + 1 == 16 || i + 1 == 64) {
      EXPECT_OK(ParseNote(WriteNote(note)));
    }
  }
  EXPECT_THAT(ParseNote(WriteNote(note)), StatusIs(kInvalid, "64 signatures"));
}

TEST(NoteTest, TheTextMayHoldEmptyLines) {
  const Ed25519PrivateKey key = KeyOf('k');
  const std::string text = "one\n\ntwo\n";
  const SignedNote note{text, {SignNoteText(text, "name", key)}};
  ASSERT_OK_AND_ASSIGN(const SignedNote parsed, ParseNote(WriteNote(note)));
  EXPECT_EQ(parsed.text, text);
}

TEST(VerifierKeyTest, MalformedKeysAreRefused) {
  ASSERT_OK_AND_ASSIGN(const VerifierKey vkey, ParseVerifierKey(kExampleKey));
  const std::string key = Base64Encode(absl::StrCat("\x01", vkey.key.raw()));
  for (const std::string& text : {
           std::string(""),
           std::string("example.com/foo"),
           "example.com/foo+530d903b+" + key,  // another id
           "example.com/fop+530d903a+" + key,  // another name
           "example.com/foo+530D903A+" + key,
           "example.com/foo+530d903+" + key,
           "example.com/foo+530d903a+" + Base64Encode(absl::StrCat("\x04", vkey.key.raw())),
           "example.com/foo+530d903a+" + Base64Encode("\x01"),
           "example.com/foo+530d903a+" +
               Base64Encode(std::string("\x01\x01", 2) + std::string(31, '\0')),
           "+530d903a+" + key,
           "a b+530d903a+" + key,
       }) {
    EXPECT_THAT(ParseVerifierKey(text), StatusIs(kInvalid)) << text;
  }
}

class CheckpointTest : public ::testing::Test {
 protected:
  const Ed25519PrivateKey key_ = KeyOf('c');
  const VerifierKey vkey_ = MakeVerifierKey("example.com/log", key_.public_key()).value();
  const Checkpoint checkpoint_{"example.com/log", 20852163, Sha256Of("root")};
};

// Origin of the text: C2SP tlog-checkpoint, first three lines of the example.
TEST_F(CheckpointTest, TextIsTheSpecifications) {
  ASSERT_OK_AND_ASSIGN(const Checkpoint parsed,
                       ParseCheckpointText("example.com/behind-the-sofa\n20852163\n"
                                           "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"));
  EXPECT_EQ(parsed.origin, "example.com/behind-the-sofa");
  EXPECT_EQ(parsed.tree_size, 20852163u);
  EXPECT_EQ(Base64Encode(parsed.root_hash), "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=");
}

TEST_F(CheckpointTest, SignedOnesOpen) {
  const std::string note = SignCheckpoint(checkpoint_, key_);
  ASSERT_OK_AND_ASSIGN(const Checkpoint opened, OpenCheckpoint(note, vkey_));
  EXPECT_EQ(opened.origin, checkpoint_.origin);
  EXPECT_EQ(opened.tree_size, checkpoint_.tree_size);
  EXPECT_EQ(opened.root_hash, checkpoint_.root_hash);
}

TEST_F(CheckpointTest, MalformedTextsAreRefused) {
  const std::string root = Base64Encode(checkpoint_.root_hash);
  for (const std::string& text : {
           std::string(""),
           std::string("a\n1\n"),
           "a\n1\n" + root,
           "a\n01\n" + root + "\n",
           "a\n-1\n" + root + "\n",
           "a\n+1\n" + root + "\n",
           "a\n\n" + root + "\n",
           "a\n18446744073709551616\n" + root + "\n",
           "\n1\n" + root + "\n",
           "a b\n1\n" + root + "\n",
           std::string("a\n1\nAAAA\n"),
           "a\n1\n" + root + "\nextension\n",
           "a\n0\n" + root + "\n",
       }) {
    EXPECT_THAT(ParseCheckpointText(text), StatusIs(kInvalid)) << text;
  }
  EXPECT_OK(ParseCheckpointText("a\n18446744073709551615\n" + root + "\n"));
  EXPECT_OK(ParseCheckpointText("a\n0\n" + Base64Encode(MerkleEmptyRoot()) + "\n"));
}

TEST_F(CheckpointTest, AnOriginThatIsNotTheKeysNameIsRefused) {
  SignedNote note;
  note.text = WriteCheckpointText({"example.com/other", 1, Sha256Of("root")});
  note.signatures.push_back(SignNoteText(note.text, "example.com/log", key_));
  EXPECT_THAT(OpenCheckpoint(WriteNote(note), vkey_), StatusIs(kInvalid, "origin"));
}

}  // namespace
}  // namespace lethe::audit
