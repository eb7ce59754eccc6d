// Goal: session exports from outside never crash; what is accepted means one session, and its canonical content one text.
// Method: the bytes as the plain content, decoded, encoded and decoded again; the bytes as a sealed file under a fixed key,
// fed whole and in pieces.
#include <algorithm>
#include <string>

#include "kernels/base/check.h"
#include "server/session_export/export_content.h"
#include "server/session_export/export_stream.h"
#include "tests/fuzz/fuzz_targets.h"

namespace lethe::fuzz {
namespace {

VectorRows RowsOf(const ExportedSession& session) {
  VectorRows rows;
  if (session.model.has_value()) return rows;
  rows.keys = session.history.keys;
  rows.values = session.history.values;
  rows.key_dim = static_cast<size_t>(session.vectors.params.key_dim);
  rows.value_dim = static_cast<size_t>(session.vectors.value_dim);
  return rows;
}

bool Opens(absl::string_view bytes, size_t piece) {
  audit::Sha256Digest key{};
  key.fill('k');
  ExportOpener opener(audit::Secret32::FromBytes(key));
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
    if (!opener.Add(bytes.substr(0, piece)).ok()) return false;
  }
  return opener.Finish().ok();
}

}  // namespace

void FuzzExport(absl::string_view bytes) {
  if (const auto session = DecodeExport(bytes); session.ok()) {
    const std::string encoded = EncodeExport(*session, session->history.inputs, RowsOf(*session));
    const auto again = DecodeExport(encoded);
    LETHE_CHECK(again.ok());
    LETHE_CHECK(CanonicalContent(*again) == CanonicalContent(*session));
    LETHE_CHECK(EncodeExport(*again, again->history.inputs, RowsOf(*again)) == encoded);
  }
  LETHE_CHECK(Opens(bytes, bytes.size() + 1) == Opens(bytes, 7));
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzExport)
