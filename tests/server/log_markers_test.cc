// Goal: the audit log tells nothing of what sessions hold: no text, subject label, session id or vector of theirs, in no file of the log
// nor in its anchor, under any plain encoding.
// Method: sessions with random markers in each of these places are certified and forget; then every file is searched for the markers, as bytes, in hex and
// in base64, and so is every envelope's decoded statement. Control: the request ids, which a statement does carry, are found there.
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "audit/certificate/dsse.h"
#include "audit/crypto/encoding.h"
#include "audit/log/merkle_tree.h"
#include "tests/server/durable_world.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

namespace fs = std::filesystem;

// 20 lowercase letters: no file holds them by chance.
std::string Marker(std::mt19937_64* random) {
  std::string marker;
  for (int i = 0; i < 20; ++i) marker.push_back(static_cast<char>('a' + (*random)() % 26));
  return marker;
}

// The bytes of a marker as they may stand: plain, in hex, in base64 at any of three places.
std::vector<std::string> Encodings(const std::string& marker) {
  std::vector<std::string> encodings = {marker, audit::HexEncode(marker)};
  for (size_t skip = 0; skip < 3; ++skip) {
    encodings.push_back(
        audit::Base64Encode(absl::string_view(marker).substr(skip, 18 - skip % 3 * 3)));
    while (encodings.back().back() == '=') encodings.back().pop_back();
  }
  return encodings;
}

class LogMarkersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(world_.Open());
    std::mt19937_64 random(20261130);
    for (int i = 0; i < 12; ++i) {
      const std::string session_id = world_.NewModelSession()->session_id;
      const std::string text = Marker(&random);
      const std::string subject = Marker(&random);
      const std::string request = Marker(&random);
      ASSERT_OK(world_.Append(session_id, text, subject, ""));
      ASSERT_OK(world_.RunCertify(session_id, request));
      ASSERT_OK(world_.Forget(session_id, subject, Marker(&random)));
      markers_.insert(markers_.end(), {text, subject, session_id});
      requests_.push_back(request);
    }
    for (uint64_t i = 0; i < world_.data->log()->num_leaves(); ++i) {
      ASSERT_OK_AND_ASSIGN(const std::string leaf, world_.data->log()->Leaf(i));
      ASSERT_OK_AND_ASSIGN(const std::string body,
                           world_.data->log()->Body(audit::MerkleLeafHash(leaf)));
      ASSERT_OK_AND_ASSIGN(const audit::DsseEnvelope envelope, audit::ParseEnvelope(body));
      statements_ += envelope.payload;
    }
    world_.Close();
    for (const std::string& root : {world_.data_path() + "/log", world_.data_path() + "-ledger"}) {
      for (const auto& file : fs::recursive_directory_iterator(root)) {
        if (file.is_regular_file()) files_ += audit::ReadFile(file.path().string());
      }
    }
  }

  DurableWorld world_;
  std::vector<std::string> markers_;
  std::vector<std::string> requests_;
  std::string statements_;
  std::string files_;
};

TEST_F(LogMarkersTest, NothingThatASessionHoldsIsInTheLog) {
  ASSERT_GT(files_.size(), 24u * 406);
  for (const std::string& marker : markers_) {
    for (const std::string& encoding : Encodings(marker)) {
      EXPECT_EQ(files_.find(encoding), std::string::npos) << encoding;
      EXPECT_EQ(statements_.find(encoding), std::string::npos) << encoding;
    }
  }
  for (const std::string& request : requests_) {
    EXPECT_NE(statements_.find(request), std::string::npos);
  }
}

}  // namespace
}  // namespace lethe::testing
