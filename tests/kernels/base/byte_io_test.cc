// Goal: state bytes are a function of the values, and reading hostile bytes never runs past their
// end. Method: fixed byte strings, round trips, every truncation of a valid encoding.

#include "kernels/base/byte_io.h"

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

TEST(ByteIoTest, EncodingIsLittleEndianWithCounts) {
  ByteWriter writer;
  writer.U64(0x0102030405060708ull);
  writer.F32(1.0f);
  writer.String("ab");
  const float values[] = {2.0f};
  writer.Array(absl::MakeConstSpan(values));
  EXPECT_EQ(writer.bytes(), std::string("\x08\x07\x06\x05\x04\x03\x02\x01"
                                        "\x00\x00\x80\x3f"
                                        "\x02\x00\x00\x00\x00\x00\x00\x00"
                                        "ab"
                                        "\x01\x00\x00\x00\x00\x00\x00\x00"
                                        "\x00\x00\x00\x40",
                                        34));
}

TEST(ByteIoTest, EveryTruncationIsRefused) {
  ByteWriter writer;
  writer.String("abc");
  const double values[] = {1.0, 2.0};
  writer.Array(absl::MakeConstSpan(values));
  const std::string all = writer.bytes();
  for (size_t length = 0; length <= all.size(); ++length) {
    ByteReader reader(absl::string_view(all.data(), length));
    std::string text;
    std::vector<double> numbers;
    const bool read = reader.String(&text).ok() && reader.Array(&numbers).ok();
    EXPECT_EQ(read, length == all.size()) << length;
  }
}

TEST(ByteIoTest, AnAbsurdCountAllocatesNothing) {
  ByteWriter writer;
  writer.U64(~0ull);
  ByteReader reader(writer.bytes());
  std::vector<double> numbers;
  EXPECT_THAT(reader.Array(&numbers), testing::StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(numbers.capacity(), 0u);
}

}  // namespace
}  // namespace lethe
