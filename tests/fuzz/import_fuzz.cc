// Goal: no content of a session export, however it got under the key, ends the server or leaves half a session: an import is a
// session with the digest that it answers and a history that exports to the same content, or it changes nothing.
// Method: a flag byte, then the plain content. Decoded and imported as a new session or in the place of one; with flags the numerics
// id is another one, so that a changed history is evaluated instead of refused by its digest, and the model's digest that of the loaded one. The content also goes through
// sealing and opening, cut anywhere.
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "server/error/error_info.h"
#include "server/session_export/export_stream.h"
#include "server/session_export/session_transfer.h"
#include "tests/fuzz/fuzz_bytes.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/server/serving_testing.h"

namespace lethe::fuzz {
namespace {

constexpr uint8_t kReplace = 1;
constexpr uint8_t kOtherNumerics = 2;
constexpr uint8_t kThisModel = 4;
constexpr int64_t kVectorsMax = 64;

audit::Secret32 ExportKey() {
  audit::Sha256Digest key{};
  key.fill('k');
  return audit::Secret32::FromBytes(key);
}

std::string Opened(const std::string& file, size_t piece) {
  ExportOpener opener(ExportKey());
  for (size_t at = 0; at < file.size(); at += piece) {
    LETHE_CHECK(opener.Add(absl::string_view(file).substr(at, piece)).ok());
  }
  return opener.Finish().value();
}

// A registry with one session of each kind.
class ImportWorld {
 public:
  ImportWorld() : old_model_(testing::NewEntry(&sessions_)), old_vectors_(NewVectors()) {
    LETHE_CHECK(models_.Add(testing::TinyModel()).ok());
  }
  absl::StatusOr<ImportReceipt> Import(ExportedSession exported, bool replace) {
    ImportCommand command;
    const auto& old = exported.model.has_value() ? old_model_ : old_vectors_;
    if (replace) command.session_id = old->session_id;
    return ImportSession(
        std::move(exported), command, call_,
        {&sessions_, &scheduler_, &models_, kDefaultStoredInputBytes, kVectorsMax});
  }
  std::string Export(const std::shared_ptr<SessionEntry>& entry) {
    std::string file;
    const auto sink = [&](std::string piece) {
      file += piece;
      return absl::OkStatus();
    };
    LETHE_CHECK(ExportSession(ExportKey(), call_, &scheduler_, entry, sink).ok());
    return Opened(file, file.size());
  }
  // What is not to change when an import is refused.
  std::vector<audit::Sha256Digest> Digests() {
    std::vector<audit::Sha256Digest> digests;
    for (const auto& entry : sessions_.List("", 10)) digests.push_back(testing::DigestOf(entry));
    return digests;
  }

 private:
  std::shared_ptr<SessionEntry> NewVectors() {
    VectorOptions options;
    options.params = svdd::MakeParams(1, 2, 0x1.0p-11, 2).value();
    return sessions_.Create({nullptr, {}, "", options}, {}).value();
  }

  ModelSet models_;
  SessionRegistry sessions_{8};
  ComputeScheduler scheduler_{1};
  const testing::FakeCall call_;
  const std::shared_ptr<SessionEntry> old_model_;
  const std::shared_ptr<SessionEntry> old_vectors_;
};

void CheckSealing(const std::string& content) {
  std::string file;
  const auto sink = [&](std::string piece) {
    file += piece;
    return absl::OkStatus();
  };
  LETHE_CHECK(SealExport(ExportKey(), content, sink).ok());
  LETHE_CHECK(Opened(file, file.size()) == content && Opened(file, 13) == content);
}

}  // namespace

void FuzzImport(absl::string_view input) {
  FuzzBytes bytes(input);
  const uint8_t flags = bytes.Next();
  const std::string content = bytes.Rest();
  CheckSealing(content);
  absl::StatusOr<ExportedSession> exported = DecodeExport(content);
  if (!exported.ok()) return;
  if ((flags & kOtherNumerics) != 0) exported->numerics_id[0] ^= 1;
  if ((flags & kThisModel) != 0 && exported->model.has_value()) {
    exported->model->digest = testing::TinyModel()->digest();
    exported->model->name = testing::TinyModel()->config().name;
  }
  ImportWorld world;
  const std::vector<audit::Sha256Digest> before = world.Digests();
  const audit::Sha256Digest claimed = std::exchange(exported->state_digest, {});
  const std::string canonical = CanonicalContent(*exported);
  exported->state_digest = claimed;
  const absl::StatusOr<ImportReceipt> receipt =
      world.Import(*std::move(exported), (flags & kReplace) != 0);
  if (!receipt.ok()) {
    LETHE_CHECK(!ErrorInfoOf(receipt.status()).reason.empty());
    LETHE_CHECK(!absl::IsInternal(receipt.status()));
    LETHE_CHECK(world.Digests() == before);
    return;
  }
  LETHE_CHECK(testing::DigestOf(receipt->entry) == receipt->digest);
  LETHE_CHECK(receipt->reevaluated || receipt->digest == claimed);
  auto again = DecodeExport(world.Export(receipt->entry));
  LETHE_CHECK(again.ok() && again->state_digest == receipt->digest);
  again->state_digest = {};
  LETHE_CHECK(CanonicalContent(*again) == canonical);
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzImport)
