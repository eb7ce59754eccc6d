// Goal: only a well-formed model.safetensors is read, and an error names the tensor.
// Method: files built by hand from a header text and data bytes; a table of malformed ones, and every
// truncation of a good one.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "server/model/model.h"
#include "server/model/safetensors.h"
#include "server/model/synthetic_model.h"
#include "tests/testing/small_model.h"
#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

using ::lethe::testing::IsOk;
using ::lethe::testing::StatusIs;

std::string File(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + data;
}

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape,
                      ",\"data_offsets\":", offsets, "}");
}

struct Bad {
  std::string name;
  std::string header;
  size_t data_bytes;
  absl::StatusCode code;
  std::string error;
};

class SafetensorsBadTest : public ::testing::TestWithParam<Bad> {};

TEST_P(SafetensorsBadTest, IsRefusedByName) {
  const Bad& bad = GetParam();
  EXPECT_THAT(ParseSafetensors(File(bad.header, std::string(bad.data_bytes, '\0'))),
              StatusIs(bad.code, bad.error));
}

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

INSTANTIATE_TEST_SUITE_P(
    Files, SafetensorsBadTest,
    ::testing::Values(
        Bad{"NotJson", "{", 0, kInvalid, "well-formed"}, Bad{"Array", "[]", 0, kInvalid, "object"},
        Bad{"Dtype", "{" + Entry("a", "F16", "[2]", "[0,4]") + "}", 4, kInvalid, "tensor a.dtype"},
        Bad{"DtypeF64", "{" + Entry("a", "F64", "[1]", "[0,8]") + "}", 8, kInvalid,
            "one of \"F32\", \"BF16\""},
        Bad{"SpanTooShort", "{" + Entry("a", "F32", "[2]", "[0,4]") + "}", 4, kInvalid,
            "tensor a: data_offsets must span 8 bytes"},
        Bad{"OffsetsReversed", "{" + Entry("a", "F32", "[1]", "[4,0]") + "}", 4, kInvalid,
            "tensor a: data_offsets must span"},
        Bad{"OffsetsNegative", "{" + Entry("a", "F32", "[1]", "[-4,0]") + "}", 4, kInvalid,
            "tensor a: data_offsets must be two integers"},
        Bad{"ThreeOffsets", "{" + Entry("a", "F32", "[1]", "[0,4,8]") + "}", 4, kInvalid,
            "tensor a.data_offsets"},
        Bad{"ShapeReal", "{" + Entry("a", "F32", "[1.0]", "[0,4]") + "}", 4, kInvalid,
            "tensor a: shape"},
        Bad{"ShapeNegative", "{" + Entry("a", "F32", "[-1]", "[0,4]") + "}", 4, kInvalid,
            "tensor a: shape"},
        Bad{"ShapeOverflow", "{" + Entry("a", "F32", "[4294967296,4294967296,4]", "[0,0]") + "}", 0,
            kInvalid, "too many elements"},
        Bad{"Overlap",
            "{" + Entry("a", "F32", "[2]", "[0,8]") + "," + Entry("b", "F32", "[2]", "[4,12]") +
                "}",
            12, kInvalid, "tensor b: data_offsets overlap"},
        Bad{"Same",
            "{" + Entry("a", "F32", "[1]", "[0,4]") + "," + Entry("b", "F32", "[1]", "[0,4]") + "}",
            4, kInvalid, "overlap"},
        Bad{"Gap",
            "{" + Entry("a", "F32", "[1]", "[0,4]") + "," + Entry("b", "F32", "[1]", "[8,12]") +
                "}",
            12, kInvalid, "tensor b: data_offsets leave a gap"},
        Bad{"GapAtStart", "{" + Entry("a", "F32", "[1]", "[4,8]") + "}", 8, kInvalid, "gap"},
        Bad{"OutOfBounds", "{" + Entry("a", "F32", "[2]", "[0,8]") + "}", 4,
            absl::StatusCode::kDataLoss, "tensor a: the file ends before its data"},
        Bad{"TrailingData", "{" + Entry("a", "F32", "[1]", "[0,4]") + "}", 8, kInvalid,
            "data has 8 bytes, the tensors cover 4"},
        Bad{"Duplicate",
            "{" + Entry("a", "F32", "[1]", "[0,4]") + "," + Entry("a", "F32", "[1]", "[4,8]") + "}",
            8, kInvalid, "\"a\" twice"},
        Bad{"UnknownMember",
            "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, kInvalid,
            "tensor a.x is not a known key"},
        Bad{"MissingShape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, kInvalid,
            "tensor a.shape is missing"},
        Bad{"EntryNotObject", "{\"a\":7}", 0, kInvalid, "tensor a must be a JSON object"},
        Bad{"BadName", "{" + Entry("a b", "F32", "[1]", "[0,4]") + "}", 4, kInvalid, "tensor name"},
        Bad{"Metadata", "{\"__metadata__\":{\"a\":1}}", 0, kInvalid, "__metadata__"}),
    [](const ::testing::TestParamInfo<Bad>& tested) { return tested.param.name; });

