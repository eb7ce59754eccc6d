// Goal: the digest is what docs/state-digest.md says, and the first difference is named.
// Method: the bytes built by hand.

#include "audit/state/state_digest.h"

#include <string>

#include "gtest/gtest.h"

#include "kernels/base/byte_io.h"

namespace lethe::audit {
namespace {

StateParts Sample() {
  StateParts parts;
  parts.Add("model", "m");
  parts.Add("layer.0.conv", std::string("\0\1", 2));
  return parts;
}

TEST(StatePartsTest, DigestIsTheDocumentedHash) {
  std::string bytes("lethe-state-v1\0", 15);
  ByteWriter rest;
  rest.U64(2);
  rest.U64(5);
  std::string text = rest.Take() + "model" + std::string(AsStringView(Sha256Of("m")));
  ByteWriter second;
  second.U64(12);
  text +=
      second.Take() + "layer.0.conv" + std::string(AsStringView(Sha256Of(std::string("\0\1", 2))));
  EXPECT_EQ(Sample().Digest(), Sha256Of(bytes + text));
}

TEST(StatePartsTest, NoPartsHaveADigestOfTheirOwn) {
  EXPECT_EQ(StateParts().Digest(),
            Sha256Of(std::string("lethe-state-v1\0", 15) + std::string(8, '\0')));
}

TEST(StatePartsTest, NamesBytesAndOrderMatter) {
  StateParts other_bytes;
  other_bytes.Add("model", "m");
  other_bytes.Add("layer.0.conv", std::string("\0\2", 2));
  StateParts swapped;
  swapped.Add("layer.0.conv", std::string("\0\1", 2));
  swapped.Add("model", "m");
  EXPECT_NE(Sample().Digest(), other_bytes.Digest());
  EXPECT_NE(Sample().Digest(), swapped.Digest());
}

TEST(ExplainDifferenceTest, NamesTheFirstDifferingPart) {
  EXPECT_EQ(ExplainDifference(Sample().parts(), Sample().parts()), "");
  StateParts other;
  other.Add("model", "m");
  other.Add("layer.0.conv", "x");
  EXPECT_EQ(ExplainDifference(Sample().parts(), other.parts()), "part 1 \"layer.0.conv\" differs");
  StateParts longer = Sample();
  longer.Add("tail", "");
  EXPECT_EQ(ExplainDifference(Sample().parts(), longer.parts()), "part 2 \"tail\" is in one only");
  StateParts renamed;
  renamed.Add("mode", "m");
  EXPECT_NE(ExplainDifference(Sample().parts(), renamed.parts()).find("\"mode\""),
            std::string::npos);
}

TEST(SupportStateTest, BytesAreTheDocumentedOnes) {
  SupportState support;
  support.sigma = 1.5;
  support.box_mass = 20.0;
  support.ridge = 0.25;
  support.num_gated = 64;
  support.rho = -0.5;
  support.rows = {{3, SupportClass::kMargin, 0.25}, {9, SupportClass::kError, 1.0}};
  support.inputs_root.fill(7);
  ByteWriter writer;
  for (const double value : {1.5, 20.0, 0.25}) writer.F64(value);
  writer.U64(64);
  writer.F64(-0.5);
  writer.U64(2);
  writer.U64(3);
  writer.U64(1);
  writer.F64(0.25);
  writer.U64(9);
  writer.U64(2);
  writer.F64(1.0);
  EXPECT_EQ(SupportStateBytes(support), writer.bytes() + std::string(32, '\7'));
  EXPECT_EQ(SupportPartName(4, 0, 2), "layer.4.group.0.head.2.support");
}

}  // namespace
}  // namespace lethe::audit
