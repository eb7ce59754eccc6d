// Goal: --json prints what docs/cli.md says: names, enums, hashes, times, optional fields.
// Method: messages of each kind against the expected JSON text.
#include "client/commands/proto_json.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "client/commands/digest_file.h"
#include "client/inputs_file.h"
#include "gmock/gmock.h"

#include "lethe/v1/forgetting.pb.h"
#include "lethe/v1/generation.pb.h"
#include "lethe/v1/session.pb.h"
#include "tests/testing/status_matchers.h"

namespace lethe::client {
namespace {

using ::lethe::testing::StatusIs;

TEST(ProtoJsonTest, WritesScalarsEnumsBytesAndTimes) {
  v1::Input input;
  input.set_token_id(UINT64_MAX);
  input.set_rank(3);
  input.set_kind(v1::INPUT_KIND_GENERATED);
  input.set_text("\x01z");
  EXPECT_EQ(MessageToJson(input).dump(),
            R"({"token_id":18446744073709551615,"rank":3,"kind":"generated","subject":"",)"
            R"("derived":false,"text":"017a","vocab_id":0})");
  v1::Session session;
  session.mutable_create_time()->set_seconds(1);
  EXPECT_EQ(MessageToJson(session)["create_time"], "1970-01-01T00:00:01Z");
}

TEST(ProtoJsonTest, LeavesOutUnsetOptionalAndOneofFields) {
  v1::GenerateResponse event;
  event.mutable_delta()->add_tokens()->set_vocab_id(7);
  EXPECT_EQ(MessageToJson(event).dump(),
            R"({"delta":{"text":"","raw":"","tokens":[{"token_id":0,"vocab_id":7,)"
            R"("top_logprobs":[]}]}})");
}

TEST(ProtoJsonTest, NamesUnknownEnumValuesByNumber) {
  EXPECT_EQ(EnumName(v1::DerivedPolicy_descriptor(), v1::DERIVED_POLICY_FORGET_DERIVED),
            "forget_derived");
  EXPECT_EQ(EnumName(v1::DerivedPolicy_descriptor(), 99), "99");
}

TEST(InputsFileTest, ReadsBackWhatItWrote) {
  InputsFile file{.model = "lethe-tiny", .memory_options = {}, .vocab_ids = {0, 255, 2147483647}};
  file.memory_options.set_sv_ridge(0.1);
  file.memory_options.set_ovq_slots(64);
  ASSERT_OK_AND_ASSIGN(const InputsFile read, ParseInputsFile(WriteInputsFile(file)));
  EXPECT_EQ(read.model, file.model);
  EXPECT_EQ(read.vocab_ids, file.vocab_ids);
  EXPECT_EQ(read.memory_options.sv_ridge(), 0.1);
  EXPECT_EQ(read.memory_options.ovq_slots(), 64);
  EXPECT_FALSE(read.memory_options.has_sv_sigma());
}

TEST(InputsFileTest, ReadsBackVectorsBitForBit) {
  VectorInputs vectors;
  vectors.options.set_key_dim(2);
  vectors.options.set_value_dim(1);
  vectors.options.set_sigma(0.1);
  vectors.options.set_box_mass(409.6);
  vectors.options.set_ridge(0x1.0p-11);
  vectors.rows.keys = {
      .num_rows = 2, .num_columns = 2, .values = {0.1, -0.0, 5e-324, 0x1.fffffffffffffp399}};
  vectors.rows.values = {.num_rows = 2, .num_columns = 1, .values = {1.0 / 3.0, -2e10}};
  InputsFile file;
  file.vectors = vectors;
  ASSERT_OK_AND_ASSIGN(const InputsFile read, ParseInputsFile(WriteInputsFile(file)));
  ASSERT_TRUE(read.vectors.has_value());
  EXPECT_EQ(read.num_inputs(), 2u);
  EXPECT_EQ(read.vectors->options.SerializeAsString(), vectors.options.SerializeAsString());
  EXPECT_EQ(read.vectors->rows.keys.values, vectors.rows.keys.values);
  EXPECT_TRUE(std::signbit(read.vectors->rows.keys.values[1]));
  EXPECT_EQ(read.vectors->rows.values.values, vectors.rows.values.values);
}

TEST(InputsFileTest, RefusesOtherVectors) {
  const std::string head = R"({"format":"https://lethe.dev/inputs/v1","vector_options":)";
  const std::string options = R"({"key_dim":2,"value_dim":1,"sigma":1})";
  for (const auto& [rest, field] : std::vector<std::pair<std::string, std::string>>{
           {"7}", "vector_options: want an object"},
           {R"({"key_dim":"2"}})", "vector_options: want only key_dim"},
           {R"({"key_dim":0}})", "vector_options: want key_dim"},
           {options + "}", "keys: want a list of rows of 2 numbers"},
           {options + R"(,"keys":[[1]]})", "keys: want"},
           {options + R"(,"keys":[[1,"x"]]})", "keys: want"},
           {options + R"(,"keys":[[1,2]],"values":[]})", "values: want as many rows as keys"},
           {options + R"(,"keys":[[1,2]],"values":[[1,2]]})", "values: want a list of rows"}}) {
    EXPECT_THAT(ParseInputsFile(head + rest), StatusIs(absl::StatusCode::kInvalidArgument, field))
        << rest;
  }
}

TEST(InputsFileTest, RefusesOtherFiles) {
  const char* head = R"({"format":"https://lethe.dev/inputs/v1",)";
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"),
        std::string(R"({"format":"x","model":"m","memory_options":{},"vocab_ids":[]})"),
        std::string(head) + R"("memory_options":{},"vocab_ids":[]})",
        std::string(head) + R"("model":"m","vocab_ids":[]})",
        std::string(head) + R"("model":"m","memory_options":{}})",
        std::string(head) + R"("model":"m","memory_options":{"x":1},"vocab_ids":[]})",
        std::string(head) + R"("model":"m","memory_options":{},"vocab_ids":[-1]})",
        std::string(head) + R"("model":"m","memory_options":{},"vocab_ids":[2147483648]})",
        std::string(head) + R"("model":"m","memory_options":{},"vocab_ids":["1"]})"}) {
    EXPECT_THAT(ParseInputsFile(text), StatusIs(absl::StatusCode::kInvalidArgument, "inputs file"))
        << text;
  }
}

TEST(DigestFileTest, RefusesADigestThatIsNotThatOfItsParts) {
  audit::StateParts parts;
  parts.Add("session", "abc");
  v1::StateDigest proto;
  const audit::Sha256Digest digest = parts.Digest();
  proto.set_sha256(std::string(digest.begin(), digest.end()));
  v1::StateDigestPart* part = proto.add_parts();
  part->set_name("session");
  part->set_sha256(std::string(parts.parts()[0].hash.begin(), parts.parts()[0].hash.end()));
  EXPECT_OK(ParseDigestFile(MessageToJson(proto).dump()));
  EXPECT_OK(DigestFromProto(proto));
  part->set_name("sessioN");
  EXPECT_THAT(ParseDigestFile(MessageToJson(proto).dump()),
              StatusIs(absl::StatusCode::kInvalidArgument, "not that of the parts"));
  proto.clear_parts();
  EXPECT_THAT(ParseDigestFile(MessageToJson(proto).dump()),
              StatusIs(absl::StatusCode::kInvalidArgument, "parts"));
}

}  // namespace
}  // namespace lethe::client
