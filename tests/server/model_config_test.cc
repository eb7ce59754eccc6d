// Goal: a config.json is accepted only when every key is known, present, of its type and in range, and
// an error names the key.
// Method: one valid document; a table of single edits, each with the text that the error must hold.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"

#include "server/model/config.h"
#include "server/model/expected_tensors.h"
#include "tests/testing/small_model.h"
#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

using ::lethe::testing::StatusIs;

struct Edit {
  std::string name;
  std::string from;  // empty: the whole document is `to`
  std::string to;
  std::string error;  // text that the message must hold
};

class ModelConfigEditTest : public ::testing::TestWithParam<Edit> {};

TEST_P(ModelConfigEditTest, IsRefusedByName) {
  const Edit& edit = GetParam();
  std::string json = testing::SmallConfigJson();
  if (edit.from.empty()) {
    json = edit.to;
  } else {
    const size_t at = json.find(edit.from);
    ASSERT_NE(at, std::string::npos);
    json.replace(at, edit.from.size(), edit.to);
  }
  EXPECT_THAT(ParseModelConfig(json), StatusIs(absl::StatusCode::kInvalidArgument, edit.error));
}

INSTANTIATE_TEST_SUITE_P(
    Edits, ModelConfigEditTest,
    ::testing::Values(
        Edit{"Empty", "", " ", "well-formed"}, Edit{"Array", "", "[]", "JSON object"},
        Edit{"Truncated", "", "{\"format\": ", "well-formed"},
        Edit{"Trailing", "\"format\"", "\"format\": 1} \"format\"", "well-formed"},
        Edit{"Format", "lethe-model/1", "lethe-model/2", "format must be one of"},
        Edit{"UnknownKey", "\"name\"", "\"extra\": 1, \"name\"", "extra is not a known key"},
        Edit{"DuplicateKey", "\"name\"", "\"name\": \"a\", \"name\"", "\"name\" twice"},
        Edit{"MissingWidth", "\"width\": 16,", "", "width is missing"},
        Edit{"WidthType", "\"width\": 16", "\"width\": \"16\"", "width must be a multiple of 8"},
        Edit{"WidthReal", "\"width\": 16", "\"width\": 16.5", "width must be"},
        Edit{"WidthNotMultiple", "\"width\": 16", "\"width\": 20", "multiple of 8 in 8 ... 4096"},
        Edit{"WidthHuge", "\"width\": 16", "\"width\": 18446744073709551615", "width must be"},
        Edit{"WidthNegative", "\"width\": 16", "\"width\": -8", "width must be"},
        Edit{"Vocab", "\"vocab_size\": 32", "\"vocab_size\": 65537",
             "vocab_size must be an integer in 1 ... 65536"},
        Edit{"EndOfText", "\"end_of_text\": 0", "\"end_of_text\": 32", "end_of_text must be"},
        Edit{"Tokenizer", "\"bytes\"", "\"bpe\"", "tokenizer must be one of \"bytes\""},
        Edit{"Name", "\"small\"", "\"a/b\"", "name must be"},
        Edit{"Eps", "1e-6", "0", "norm_eps must be a number"},
        Edit{"EpsOverflow", "1e-6", "1e999", "well-formed"},
        Edit{"LayerType", "\"type\": \"local\"", "\"type\": \"conv\"", "layers[0].type must be"},
        Edit{"LayerKey", "\"mlp_width\": 16, \"alibi", "\"mlp_width\": 16, \"x\": 1, \"alibi",
             "layers[0].x is not a known key"},
        Edit{"LayerNotObject", "\"layers\": [", "\"layers\": [7,",
             "layers[0] must be a JSON object"},
        Edit{"Slopes", "[0.05, 0.25]", "[0.05]", "layers[0].alibi_slopes must be an array of 2"},
        Edit{"SlopesNegative", "[0.05, 0.25]", "[0.05, -0.25]", "layers[0].alibi_slopes"},
        Edit{"ConvWidth", "\"conv_width\": 4", "\"conv_width\": 9",
             "layers[0].conv_width must be an integer in 1 ... 8"},
        Edit{"Window", "\"window\": 9", "\"window\": 1025", "layers[0].window"},
        Edit{"Kind", "\"kind\": \"sv\"", "\"kind\": \"svm\"", "layers[1].groups[0].kind must be"},
        Edit{"KindKey", "\"rank\": 2}", "\"rank\": 2, \"slots\": 4}",
             "layers[1].groups[1].slots is not a known key"},
        Edit{"Sigma", "\"sigma\": 1.0", "\"sigma\": 0", "layers[1].groups[0].sigma"},
        Edit{"BoxMass", "20.5", "0.5", "layers[1].groups[0].box_mass"},
        Edit{"Ridge", "0.00048828125", "1e-9", "layers[1].groups[0].ridge"},
        Edit{"Heads", "\"heads\": 2, \"key_dim\"", "\"heads\": 65, \"key_dim\"",
             "layers[1].groups[0].heads must be an integer in 1 ... 64"},
        Edit{"Rank", "\"rank\": 2", "\"rank\": 257", "rank must be an integer in 1 ... 256"},
        Edit{"Metaplasticity", "\"metaplasticity\": true", "\"metaplasticity\": 1",
             "metaplasticity must be true or false"},
        Edit{"OutNorm", "\"metaplasticity\": true",
             "\"metaplasticity\": true, \"out_norm\": \"layer\"",
             "layers[1].groups[2].out_norm must be one of \"head\", \"group\""},
        Edit{"OutNormElsewhere", "\"rank\": 2}", "\"rank\": 2, \"out_norm\": \"group\"}",
             "layers[1].groups[1].out_norm is not a known key"},
        Edit{"Variant", "\"variant\": \"rls\"", "\"variant\": \"v3\"", "variant must be one of"},
        Edit{"Slots", "\"slots\": 12", "\"slots\": 1", "slots must be an integer in 2 ... 65536"}),
    [](const ::testing::TestParamInfo<Edit>& tested) { return tested.param.name; });