TEST(SafetensorsTest, ReadsF32AndWidensBf16) {
  const float values[2] = {1.5f, -3.0e-20f};
  const uint16_t halves[2] = {0x3fc0, 0xc2f7};  // 1.5, -123.5
  std::string data(reinterpret_cast<const char*>(values), 8);
  data.append(reinterpret_cast<const char*>(halves), 4);
  ASSERT_OK_AND_ASSIGN(const TensorMap tensors,
                       ParseSafetensors(File("{\"__metadata__\":{\"k\":\"v\"}," +
                                                 Entry("h", "BF16", "[2,1]", "[8,12]") + "," +
                                                 Entry("f", "F32", "[2]", "[0,8]") + "," +
                                                 Entry("none", "F32", "[0,3]", "[12,12]") + "}",
                                             data)));
  EXPECT_EQ(tensors.at("f").values, (std::vector<float>{1.5f, -3.0e-20f}));
  EXPECT_EQ(tensors.at("h").values, (std::vector<float>{1.5f, -123.5f}));
  EXPECT_EQ(tensors.at("h").shape, (std::vector<int64_t>{2, 1}));
  EXPECT_TRUE(tensors.at("none").values.empty());
}

TEST(SafetensorsTest, RefusesNonFiniteValues) {
  for (const float value :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(ParseSafetensors(SafetensorsBytes({{"a", {{1}, {value}}}})),
                StatusIs(kInvalid, "tensor a: every value must be finite"));
  }
}

TEST(SafetensorsTest, RefusesALongHeaderLength) {
  std::string bytes = SafetensorsBytes({{"a", {{1}, {1.0f}}}});
  const uint64_t length = (uint64_t{16} << 20) + 1;
  std::memcpy(bytes.data(), &length, sizeof length);
  EXPECT_THAT(ParseSafetensors(bytes), StatusIs(kInvalid, "header length must be at most"));
  const uint64_t beyond = bytes.size();
  std::memcpy(bytes.data(), &beyond, sizeof beyond);
  EXPECT_THAT(ParseSafetensors(bytes), StatusIs(absl::StatusCode::kDataLoss, "header"));
}

TEST(SafetensorsTest, EveryTruncationIsRefused) {
  const std::string bytes = SafetensorsBytes({{"a", {{2}, {1.0f, 2.0f}}}, {"b", {{1}, {3.0f}}}});
  ASSERT_THAT(ParseSafetensors(bytes), IsOk());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ParseSafetensors(absl::string_view(bytes).substr(0, size)).ok()) << size;
  }
}

TEST(SafetensorsTest, AMissingFileIsNotFound) {
  EXPECT_THAT(ReadSafetensors("/nonexistent/model.safetensors"),
              StatusIs(absl::StatusCode::kNotFound, "/nonexistent"));
}

class ModelTensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = *ParseModelConfig(testing::SmallConfigJson());
    tensors_ = SyntheticTensors(config_, 1);
  }
  ModelConfig config_;
  TensorMap tensors_;
};

TEST_F(ModelTensorsTest, AMissingTensorIsNamed) {
  tensors_.erase("layers.1.groups.0.beta");
  EXPECT_THAT(Model::Create(config_, tensors_),
              StatusIs(kInvalid, "tensor layers.1.groups.0.beta is missing"));
}

TEST_F(ModelTensorsTest, AnExtraTensorIsNamed) {
  tensors_["layers.9.extra"] = {{1}, {1.0f}};
  EXPECT_THAT(Model::Create(config_, tensors_), StatusIs(kInvalid, "tensor layers.9.extra"));
}

TEST_F(ModelTensorsTest, AWrongShapeIsNamedWithBothShapes) {
  tensors_["final_norm.weight"].shape = {8, 2};
  EXPECT_THAT(Model::Create(config_, tensors_),
              StatusIs(kInvalid,
                       "tensor final_norm.weight: shape must be [16] as the config says, "
                       "got [8, 2]"));
}

TEST_F(ModelTensorsTest, TheDigestCoversConfigAndEveryWeight) {
  ASSERT_OK_AND_ASSIGN(const auto model, Model::Create(config_, tensors_));
  ASSERT_OK_AND_ASSIGN(const auto same, Model::Create(config_, tensors_));
  EXPECT_EQ(model->digest(), same->digest());
  for (auto& [name, tensor] : tensors_) {
    const float before = tensor.values.back();
    tensor.values.back() = before + 1.0f;
    ASSERT_OK_AND_ASSIGN(const auto changed, Model::Create(config_, tensors_));
    EXPECT_NE(changed->digest(), model->digest()) << name;
    tensor.values.back() = before;
  }
  config_.norm_eps = 2e-6;
  ASSERT_OK_AND_ASSIGN(const auto changed, Model::Create(config_, tensors_));
  EXPECT_NE(changed->digest(), model->digest());
}

// The header loses an entry and the data stay: without the name it looks like a gap.
TEST_F(ModelTensorsTest, LoadNamesATensorThatTheHeaderLacks) {
  const std::string directory = testing::WriteModelDirectory(::testing::TempDir() + "/lethe-lacks",
                                                             testing::SmallConfigJson());
  const std::string path = directory + "/model.safetensors";
  ASSERT_OK_AND_ASSIGN(std::string bytes, ReadWholeFile(path));
  const std::string name = "\"layers.0.wq.weight\":";
  const size_t begin = bytes.find(name);
  ASSERT_NE(begin, std::string::npos);
  const size_t end = bytes.find("},", begin) + 2;
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(begin),
            bytes.begin() + static_cast<std::ptrdiff_t>(end), ' ');
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_THAT(Model::Load(directory), StatusIs(kInvalid, "tensor layers.0.wq.weight is missing"));
}

TEST_F(ModelTensorsTest, LoadReadsWhatWasWritten) {
  const std::string directory = testing::WriteModelDirectory(::testing::TempDir() + "/lethe-load",
                                                             testing::SmallConfigJson());
  ASSERT_OK_AND_ASSIGN(const auto loaded, Model::Load(directory));
  EXPECT_EQ(loaded->digest(), testing::SmallModel()->digest());
  EXPECT_THAT(Model::Load(directory + "/none"), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace lethe
