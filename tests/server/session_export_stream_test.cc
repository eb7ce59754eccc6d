// Goal: chunks of an export stay in their places and in their file; files that others write after the document are read.
// Method: pieces of two files put together in every wrong way; files written by a script without our code.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/session_export/export_content.h"
#include "server/session_export/export_stream.h"
#include "tests/audit/temp_directory.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

const audit::Secret32& StreamKey() {
  static const auto* key = new audit::Secret32(audit::Secret32::Random());
  return *key;
}

std::string StreamReason(const absl::Status& status) {
  return GetErrorInfo(status).value_or(ErrorInfo{}).reason;
}

// The plain text of `chunks` chunks and a bit, as a file.
std::string SealedFile(size_t chunks, char fill) {
  std::string file;
  EXPECT_OK(SealExport(StreamKey(), std::string(chunks * kExportChunkBytes + 9, fill),
                       [&](std::string piece) {
                         file += piece;
                         return absl::OkStatus();
                       }));
  return file;
}

absl::Status OpenInPieces(const std::string& file, size_t piece, std::string* plain) {
  ExportOpener opener(StreamKey());
  for (size_t at = 0; at < file.size(); at += piece) {
    LETHE_RETURN_IF_ERROR(opener.Add(absl::string_view(file).substr(at, piece)));
  }
  LETHE_ASSIGN_OR_RETURN(*plain, opener.Finish());
  return absl::OkStatus();
}

TEST(ExportStreamTest, ChunksStayInTheirPlaces) {
  constexpr size_t kSealed = kExportChunkBytes + 28;
  const std::string a = SealedFile(3, 'a');
  const std::string b = SealedFile(3, 'b');
  const auto chunk = [&](const std::string& file, size_t i) {
    return file.substr(kExportHeaderBytes + i * kSealed, kSealed);
  };
  const std::string header = a.substr(0, kExportHeaderBytes);
  std::string plain;
  for (const size_t piece : {size_t{1} << 20, kSealed, size_t{1000}}) {
    ASSERT_OK(OpenInPieces(a, piece, &plain)) << piece;
    EXPECT_EQ(plain, std::string(3 * kExportChunkBytes + 9, 'a'));
  }
  const std::vector<std::string> wrong = {
      header + chunk(a, 1) + chunk(a, 0) + chunk(a, 2) + chunk(a, 3),  // order
      header + chunk(a, 0) + chunk(a, 2) + chunk(a, 3),                // one left out
      header + chunk(a, 0) + chunk(a, 0) + chunk(a, 1) + chunk(a, 2) + chunk(a, 3),
      header + chunk(a, 0) + chunk(a, 1) + chunk(a, 2),                // the end cut at a chunk
      header + chunk(a, 0) + chunk(b, 1) + chunk(a, 2) + chunk(a, 3),  // of another file
      header + chunk(b, 0) + chunk(b, 1) + chunk(b, 2) + chunk(b, 3),
      header + chunk(a, 3),
      header,
      a + chunk(a, 3)};
  for (size_t i = 0; i < wrong.size(); ++i) {
    EXPECT_EQ(StreamReason(OpenInPieces(wrong[i], 1 << 20, &plain)), "EXPORT_NOT_AUTHENTIC") << i;
  }
  // The same history sealed twice has nothing in common.
  EXPECT_NE(chunk(SealedFile(3, 'a'), 0), chunk(a, 0));
  ExportOpener other(audit::Secret32::Random());
  EXPECT_EQ(StreamReason(other.Add(a)), "EXPORT_NOT_AUTHENTIC");
  ExportOpener small(StreamKey(), 2 * kExportChunkBytes);
  EXPECT_EQ(StreamReason(small.Add(a)), "EXPORT_TOO_LARGE");
}

// tests/fuzz/corpus/export was written by a script after docs/session-export.md, without our code.
TEST(ExportContentTest, FilesThatWereWrittenAfterTheDocumentAreRead) {
  const std::string folder = std::string(LETHE_SOURCE_DIR) + "/tests/fuzz/corpus/export/";
  const std::string vectors = audit::ReadFile(folder + "vectors");
  ASSERT_OK_AND_ASSIGN(const ExportedSession of_model,
                       DecodeExport(audit::ReadFile(folder + "model")));
  EXPECT_EQ(of_model.model->memory.ovq_slots, 4);
  EXPECT_EQ(of_model.model->memory.sv_box_mass, 8.0);
  EXPECT_FALSE(of_model.model->memory.sv_sigma.has_value());
  EXPECT_EQ(of_model.history.inputs.at(2).vocab_id, 99);
  EXPECT_EQ(of_model.history.inputs.subject(1), "patient");
  EXPECT_EQ(of_model.next_token_id, 9u);
  ASSERT_OK_AND_ASSIGN(const ExportedSession of_vectors, DecodeExport(vectors));
  EXPECT_THAT(of_vectors.history.keys, ::testing::ElementsAre(0.5, -1.0, 2.0, 0.25));
  EXPECT_TRUE(of_vectors.vectors.selection);
  EXPECT_OK(DecodeExport(audit::ReadFile(folder + "empty")).status());
  audit::Sha256Digest key{};
  key.fill('k');
  ExportOpener opener(audit::Secret32::FromBytes(key));
  ASSERT_OK(opener.Add(audit::ReadFile(folder + "sealed")));
  ASSERT_OK_AND_ASSIGN(const std::string plain, opener.Finish());
  EXPECT_EQ(plain, vectors);
}

}  // namespace
}  // namespace lethe::testing
