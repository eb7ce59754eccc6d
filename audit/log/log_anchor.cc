#include "audit/log/log_anchor.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "audit/crypto/encoding.h"
#include "audit/log/decimal.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

constexpr char kAnchorFile[] = "log.anchor";
constexpr char kAnchorLockFile[] = "log.anchor.lock";
constexpr char kAnchorMagic[] = "lethe log anchor 1";
constexpr size_t kAnchorBytesMax = size_t{8} << 20;
constexpr size_t kNumAnchorLines = 8;

absl::Status DamagedAnchor() { return absl::DataLossError("the log's anchor is damaged"); }

}  // namespace

std::string WriteAnchorText(const AnchorState& state) {
  std::string text =
      absl::StrCat(kAnchorMagic, "\n", state.vkey, "\n", state.tree_size, "\n",
                   Base64Encode(state.root_hash), "\n", state.ticket, "\n", state.previous_ticket,
                   "\n", Base64Encode(state.leaf), "\n", Base64Encode(state.body), "\n");
  absl::StrAppend(&text, HexEncode(Sha256Of(text)), "\n");
  return text;
}

absl::StatusOr<AnchorState> ParseAnchorText(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (lines.size() != kNumAnchorLines + 2 || lines[0] != kAnchorMagic || !lines.back().empty()) {
    return DamagedAnchor();
  }
  const size_t signed_bytes = text.size() - lines[kNumAnchorLines].size() - 1;
  if (HexEncode(Sha256Of(text.substr(0, signed_bytes))) != lines[kNumAnchorLines])
    return DamagedAnchor();
  AnchorState state;
  state.vkey = std::string(lines[1]);
  const absl::StatusOr<uint64_t> tree_size = ParseDecimal(lines[2]);
  const absl::StatusOr<std::string> root = Base64Decode(lines[3]);
  absl::StatusOr<std::string> leaf = Base64Decode(lines[6]);
  absl::StatusOr<std::string> body = Base64Decode(lines[7]);
  if (!tree_size.ok() || !root.ok() || root->size() != kSha256Bytes || !leaf.ok() || !body.ok()) {
    return DamagedAnchor();
  }
  state.tree_size = *tree_size;
  LETHE_ASSIGN_OR_RETURN(state.root_hash, DigestFromBytes(*root));
  state.ticket = std::string(lines[4]);
  state.previous_ticket = std::string(lines[5]);
  state.leaf = *std::move(leaf);
  state.body = *std::move(body);
  return state;
}

absl::StatusOr<std::unique_ptr<LogAnchor>> LogAnchor::Open(const std::string& directory) {
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<DurableDirectory> opened,
                         DurableDirectory::Lock(directory, kAnchorLockFile, "the log's anchor"));
  return std::unique_ptr<LogAnchor>(new LogAnchor(std::move(opened)));
}

std::string LogAnchor::path() const { return absl::StrCat(directory_->path(), "/", kAnchorFile); }

absl::StatusOr<AnchorState> LogAnchor::Read() const {
  LETHE_ASSIGN_OR_RETURN(const std::string text, directory_->Read(kAnchorFile, kAnchorBytesMax));
  return ParseAnchorText(text);
}

absl::Status LogAnchor::Write(const AnchorState& state) const {
  return directory_->Replace(kAnchorFile, WriteAnchorText(state), 0600);
}

}  // namespace lethe::audit