TEST(ModelConfigTest, LayersMustNotBeEmptyOrTooMany) {
  const std::string head =
      testing::SmallConfigJson().substr(0, testing::SmallConfigJson().find("\"layers\": [") + 11);
  EXPECT_THAT(ParseModelConfig(head + "]}"),
              StatusIs(absl::StatusCode::kInvalidArgument, "layers must be an array of 1 ... 64"));
  std::string many = head;
  for (int i = 0; i < 65; ++i) {
    many += std::string(i == 0 ? "" : ",") + "{\"type\": \"mlp\", \"mlp_width\": 8}";
  }
  EXPECT_THAT(ParseModelConfig(many + "]}"),
              StatusIs(absl::StatusCode::kInvalidArgument, "layers must be an array"));
}

TEST(ModelConfigTest, DeepNestingIsRefused) {
  EXPECT_THAT(ParseModelConfig(std::string(100000, '[')),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ModelConfigTest, ErrorsHoldNoUnprintableKey) {
  const auto config = ParseModelConfig("{\"\\u0007secret\\n\": 1}");
  EXPECT_THAT(config, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(std::string(config.status().message()).find('\n'), std::string::npos);
}

TEST(ModelConfigTest, CanonicalJsonIgnoresSpelling) {
  const std::string json = testing::SmallConfigJson();
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseModelConfig(json));
  const std::string spelled = absl::StrReplaceAll(
      json, {{"1e-6", "0.000001"}, {"\"sigma\": 1.0", "\"sigma\": 1"}, {": ", " : "}});
  ASSERT_OK_AND_ASSIGN(const ModelConfig other, ParseModelConfig(spelled));
  EXPECT_EQ(config.CanonicalJson(), other.CanonicalJson());
  ASSERT_OK_AND_ASSIGN(const ModelConfig again, ParseModelConfig(config.CanonicalJson()));
  EXPECT_EQ(again.CanonicalJson(), config.CanonicalJson());
}

TEST(ModelConfigTest, OutNormMayBeLeftOut) {
  const std::string heads = "\"kind\": \"palimpsa_m\", \"heads\": 1";
  const std::string json = absl::StrReplaceAll(testing::SmallConfigJson(),
                                               {{heads, "\"kind\": \"palimpsa_m\", \"heads\": 3"}});
  const auto with = [&](const char* out_norm) {
    return absl::StrReplaceAll(
        json, {{"\"metaplasticity\": true",
                absl::StrCat("\"metaplasticity\": true, \"out_norm\": ", out_norm)}});
  };
  ASSERT_OK_AND_ASSIGN(const ModelConfig absent, ParseModelConfig(json));
  ASSERT_OK_AND_ASSIGN(const ModelConfig head, ParseModelConfig(with("\"head\"")));
  ASSERT_OK_AND_ASSIGN(const ModelConfig group, ParseModelConfig(with("\"group\"")));
  EXPECT_EQ(head.CanonicalJson(), absent.CanonicalJson());
  ASSERT_OK_AND_ASSIGN(const ModelConfig again, ParseModelConfig(group.CanonicalJson()));
  EXPECT_EQ(again.CanonicalJson(), group.CanonicalJson());
  EXPECT_NE(group.CanonicalJson(), head.CanonicalJson());
  // One gain for each of the three heads' 8 values.
  EXPECT_EQ(group.num_parameters, head.num_parameters + 16);
}

TEST(ModelConfigTest, DerivesBoundedLayersAndReceptiveField) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig small, ParseModelConfig(testing::SmallConfigJson()));
  EXPECT_TRUE(std::get<MemoryLayerConfig>(small.layers[1]).bounded);
  EXPECT_EQ(small.local_receptive_field, 1 + (9 - 1) + (4 - 1) + (4 - 1));
  ASSERT_OK_AND_ASSIGN(const ModelConfig deep, ParseModelConfig(testing::ContextualConfigJson()));
  EXPECT_TRUE(std::get<MemoryLayerConfig>(deep.layers[0]).bounded);
  EXPECT_FALSE(std::get<MemoryLayerConfig>(deep.layers[2]).bounded);
  EXPECT_EQ(deep.local_receptive_field, 1 + (4 - 1));
}

TEST(ModelConfigTest, CountsParameters) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseModelConfig(testing::StreamingConfigJson()));
  int64_t count = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    int64_t size = 1;
    for (const int64_t dim : spec.shape) size *= dim;
    count += size;
  }
  EXPECT_EQ(config.num_parameters, count);
  EXPECT_GT(count, 2 * 32 * 16);
}

}  // namespace
}  // namespace lethe
