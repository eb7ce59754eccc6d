// Goal: canonical JSON has one text, the free syntax reads what other writers of envelopes produce,
// and neither reads anything else.
// Method: texts accepted and refused, in both syntaxes.
#include "audit/certificate/json.h"

#include <string>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(JsonTest, WritesSortedWithoutSpace) {
  const Json json = Json::MakeObject({{"b", Json::Bool(true)},
                                      {"a", Json::MakeArray({Json::String("x\"\\/"), Json()})},
                                      {"B", Json::MakeObject({})},
                                      {"a1", Json::MakeArray({})}});
  EXPECT_EQ(WriteJson(json), R"({"B":{},"a":["x\"\\/",""],"a1":[],"b":true})");
  EXPECT_OK(ParseJson(WriteJson(json), JsonSyntax::kCanonical));
}

TEST(JsonTest, FreeSyntaxReadsOtherWritersTexts) {
  ASSERT_OK_AND_ASSIGN(
      const Json json,
      ParseJson(" { \"b\" : [ ] ,\n\t\"a\":\"\\u002b\\/\\u003D\" }\r\n", JsonSyntax::kFree));
  EXPECT_EQ(WriteJson(json), R"({"a":"+/=","b":[]})");
}

TEST(JsonTest, CanonicalSyntaxRefusesThem) {
  for (const char* text :
       {" {}", "{} ", "{\"b\":\"\",\"a\":\"\"}", "[ ]", "[\"\", \"\"]", R"("\/")", R"("\u0041")"}) {
    EXPECT_OK(ParseJson(text, JsonSyntax::kFree)) << text;
    EXPECT_THAT(ParseJson(text, JsonSyntax::kCanonical), StatusIs(kInvalid)) << text;
  }
}

TEST(JsonTest, BothRefuseEverythingElse) {
  for (const char* text : {"",
                           " ",
                           "1",
                           "-1.5",
                           "null",
                           "nul",
                           "tru",
                           "True",
                           "\"",
                           "\"a",
                           "a",
                           "'a'",
                           "[",
                           "[\"\"",
                           "[\"\",]",
                           "[,]",
                           "{",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":\"\",}",
                           "{a:\"\"}",
                           "{\"a\":\"\"",
                           R"({"a":"","a":""})",
                           R"({"a":{"b":"","b":""}})",
                           R"("\x")",
                           R"("\n")",
                           R"("\u00e9")",
                           R"("\u12")",
                           R"("\u000a")",
                           R"("\u007f")",
                           "\"\x01\"",
                           "\"\xc3\xa9\"",
                           "\"\x7f\"",
                           "{}{}",
                           "{} x",
                           "[1]",
                           "[null]",
                           "truefalse"}) {
    for (const JsonSyntax syntax : {JsonSyntax::kCanonical, JsonSyntax::kFree}) {
      EXPECT_THAT(ParseJson(text, syntax), StatusIs(kInvalid, "JSON")) << text;
    }
  }
}

TEST(JsonTest, DepthIsLimited) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_OK(ParseJson(nested(kJsonDepthMax), JsonSyntax::kCanonical));
  EXPECT_THAT(ParseJson(nested(kJsonDepthMax + 2), JsonSyntax::kCanonical),
              StatusIs(kInvalid, "deep"));
  EXPECT_THAT(ParseJson(nested(1000000), JsonSyntax::kFree), StatusIs(kInvalid, "deep"));
}

}  // namespace
}  // namespace lethe::audit
